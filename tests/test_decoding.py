"""Search against brute force over a language small enough to list, and against itself in other batches."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dynctx.beam_search import NEVER, BeamSearch, Hypothesis, length_penalty
from dynctx.decoding import sample
from dynctx.subwords import BOS, EOS, SPECIAL
from dynctx.translators import sampling

WORDS = [7, 8, 9]
V = len(SPECIAL) + len(WORDS)


class Histories:
    """The cache of `Trigrams`: what each hypothesis consists of."""

    room = -1

    def __init__(self, rows: int, beam: int) -> None:
        self.rows, self.beam = rows, beam
        self.row = torch.arange(rows)
        self.tokens = torch.full((rows, beam, 1), BOS)  # before the first token lies a second BOS

    def descend(self, parents: Tensor) -> None:
        self.tokens = self.tokens.gather(1, parents[:, :, None].expand_as(self.tokens))

    def prune(self) -> None:
        """There is nothing here that some hypothesis does not need."""

    def keep(self, rows: Tensor) -> None:
        self.row, self.tokens = self.row[rows], self.tokens[rows]


class Trigrams:
    """Logits of the next token by row and the two last tokens: all that can be said can be listed."""

    def __init__(self, table: Tensor) -> None:
        self.table = table  # [rows, V, V, V]
        self.sizes: list[int] = []  # rows of each step

    @classmethod
    def random(cls, rows: int, seed: int, end: float = 0.0) -> Trigrams:
        table = 1.5 * torch.randn(rows, V, V, V, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        table[..., NEVER] += 4.0  # symbols that no translation contains would win everywhere
        table[..., EOS] += end
        return cls(table)

    def begin(self, beam: int) -> Any:
        return Histories(len(self.table), beam)

    def step(self, cache: Histories, tokens: Tensor) -> Tensor:
        self.sizes.append(len(tokens))
        cache.tokens = torch.cat([cache.tokens, tokens[:, :, None]], dim=2)
        return self.table[cache.row[:, None], cache.tokens[:, :, -2], cache.tokens[:, :, -1]]

    def next(self, row: int, ids: tuple[int, ...], temperature: float = 1.0) -> dict[int, float]:
        """Log-probability of each allowed next token."""
        before, last = (BOS, BOS, *ids)[-2:]
        logits = {token: float(self.table[row, before, last, token]) / temperature for token in [EOS, *WORDS]}
        total = math.log(sum(math.exp(logit) for logit in logits.values()))
        return {token: logit - total for token, logit in logits.items()}

    def score(self, row: int, ids: tuple[int, ...]) -> float:
        return sum(self.next(row, ids[:i])[token] for i, token in enumerate((*ids, EOS)))


def run(model: Any, beam: int, limits: list[int], alpha: float = 0.6, **options: Any) -> list[Hypothesis]:
    return BeamSearch(model, model.begin(beam), torch.tensor(limits), alpha, **options).run()


def penalised(score: float, ids: tuple[int, ...], alpha: float) -> float:
    return score / ((5 + len(ids) + 1) / 6) ** alpha  # EOS counts


def brute_force(model: Trigrams, row: int, limit: int, alpha: float) -> tuple[int, ...]:
    sequences = [ids for length in range(limit + 1) for ids in itertools.product(WORDS, repeat=length)]
    return max(sequences, key=lambda ids: penalised(model.score(row, ids), ids, alpha))


def plain_beam(model: Trigrams, row: int, beam: int, limit: int, alpha: float) -> tuple[int, ...]:
    """The search as its docstring tells it, with lists, and without the early stop."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, tuple[int, ...]]] = []
    for step in range(limit + 1):
        grown = [(s + p, (*ids, token)) for s, ids in live for token, p in model.next(row, ids).items()]
        grown.sort(reverse=True)
        ending = [
            (s, ids[:-1]) for rank, (s, ids) in enumerate(grown) if ids[-1] == EOS and (rank < beam or step == limit)
        ]
        finished += [(penalised(s, ids, alpha), ids) for s, ids in ending]
        live = [(s, ids) for s, ids in grown if ids[-1] != EOS][:beam]
    return max(finished)[1]


def test_length_penalty_by_hand() -> None:
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(19, 0.5) == 2.0  # (24 / 6) ** 0.5
    assert length_penalty(100, 0.0) == 1.0


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), alpha=st.sampled_from([0.0, 0.6, 1.0, 3.0]), end=st.sampled_from([-2.0, 0.0, 1.0]))
def test_a_beam_wide_enough_finds_the_best_of_all_sequences(seed: int, alpha: float, end: float) -> None:
    # before the limit there are at most 27 hypotheses of 4 continuations each: a beam of 128 drops none
    model = Trigrams.random(2, seed, end)
    for row, found in enumerate(run(model, 128, [4, 3], alpha)):
        ids = brute_force(model, row, [4, 3][row], alpha)
        assert tuple(found.ids) == ids
        assert found.log_probability == pytest.approx(model.score(row, ids), abs=1e-9)


def test_a_row_goes_on_while_the_longest_translation_could_still_win() -> None:
    """Its end counts too: ln 0.5 now, or ln 0.45 over 7/6 with the one word that the limit allows."""
    table = torch.full((1, V, V, V), -30.0, dtype=torch.float64)
    table[0, BOS, BOS, EOS], table[0, BOS, BOS, 7], table[0, BOS, BOS, 8] = (math.log(p) for p in (0.5, 0.45, 0.05))
    table[0, BOS, 7, EOS] = 0.0
    model = Trigrams(table)
    assert penalised(math.log(0.5), (), 1.0) < penalised(math.log(0.45), (7,), 1.0)
    assert [found.ids for found in run(model, 2, [1], alpha=1.0)] == [[7]]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), beam=st.integers(1, 6), alpha=st.sampled_from([0.0, 0.6, 2.0]))
def test_a_narrow_beam_equals_the_same_search_with_lists(seed: int, beam: int, alpha: float) -> None:
    model, limits = Trigrams.random(5, seed), [6, 0, 3, 6, 5]
    for row, found in enumerate(run(model, beam, limits, alpha)):
        if beam > 1:
            assert tuple(found.ids) == plain_beam(model, row, beam, limits[row], alpha)
        assert found.log_probability == pytest.approx(model.score(row, tuple(found.ids)), abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_greedy_search_takes_the_likeliest_token(seed: int) -> None:
    model, limits = Trigrams.random(4, seed), [5, 8, 2, 8]
    for row, found in enumerate(run(model, 1, limits)):
        ids: tuple[int, ...] = ()
        while len(ids) < limits[row]:
            scores = model.next(row, ids)
            token = max(scores, key=lambda t: scores[t])
            if token == EOS:
                break
            ids += (token,)
        assert tuple(found.ids) == ids


def test_a_beam_wider_than_the_vocabulary_is_filled() -> None:
    model = Trigrams.random(1, seed=0, end=3.0)  # ends rank high, and must not take the places of what goes on
    search = BeamSearch(model, model.begin(20), torch.tensor([9]), 0.6)  # type: ignore[arg-type]
    for step in range(3):
        search.advance()
        prefixes = itertools.product(WORDS, repeat=step + 1)
        scores = [sum(model.next(0, ids[:i])[token] for i, token in enumerate(ids)) for ids in prefixes]
        live = search.scores[0][search.scores[0] > -torch.inf]  # 3, 9, then 20 of 27
        assert live.tolist() == pytest.approx(sorted(scores, reverse=True)[:20], abs=1e-9)


def garden_path() -> Trigrams:
    """7 looks best at first (0.6 to 0.4), but all its endings are poor; those of 8 are good."""
    table = torch.full((1, V, V, V), -1000.0, dtype=torch.float64)
    table[0, BOS, BOS, [7, 8]] = torch.tensor([0.6, 0.4], dtype=torch.float64).log()
    table[0, BOS, 7, [EOS, 8, 9]] = torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64).log()
    table[0, BOS, 8, [EOS, 9]] = torch.tensor([0.9, 0.1], dtype=torch.float64).log()
    table[0, 7:, 7:, EOS] = 0.0
    return Trigrams(table)


def test_beam_search_by_hand() -> None:
    greedy, beam = (run(garden_path(), width, [3], alpha=0.0)[0] for width in (1, 2))
    assert (greedy.ids, beam.ids) == ([7], [8])
    assert greedy.log_probability == pytest.approx(math.log(0.6 * 0.4), abs=1e-6)
    assert beam.log_probability == pytest.approx(math.log(0.4 * 0.9), abs=1e-6)


def test_the_length_penalty_prefers_longer_sequences_by_hand() -> None:
    table = garden_path().table
    table[0, BOS, BOS, 8] = -1000.0
    # now 7 is sure; its end has log 0.4 = -0.916 over (7 / 6) ** alpha, 7 8 (or 7 9) log 0.3 = -1.204 over
    # (8 / 6) ** alpha: equal where (8 / 7) ** alpha = 1.204 / 0.916, at alpha = 2.05
    for alpha, length in ((2.0, 1), (2.1, 2)):
        assert len(run(Trigrams(table), 4, [3], alpha)[0].ids) == length


@pytest.mark.parametrize("beam", [1, 4])
def test_the_limit_forces_the_end_of_each_row(beam: int) -> None:
    model, limits = Trigrams.random(4, seed=3, end=-40.0), [0, 5, 1, 3]
    for row, found in enumerate(run(model, beam, limits)):
        assert len(found.ids) == limits[row]
        assert found.log_probability == pytest.approx(model.score(row, tuple(found.ids)), abs=1e-9)
        assert found.log_probability < -20  # the forced end is paid for


@pytest.mark.parametrize("beam", [1, 4])
def test_what_no_translation_contains_is_never_produced(beam: int) -> None:
    found = run(Trigrams.random(30, seed=5, end=-1.0), beam, [6] * 30)
    produced = {i for hypothesis in found for i in hypothesis.ids}
    assert produced == set(WORDS)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_forced_length_is_kept_whatever_the_model_says(beam: int) -> None:
    for end in (-40.0, 40.0):
        found = run(Trigrams.random(3, seed=1, end=end), beam, [9] * 3, forced_length=5)
        assert [len(hypothesis.ids) for hypothesis in found] == [5, 5, 5]


@pytest.mark.parametrize("beam", [1, 4])
def test_search_stops_when_nothing_can_be_overtaken(beam: int) -> None:
    model = Trigrams.random(3, seed=0, end=20.0)
    assert [found.ids for found in run(model, beam, [50] * 3)] == [[], [], []]
    assert model.sizes == [3]


def test_scores_are_the_same_in_float32() -> None:
    model = Trigrams.random(4, seed=8)
    single = Trigrams(model.table.float())
    for first, second in zip(run(model, 4, [6] * 4), run(single, 4, [6] * 4)):
        assert first.ids == second.ids
        assert first.log_probability == pytest.approx(second.log_probability, abs=1e-4)


# leaving the batch


@pytest.mark.parametrize("rows", [64, 70])
@pytest.mark.parametrize("beam", [1, 3])
def test_rows_that_leave_change_nothing_for_the_others(rows: int, beam: int) -> None:
    limits = np.random.default_rng(rows).integers(0, 25, rows).tolist()
    results, sizes = [], []
    for on_gpu in (False, True):
        model = Trigrams.random(rows, seed=9, end=-2.0)
        search = BeamSearch(model, model.begin(beam), torch.tensor(limits), 0.6)  # type: ignore[arg-type]
        assert search.on_gpu is False
        search.on_gpu = on_gpu
        results.append(search.run())
        sizes.append(model.sizes)
    assert results[0] == results[1]
    assert sorted(set(sizes[1]), reverse=True) == [rows, {64: 16, 70: 32}[rows]]  # a multiple of 16
    assert len(set(sizes[0])) > 2  # elsewhere a batch shrinks by as many as are done
    assert sizes[0][-1] < 16
    for row in range(0, rows, 5):
        alone = run(Trigrams(Trigrams.random(rows, seed=9, end=-2.0).table[row : row + 1]), beam, [limits[row]])
        assert alone[0] == results[0][row]


# sampling


def sequences(model: Trigrams, limit: int, temperature: float) -> dict[tuple[int, ...], float]:
    """The probability of every sequence of at most two words under a limit of two, where the end is forced."""
    probabilities = {}
    for length in range(limit + 1):
        for ids in itertools.product(WORDS, repeat=length):
            steps = (*ids, EOS) if length < limit else ids
            parts = [model.next(0, ids[:i], temperature)[token] for i, token in enumerate(steps)]
            probabilities[ids] = math.exp(sum(parts))
    return probabilities


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_samples_come_as_often_as_the_model_says(temperature: float) -> None:
    draws = 20_000
    one = Trigrams.random(1, seed=2)
    many = Trigrams(one.table.expand(draws, -1, -1, -1))
    torch.manual_seed(4)
    found = sample(many, many.begin(1), torch.full((draws,), 2), temperature)  # type: ignore[arg-type]
    counts = Counter(tuple(hypothesis.ids) for hypothesis in found)
    expected = {ids: draws * p for ids, p in sequences(one, 2, temperature).items()}
    assert sum(expected.values()) == pytest.approx(draws)
    assert set(counts) <= set(expected)
    chi_square = sum((counts[ids] - mean) ** 2 / mean for ids, mean in expected.items())
    assert chi_square < 32.9  # 12 degrees of freedom: one in a thousand lies above
    for hypothesis in found[:50]:  # the model's own probability, whatever the temperature
        assert hypothesis.log_probability == pytest.approx(one.score(0, tuple(hypothesis.ids)), abs=1e-4)


def test_a_low_temperature_is_greedy_search() -> None:
    model, limits = Trigrams.random(10, seed=6), [4, 0, 1, 2, 3, 6, 6, 6, 6, 6]
    cold = sample(model, model.begin(1), torch.tensor(limits), 1e-4)  # type: ignore[arg-type]
    assert [found.ids for found in cold] == [found.ids for found in run(model, 1, limits)]


def test_a_seed_makes_samples_repeatable() -> None:
    model = Trigrams.random(50, seed=6)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(sample(model, model.begin(1), torch.full((50,), 5)))  # type: ignore[arg-type]
    assert draws[0] == draws[1] != draws[2]


def test_when_rows_leave_does_not_change_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    model, limits = Trigrams.random(60, seed=6), torch.arange(60) % 30
    found = []
    for leaving in (0, 1000, None):  # nobody before the end, everybody at once, as it pays
        if leaving is not None:
            monkeypatch.setattr(sampling, "worth_leaving", lambda rows, on_gpu, few=leaving: few)
        else:
            monkeypatch.undo()
        torch.manual_seed(3)
        found.append(sample(model, model.begin(1), limits))  # type: ignore[arg-type]
    assert found[0] == found[1] == found[2]
    assert max(len(hypothesis.ids) for hypothesis in found[0]) > 8  # past the first look at who has ended


def test_few_rows_are_worth_leaving() -> None:
    assert [sampling.worth_leaving(rows, on_gpu=False) for rows in (2000, 7, 1)] == [1000, 3, 0]
    assert [sampling.worth_leaving(rows, on_gpu=True) for rows in (2000, 1024, 1023)] == [500, 256, 0]
