"""TDNMT: its size, the context encoder, the whole network against one written out here, and what stage 2 trains."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer
from dynctx.config import Config, DataConfig, ModelConfig, TdnmtConfig, TrainingConfig
from dynctx.corpus import TokenStore
from dynctx.errors import DynctxError
from dynctx.layers import sinusoids
from dynctx.model_folder import Model, save_model
from dynctx.prepared import load_subwords
from dynctx.subwords import BOS, EOS, train_subwords
from dynctx.training.translation import freeze, start_from
from dynctx.translators import build_translator
from dynctx.translators.context_encoders import BiLstm, Embeddings
from dynctx.translators.sentence import BASE, SentNmt
from dynctx.translators.tdnmt import Tdnmt

V = 29
CONTEXT = "context_encoder.layers.0"
SMALL = ModelConfig(
    kind="tdnmt", width=16, feed_forward=24, heads=4, encoder_layers=2, decoder_layers=2, dropout=0.1, scope=3
)
# sentences 0 .. 3 | 4 5; sentence 1 is an empty line
STORE = TokenStore.from_ids(
    [
        [([7, 8], [20]), ([], [21, 22]), ([9, 10, 11], [23]), ([12], [24, 25])],
        [([13], [26]), ([14, 15], [27])],
    ]
)


def small_model(norm: str = "post", tie: str = "all", **own: Any) -> Tdnmt:
    """In float64 and with every parameter random."""
    torch.manual_seed(4)
    config = dataclasses.replace(SMALL, norm=norm, tie_embeddings=tie, tdnmt=TdnmtConfig(**own))
    model = Tdnmt(config, V, V).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def batch_of(*sentences: int) -> Batch:
    return Gatherer(STORE, 3).one_per_row(np.array(sentences))


@torch.no_grad()
def logits(model: SentNmt, batch: Batch, selection: Tensor | None) -> Tensor:
    return model.output(model.decode(model.encode(batch, selection), batch))


def chosen(*rows: str) -> Tensor:
    """ "101": the sentences at distance 1 and 3."""
    return torch.tensor([[mark == "1" for mark in row] for row in rows])


# size


def count(config: ModelConfig) -> tuple[int, dict[str, int]]:
    """Parameters that the sentence model does not have: all, and by part."""
    with torch.device("meta"):
        model = build_translator(config, 16000, 16000)
    parts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.split(".")[0]
        if part not in BASE:
            parts[part] = parts.get(part, 0) + parameter.numel()
    return sum(parts.values()), parts


def test_new_parameters_at_base_size() -> None:
    # attention 4 (512 512 + 512) = 1,050,624; feed-forward 2 512 2048 + 2048 + 512 = 2,099,712; a norm 1,024
    layer = 1_050_624 + 2_099_712 + 2 * 1_024
    context_attention = 1_050_624 + 2 * 512 * 512 + 1_024
    assert (layer, context_attention) == (3_152_384, 1_575_936)
    total, parts = count(ModelConfig(kind="tdnmt"))
    assert total == layer + 12 * context_attention == 22_063_616
    assert parts == {
        "context_encoder": layer,
        "encoder_context": 6 * context_attention,
        "decoder_context": 6 * context_attention,
    }


@pytest.mark.parametrize(
    ("norm", "own", "expected"),
    [
        ("pre", {}, 22_063_616 + 1_024),  # the norm behind the context encoder
        ("post", {"context_layers": 6}, 22_063_616 + 5 * 3_152_384),
        ("post", {"gate": False}, 22_063_616 - 12 * 524_288),
        ("pre", {"context_encoder": "embedding"}, 22_063_616 - 3_152_384),
        # two directions of four gates, each with two maps and two biases; keys and values from twice as wide states
        ("post", {"context_encoder": "bilstm"}, 22_063_616 - 3_152_384 + 8 * (2 * 512**2 + 2 * 512) + 12 * 512 * 1024),
    ],
)
def test_new_parameters_of_the_variants(norm: str, own: dict[str, Any], expected: int) -> None:
    assert count(ModelConfig(kind="tdnmt", norm=norm, tdnmt=TdnmtConfig(**own)))[0] == expected  # type: ignore[arg-type]


# the context encoder

SELECTIONS = [
    (3, "000", [EOS]),
    (3, "100", [9, 10, 11, EOS]),
    (3, "001", [7, 8, EOS]),  # not the sentence just before, but the sequence still ends
    (3, "101", [7, 8, 9, 10, 11, EOS]),
    (3, "010", [EOS]),  # an empty line adds nothing
    (3, "111", [7, 8, 9, 10, 11, EOS]),
    (2, "110", [7, 8, EOS]),
    (0, "111", [EOS]),  # the first of a document has no candidates
    (4, "000", [EOS]),
    (5, "111", [13, EOS]),
]


def context_states(model: Tdnmt, ids: list[int]) -> Tensor:
    """[N, d] the context encoder over one sequence, positions from 0, no mask needed."""
    x = model.source_embedding.weight[ids][None] * 4  # sqrt(16) = 4
    encoder = model.context_encoder
    if isinstance(encoder, BiLstm):
        return cast(Tensor, encoder.lstm(x)[0][0])
    if isinstance(encoder, Embeddings):
        return x[0]
    x = x + sinusoids(len(ids), 16).double()
    for layer in encoder.layers:
        x = layer(x, None)
    return cast(Tensor, encoder.norm(x)[0])


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("encoder", ["self_attention", "embedding", "bilstm"])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_context_is_one_sequence(norm: str, encoder: str, layers: int) -> None:
    """All of the above in one batch, each against its ids put together by hand."""
    model = small_model(norm, context_encoder=encoder, context_layers=layers)
    batch = batch_of(*(sentence for sentence, _, _ in SELECTIONS))
    states, owner, empty = model.encode_context(batch, chosen(*(marks for _, marks, _ in SELECTIONS)))
    assert empty is None
    for row, (_, _, ids) in enumerate(SELECTIONS):
        expected = context_states(model, ids)
        found = states[row][owner[row] == row]
        assert found.shape == expected.shape, ids
        assert torch.allclose(found, expected, atol=1e-12, rtol=0), ids


@torch.no_grad()
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_context_can_be_embeddings_alone(norm: str) -> None:
    """Words in no order: each is its embedding times sqrt(16), and the logits are those of any other order."""
    model = small_model(norm, context_encoder="embedding")
    model.source_embedding.weight[9:12] = torch.tensor([0.5, -1.0, 2.0]).double()[:, None]
    states, owner, _ = model.encode_context(batch_of(3), chosen("100"))
    found = states[0][owner[0] == 0]
    assert found[:3].tolist() == [[2.0] * 16, [-4.0] * 16, [8.0] * 16]
    assert torch.equal(found[3], 4 * model.source_embedding.weight[EOS])
    turned = TokenStore.from_ids([[([11, 9, 10], [23]), ([12], [24, 25])]])
    expected = logits(model, Gatherer(turned, 3).one_per_row(np.array([1])), chosen("100"))[0, :3]  # 24 25 </s>
    assert torch.allclose(logits(model, batch_of(3), chosen("100"))[0, :3], expected, atol=1e-12, rtol=0)


@torch.no_grad()
def test_the_context_is_read_with_the_source_embedding() -> None:
    model, batch, selection = small_model(tie="none"), batch_of(3), chosen("100")
    before = model.encode_context(batch, selection)[0]
    model.target_embedding.weight.add_(1.0)
    assert torch.equal(before, model.encode_context(batch, selection)[0])
    model.source_embedding.weight[10] += 1.0
    assert not torch.equal(before, model.encode_context(batch, selection)[0])


@pytest.mark.parametrize("encoder", ["embedding", "self_attention", "bilstm"])
def test_the_context_embedding_has_no_dropout(encoder: str) -> None:
    model, batch, selection = small_model(context_encoder=encoder), batch_of(3), chosen("100")
    expected = model.encode_context(batch, selection)[0]
    model.source_embedding.train()
    for _ in range(3):
        assert torch.equal(model.encode_context(batch, selection)[0], expected)
    assert not torch.equal(model.encode(batch, selection).states, model.encode(batch, selection).states)


def test_a_batch_with_fewer_candidates_than_the_scope() -> None:
    """The end of an empty context is found by the scope that the batch was gathered with."""
    model, narrow = small_model(), Gatherer(STORE, 2).one_per_row(np.array([0, 3]))
    found = logits(model, narrow, torch.tensor([[False, False], [True, False]]))
    expected = logits(model, batch_of(0, 3), chosen("000", "100"))
    real = narrow.target.sentence >= 0
    assert torch.allclose(found[real], expected[real], atol=1e-12, rtol=0)


# the whole network


class Reference:
    """TDNMT for one sentence, post-norm, from the weights alone: every sum written out, no mask, no batch."""

    def __init__(self, model: Tdnmt) -> None:
        self.weights = {name: value.detach() for name, value in model.named_parameters()}
        self.heads = 4

    def linear(self, name: str, x: Tensor) -> Tensor:
        bias = self.weights.get(f"{name}.bias", torch.zeros(()))
        return x @ self.weights[f"{name}.weight"].T + bias

    def norm(self, name: str, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attention(self, name: str, x: Tensor, other: Tensor | None = None, causal: bool = False) -> Tensor:
        if other is None:
            query, key, value = self.linear(f"{name}.query_key_value", x).chunk(3, -1)
        else:
            query, (key, value) = self.linear(f"{name}.query", x), self.linear(f"{name}.key_value", other).chunk(2, -1)
        heads = []
        for q, k, v in zip(*(part.chunk(self.heads, -1) for part in (query, key, value))):
            scores = q @ k.T / q.shape[-1] ** 0.5
            if causal:
                scores = scores + torch.full_like(scores, -torch.inf).triu(1)
            heads.append(scores.softmax(-1) @ v)
        return self.linear(f"{name}.output", torch.cat(heads, -1))

    def feed_forward(self, name: str, x: Tensor) -> Tensor:
        change = self.linear(f"{name}.feed_forward.outer", self.linear(f"{name}.feed_forward.inner", x).relu())
        return self.norm(f"{name}.feed_forward_residual.norm", x + change)

    def attend(self, name: str, x: Tensor, causal: bool = False) -> Tensor:
        change = self.attention(f"{name}.self_attention", x, causal=causal)
        return self.norm(f"{name}.self_residual.norm", x + change)

    def context(self, name: str, x: Tensor, states: Tensor) -> Tensor:
        y = self.attention(f"{name}.attention", x, states)
        gate = (self.linear(f"{name}.gate_state", x) + self.linear(f"{name}.gate_context", y)).sigmoid()
        return self.norm(f"{name}.norm", gate * x + (1 - gate) * y)

    def embed(self, ids: list[int]) -> Tensor:
        return self.weights["target_embedding.weight"][ids] * 4 + sinusoids(len(ids), 16).double()

    def logits(self, context: list[int], source: list[int], prefix: list[int]) -> Tensor:
        states = self.feed_forward(CONTEXT, self.attend(CONTEXT, self.embed(context)))
        x = self.embed(source)
        for n in range(2):
            x = self.context(f"encoder_context.{n}", self.attend(f"encoder.{n}", x), states)
            x = self.feed_forward(f"encoder.{n}", x)
        memory, x = x, self.embed(prefix)
        for n in range(2):
            x = self.context(f"decoder_context.{n}", self.attend(f"decoder.{n}", x, causal=True), states)
            change = self.attention(f"decoder.{n}.memory_attention", x, memory)
            x = self.feed_forward(f"decoder.{n}", self.norm(f"decoder.{n}.memory_residual.norm", x + change))
        return x @ self.weights["target_embedding.weight"].T


def test_the_whole_network() -> None:
    model = small_model()
    batch = batch_of(*(sentence for sentence, _, _ in SELECTIONS))
    found = logits(model, batch, chosen(*(marks for _, marks, _ in SELECTIONS)))
    for row, (sentence, _, context) in enumerate(SELECTIONS):
        prefix = [BOS, *STORE.target_ids(sentence)[:-1]]
        expected = Reference(model).logits(context, STORE.source_ids(sentence), prefix)
        assert torch.allclose(found[row, : len(prefix)], expected, atol=1e-10, rtol=0), (sentence, context)


def sentence_model(model: Tdnmt) -> SentNmt:
    """The same base weights without the rest."""
    plain = SentNmt(dataclasses.replace(model.config, kind="sentence"), V, V).double().eval()
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if name.split(".")[0] in BASE})
    return plain


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_going_round_an_empty_context(norm: str) -> None:
    """bypass: a sentence with nothing selected is the sentence model's; one that selected an empty line is not."""
    model = small_model(norm, empty_context="bypass")
    batch = batch_of(3, 3, 3, 0)
    selection = chosen("000", "100", "010", "111")
    models = model, sentence_model(model), small_model(norm)
    rows = [[logits(m, batch, selection)[batch.target.sentence == row] for row in range(4)] for m in models]
    assert [torch.equal(found, alone) for found, alone in zip(rows[0], rows[1])] == [True, False, False, True]
    assert [torch.equal(found, eos) for found, eos in zip(rows[0], rows[2])] == [False, True, True, False]


# stage 2


def frozen(model: SentNmt, **training: Any) -> set[str]:
    freeze(model, Config(training=TrainingConfig(**training)))
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


@pytest.mark.parametrize("tie", ["all", "none"])
def test_stage_two_trains_the_new_parts_only(tie: str) -> None:
    model = small_model("pre", tie)
    base = {name for name, _ in sentence_model(model).named_parameters()}
    assert frozen(model, init="a sentence model") == base
    batch = batch_of(2, 3, 5)
    states = model.decode(model.encode(batch, batch.present), batch)
    model.output(states)[batch.target.sentence >= 0].log_softmax(-1)[:, 20].sum().backward()
    learning = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 1e-9}
    assert learning == {name for name, _ in model.named_parameters()} - base


def test_what_else_can_be_frozen() -> None:
    base = {name for name, _ in sentence_model(small_model()).named_parameters()}
    assert frozen(small_model()) == set()  # nothing to keep where everything starts at random
    assert frozen(small_model(), freeze="base") == base
    assert frozen(small_model(), init="a sentence model", freeze="nothing") == set()
    concat = build_translator(dataclasses.replace(SMALL, kind="concat"), V, V)
    assert frozen(concat, init="a sentence model") == set()


def save_sentence_model(folder: Path, data: DataConfig, **sizes: Any) -> Model:
    source, target = load_subwords(data.folder)
    config = Config(model=dataclasses.replace(SMALL, kind="sentence", **sizes))
    torch.manual_seed(9)
    model = Model(config, build_translator(config.model, len(source), len(target)), source, target)
    save_model(folder, model)
    return model


def test_start_from_a_sentence_model(tmp_path: Path, prepared: DataConfig) -> None:
    earlier = save_sentence_model(tmp_path / "sentence", prepared)
    torch.manual_seed(10)
    model = Tdnmt(SMALL, len(earlier.source), len(earlier.target))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    said = start_from(model, None, str(tmp_path / "sentence"), earlier.source, earlier.target)
    base = dict(earlier.translator.named_parameters())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, base.get(name, before[name])), name
    assert any(not torch.equal(before[name], parameter) for name, parameter in base.items())
    assert said == [
        f"copied from {tmp_path / 'sentence'}: {len(base)} tensors",
        "new, starting at random: context_encoder, decoder_context, encoder_context",
    ]


def test_another_subword_model_is_refused(tmp_path: Path, prepared: DataConfig) -> None:
    earlier = save_sentence_model(tmp_path / "sentence", prepared)
    other = train_subwords(["a b c x y z zz zz"], 15, kind="bpe", byte_fallback=False, threads=1)
    for source, target in ((other, earlier.target), (earlier.source, other)):
        with pytest.raises(DynctxError, match="another subword model"):
            start_from(Tdnmt(SMALL, len(source), len(target)), None, str(tmp_path / "sentence"), source, target)


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({"width": 24}, "model.width 24"),
        ({"feed_forward": 32}, "model.feed_forward 32"),
        ({"encoder_layers": 3}, "model.encoder_layers 3"),
        ({"norm": "pre"}, "model.norm pre"),
        ({"tie_embeddings": "none"}, "model.tie_embeddings none"),
        ({"encoder_layers": 1}, "model.encoder_layers 1"),  # the second layer would start at random
        ({"heads": 2}, "model.heads 2"),
    ],
)
def test_other_sizes_are_refused(tmp_path: Path, prepared: DataConfig, sizes: dict[str, Any], named: str) -> None:
    earlier = save_sentence_model(tmp_path / "sentence", prepared, **sizes)
    model = Tdnmt(SMALL, len(earlier.source), len(earlier.target))
    with pytest.raises(DynctxError, match=named):
        start_from(model, None, str(tmp_path / "sentence"), earlier.source, earlier.target)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("own", [{}, {"empty_context": "bypass"}, {"context_encoder": "bilstm"}])
@torch.no_grad()
def test_contexts_may_share_a_row(norm: str, own: dict[str, str]) -> None:
    """The same logits in a search and along the references, whosoever's context lies beside one's own."""
    model = small_model(norm, **own)
    gatherer, sentences = Gatherer(STORE, 3), np.array([3, 0, 2, 5, 1, 3, 2, 3])
    given = np.array([[c == "x" for c in row] for row in ("xxx", "...", ".x.", "x..", "x..", "..x", "...", "x.x")])
    # multiple 1: the last row is full to its end
    alone, beside = (gatherer.one_per_row(sentences, given, together, multiple=1) for together in (1, 4))
    assert alone.context is not None and beside.context is not None
    assert (len(alone.context.ids), len(beside.context.ids)) == (8, 2)
    selection, real = torch.from_numpy(given), alone.target.sentence >= 0
    first, second = (logits(model, batch, selection)[real] for batch in (alone, beside))
    assert torch.allclose(first, second, rtol=0, atol=1e-12)
    caches = [model.begin(model.encode(batch, selection), 2) for batch in (alone, beside)]
    for tokens in (torch.full((8, 2), BOS), torch.arange(7, 23).view(8, 2)):
        first, second = (model.step(cache, tokens) for cache in caches)
        assert torch.allclose(first, second, rtol=0, atol=1e-12)
