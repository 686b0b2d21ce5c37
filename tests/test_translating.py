"""Whole corpora through search: batches, their sizes, progress, sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dynctx.batches import Gatherer
from dynctx.config import DecodingConfig, ModelConfig
from dynctx.corpus import TokenStore
from dynctx.decoding import Hypothesis, batches_by_length, translate
from dynctx.selection.strategies import parse_selector
from dynctx.subwords import EOS
from dynctx.translators.sentence import SentNmt


def test_batches_by_length_put_the_longest_first_and_keep_the_order_of_equals() -> None:
    batches = batches_by_length(np.array([3, 1, 3, 2, 5]), 2)
    assert [batch.tolist() for batch in batches] == [[4, 0], [2, 3], [1]]
    assert batches_by_length(np.array([], dtype=np.int64), 2) == []


def test_a_few_sentences_with_much_context_have_batches_of_their_own() -> None:
    lengths, context = np.arange(40, 0, -1), np.full(40, 4)
    context[[30, 7]] = 50, 60  # one in 20
    batches = batches_by_length(lengths, 16, context)
    assert [len(batch) for batch in batches] == [2, 16, 16, 6]
    assert batches[0].tolist() == [7, 30]  # the longer source first, as in every batch
    assert np.concatenate(batches[1:]).tolist() == [n for n in range(40) if n not in (7, 30)]
    # with so few batches one more would cost more than it saves; without context there is nothing to save
    assert [len(batch) for batch in batches_by_length(lengths, 20, context)] == [20, 20]
    assert [len(batch) for batch in batches_by_length(lengths, 16, np.zeros(40, int))] == [16, 16, 8]


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
