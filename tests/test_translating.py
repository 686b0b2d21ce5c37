"""Whole corpora through search: batches, their sizes, progress, sampling."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dynctx.batches import Gatherer
from dynctx.beam_search import Hypothesis
from dynctx.config import DecodingConfig, ModelConfig
from dynctx.corpus import TokenStore
from dynctx.decoding import batches_by_length, overlapped, translate
from dynctx.errors import DynctxError
from dynctx.selection.strategies import parse_selector
from dynctx.subwords import EOS
from dynctx.translators.sentence import SentNmt


def test_batches_by_length_put_the_longest_first_and_keep_the_order_of_equals() -> None:
    batches = batches_by_length(np.array([3, 1, 3, 2, 5]), 2)
    assert [batch.tolist() for batch in batches] == [[4, 0], [2, 3], [1]]
    assert batches_by_length(np.array([], dtype=np.int64), 2) == []


def test_of_sentences_about_as_long_those_with_long_contexts_come_together() -> None:
    # 6 log2 of 30 and of 31 lie between 29 and 30, of 8 is 18, of 9 above 19: 30 and 31 are about as long, 8 and 9 not
    lengths, contexts = np.array([8, 31, 9, 30, 8]), np.array([1, 4, 2, 9, 5])
    assert [batch.tolist() for batch in batches_by_length(lengths, 2, contexts)] == [[3, 1], [2, 4], [0]]
    assert batches_by_length(np.array([], dtype=np.int64), 2, np.array([], dtype=np.int64)) == []


def test_a_batch_has_no_more_positions_than_it_may() -> None:
    lengths = np.array([2, 9, 4, 3, 2, 5, 2])

    def batches(sentences: int, contexts: np.ndarray | None = None) -> list[list[int]]:
        return [batch.tolist() for batch in batches_by_length(lengths, sentences, contexts, 8)]

    # 9 is too long and comes alone; 5 leaves no room for 4; 4 and 3 take 8; then there is room for four
    assert batches(10) == [[1], [5], [2, 3], [0, 4, 6]]
    assert batches(2) == [[1], [5], [2, 3], [0, 4], [6]]
    # padded to the longest of its batch, wherever in it that is: 6 log2 of 31 and of 32 are about the same
    lengths = np.array([31, 32, 5])
    assert [b.tolist() for b in batches_by_length(lengths, 10, np.array([3, 1, 9]), 63)] == [[0], [1], [2]]


def test_less_padding_is_read_where_batches_go_by_contexts_too() -> None:
    """Lengths as lines of dialogue have them: many short ones, and a few long."""
    random = np.random.default_rng(1)
    lengths, contexts = (2 + random.exponential(mean, 10_000).astype(np.int64) for mean in (7, 45))

    def read(batches: list[np.ndarray]) -> int:
        return sum(len(batch) * int((lengths + contexts)[batch].max()) for batch in batches)

    without, within = batches_by_length(lengths, 64), batches_by_length(lengths, 64, contexts)
    assert sorted(np.concatenate(within)) == list(range(10_000))
    assert read(within) < 0.5 * read(without)


@pytest.mark.parametrize("waits", [False, True])
def test_while_one_batch_is_searched_the_next_is_started_and_the_last_is_kept(waits: bool) -> None:
    happened: list[str] = []

    def work(started: Any, meanwhile: Callable[[], None]) -> Any:
        happened.append(f"search {started}")
        if waits:
            meanwhile()
        happened.append("found")
        return started * 10

    overlapped(
        [1, 2, 3],  # type: ignore[list-item]
        lambda batch: happened.append(f"start {batch}") or batch,  # type: ignore[func-returns-value, return-value]
        work,
        lambda batch, found: happened.append(f"keep {batch} {found}"),
    )
    one = (
        "start 1, search 1, found, keep 1 10, start 2, search 2, found, keep 2 20, start 3, search 3, found, keep 3 30"
    )
    two = (
        "start 1, search 1, start 2, found, search 2, start 3, keep 1 10, found, search 3, keep 2 20, found, keep 3 30"
    )
    assert happened == (two if waits else one).split(", ")


@pytest.fixture(scope="module")
def small_model() -> SentNmt:
    torch.manual_seed(0)
    config = ModelConfig(
        kind="sentence",
        width=16,
        feed_forward=32,
        heads=2,
        encoder_layers=1,
        decoder_layers=2,
        tie_embeddings="none",
    )
    model = SentNmt(config, 24, 24)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)  # far from uniform, so that sources differ in their translations
        model.output.weight[EOS] *= 1.5
    return model


@pytest.fixture(scope="module")
def gatherer() -> Gatherer:
    rng = np.random.default_rng(0)
    pairs: list[tuple[list[int], list[int]]] = [
        (rng.integers(7, 24, length).tolist(), []) for length in rng.integers(0, 15, 40)
    ]
    return Gatherer(TokenStore.from_ids([pairs[:15], pairs[15:]]), 0)


def decoded(model: SentNmt, gatherer: Gatherer, sentences: list[int], **options: Any) -> list[Hypothesis]:
    config = DecodingConfig(max_extra=6, **options)
    return translate(model, gatherer, np.array(sentences, np.int64), config, parse_selector("none", 1))


@pytest.mark.parametrize("beam", [1, 4])
def test_the_batch_size_cannot_matter(beam: int, small_model: SentNmt, gatherer: Gatherer) -> None:
    order = np.random.default_rng(1).permutation(40).tolist()
    limits = [len(gatherer.store.source_ids(k)) - 1 + 6 for k in order]
    expected = [decoded(small_model, gatherer, [k], beam=beam, batch_sentences=1)[0] for k in order]
    lengths = [len(hypothesis.ids) for hypothesis in expected]
    # not a model that always says the same, nor one that never ends by itself
    assert len({tuple(hypothesis.ids) for hypothesis in expected}) > 20
    assert sum(length < limit for length, limit in zip(lengths, limits)) > 5
    assert max(lengths) > 5
    assert all(length <= limit for length, limit in zip(lengths, limits))
    for size in (1, 2, 7, 64):
        found = decoded(small_model, gatherer, order, beam=beam, batch_sentences=size)
        assert [h.ids for h in found] == [h.ids for h in expected]
        scores = [h.log_probability for h in found]
        assert scores == pytest.approx([h.log_probability for h in expected], abs=1e-3)


def test_translation_reports_its_progress_and_leaves_the_model_in_use(small_model: SentNmt, gatherer: Gatherer) -> None:
    small_model.train()
    counts: list[int] = []
    config = DecodingConfig(beam=1, max_extra=1, batch_sentences=15)
    translate(small_model, gatherer, np.arange(40), config, parse_selector("none", 1), counts.append)
    assert counts == [15, 15, 10]
    assert not small_model.training


def test_nothing_to_translate(small_model: SentNmt, gatherer: Gatherer) -> None:
    assert decoded(small_model, gatherer, []) == []


def test_sampling_is_reached_by_the_config(small_model: SentNmt, gatherer: Gatherer) -> None:
    torch.manual_seed(1)
    first, second = (decoded(small_model, gatherer, list(range(40)), sampling=True) for _ in range(2))
    greedy = decoded(small_model, gatherer, list(range(40)), beam=1)
    assert first != second
    cold = decoded(small_model, gatherer, list(range(40)), sampling=True, temperature=1e-5)
    assert [h.ids for h in cold] == [h.ids for h in greedy]


@pytest.mark.parametrize("settings", [DecodingConfig(beam=1), DecodingConfig(beam=4), DecodingConfig(sampling=True)])
def test_weights_that_are_no_numbers_are_told_of(settings: DecodingConfig, small_model: SentNmt) -> None:
    """Nothing would be above minus infinity, and every translation would be empty."""
    model = copy.deepcopy(small_model)
    with torch.no_grad():
        model.output.weight.fill_(torch.nan)
    gatherer = Gatherer(TokenStore.from_ids([[([7, 8], [9])]]), 0)
    with pytest.raises(DynctxError, match="the model's scores are no numbers"):
        translate(model, gatherer, np.array([0]), settings, parse_selector("none", 1))
