"""SAN: sparsemax by hand, the attention by hand, the whole network against one written out here, and stage 2."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from context_models import SELECTIONS, SMALL, STORE, V, all_selections, logits, new_parameters, packed, small_model
from hypothesis import settings
from plain import Plain
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dynctx.batches import Gatherer
from dynctx.config import Config, DataConfig, ModelConfig, SanConfig, TrainingConfig
from dynctx.corpus import TokenStore
from dynctx.errors import DynctxError
from dynctx.layers import LayerSizes
from dynctx.linear import Linear
from dynctx.model_folder import Model, load_model, save_model
from dynctx.prepared import load_subwords
from dynctx.subwords import BOS, EOS
from dynctx.training.reporting import count_parameters
from dynctx.training.translation import freeze, start_from
from dynctx.translators import build_translator, san
from dynctx.translators.san import ContextLayer, San, SelectiveAttention

LIVE = SanConfig(context_states="live_detached")
quick = settings(max_examples=40, deadline=None, derandomize=True, database=None)


def number(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# size


def test_new_parameters_at_base_size() -> None:
    # six projections and two gates of 512 512; feed-forward 2 512 2048 + 2048 + 512; two norms
    layer = 8 * 262_144 + 2_099_712 + 2 * 1_024
    assert layer == 4_198_912
    encoder = 16_000 * 512 + 6 * 3_152_384  # the embedding and six layers, kept as they were
    assert new_parameters(kind="san") == (layer, {"context_layer": (layer, 0), "context_encoder": (0, encoder)})
    assert new_parameters(kind="san", san=LIVE) == (layer, {"context_layer": (layer, 0)})


# the layer, by hand


def test_the_context_layer_by_hand() -> None:
    """Width 2, one head, all scores 0, x = (8, 2).

    Two sentences, with the words (1, 0) (3, 0) and (0, 4): each sentence half, each of the two words half of that, so
    c = (1, 2), and LN(c) = (-1, 1). Feed-forward: relu is (0, 1), then (1, 3 * 1), and LN of that (-1, 1) again: there
    is no sum with c, or it would be (0, 4). Gate: sigmoid(-ln 3, 0) = (1/4, 1/2), of the state's own side:
    out = (1/4 * 8 - 3/4, 1/2 * 2 + 1/2) = (1.25, 1.5), with no norm behind it. Without context x goes on as it is.
    """
    layer = ContextLayer(LayerSizes(2, 2, 1, "post", 0.0)).double().eval()
    keep, nothing = [[1.0, 0], [0, 1]], [[0.0, 0], [0, 0]]
    attention = layer.attention
    weights: list[tuple[Linear, list[list[float]]]] = [
        (attention.query, nothing + nothing),
        (attention.sentence_key, keep),
        (attention.key_value, [*keep, *keep]),
        (attention.output, keep),
        (layer.feed_forward.inner, keep),
        (layer.feed_forward.outer, [[1, 0], [0, 3]]),
        (layer.gate_state, nothing),
        (layer.gate_context, [[math.log(3), 0], [0, 0]]),
    ]
    with torch.no_grad():
        for linear, weight in weights:
            linear.weight.copy_(number(weight))
        layer.feed_forward.inner.bias.zero_()
        layer.feed_forward.outer.bias.copy_(number([1, 0]))
    states, column = number([[[1, 0], [3, 0], [0, 4], [9, 9]]]), torch.tensor([[0, 0, 1, -1]])
    x = number([[[8, 2], [8, 2], [8, 2]]])
    seen = torch.tensor([[[True, True], [False, False], [True, False]]])
    found = layer(x, states, column, seen)[0]
    assert found[0].tolist() == pytest.approx([1.25, 1.5], abs=1e-5)  # LN has an epsilon of 1e-6
    assert found[1].tolist() == [8, 2]
    # the first sentence alone: c = (2, 0), LN (1, -1), relu (1, 0), then (2, 0), LN (1, -1): gate (3/4, 1/2)
    assert found[2].tolist() == pytest.approx([0.75 * 8 + 0.25, 0.5 * 2 - 0.5], abs=1e-5)


def test_nothing_is_larger_than_what_is_counted() -> None:
    """Whole documents are given some rows at a time, as many as these weights allow; a copy of who belongs where for
    every head would be many times as large."""
    heads, queries, sentences, words = 4, 2, 40, 160
    attention = SelectiveAttention(LayerSizes(8, 8, heads, "post", 0.0)).double()
    column = torch.arange(words)[None] % sentences
    largest = 0

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
            nonlocal largest
            found = function(*given, **(named or {}))
            for made in found if isinstance(found, tuple | list) else [found]:
                if isinstance(made, Tensor) and not any(
                    made.data_ptr() == x.data_ptr() for x in given if isinstance(x, Tensor)
                ):
                    largest = max(largest, made.numel())
            return found

    with Sizes():
        attention(
            torch.randn(1, queries, 8).double(),
            torch.randn(1, words, 8).double(),
            column,
            torch.ones(1, queries, sentences).bool(),
        )
    assert largest == words * max(heads * queries, sentences)


# the attention, by hand


def test_the_attention_by_hand() -> None:
    """Width 2, one head, x = (1, 0); three sentences, the last not selected.

    Sentence 1 has words (0, 2) and (ln 3, 6), sentence 2 (0, 4). Word scores are the first entries: weights 1/4, 3/4
    and 1. Values are the second entries, twice: (2, 2), (6, 6), (4, 4). Means: (ln 3 / 2, 4) and (0, 4); sentence
    scores .5 and 0 from the second and first entries as Ks says below: sparsemax (.75, .25).
    Found: .75 (1/4 2 + 3/4 6) + .25 4 = 3.75 + 1 = 4.75, and O makes (4.75, -4.75) of it.
    """
    attention = SelectiveAttention(LayerSizes(2, 1, 1, "post", 0.0)).double().eval()
    root = math.sqrt(2)
    with torch.no_grad():
        attention.query.weight.copy_(number([[root, 0], [0, 0], [root, 0], [0, 0]]))  # Qs, Qw: times sqrt(d / heads)
        attention.sentence_key.weight.copy_(number([[1 / math.log(3), 0], [0, 0]]))
        attention.key_value.weight.copy_(number([[1, 0], [0, 0], [0, 1], [0, 1]]))
        attention.output.weight.copy_(number([[1, 0], [0, -1]]))
    states = number([[[0, 2], [math.log(3), 6], [5, 5], [0, 4], [7, 7], [8, 8]]])
    column = torch.tensor([[0, 0, -1, 1, 2, -1]])  # -1: what ends a sentence, and padding
    seen = torch.tensor([[[True, True, False], [False, False, False]]])
    found, some = attention(number([[[1, 0], [1, 0]]]), states, column, seen)
    assert torch.allclose(found[0, 0], number([4.75, -4.75]), atol=1e-12, rtol=0)
    assert torch.equal(found[0, 1], number([0, 0])) and some.tolist() == [[True, False]]


def test_scores_far_apart_stay_exact() -> None:
    """A sentence whose words all score 10,000 below another's still shares its weight among its own words."""
    attention = SelectiveAttention(LayerSizes(2, 1, 1, "post", 0.0)).double()
    column = torch.tensor([[0, 0, 1, 1]])
    member = column[:, None] == torch.arange(2)[:, None]
    scores = number([[[[0, math.log(3), 10_000, 10_000]]]])
    weights = attention.combine(number([[[[0.5, 0.5]]]]), scores, column, member)
    assert torch.allclose(weights.flatten(), number([1 / 8, 3 / 8, 1 / 4, 1 / 4]), atol=1e-12, rtol=0)


# the whole network


class Reference(Plain):
    """SAN for one sentence, from the weights alone; the context is read by this network itself."""

    def attention(self, x: Tensor, context: list[Tensor]) -> Tensor:
        """x [d] -> [d]"""
        name = "context_layer.attention"
        sentence_query, query = self.linear(f"{name}.query", x).chunk(2, -1)
        means = torch.stack([states.mean(0) for states in context])
        sentence_keys = self.linear(f"{name}.sentence_key", means)
        heads = []
        for h in range(self.heads):
            part = slice(4 * h, 4 * h + 4)
            alpha = nearest(sentence_keys[:, part] @ sentence_query[part] / 2)
            total = torch.zeros(4, dtype=torch.float64)
            for weight, states in zip(alpha, context):
                key, value = self.linear(f"{name}.key_value", states).chunk(2, -1)
                beta = (key[:, part] @ query[part] / 2).softmax(0)
                total = total + weight * (beta @ value[:, part])
            heads.append(total)
        return self.linear(f"{name}.output", torch.cat(heads))

    def logits(self, reader: Plain, sentence: int, distances: set[int]) -> Tensor:
        context = []
        for distance in distances:
            states = reader.encode(STORE.source_ids(sentence - distance))[:-1]  # without the end
            context += [states] if len(states) else []
        x = self.encode(STORE.source_ids(sentence))
        if context:
            c = torch.stack([self.attention(state, context) for state in x])
            c = self.norm("context_layer.attention_norm", c)
            c = self.norm("context_layer.feed_forward_norm", self.feed_forward("context_layer.feed_forward", c))
            gate = self.linear("context_layer.gate_state", x) + self.linear("context_layer.gate_context", c)
            x = gate.sigmoid() * x + (1 - gate.sigmoid()) * c
        return self.linear("output", self.decode(x, [BOS, *STORE.target_ids(sentence)[:-1]]))


def nearest(scores: Tensor) -> Tensor:
    """Sparsemax by trying every size of the support."""
    for size in range(len(scores), 0, -1):
        top = scores.sort(descending=True).values[:size]
        threshold = (top.sum() - 1) / size
        if top[-1] > threshold:
            return (scores - threshold).clamp(min=0)
    raise AssertionError


class Copy(Plain):
    """The frozen copy, under the sentence model's names."""

    def __init__(self, model: San, norm: str) -> None:
        super().__init__(model, 4, 2, norm)
        names = {"embedding": "source_embedding", "encoder": "encoder", "norm": "encoder_norm"}
        for old, new in names.items():
            for name in [name for name in self.weights if name.startswith(f"context_encoder.{old}.")]:
                self.weights[name.replace(f"context_encoder.{old}", new, 1)] = self.weights[name]


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("own", [SanConfig(), LIVE], ids=["copy", "live"])
def test_the_whole_network(norm: str, own: SanConfig) -> None:
    model = small_model("san", norm, san=own)  # the copy is not equal to the encoder: it is random too
    batch, selection = all_selections()
    found = logits(model, batch, selection)
    reference = Reference(model, 4, 2, norm)
    reader = reference if own is LIVE else Copy(model, norm)
    for row, (sentence, distances) in enumerate(SELECTIONS):
        expected = reference.logits(reader, sentence, distances)
        assert torch.allclose(found[row, : len(expected)], expected, atol=1e-10, rtol=0), (sentence, distances)


# whole documents


def long_store(length: int) -> TokenStore:
    rng = np.random.default_rng(1)
    sentences = [(rng.integers(7, V, 1 + n * 7 % 5 - n % 2).tolist(), [7, 8]) for n in range(length)]
    return TokenStore.from_ids([sentences, sentences[:3]])


def test_the_scope_may_be_a_whole_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the past at once, or some rows at a time as memory allows, forward and backward: the same numbers."""
    model = small_model("san", scope=100)
    batch = Gatherer(long_store(40), 100, lay_context=False).one_per_row(np.array([39, 0, 20, 41, 5]))

    def run() -> list[Tensor]:
        model.zero_grad()
        states = model.encode(batch, batch.present).states
        states[batch.source.sentence >= 0].pow(3).sum().backward()
        return [states.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    whole = run()
    monkeypatch.setattr(san, "LARGEST", {"cpu": 1})
    parts = run()
    assert len(whole) == len(parts) > 10
    assert all(torch.allclose(a, b, atol=1e-9, rtol=1e-9) for a, b in zip(whole, parts))
    # the very first sentence is within reach: alone, it changes the last one's states and nobody else's
    nothing = torch.zeros_like(batch.present)
    far = nothing.clone()
    far[0, 38] = True
    before, after = (model.encode(batch, chosen).states for chosen in (nothing, far))
    changed = [not torch.equal(*(x[batch.source.sentence == n] for x in (before, after))) for n in range(5)]
    assert changed == [True, False, False, False, False]


# stage 2


def test_stage_two_trains_everything_but_the_copy() -> None:
    model = small_model("san", "pre")
    freeze(model, Config(training=TrainingConfig(init="a sentence model")))
    batch, selection = all_selections()
    states = model.decode(model.encode(batch, selection), batch)
    model.output(states)[batch.target.sentence >= 0].log_softmax(-1)[:, 20].sum().backward()
    still = {name for name, p in model.named_parameters() if p.grad is None or p.grad.abs().max() < 1e-12}
    assert still == {name for name, _ in model.named_parameters() if name.startswith("context_encoder.")}


@pytest.mark.parametrize("tie", ["all", "none"])
def test_the_copy_is_the_sentence_model_and_is_saved(tmp_path: Path, prepared: DataConfig, tie: str) -> None:
    source, target = load_subwords(prepared.folder)
    sizes: ModelConfig = dataclasses.replace(SMALL, tie_embeddings=tie, norm="pre")  # type: ignore[arg-type]
    earlier = build_translator(sizes, len(source), len(target))
    save_model(tmp_path / "sentence", Model(Config(model=sizes), earlier, source, target))
    config = Config(model=dataclasses.replace(sizes, kind="san"))
    model = build_translator(config.model, len(source), len(target))
    said = start_from(model, None, str(tmp_path / "sentence"), source, target)
    assert said[0].endswith(", and into context_encoder")
    assert said[1] == "new, starting at random: context_layer"
    assert isinstance(model, San)
    old = earlier.state_dict()
    copied = {f"encoder.{n}": p for n, p in model.context_encoder["encoder"].named_parameters()}
    copied |= {f"encoder_norm.{n}": p for n, p in model.context_encoder["norm"].named_parameters()}
    copied |= {f"source_embedding.{n}": p for n, p in model.context_encoder["embedding"].named_parameters()}
    assert len(copied) == sum(name.split(".")[0] in ("encoder", "encoder_norm") for name in old) + 1
    assert all(torch.equal(p, old[name]) and not p.requires_grad for name, p in copied.items())
    # stage 2 moves the encoder and not the copy, which a saved model still has, and a third stage too
    with torch.no_grad():
        model.encoder[0].feed_forward.inner.weight.add_(1.0)
    save_model(tmp_path / "san", Model(config, model, source, target))
    loaded = load_model(tmp_path / "san").translator
    third = build_translator(config.model, len(source), len(target))
    assert start_from(third, None, str(tmp_path / "san"), source, target)[1] == "new, starting at random: nothing"
    for other in (loaded, third):
        assert isinstance(other, San)
        own, kept = (part[0].feed_forward.inner.weight for part in (other.encoder, other.context_encoder["encoder"]))
        assert torch.equal(own, kept + 1.0)
    assert count_parameters(loaded)["context_encoder"][0] == 0


def test_without_a_sentence_model_there_is_nothing_to_copy(prepared: DataConfig) -> None:
    source, target = load_subwords(prepared.folder)
    model = build_translator(dataclasses.replace(SMALL, kind="san"), len(source), len(target))
    with pytest.raises(DynctxError, match=r"model\.kind san learns on top of a sentence model: set training\.init"):
        start_from(model, None, "", source, target)
    live = build_translator(dataclasses.replace(SMALL, kind="san", san=LIVE), len(source), len(target))
    assert start_from(live, None, "", source, target) == ["all parameters start at random"]


def test_each_dropout_of_the_layer_works_in_training_only() -> None:
    """Of the attention's weights, of what was found and of what the feed-forward makes of it: each by itself."""
    torch.manual_seed(0)
    x, states = torch.randn(1, 5, 8), torch.randn(1, 6, 8)
    column, seen = torch.tensor([[0, 0, 0, 1, 1, 1]]), torch.ones(1, 5, 2, dtype=torch.bool)
    normed: list[Tensor] = []  # what the two norms are given, in order

    def made(dropout: float, attention_dropout: float) -> ContextLayer:
        layer = ContextLayer(LayerSizes(8, 16, 2, "post", dropout, attention_dropout))
        for norm in (layer.attention_norm, layer.feed_forward_norm):
            norm.register_forward_pre_hook(lambda _, inputs: normed.append(inputs[0]))
        return layer

    layer = made(0.0, 0.5)
    assert not torch.equal(layer(x, states, column, seen), layer(x, states, column, seen))
    layer.eval()
    assert torch.equal(layer(x, states, column, seen), layer(x, states, column, seen))
    layer = made(0.5, 0.0)
    normed.clear()
    layer(x, states, column, seen)
    assert [bool((each == 0).any()) for each in normed] == [True, True]
    normed.clear()
    layer.eval()(x, states, column, seen)
    assert [bool((each == 0).any()) for each in normed] == [False, False]


def test_dropout_spares_the_context() -> None:
    model = small_model("san").train()
    batch = packed()
    assert torch.equal(model.bank(batch).source.states, model.bank(batch).source.states)
    assert model.training and model.context_encoder.training
    assert not torch.equal(model.encode(batch).states, model.encode(batch).states)
    assert (model.bank(batch).source.read == EOS).any()
