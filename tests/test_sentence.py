"""SentNmt: what may and what must not change a state, and search against the full decoder."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer, Packed
from dynctx.config import ModelConfig
from dynctx.corpus import TokenStore
from dynctx.planning import Shape, plan_epoch
from dynctx.subwords import BOS, PAD
from dynctx.translators.sentence import SentNmt

Norm = Literal["post", "pre"]
V = 23
SMALL = ModelConfig(
    kind="sentence", width=16, feed_forward=24, heads=4, encoder_layers=2, decoder_layers=2, dropout=0.1
)


def small_model(norm: Norm = "post", seed: int = 0) -> SentNmt:
    """In float64 and with every parameter random, so that nothing rests on a zero bias."""
    torch.manual_seed(seed)
    model = SentNmt(dataclasses.replace(SMALL, norm=norm), V, V).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            elif "embedding" not in name:
                parameter.mul_(2.0)
    return model


def ids(rng: np.random.Generator, length: int) -> list[int]:
    return rng.integers(7, V, length).tolist()


def small_store(lengths: list[tuple[int, int]], seed: int = 0) -> TokenStore:
    rng = np.random.default_rng(seed)
    return TokenStore.from_ids([[(ids(rng, source), ids(rng, target))] for source, target in lengths])


LENGTHS = [(3, 4), (1, 1), (6, 2), (4, 7), (2, 3), (5, 5), (0, 0)]


def packed_batch(store: TokenStore) -> Batch:
    gatherer = Gatherer(store, 0)
    plans = plan_epoch(gatherer.lengths(), np.asarray(store.usable), Shape(4, 14, 14), seed=1, epoch=0)
    assert len(plans) == 1
    return gatherer.gather(plans[0], Shape(4, 14, 14))


def states(model: SentNmt, batch: Batch) -> Tensor:
    with torch.no_grad():
        return model.decode(model.encode(batch), batch)


def of_sentence(packed: Packed, tensor: Tensor, number: int) -> Tensor:
    """The positions of one sentence, in order."""
    return tensor[packed.sentence == number]


def with_ids(packed: Packed, changed: Tensor) -> Packed:
    return dataclasses.replace(packed, ids=changed)


# size


@pytest.mark.parametrize(("norm", "expected"), [("post", 52_330_496), ("pre", 52_332_544)])
def test_parameters_at_base_size(norm: Norm, expected: int) -> None:
    width, inner, vocabulary = 512, 2048, 16000
    attention = 4 * (width * width + width)
    feed_forward = 2 * width * inner + inner + width
    layer_norm = 2 * width
    encoder = 6 * (attention + feed_forward + 2 * layer_norm)
    decoder = 6 * (2 * attention + feed_forward + 3 * layer_norm)
    final_norms = 2 * layer_norm if norm == "pre" else 0
    with torch.device("meta"):
        model = SentNmt(ModelConfig(kind="sentence", norm=norm), vocabulary, vocabulary)
    found = sum(parameter.numel() for parameter in model.parameters())
    assert found == vocabulary * width + encoder + decoder + final_norms == expected


def test_which_embeddings_are_shared() -> None:
    models = {
        tie: SentNmt(dataclasses.replace(SMALL, tie_embeddings=tie), 30 if tie != "all" else V, V)
        for tie in ("all", "target", "none")
    }
    for tie, model in models.items():
        source, target, output = (
            model.source_embedding.weight,
            model.target_embedding.weight,
            model.output.weight,
        )
        assert (source is target) == (tie == "all")
        assert (output is target) == (tie != "none")
        assert source.shape == ((V if tie == "all" else 30), 16)
        assert target.shape == output.shape == (V, 16)
    count = {tie: sum(p.numel() for p in model.parameters()) for tie, model in models.items()}
    assert count["target"] - count["all"] == 30 * 16
    assert count["none"] - count["target"] == V * 16


# invariances


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_packed_rows_give_the_states_of_one_sentence_a_row(norm: Norm) -> None:
    model, store = small_model(norm), small_store(LENGTHS)
    packed, single = packed_batch(store), Gatherer(store, 0).one_per_row(np.arange(len(store)))
    assert max(len(set(row.tolist()) - {-1}) for row in packed.target.sentence) > 1  # some row holds several
    encoded = [model.encode(batch).states for batch in (packed, single)]
    decoded = [states(model, batch) for batch in (packed, single)]
    for number, sentence in enumerate(packed.sentences.tolist()):
        for kind, found in (("source", encoded), ("target", decoded)):
            first = of_sentence(getattr(packed, kind), found[0], number)
            second = of_sentence(getattr(single, kind), found[1], sentence)
            assert first.shape == second.shape
            assert torch.allclose(first, second, atol=1e-10, rtol=0)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padding_cannot_matter(norm: Norm) -> None:
    model, batch = small_model(norm), packed_batch(small_store(LENGTHS))
    source_padding, target_padding = batch.source.sentence < 0, batch.target.sentence < 0
    assert source_padding.any() and target_padding.any()
    assert (batch.source.ids[source_padding] == PAD).all()
    changed = dataclasses.replace(
        batch,
        source=dataclasses.replace(
            batch.source,
            ids=batch.source.ids.masked_fill(source_padding, 9),
            position=batch.source.position.masked_fill(source_padding, 5),
        ),
        target=dataclasses.replace(
            batch.target,
            ids=batch.target.ids.masked_fill(target_padding, 9),
            position=batch.target.position.masked_fill(target_padding, 5),
        ),
        prefix=batch.prefix.masked_fill(target_padding, 8),
    )
    before, after = states(model, batch), states(model, changed)
    assert not torch.equal(before[target_padding], after[target_padding])
    assert torch.equal(before[~target_padding], after[~target_padding])
    assert torch.isfinite(before).all()  # padding sees everything rather than nothing, which would be NaN


def test_other_sentences_of_the_row_cannot_matter() -> None:
    model, batch = small_model(), packed_batch(small_store(LENGTHS))
    before = states(model, batch)
    for number in range(len(batch)):
        others_source, others_target = batch.source.sentence != number, batch.target.sentence != number
        changed = dataclasses.replace(
            batch,
            source=with_ids(
                batch.source, torch.where(others_source, 29 - batch.source.ids.clamp(min=7), batch.source.ids)
            ),
            prefix=torch.where(others_target, 29 - batch.prefix.clamp(min=7), batch.prefix),
        )
        after = states(model, changed)
        assert torch.equal(before[~others_target], after[~others_target])
        assert not torch.equal(before[others_target], after[others_target])


def test_later_target_tokens_cannot_matter() -> None:
    model, batch = small_model(), packed_batch(small_store(LENGTHS))
    before = states(model, batch)
    longest = int(batch.target.position.max())
    for place in range(1, longest + 1):
        later = (batch.target.position >= place) & (batch.target.sentence >= 0)
        after = states(model, dataclasses.replace(batch, prefix=torch.where(later, 29 - batch.prefix, batch.prefix)))
        earlier = ~later & (batch.target.sentence >= 0)
        assert torch.equal(before[earlier], after[earlier])
        at_once = later & (batch.target.position == place)
        assert (before[at_once] != after[at_once]).any(dim=-1).all()


def test_source_tokens_do_matter() -> None:
    model, batch = small_model(), packed_batch(small_store(LENGTHS))
    first = (batch.source.position == 0) & (batch.source.sentence == 0)
    changed = dataclasses.replace(
        batch, source=with_ids(batch.source, torch.where(first, 29 - batch.source.ids.clamp(min=7), batch.source.ids))
    )
    before, after = states(model, batch), states(model, changed)
    assert (of_sentence(batch.target, before, 0) != of_sentence(batch.target, after, 0)).any(dim=-1).all()


def test_the_order_of_a_batch_cannot_matter() -> None:
    model, store = small_model(), small_store(LENGTHS)
    gatherer, order = Gatherer(store, 0), np.array([5, 2, 0, 6, 3, 1, 4])
    straight = states(model, gatherer.one_per_row(np.arange(len(store))))
    shuffled = states(model, gatherer.one_per_row(order))
    assert torch.allclose(straight[order], shuffled, atol=1e-12, rtol=0)


def test_a_selection_is_accepted_and_ignored() -> None:
    model, batch = small_model(), packed_batch(small_store(LENGTHS))
    plain = model.encode(batch)
    for value in (False, True):
        selected = model.encode(batch, torch.full((len(batch), 6), value))
        assert torch.equal(plain.states, selected.states)
        assert torch.equal(plain.sentence, selected.sentence)


def test_dropout_works_in_training_only() -> None:
    model, batch = small_model(), packed_batch(small_store(LENGTHS))
    assert torch.equal(states(model, batch), states(model, batch))
    model.train()
    assert not torch.equal(states(model, batch), states(model, batch))


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "relu_dropout"])
def test_each_dropout_of_the_config_reaches_encoder_and_decoder(name: str) -> None:
    torch.manual_seed(0)
    silent = {"dropout": 0.0, "attention_dropout": 0.0, "relu_dropout": 0.0}
    batch, without = packed_batch(small_store(LENGTHS)), SentNmt(dataclasses.replace(SMALL, **silent), V, V)
    model = SentNmt(dataclasses.replace(SMALL, **{**silent, name: 0.5}), V, V)
    memory = without.encode(batch)
    assert torch.equal(without.encode(batch).states, memory.states)  # in training, and nothing is drawn
    assert not torch.equal(model.encode(batch).states, model.encode(batch).states)
    assert not torch.equal(model.decode(memory, batch), model.decode(memory, batch))


# search


def full_logits(model: SentNmt, store: TokenStore, rows: list[int], histories: list[list[list[int]]]) -> Tensor:
    """[R, beam, V] next-token logits of every history (BOS first), from the decoder that sees it whole."""
    beam = len(histories[0])
    pairs = [(store.source_ids(row)[:-1], history[1:]) for row, beams in zip(rows, histories) for history in beams]
    again = TokenStore.from_ids([[pair] for pair in pairs])
    batch = Gatherer(again, 0).one_per_row(np.arange(len(pairs)))
    last = len(histories[0][0]) - 1  # the state that has read the whole history
    return model.output(states(model, batch)[:, last]).view(len(rows), beam, V)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("beam", [1, 3])
def test_search_step_by_step_equals_the_full_decoder(norm: Norm, beam: int) -> None:
    """20 steps (the cache grows at 16), arbitrary parents after each, rows dropped and reordered on the way."""
    model, store = small_model(norm), small_store([(3, 0), (7, 0), (1, 0), (5, 0)])
    rng = np.random.default_rng(beam)
    rows = [0, 1, 2, 3]
    with torch.no_grad():
        batch = Gatherer(store, 0).one_per_row(np.array(rows))
        cache = model.begin(model.encode(batch), beam)
        histories = [[[BOS]] * beam for _ in rows]
        for step in range(20):
            tokens = torch.tensor([[history[-1] for history in beams] for beams in histories])
            found = model.step(cache, tokens)
            assert torch.allclose(found, full_logits(model, store, rows, histories), atol=1e-10, rtol=0), step
            if step in (4, 11):
                kept = [3, 0, 1] if step == 4 else [2, 0]
                cache.keep(torch.tensor(kept))
                rows, histories = [rows[k] for k in kept], [histories[k] for k in kept]
            parents = rng.integers(0, beam, (len(rows), beam))
            cache.descend(torch.from_numpy(parents))
            histories = [
                [[*beams[parent], int(rng.integers(7, V))] for parent in chosen]
                for beams, chosen in zip(histories, parents.tolist())
            ]
    assert rows == [1, 3]  # kept [3, 0, 1], then the third and the first of these


def test_the_first_step_predicts_from_the_start_symbol() -> None:
    model, store = small_model(), small_store([(4, 3)])
    batch = Gatherer(store, 0).one_per_row(np.array([0]))
    with torch.no_grad():
        first = model.step(model.begin(model.encode(batch), 1), torch.tensor([[BOS]]))[0, 0]
        assert torch.allclose(first, model.output(states(model, batch)[0, 0]), atol=1e-10, rtol=0)
