"""Selectors without learning: literal selections, and random ones that are random and yet always the same."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer
from dynctx.corpus import TokenStore
from dynctx.errors import DynctxError
from dynctx.planning import Shape, plan_epoch
from dynctx.selection.strategies import FORMS, Fixed, Random, _mix, parse_selector, uniform

SCOPE = 3


def store_of(*sizes: int) -> TokenStore:
    """Documents of so many sentences, whatever they say."""
    return TokenStore.from_ids([[([7], [8])] * size for size in sizes])


# two documents, sentences 0 1 2 | 3 4 5 6 7
TWO = store_of(3, 5)
PRESENT = ["000", "100", "110", "000", "100", "110", "111", "111"]  # column j is the sentence at distance j + 1


def batch_of(store: TokenStore, sentences: list[int] | range, scope: int = SCOPE) -> Batch:
    return Gatherer(store, scope).one_per_row(np.array(sentences))


def marks(selection: Tensor) -> list[str]:
    return ["".join(str(int(mark)) for mark in row) for row in selection.tolist()]


def select(text: str, batch: Batch, seed: int = 1, draw: int = 0) -> Tensor:
    return parse_selector(text, seed).select(batch, draw)


# fixed selections


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", ["000"] * 8),
        ("full", PRESENT),
        ("previous 1", ["000", "100", "100", "000", "100", "100", "100", "100"]),
        ("previous 2", ["000", "100", "110", "000", "100", "110", "110", "110"]),
        ("previous 3", PRESENT),
        ("previous 9", PRESENT),
    ],
)
def test_fixed_selections(text: str, expected: list[str]) -> None:
    batch = batch_of(TWO, range(8))
    assert marks(batch.present) == PRESENT
    assert marks(select(text, batch)) == expected
    assert select(text, batch).dtype == torch.bool
    assert marks(select(text, batch, seed=2, draw=5)) == expected


def test_selections_by_hand() -> None:
    """What does not exist is not selected: 1 has one candidate, 3 has none, and 9 is beyond the scope."""
    fixed = Fixed(parse_selector("previous 1", 1), {1: [1, 2], 2: [2], 3: [1], 6: [], 7: [3, 1, 9]})
    expected = ["000", "100", "010", "000", "100", "100", "000", "101"]
    assert marks(fixed.select(batch_of(TWO, range(8)))) == expected
    order = [7, 0, 2]  # by the number of the sentence, not by its row
    assert marks(fixed.select(batch_of(TWO, order))) == [expected[k] for k in order]
    batch = batch_of(TWO, range(8))
    Fixed(parse_selector("full", 1), {7: []}).select(batch)
    assert marks(batch.present) == PRESENT  # which `full` gives away, is not written into


def test_nothing_by_hand_and_no_scope() -> None:
    batch = batch_of(TWO, range(8))
    assert marks(Fixed(parse_selector("full", 1), {}).select(batch)) == PRESENT
    assert Fixed(parse_selector("full", 1), {1: [1]}).select(batch_of(TWO, range(8), scope=0)).shape == (8, 0)


@pytest.mark.parametrize("text", ["none", "full", "previous 2", "random 3", "random subset"])
def test_a_selector_is_named_as_it_is_written(text: str) -> None:
    assert parse_selector(text, 1).name == text
    assert parse_selector(f"  {text.replace(' ', '   ')} ", 1).name == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "all", "Full", "none none", "previous", "random", "previous 0", "random 0", "previous -1"),
        "previous " + "9" * 5000,  # more digits than Python turns into a number
        *("random 1.5", "previous two", "previous 2 3", "random subset 2", "subset", "previous ²", "random ①"),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(DynctxError) as caught:
        parse_selector(text, 1)
    said, _, meant = str(caught.value).partition("; did you mean ")
    assert said == f"selector {text!r}: expected one of: {', '.join(FORMS)}"
    assert not meant or meant[:-1] in FORMS
    assert all(form in FORMS for form in ("none", "full", "previous N", "random N", "random subset"))


def test_what_was_meant() -> None:
    with pytest.raises(DynctxError, match=r"; did you mean previous N\?$"):
        parse_selector("previus 2", 1)
    with pytest.raises(DynctxError, match=r"size-first N$"):
        parse_selector("nearest", 1)


# random selections


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_random_n_selects_n_where_so_many_exist(n: int) -> None:
    batch = batch_of(TWO, range(8))
    existing = [row.count("1") for row in PRESENT]
    for draw in range(50):
        selection = select(f"random {n}", batch, draw=draw)
        assert not (selection & ~batch.present).any()
        assert selection.sum(1).tolist() == [min(n, count) for count in existing]


def test_random_subset_selects_from_what_exists() -> None:
    batch = batch_of(TWO, range(8))
    seen: list[set[str]] = [set() for _ in range(8)]
    for draw in range(200):
        selection = select("random subset", batch, draw=draw)
        assert not (selection & ~batch.present).any()
        for row, mark in enumerate(marks(selection)):
            seen[row].add(mark)
    assert seen[0] == seen[3] == {"000"}
    assert seen[1] == seen[4] == {"000", "100"}
    assert seen[2] == seen[5] == {"000", "100", "010", "110"}
    assert [len(found) for found in seen[6:]] == [8, 8]


@pytest.mark.parametrize("text", ["random 2", "random subset"])
def test_random_selections_do_not_depend_on_the_batch(text: str) -> None:
    """Alone, in another order, twice in a batch, packed: always the same for (seed, draw, sentence)."""
    store = store_of(9, 1, 30)
    together = select(text, batch_of(store, range(40)), seed=3, draw=2)
    for sentences in ([39, 4, 17, 4, 0], [12], list(range(39, -1, -1))):
        assert torch.equal(select(text, batch_of(store, sentences), seed=3, draw=2), together[sentences])
    gatherer, shape = Gatherer(store, SCOPE), Shape(rows=20, source=6, target=6, context=18)
    plan = plan_epoch(gatherer.lengths(), np.asarray(store.usable), shape, seed=7, epoch=0)[0]
    packed = gatherer.gather(plan, shape)
    assert len(packed) > 20
    assert torch.equal(select(text, packed, seed=3, draw=2), together[packed.sentences])


def test_draws_seeds_and_sentences_are_independent_of_each_other() -> None:
    """Two picks of 1 in 6 that have nothing to do with each other agree one time in 6."""
    batch = batch_of(store_of(4006), range(6, 4006), scope=6)
    pick = select("random 1", batch, seed=1, draw=0).int().argmax(1)
    others = {
        "another draw": select("random 1", batch, seed=1, draw=1).int().argmax(1),
        "another seed": select("random 1", batch, seed=2, draw=0).int().argmax(1),
        "the next sentence": pick.roll(1),
        "the next sentence, but the same candidate": (pick.roll(1) + 1) % 6,
    }
    for name, other in others.items():
        # standard deviation sqrt(1/6 5/6 / 4000) = 0.0059
        assert float((pick == other).float().mean()) == pytest.approx(1 / 6, abs=0.025), name


@pytest.mark.parametrize(("n", "scope"), [(1, 6), (3, 6), (2, 3)])
def test_random_n_is_uniform_over_the_sets_of_candidates(n: int, scope: int) -> None:
    batch = batch_of(store_of(4000 + scope), range(scope, 4000 + scope), scope=scope)
    found = Counter(marks(select(f"random {n}", batch, seed=5)))
    sets = ["".join("1" if j in chosen else "0" for j in range(scope)) for chosen in combinations(range(scope), n)]
    expected = 4000 / len(sets)
    assert found.keys() == set(sets)
    assert all(abs(found[mark] - expected) < 5 * expected**0.5 for mark in sets)


@pytest.mark.parametrize("existing", [1, 2, 6])
def test_random_subset_is_uniform_over_sizes(existing: int) -> None:
    """Documents of existing + 1 sentences, of each the last: as many candidates, every size as often as any."""
    size = existing + 1
    batch = batch_of(store_of(*[size] * 3000), range(existing, 3000 * size, size), scope=6)
    assert batch.present.sum(1).unique().tolist() == [existing]
    selection = select("random subset", batch, seed=5)
    sizes = Counter(selection.sum(1).tolist())
    expected = 3000 / (existing + 1)
    assert sizes.keys() == set(range(existing + 1))
    assert all(abs(count - expected) < 5 * expected**0.5 for count in sizes.values())
    # and at every size each candidate is selected as often as any other (standard deviation at most 0.024)
    for size in range(1, existing):
        share = selection[selection.sum(1) == size, :existing].float().mean(0)
        assert torch.allclose(share, torch.full_like(share, size / existing), atol=0.1), size


def test_random_selectors_are_used_as_they_are_called() -> None:
    batch = batch_of(TWO, range(8))
    assert torch.equal(Random(2, seed=4).select(batch), Random(2, seed=4).select(batch, 0))
    assert torch.equal(Random(2, seed=4).select(batch, 3), select("random 2", batch, seed=4, draw=3))


# the numbers behind them

GAMMA, MASK = 0x9E3779B97F4A7C15, 2**64 - 1


def splitmix64(state: int) -> int:
    """Steele, Lea and Flood 2014, in whole numbers without end."""
    z = (state + GAMMA) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_the_hash_is_splitmix64() -> None:
    """The published first outputs for state 0 and 1234567, then against whole numbers without end."""
    assert int(_mix(torch.tensor(0))) & MASK == 0xE220A8397B1DCDAF
    states = [(1234567 + step * GAMMA) & MASK for step in range(3)]
    signed = torch.tensor([state - 2**64 if state >= 2**63 else state for state in states])
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [value & MASK for value in _mix(signed).tolist()] == published
    assert [splitmix64(state) for state in states] == published
    for sentence, column, seed, draw in [(0, 0, 1, 0), (5, 6, 1, 0), (123456, 3, 42, 17), (2**31, 1, 7, 3)]:
        state = splitmix64((sentence * 0x1000003 + column) & MASK)
        state = splitmix64((state + splitmix64(seed * 0x10001 + draw)) & MASK)
        found = uniform(torch.tensor([sentence]), 7, seed, draw)[0, column]
        assert float(found) == (state >> 11) / 2**53


def test_the_numbers_are_uniform() -> None:
    numbers = uniform(torch.arange(10_000), 7, seed=1, draw=0)
    assert numbers.shape == (10_000, 7) and numbers.dtype == torch.float64
    assert numbers.min() >= 0 and numbers.max() < 1
    assert len(numbers.unique()) == 70_000
    # mean 1/2 and variance 1/12, with standard deviations 0.0011 and 0.0003 over 70,000 numbers
    assert float(numbers.mean()) == pytest.approx(1 / 2, abs=0.005)
    assert float(numbers.var()) == pytest.approx(1 / 12, abs=0.0015)
    buckets = torch.histc(numbers, bins=20, min=0, max=1)  # 3,500 each, standard deviation 58
    assert (buckets - 3500).abs().max() < 290
    for column in range(7):
        assert float(numbers[:, column].mean()) == pytest.approx(1 / 2, abs=0.015)
    correlation = torch.corrcoef(numbers.T) - torch.eye(7)  # of columns: standard deviation 0.01
    assert correlation.abs().max() < 0.05
    following = torch.corrcoef(torch.stack([numbers[1:].flatten(), numbers[:-1].flatten()]))[0, 1]
    assert abs(float(following)) < 0.02


def test_what_a_file_says(tmp_path: Path) -> None:
    """Distances beyond the scope and before the document are nothing to select."""
    store = TokenStore.from_ids([[([7], [8])] * 3, [([9], [9])]])
    file = tmp_path / "chosen.jsonl"
    file.write_text('{"selected": [1]}\n{"selected": [2, 1]}\n{"selected": [2, 9]}\n{"selected": []}\n')
    batch = Gatherer(store, 2).one_per_row(np.array([2, 0, 1, 3]))
    selector = parse_selector(f"fixed {file}", 1)
    assert selector.name == f"fixed {file}"
    assert selector.select(batch).tolist() == [[False, True], [False, False], [True, False], [False, False]]
    other = Gatherer(TokenStore.from_ids([[([7], [8])] * 3]), 2).one_per_row(np.array([2]))
    with pytest.raises(DynctxError, match="4 lines for 3 sentences"):
        selector.select(other)
    file.write_text('{"selected": [1]}\n{"chosen": [1]}\n')
    with pytest.raises(DynctxError, match=r"chosen\.jsonl:2: expected a JSON object with .selected."):
        parse_selector(f"fixed {file}", 1)


def test_one_or_none_draws_each_as_often() -> None:
    """Of three candidates and none, a quarter each; of one and none, a half each."""
    store = TokenStore.from_ids([[([7], [8])] * 4] * 2000)
    batch = Gatherer(store, 3).one_per_row(np.arange(8000))
    found = parse_selector("random 1 or none", 5).select(batch).view(2000, 4, 3)
    assert (found.sum(2) <= 1).all() and not found[:, 0].any()
    assert found[:, 3].float().mean(0).tolist() == pytest.approx([0.25] * 3, abs=0.04)
    assert found[:, 1].float().mean(0).tolist() == pytest.approx([0.5, 0, 0], abs=0.04)
    again = parse_selector("random 1 or none", 5).select(batch, 1).view(2000, 4, 3)
    assert not torch.equal(found, again)
