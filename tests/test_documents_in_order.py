"""Documents translated with context, all together, against the plainest loop: one sentence after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from context_models import SCOPE, V, small_model

from dynctx import decoding
from dynctx.batches import Batch, Gatherer
from dynctx.beam_search import BeamSearch
from dynctx.config import DecodingConfig, HanConfig
from dynctx.corpus import TokenStore
from dynctx.decoding import translate
from dynctx.linear import to_int8
from dynctx.selection.strategies import Fixed, Selector, parse_selector
from dynctx.subwords import EOS
from dynctx.translators.bank import Bank
from dynctx.translators.sentence import SentNmt

KINDS = ["han", "han decoder", "han encoder", "san", "cadec"]
DECODING = DecodingConfig(beam=2, max_extra=3, batch_sentences=64)
FULL = parse_selector("full", 1)


def model_of(kind: str) -> SentNmt:
    name, _, side = kind.partition(" ")
    own = {"han": HanConfig(encoder=side != "decoder", decoder=side != "encoder")}
    model = small_model(name, "pre", **own)
    with torch.no_grad():
        for part, parameter in model.named_parameters():  # or the context would hardly matter
            if parameter.ndim == 2 and "embedding" not in part:
                parameter.mul_(2.5)
        # or nothing would ever end
        weight = model.output.weight if model.needs_drafts else model.target_embedding.weight
        weight[EOS] += 0.5 * weight.abs().mean()
    return model


def documents() -> list[list[tuple[list[int], list[int]]]]:
    rng = np.random.default_rng(5)
    return [[(rng.integers(7, V, rng.integers(0, 5)).tolist(), [9]) for _ in range(size)] for size in (6, 1, 4, 5)]


def bank_of(model: SentNmt, batch: Batch, limits: torch.Tensor) -> Bank | None:
    """What a model needs beside one sentence, with a draft of its own where it corrects one."""
    if not model.needs_drafts:
        return model.bank(batch)
    base = model.sentence_model()
    search = BeamSearch(base, base.begin(base.encode(batch), DECODING.beam), limits, DECODING.length_penalty)
    return model.bank(batch, [draft.ids for draft in search.run()])


@torch.inference_mode()
def one_by_one(model: SentNmt, sentences: list[int], selector: Selector) -> dict[int, list[int]]:
    """What was said before stands in the store as if it were the reference; all else has its reference."""
    said: dict[int, list[int]] = {}
    for sentence in sorted(sentences):
        numbers = iter(range(100))
        store = TokenStore.from_ids(
            [[(source, said.get(next(numbers), target)) for source, target in document] for document in documents()]
        )
        batch = Gatherer(store, SCOPE, lay_context=False).one_per_row(np.array([sentence]))
        limits = torch.from_numpy(batch.plan.lengths[0] - 1 + DECODING.max_extra)
        bank = bank_of(model, batch, limits)
        cache = model.begin(model.encode(batch, selector.select(batch), bank), DECODING.beam)
        said[sentence] = BeamSearch(model, cache, limits, DECODING.length_penalty).run()[0].ids
    return said


def together(
    model: SentNmt, sentences: list[int], selector: Selector, config: DecodingConfig = DECODING
) -> dict[int, list[int]]:
    gatherer = Gatherer(TokenStore.from_ids(documents()), SCOPE, lay_context=model.lays_context)
    found = translate(model, gatherer, np.array(sentences, np.int64), config, selector)
    return {sentence: hypothesis.ids for sentence, hypothesis in zip(sentences, found)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("selector", ["full", "random subset"])
def test_together_is_one_by_one(kind: str, selector: str) -> None:
    """Every sentence in any order, and a part of them: the others count as translated to their references."""
    model = model_of(kind)
    for sentences in (list(range(15, -1, -1)), [0, 2, 3, 5, 8, 9, 12, 15]):
        chosen = parse_selector(selector, 1)
        assert together(model, sentences, chosen) == one_by_one(model, sentences, chosen)


@pytest.mark.parametrize("kind", ["han", "cadec"])
def test_what_is_read_again_in_a_later_wave_is_kept(kind: str) -> None:
    """Sentence 9 reads 8 and 7 and comes in the third wave; sentence 10, after it, reads 7 alone, in the second."""
    model, sentences = model_of(kind), [7, 8, 9, 10]
    chosen, less = (Fixed(parse_selector("none", 1), {8: [1], 9: near, 10: [3]}) for near in ([1, 2], [1]))
    expected = one_by_one(model, sentences, chosen)
    assert together(model, sentences, chosen) == expected
    assert together(model, sentences, less) != expected  # that sentence 9 reads 7 makes a difference


@pytest.mark.parametrize("kind", KINDS)
def test_context_decides(kind: str) -> None:
    model, everything = model_of(kind), list(range(16))
    with_context, without = (together(model, everything, parse_selector(name, 1)) for name in ("full", "none"))
    assert [with_context[first] == without[first] for first in (0, 6, 7, 11)] == [True] * 4
    assert sum(with_context[s] != without[s] for s in everything) > 6
    assert len({tuple(ids) for ids in with_context.values()}) > 8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("batch_sentences", "tokens"), [(1, 1), (2, 12), (5, 30)])
def test_the_size_of_batches_and_of_banks_cannot_matter(
    kind: str, batch_sentences: int, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, sentences = model_of(kind), [*range(3, 16), 1, 0]
    expected = together(model, sentences, FULL)
    monkeypatch.setattr(decoding, "BANK_TOKENS", tokens)
    monkeypatch.setattr(decoding, "BANK_BATCH", max(1, tokens // 4))
    config = DecodingConfig(beam=2, max_extra=3, batch_sentences=batch_sentences)
    assert together(model, sentences, FULL, config) == expected


@pytest.mark.parametrize("kind", ["han", "san", "cadec"])
def test_the_references_of_what_is_translated_are_not_looked_at(kind: str) -> None:
    model = model_of(kind)
    found = []
    for word in (9, 20):
        store = TokenStore.from_ids([[(ids, [word] * 3) for ids, _ in document] for document in documents()])
        gatherer = Gatherer(store, SCOPE, lay_context=False)
        found.append([h.ids for h in translate(model, gatherer, np.arange(16), DECODING, FULL)])
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["han", "san"])
def test_each_sentence_is_encoded_once_for_all_it_serves(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(kind)
    met: list[int] = []
    remember = type(model).remember
    monkeypatch.setattr(
        type(model), "remember", lambda self, past: (met.extend(past.numbers.tolist()), remember(self, past))[1]
    )
    together(model, list(range(16)), FULL)
    # in order, the last sentence of a document serves nobody, and the first wave has nothing to look back to
    if model.reads_targets:
        assert sorted(met[1:]) == [s for s in range(16) if s not in (5, 6, 10, 15)]
    else:
        assert sorted(met) == list(range(16))


@pytest.mark.parametrize("kind", ["han", "cadec"])
def test_sentences_wait_only_for_what_they_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents of 6, 1, 4 and 5. With nothing selected all at once; where 3 reads 2 and 4 reads 3, in three waves."""
    waves: list[list[int]] = []
    some = decoding.Translating.some

    def watched(self: decoding.Translating, places: np.ndarray, bank: Any) -> None:
        if self.model.reads_targets:  # drafts are made all at once
            waves.append(self.sentences[places].tolist())
        some(self, places, bank)

    monkeypatch.setattr(decoding.Translating, "some", watched)
    model, everything = model_of(kind), list(range(16))
    together(model, everything, parse_selector("none", 1))
    assert waves == [everything]
    waves.clear()
    together(model, everything, FULL)
    assert waves == [[0, 6, 7, 11], [1, 8, 12], [2, 9, 13], [3, 10, 14], [4, 15], [5]]
    waves.clear()
    together(model, everything, Fixed(parse_selector("none", 1), {3: {1}, 4: {1}, 15: {2}}))
    assert waves == [[s for s in everything if s not in (3, 4, 15)], [3, 15], [4]]


@pytest.mark.parametrize("kind", KINDS)
def test_in_8_bits(kind: str) -> None:
    model = model_of(kind).float()
    expected = together(model, list(range(16)), FULL)
    to_int8(model)
    found = together(model, list(range(16)), FULL)
    assert found.keys() == expected.keys() and any(found[s] == expected[s] for s in range(16))


def test_nothing_to_translate() -> None:
    for kind in KINDS:
        assert together(model_of(kind), [], FULL) == {}
