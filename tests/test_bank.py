"""The bank: every context sentence encoded once, without gradient or dropout, and found again from every row."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from context_models import SCOPE, STORE, batch_of, packed, small_model
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import Plain

from dynctx.batches import Batch, Gatherer, with_targets
from dynctx.config import SanConfig
from dynctx.corpus import TokenStore
from dynctx.errors import DynctxError
from dynctx.planning import Shape, plan_epoch
from dynctx.subwords import BOS, EOS, PAD
from dynctx.translators.bank import Bank, Side, lay_pairs, lay_past, merge, own_memory, ranges, sentence_memory

quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)


# ranges


def test_ranges_by_hand() -> None:
    """Group 0 has [3, 5), [4, 6) and [6, 7), which touch, and [9, 10); group 1 has [0, 2) and an empty one."""
    rows = [(0, 9, 10), (1, 0, 2), (0, 3, 5), (0, 6, 7), (1, 5, 5), (0, 4, 6)]
    found = ranges(*np.array(rows).T)
    assert np.stack(found).T.tolist() == [[0, 3, 7], [0, 9, 10], [1, 0, 2]]


@quick
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(0, 5)), max_size=12))
def test_ranges_hold_the_same_members(rows: list[tuple[int, int, int]]) -> None:
    group, low, size = (np.array([row[k] for row in rows], np.int64) for k in range(3))
    found = list(zip(*(part.tolist() for part in ranges(group, low, low + size))))
    members = [(g, member) for g, a, b in found for member in range(a, b)]
    assert members == sorted({(g, a + k) for g, a, n in rows for k in range(n)})
    assert all(first[0] != second[0] or first[2] < second[1] for first, second in pairwise(found))


# where the context of a row lies


@st.composite
def corpora(draw: st.DrawFn) -> TokenStore:
    documents = draw(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=9), min_size=1, max_size=4))
    word = 7
    store = []
    for lengths in documents:
        pairs = []
        for length in lengths:
            pairs.append(([word + k for k in range(length)], [word] * (length % 3)))
            word += length
        store.append(pairs)
    return TokenStore.from_ids(store)


def numbered(store: TokenStore) -> Bank:
    """A bank of the whole store, in which a state is the place of its token."""
    starts = np.asarray(store.source_starts)
    ids = torch.from_numpy(np.asarray(store.source).astype(np.int64))
    side = Side(torch.arange(len(ids))[:, None], ids, None, starts[:-1], np.diff(starts))
    return Bank(np.arange(len(store)), side, None)


def batches(store: TokenStore, scope: int, run_length: int) -> list[Batch]:
    gatherer = Gatherer(store, scope, lay_context=False)
    shape = Shape(rows=3, source=9, target=9)
    usable, documents = np.asarray(store.usable), np.asarray(store.documents)
    plans = plan_epoch(gatherer.lengths(), usable, shape, 1, 0, run_length, documents)
    return [*(gatherer.gather(plan, shape) for plan in plans), gatherer.one_per_row(np.arange(len(store))[::-1].copy())]


@quick
@given(corpora(), st.integers(1, 5), st.sampled_from([1, 2, 64]))
def test_every_row_finds_its_candidates(store: TokenStore, scope: int, run_length: int) -> None:
    bank = numbered(store)
    for batch in batches(store, scope, run_length):
        past, pairs = (lay(batch, bank, bank.source, scope) for lay in (lay_past, lay_pairs))
        for n, sentence in enumerate(batch.sentences.tolist()):
            row = int((batch.source.sentence == n).any(1).nonzero())
            mine = pairs.sentence[row] == n
            assert not (pairs.sentence == n).sum() - mine.sum()  # nowhere else
            found = []
            for distance in range(scope, 0, -1):
                if not batch.present[n, distance - 1]:
                    continue
                expected = store.source_ids(sentence - distance)
                column = int(past.nearest[n]) - (distance - 1)
                assert 0 <= column < past.columns
                assert bank.source.read[past.index[row][past.column[row] == column]].tolist() == expected
                at = mine & (pairs.distance[row] == distance)
                assert bank.source.read[pairs.index[row][at]].tolist() == expected
                found += expected
            assert bank.source.read[pairs.index[row][mine]].tolist() == found
        used = past.index[past.column >= 0]
        rows = torch.arange(len(past.index))[:, None].expand_as(past.index)[past.column >= 0]
        assert len(set(zip(rows.tolist(), used.tolist()))) == len(used)  # in a row everything stands once


# what the bank holds


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("layout", ["packed", "rows"])
def test_states_are_those_of_each_sentence_alone(norm: str, layout: str) -> None:
    model = small_model("han", norm).train()  # and dropout is off all the same
    batch = packed() if layout == "packed" else batch_of(4, 6)
    bank = model.bank(batch)
    expected = [0, 1, 2, 3, 5] if layout == "packed" else [1, 2, 3, 5]  # of the batch, what anyone may look back to
    assert bank.numbers.tolist() == expected
    plain = Plain(model, 4, 2, norm)
    assert bank.target is not None and bank.target.said is not None
    for place, sentence in enumerate(bank.numbers.tolist()):
        ids, said = STORE.source_ids(sentence), STORE.target_ids(sentence)
        read = [BOS, *said[:-1]]
        source = slice(bank.source.begins[place], bank.source.begins[place] + len(ids))
        target = slice(bank.target.begins[place], bank.target.begins[place] + len(said))
        assert bank.source.read[source].tolist() == ids and bank.target.read[target].tolist() == read
        assert bank.target.said[target].tolist() == said
        states = plain.encode(ids)
        assert torch.allclose(bank.source.states[source], states, atol=1e-10, rtol=0)
        assert torch.allclose(bank.target.states[target], plain.decode(states, read), atol=1e-10, rtol=0)
    assert not bank.source.states.requires_grad and not bank.target.states.requires_grad
    assert all(module.training for module in model.modules())
    assert int((bank.source.read != PAD).sum()) == sum(len(STORE.source_ids(s)) for s in expected)  # each once


def test_one_bank_serves_every_selection() -> None:
    for kind in ("han", "san", "cadec"):
        model, batch = small_model(kind), packed()
        bank = model.bank(batch)
        for selection in (batch.present, torch.zeros_like(batch.present), None):
            own, given_bank = (model.encode(batch, selection, b).states for b in (None, bank))
            assert torch.equal(own, given_bank), kind


def test_a_bank_in_parts_is_the_same_bank() -> None:
    model = small_model("han")
    gatherer = Gatherer(STORE, SCOPE, lay_context=False)
    whole = model.bank_of(gatherer, np.arange(7))
    parts = merge([model.bank_of(gatherer, np.array(part)) for part in ([3, 5], [0, 1, 6], [2, 4])])
    assert parts.numbers.tolist() == list(range(7))
    for place in range(7):
        for one, other in ((whole.source, parts.source), (whole.target, parts.target)):
            assert one is not None and other is not None
            first, second = (
                slice(side.begins[place], side.begins[place] + side.lengths[place]) for side in (one, other)
            )
            assert torch.equal(one.read[first], other.read[second])
            assert torch.allclose(one.states[first], other.states[second], atol=1e-10, rtol=0)


def test_a_context_sentence_may_be_longer_than_the_rows() -> None:
    """What is too long to train on is still context."""
    long = [7 + k % 20 for k in range(150)]
    store = TokenStore.from_ids([[(long, long), ([8], [9])]], usable=[False, True])
    for kind in ("han", "san", "cadec"):
        model = small_model(kind)
        gatherer = Gatherer(store, SCOPE, lay_context=False)
        shape = Shape(rows=2, source=8, target=8)
        plan = plan_epoch(gatherer.lengths(), store.usable, shape, 1, 0)[0]
        batch = gatherer.gather(plan, shape)
        states = model.decode(model.encode(batch, batch.present), batch)
        alone = gatherer.one_per_row(np.array([1]))
        expected = model.decode(model.encode(alone, alone.present), alone)
        assert torch.allclose(states[0, :2], expected[0, :2], atol=1e-10, rtol=0), kind


@torch.no_grad()
def test_a_batch_without_candidates() -> None:
    """First sentences only: there is nothing to encode, and every selection is the empty one."""
    for kind in ("han", "san", "cadec"):
        model, batch = small_model(kind), batch_of(0, 5)
        states = model.encode(batch, torch.ones_like(batch.present)).states
        assert torch.equal(states, model.encode(batch).states) and torch.isfinite(states).all()


def test_a_batch_gathered_without_scope_is_refused() -> None:
    batch = Gatherer(STORE, 0).one_per_row(np.array([4]))
    for kind in ("han", "san", "cadec"):
        with pytest.raises(DynctxError, match=r"reads context.*scope 0"):
            small_model(kind).encode(batch)


@pytest.mark.parametrize("kind", ["han", "san", "cadec"])
@pytest.mark.parametrize("width", [2, 5])
def test_a_batch_with_fewer_or_more_candidates_than_the_scope(kind: str, width: int) -> None:
    """Fewer: the rest is not selected. More: what lies beyond the scope is not looked at."""
    model = small_model(kind)
    batches = [Gatherer(STORE, scope, lay_context=False).one_per_row(np.array([4, 3, 6])) for scope in (width, SCOPE)]
    nearer = torch.arange(SCOPE) < width
    selections = torch.ones_like(batches[0].present), torch.ones_like(batches[1].present) & nearer
    found = [model.decode(model.encode(b, chosen), b) for b, chosen in zip(batches, selections)]
    real = batches[0].target.sentence >= 0
    assert torch.allclose(found[0][real], found[1][real], atol=1e-10, rtol=0)


# under autocast


@pytest.mark.parametrize("kind", ["han", "san", "cadec"])
def test_rounded_weights_still_learn(kind: str) -> None:
    """Weights that are only used are rounded once; what was rounded for the bank must not be used for the gradient."""
    own = {"san": SanConfig(context_states="live_detached")}
    model, batch = small_model(kind, "pre", **own).float().train(), packed()
    with torch.autocast("cpu", torch.bfloat16):
        states = model.decode(model.encode(batch, batch.present), batch)
    states[batch.target.sentence >= 0].float().pow(2).sum().backward()
    parts = ["second_decoder"] if kind == "cadec" else ["encoder", "decoder"]
    checked = 0
    for name, parameter in model.named_parameters():
        if name.split(".")[0] in parts and "weight" in name:
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name
            checked += 1
    assert checked > 10


# batches with other targets


def test_with_targets_by_hand() -> None:
    batch = with_targets(batch_of(3, 0), [[8, 9], []])
    assert batch.target.ids.tolist() == [[8, 9, EOS] + [PAD] * 5, [EOS] + [PAD] * 7]
    assert batch.prefix.tolist() == [[BOS, 8, 9] + [PAD] * 5, [BOS] + [PAD] * 7]
    assert batch.target.sentence.tolist() == [[0] * 3 + [-1] * 5, [1] + [-1] * 7]
    assert batch.target.position.tolist() == [[0, 1, 2] + [0] * 5, [0] * 8]
    assert batch.target_tokens == 4 and batch.source.ids.tolist() == batch_of(3, 0).source.ids.tolist()


def test_a_packed_memory_with_one_sentence_a_row() -> None:
    model, batch = small_model("san"), packed()
    with torch.no_grad():
        memory = model.sentence_model().encode(batch)
        found = sentence_memory(batch, memory)
        expected = model.sentence_model().encode(Gatherer(STORE, SCOPE).one_per_row(batch.numbers))
    assert torch.equal(found.sentence >= 0, expected.sentence >= 0)
    assert torch.allclose(
        found.states[found.sentence >= 0], expected.states[expected.sentence >= 0], atol=1e-10, rtol=0
    )


def test_own_sentences_out_of_a_bank_are_as_if_encoded_again() -> None:
    """In training too, where what is encoded again would have dropout; a bank that lacks one of them cannot serve."""
    model, batch = small_model("san").train(), packed()
    assert own_memory(batch, model.bank(batch)) is None  # the last sentence of a document is nobody's candidate
    bank = model.bank_of(batch.origin, np.unique([*batch.numbers, 0]))
    found = own_memory(batch, bank)
    with torch.no_grad():
        expected = sentence_memory(batch, model.eval().context_model().encode(batch))
    assert found is not None and torch.equal(found.sentence, expected.sentence)
    real = expected.sentence >= 0
    assert torch.allclose(found.states[real], expected.states[real], atol=1e-10, rtol=0)
