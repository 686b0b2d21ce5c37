"""The oracle against trying every subset one by one, and its table on values made up by hand."""

from __future__ import annotations

import copy
from itertools import product

import numpy as np
import pytest
import torch
from tiny_models import PAIRS, SCOPE, tiny_model

from dynctx.batches import Gatherer
from dynctx.config import DecodingConfig
from dynctx.corpus import TokenStore
from dynctx.decoding import translate_pairs
from dynctx.errors import DynctxError
from dynctx.evaluation import oracle
from dynctx.evaluation.bleu import corpus_bleu, sentence_bleu
from dynctx.evaluation.oracle import Oracle, Values, all_subsets, value_of_subsets
from dynctx.evaluation.split import Given, Split
from dynctx.selection.strategies import parse_selector

INF = float("-inf")


def test_subsets_small_and_near_first() -> None:
    assert all_subsets(2).astype(int).tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]
    three = ["".join(map(str, row)) for row in all_subsets(3).astype(int).tolist()]
    assert three == ["000", "100", "010", "001", "110", "101", "011", "111"]
    assert all_subsets(0).shape == (1, 0)
    assert len(all_subsets(6)) == 64 and len({row.tobytes() for row in all_subsets(6)}) == 64
    with pytest.raises(DynctxError, match="10 is the most"):
        all_subsets(11)


def existing(split: Split, sentence: int) -> int:
    return min(SCOPE, split.place(sentence)[1] - 1)


def test_rewards_are_those_of_each_subset_alone() -> None:
    split = Split(tiny_model("tdnmt"), PAIRS)
    found = value_of_subsets(split, split.scorable, "reward")
    assert found.candidates.tolist() == [existing(split, s) for s in split.scorable.tolist()] == [
        0, 1, 3, 3, 0, 1, 2, 3, 3, 0,
    ]  # fmt: skip
    for row, sentence in enumerate(split.scorable.tolist()):
        for column, subset in enumerate(found.subsets):
            if subset[existing(split, sentence) :].any():
                assert found.values[row, column] == INF
                continue
            alone = split.score(subset[None], np.array([sentence]), rewards=True).reward
            assert alone is not None
            assert np.log(found.values[row, column]) == pytest.approx(np.log(alone[0]), rel=1e-4)
    assert np.isfinite(found.values).sum() == sum(2 ** existing(split, s) for s in split.scorable.tolist())


def test_values_that_are_known_already() -> None:
    """By the bits of each subset in the table, in the order of the oracle's subsets here; not all were asked for."""
    split = Split(tiny_model("tdnmt"), PAIRS)
    table = np.full((len(split), 2**SCOPE), np.nan)
    table[[2, 3, 6]] = np.arange(2**SCOPE)
    found = oracle.known_values(split, split.scorable, table)
    assert found.sentences.tolist() == [s for s in (2, 3, 6) if s in split.scorable]
    for row, sentence in enumerate(found.sentences.tolist()):
        for column, subset in enumerate(found.subsets):
            possible = not subset[existing(split, sentence) :].any()
            assert found.values[row, column] == (subset @ [1, 2, 4] if possible else INF)
    best = oracle.report(split, found, parse_selector("full", 1))
    full = next(way for way in best.ways if way.name == "full")
    assert full.gain == 0 and full.value == best.ways[-1].value and "mean value" in best.to_text()
    with pytest.raises(DynctxError, match="a value for no sentence"):
        oracle.known_values(split, split.scorable, np.full_like(table, np.nan))


def test_rewards_are_not_rounded() -> None:
    split = Split(tiny_model("tdnmt"), PAIRS)
    exact = value_of_subsets(split, split.scorable, "reward").values
    with torch.autocast("cpu", torch.bfloat16):
        again = value_of_subsets(split, split.scorable, "reward").values
        selected = split.select(Oracle(split.model.translator))
    assert (exact == again).all()
    assert (selected == split.select(Oracle(split.model.translator))).all()


def test_translations_are_those_of_each_subset_alone() -> None:
    split = Split(tiny_model("concat"), PAIRS)
    sentences = np.array([4, 7])
    found = value_of_subsets(split, sentences, "bleu")
    for row, sentence in enumerate(sentences.tolist()):
        for column, subset in enumerate(found.subsets):
            selection = np.zeros((len(split), SCOPE), bool)
            selection[sentence] = subset
            exists = not subset[existing(split, sentence) :].any()
            text = split.translate(Given(selection))[sentence] if exists else None
            assert found.texts[row][column] == text
            if text is not None:
                assert found.values[row, column] == pytest.approx(sentence_bleu(text, split.references[sentence]))


def test_columns_of_selections() -> None:
    """Sentences with 3, 1 and 0 candidates; what does not exist is left out of a selection."""
    values = Values("reward", np.arange(3), np.array([3, 1, 0]), all_subsets(3), np.zeros((3, 8)), [])
    assert values.column(np.array([[1, 0, 1], [1, 0, 1], [1, 0, 1]], bool)).tolist() == [5, 1, 0]
    assert values.column(np.zeros((3, 3), bool)).tolist() == [0, 0, 0]
    for row in product([False, True], repeat=3):
        column = values.column(np.array([row] * 3))[0]
        assert values.subsets[column].tolist() == list(row)


def test_rounding_does_not_ask_for_more_context() -> None:
    """A gain of a millionth is none; one of a thousandth is."""
    values = np.array([[0.5, 0.5000005, INF], [0.5, 0.5005, INF], [INF, 0.1, 0.1], [-1.0, -1.0000001, -2.0]])
    assert oracle.first_best(values).tolist() == [0, 1, 1, 0]


def made_up() -> tuple[Split, Values]:
    """Two sentences of scope 2: one with both candidates, one with a single one. Subsets 00, 10, 01, 11."""
    split = Split(tiny_model("concat", scope=2), PAIRS)
    values = np.array([[0.2, 0.1, 0.6, 0.3], [0.5, 0.5, INF, INF]])
    texts = [["on the mat", "x", "today and again", "y"], ["in the park", "in the park", None, None]]
    return split, Values("bleu", np.array([3, 1]), np.array([2, 1]), all_subsets(2), values, texts)


def test_report_by_hand() -> None:
    split, values = made_up()
    selection = np.zeros((len(split), 2), bool)
    selection[3] = [False, True]
    selection[1] = [True, False]
    found = oracle.report(split, values, Given(selection, "mine"), fixed_sizes=(1,))
    ways = {way.name: way for way in found.ways}
    names = ["none", "previous 1", "full", "own (mine)", "own, dealt at random", "oracle of size 1", "oracle"]
    assert list(ways) == names
    assert {name: way.value for name, way in ways.items()} == pytest.approx(
        {
            "none": 0.35,
            "previous 1": 0.3,
            "full": 0.4,
            "own (mine)": 0.55,
            "own, dealt at random": 0.55,  # nobody else has as many candidates
            "oracle of size 1": 0.55,
            "oracle": 0.55,
        }
    )
    assert {name: way.size for name, way in ways.items()} == pytest.approx(dict(zip(names, [0, 1, 1.5, 1, 1, 1, 0.5])))
    assert ways["none"].gain == pytest.approx(0.2) and ways["oracle"].gain == 0
    assert found.empty_best == 0.5  # of equal subsets the empty one counts as best
    assert found.agreement == 1.0  # and a selection that is worth as much is as good
    expected = corpus_bleu(["today and again", "in the park"], [[split.references[3], split.references[1]]])
    assert ways["oracle"].corpus_bleu == pytest.approx(expected.value)
    text = found.to_text()
    assert text.startswith("2 sentences\n") and "best for 50.0 % of them" in text


def test_selections_dealt_at_random() -> None:
    """Four sentences with both candidates, each right about its own: 00, 00, 10 and 01 are worth 1 to one each.

    In the mean over all deals a sentence has 00 half of the time and each of the others a quarter: 1/2, 1/2, 1/4, 1/4.
    A fifth, with one candidate, keeps what it has. Of the 4! / 2! deals that differ one is as good as their own choice.
    """
    chosen = np.array([[0, 0], [0, 0], [1, 0], [0, 1], [1, 0]], bool)
    values = np.zeros((5, 4))
    values[[0, 1, 2, 3, 4], [0, 0, 1, 2, 1]] = 1.0
    values[4, 2:] = INF
    found = Values("reward", np.arange(5), np.array([2, 2, 2, 2, 1]), all_subsets(2), values, [])
    expected, p = oracle.deal(found, chosen)
    assert expected == pytest.approx((0.5 + 0.5 + 0.25 + 0.25 + 1.0) / 5)
    assert p == pytest.approx(1 / 12, abs=0.03)
    assert oracle.deal(found, np.zeros_like(chosen)) == (pytest.approx(2 / 5), 1.0)  # all alike: nothing to deal


def test_a_model_without_context_has_one_subset() -> None:
    split = Split(tiny_model("sentence"), PAIRS)
    found = oracle.report(split, value_of_subsets(split, split.scorable, "reward"), parse_selector("full", 1))
    assert [way.name for way in found.ways] == ["none", "oracle"]
    assert found.empty_best == 1.0 and found.ways[0].gain == 0


def test_the_selector_takes_the_best_subset() -> None:
    model = tiny_model("tdnmt")
    split = Split(model, PAIRS)
    values = value_of_subsets(split, split.scorable, "reward")
    best = values.subsets[values.best]
    assert len({row.tobytes() for row in best}) > 2  # it does choose
    assert (split.select(Oracle(model.translator))[split.scorable] == best).all()


@pytest.mark.parametrize("criterion", ["reward", "bleu"])
def test_progress_counts_every_pair_that_is_tried(criterion: oracle.Criterion) -> None:
    """First sentences of documents have fewer subsets: a bar that counts them alike would never be full."""
    split = Split(tiny_model("tdnmt"), PAIRS)
    counts: list[int] = []
    value_of_subsets(split, split.scorable, criterion, DecodingConfig(beam=1, max_extra=2), counts.append)
    assert sum(counts) == oracle.tries(split.gatherer, split.scorable) < len(split.scorable) * 2**SCOPE
    told: list[int] = []
    split.select(Oracle(split.model.translator, told.append))
    assert sum(told) == oracle.tries(split.gatherer, np.arange(len(split))) and len(told) > 0


def test_the_selector_needs_references() -> None:
    model = tiny_model("tdnmt")
    bare = Gatherer(TokenStore.from_ids([[([7, 8], []), ([9], [])]]), SCOPE)
    with pytest.raises(DynctxError, match="selects by the reference, and this text has none"):
        Oracle(model.translator).select(bare.one_per_row(np.array([0, 1])))


def test_the_selector_gives_tensors_of_the_batch() -> None:
    model = tiny_model("concat")
    split = Split(model, PAIRS)
    batch = split.gatherer.one_per_row(np.array([10, 0]))
    found = Oracle(model.translator).select(batch)
    assert found.dtype == torch.bool and found.shape == (2, SCOPE)
    assert not (found & ~batch.present).any()


def test_translations_of_pairs_are_without_dropout() -> None:
    model = copy.deepcopy(tiny_model("tdnmt")).translator
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    split = Split(tiny_model("tdnmt"), PAIRS)
    chosen = np.ones((len(split.scorable), SCOPE), bool)
    greedy = DecodingConfig(beam=1, max_extra=3)
    expected = translate_pairs(model.eval(), split.gatherer, split.scorable, chosen, greedy)
    assert translate_pairs(model.train(), split.gatherer, split.scorable, chosen, greedy) == expected
