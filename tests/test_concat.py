"""concat: the sentence model on a longer source, built here by hand."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer
from dynctx.config import ModelConfig
from dynctx.corpus import TokenStore
from dynctx.subwords import EOS, SEP
from dynctx.translators.concat import Concat
from dynctx.translators.sentence import SentNmt

V = 29
SMALL = ModelConfig(
    kind="concat", width=16, feed_forward=24, heads=4, encoder_layers=2, decoder_layers=2, dropout=0.1, scope=3
)
# one document of five sentences, the third of them an empty line
DOCUMENT = [([7, 8], [20]), ([9], [21, 22]), ([], [23]), ([10, 11, 12], [24]), ([13, 14], [25, 26, 27])]


def pair_of_models(norm: str = "post", **sizes: int) -> tuple[Concat, SentNmt]:
    """concat and a sentence model with the same weights, in float64, every parameter random."""
    torch.manual_seed(2)
    config = dataclasses.replace(SMALL, norm=norm, **sizes)
    concat = Concat(config, V, V).double().eval()
    with torch.no_grad():
        for parameter in concat.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    sentence = SentNmt(dataclasses.replace(config, kind="sentence"), V, V).double().eval()
    sentence.load_state_dict(concat.state_dict())
    return concat, sentence


@torch.no_grad()
def logits(model: SentNmt, batch: Batch, selection: Tensor | None = None) -> Tensor:
    return model.output(model.decode(model.encode(batch, selection), batch))


def joined(sentence: int, selection: tuple[bool, ...]) -> list[int]:
    """z_k <SEP> ... z_1 <SEP> x, without the final EOS; selection[0] is the sentence just before."""
    ids: list[int] = []
    for distance in range(len(selection), 0, -1):
        if selection[distance - 1] and sentence - distance >= 0:
            ids += [*DOCUMENT[sentence - distance][0], SEP]
    return ids + DOCUMENT[sentence][0]


def test_the_joined_source() -> None:
    """The reference of the tests below, once in full: the farthest sentence first, a <SEP> behind each."""
    assert joined(4, (True, True, True)) == [9, SEP, SEP, 10, 11, 12, SEP, 13, 14]
    assert joined(4, (True, False, True)) == [9, SEP, 10, 11, 12, SEP, 13, 14]
    assert joined(1, (True, True, False)) == [7, 8, SEP, 9]
    assert joined(0, (True, True, True)) == [7, 8]


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("sentence", range(5))
def test_a_selection_is_a_longer_source(norm: str, sentence: int) -> None:
    """Every selection of every sentence, against a sentence model that reads the joined ids from position 0."""
    concat, model = pair_of_models(norm)
    selections = list(itertools.product([False, True], repeat=3))
    batch = Gatherer(TokenStore.from_ids([DOCUMENT]), 3).one_per_row(np.array([sentence] * len(selections)))
    found = logits(concat, batch, torch.tensor(selections))
    for row, selection in enumerate(selections):
        store = TokenStore.from_ids([[(joined(sentence, selection), DOCUMENT[sentence][1])]])
        assert store.source_ids(0)[-1] == EOS
        alone = Gatherer(store, 0).one_per_row(np.array([0]))
        expected = logits(model, alone)[alone.target.sentence == 0]
        assert torch.allclose(found[row, : len(expected)], expected, atol=1e-12, rtol=0), selection


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_an_empty_selection_is_the_sentence_model(norm: str) -> None:
    concat, model = pair_of_models(norm)
    batch = Gatherer(TokenStore.from_ids([DOCUMENT]), 3).one_per_row(np.arange(5))
    real = batch.target.sentence >= 0
    nothing = torch.zeros_like(batch.present)
    expected = logits(model, batch)
    assert torch.allclose(logits(concat, batch, nothing)[real], expected[real], atol=1e-12, rtol=0)
    assert not torch.allclose(logits(concat, batch, batch.present)[real], expected[real], atol=1e-3)


def test_the_decoder_also_sees_the_selected_sentences() -> None:
    """Memory: every selected token and every source token belongs to the sentence, everything else to none."""
    concat, _ = pair_of_models()
    batch = Gatherer(TokenStore.from_ids([DOCUMENT]), 3).one_per_row(np.array([4, 0]))
    memory = concat.encode(batch, torch.tensor([[True, False, True], [True, True, True]]))
    # sentence 4: z_3 = 9 EOS | z_2 = EOS | z_1 = 10 11 12 EOS | padding to 8; its source 13 14 EOS, padding to 8
    assert memory.sentence[0].tolist() == [0, 0, -2, 0, 0, 0, 0, -2, 0, 0, 0, -1, -1, -1, -1, -1]
    # sentence 0: the lone EOS of a sentence without candidates is nobody's; its source 7 8 EOS
    assert memory.sentence[1].tolist() == [-2] * 8 + [1, 1, 1, -1, -1, -1, -1, -1]
    assert memory.states.shape == (2, 16, 16)


def test_long_contexts_reach_beyond_the_table_of_positions() -> None:
    """Six sentences of 60 pieces: position 366, where the table of sinusoids was made for 256."""
    concat, model = pair_of_models(scope=6)
    rng = np.random.default_rng(0)
    sources = [rng.integers(7, V, 60).tolist() for _ in range(7)]
    store = TokenStore.from_ids([[(source, [20]) for source in sources]])
    found = logits(concat, Gatherer(store, 6).one_per_row(np.array([6])), torch.ones(1, 6, dtype=torch.bool))
    whole = [word for source in sources[:6] for word in (*source, SEP)] + sources[6]
    alone = Gatherer(TokenStore.from_ids([[(whole, [20])]]), 0).one_per_row(np.array([0]))
    assert torch.allclose(found[0, :2], logits(model, alone)[0, :2], atol=1e-12, rtol=0)


def test_concat_has_no_parameters_of_its_own() -> None:
    concat, model = pair_of_models()
    assert [name for name, _ in concat.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert concat.frozen_in_stage_two() == []
    assert (concat.scope, model.scope) == (3, 0)


def test_separate_vocabularies() -> None:
    """The context is read with the source embedding: the target one would not even know word 28 here."""
    torch.manual_seed(0)
    concat = Concat(dataclasses.replace(SMALL, tie_embeddings="none"), V, 12).double().eval()
    store = TokenStore.from_ids([[([28], [7]), ([27], [8])]])
    batch = Gatherer(store, 3).one_per_row(np.array([1]))
    before = logits(concat, batch, batch.present)
    with torch.no_grad():
        concat.source_embedding.weight[28] += 1.0
    assert not torch.equal(before, logits(concat, batch, batch.present))
    assert torch.equal(logits(concat, batch), logits(concat, batch, torch.zeros_like(batch.present)))
