"""CADec: the banks, the drafts, the whole network against one written out here, and what stage 2 copies and trains."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from context_models import (
    SCOPE,
    SELECTIONS,
    SMALL,
    STORE,
    all_selections,
    batch_of,
    logits,
    new_parameters,
    small_model,
)
from plain import Plain, greedy
from torch import Tensor

from dynctx.batches import with_targets
from dynctx.config import Config, DataConfig, ModelConfig, TrainingConfig
from dynctx.errors import DynctxError
from dynctx.layers import LayerSizes, Residual
from dynctx.linear import Linear
from dynctx.model_folder import Model, load_model, save_model
from dynctx.prepared import load_subwords
from dynctx.subwords import BOS, EOS
from dynctx.training.translation import freeze, start_from
from dynctx.translators import build_translator
from dynctx.translators.cadec import BankAttention, SecondLayer, drafts_of
from dynctx.translators.sentence import BASE, SentNmt

# size


def test_new_parameters_at_base_size() -> None:
    attention = 4 * (512 * 512 + 512)
    source = 2 * (512 * 512 + 512) + 516 * 1024 + 1024  # keys and values from 512 + 4
    target = 2 * (512 * 512 + 512) + 1028 * 1024 + 1024  # from 2 * 512 + 4
    layer = attention + source + target + (2 * 512 * 2048 + 2048 + 512) + 4 * 1024
    assert layer == 5_788_160
    decoder, output = 6 * layer, 16_000 * 512
    assert decoder + 1024 == 34_729_984
    total, parts = new_parameters(kind="cadec", scope=3)
    assert total == 34_729_984 + output
    assert parts == {"second_decoder": (decoder, 0), "second_norm": (1024, 0), "output": (output, 0)}
    assert new_parameters(kind="cadec", scope=6)[0] == total + 6 * 2 * 3 * 1024  # three more distances
    # where the sentence model has an output layer of its own, that is one matrix more, too
    untied = [ModelConfig(tie_embeddings="none"), ModelConfig(kind="cadec", scope=3, tie_embeddings="none")]
    with torch.device("meta"):
        sizes = [sum(p.numel() for p in build_translator(c, 16000, 16000).parameters()) for c in untied]
    assert sizes[1] - sizes[0] == total


# the banks


def test_the_banks_by_hand() -> None:
    """Sentence 3 with the sentences at distance 1 and 3: its own first, then the others, oldest first."""
    model, batch = small_model("cadec"), batch_of(3)
    draft = [20, 9]
    bank = model.bank(batch, [draft])
    memory = model.encode(batch, torch.tensor([[True, False, True]]), bank)
    plain = Plain(model, 4, 2, "post")
    embedding = plain.weights["target_embedding.weight"]
    source, target = [], []
    for distance, said in ((0, [*draft, EOS]), (3, [20, EOS]), (1, STORE.target_ids(2))):
        ids = STORE.source_ids(3 - distance)
        mark = torch.eye(SCOPE + 1, dtype=torch.float64)[distance]
        states = plain.encode(ids)
        source += [torch.cat([state, mark]) for state in states]
        decoded = plain.decode(states, [BOS, *said[:-1]])
        target += [torch.cat([embedding[word], state, mark]) for word, state in zip(said, decoded)]
    for found, sentence, expected in (
        (memory.states, memory.sentence, torch.stack(source)),
        (memory.target, memory.target_sentence, torch.stack(target)),
    ):
        assert torch.allclose(found[0][sentence[0] == 0], expected, atol=1e-10, rtol=0)
        assert not found.requires_grad


def test_a_bank_may_have_columns_of_zeros() -> None:
    """As it has on a GPU; the keys and values are the same."""
    torch.manual_seed(1)
    attention, bank = BankAttention(8, 2, keys_from=13).double(), torch.randn(2, 5, 13, dtype=torch.float64)
    exact, wide = (attention.project(states) for states in (bank, torch.nn.functional.pad(bank, (0, 3))))
    for name in ("key", "value"):
        assert torch.allclose(getattr(exact, name), getattr(wide, name), atol=1e-12, rtol=0)


def test_a_layer_of_the_second_decoder_by_hand() -> None:
    """Width 2, one head, distances 0 and 1, every norm the identity, x = (1, 2).

    Self-attention sees itself and turns x round: + (2, 1) = (3, 3). The source bank has this sentence's (4, 0) and
    (0, 8) of the sentence before, whose distance earns it a score of ln 3: 1/4 (4, 0) + 3/4 (0, 8) = (1, 6), and
    x = (4, 9). The target bank has the draft's word (1, 0) with the state (0, 5); the value takes the word's first and
    the state's second number: + (1, 5) = (5, 14). Feed-forward: + (0, 2 relu(x_1)) = (5, 24).
    Without the sentence before: (3, 3) + (4, 0) + (1, 5) = (8, 8), and (8, 24).
    """
    layer = SecondLayer(LayerSizes(2, 1, 1, "pre", 0.0), distances=2).double().eval()
    for part in layer.modules():
        if isinstance(part, Residual):
            part.norm = torch.nn.Identity()  # type: ignore[assignment]
    turn, keep = [[0.0, 1], [1, 0]], [[1.0, 0], [0, 1]]
    score = math.sqrt(2) * math.log(3)
    weights: list[tuple[Linear, list[list[float]], list[float]]] = [
        (layer.self_attention.query_key_value, [[0, 0], [0, 0], [0, 0], [0, 0], *keep], [0.0] * 6),
        (layer.self_attention.output, turn, [0, 0]),
        (layer.memory_attention.query, [[0, 0], [0, 0]], [1, 0]),
        (layer.memory_attention.key_value, [[0, 0, 0, score], [0] * 4, [1, 0, 0, 0], [0, 1, 0, 0]], [0] * 4),
        (layer.memory_attention.output, keep, [0, 0]),
        (layer.target_attention.query, keep, [0, 0]),
        (layer.target_attention.key_value, [[1] * 6, [1] * 6, [1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0]], [0] * 4),
        (layer.target_attention.output, keep, [0, 0]),
        (layer.feed_forward.inner, [[1, 0]], [0]),
        (layer.feed_forward.outer, [[0], [2]], [0, 0]),
    ]
    with torch.no_grad():
        for linear, weight, bias in weights:
            linear.weight.copy_(torch.tensor(weight, dtype=torch.float64))
            linear.bias.copy_(torch.tensor(bias, dtype=torch.float64))
    source = layer.memory_attention.project(torch.tensor([[[4.0, 0, 1, 0], [0, 8, 0, 1]]], dtype=torch.float64))
    target = layer.target_attention.project(torch.tensor([[[1.0, 0, 0, 5, 1, 0]]], dtype=torch.float64))
    seen = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    for mask, expected in (([True, True], [5.0, 24.0]), ([True, False], [8.0, 24.0])):
        x = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)
        found = layer(x, seen, source, torch.tensor(mask)[None, None, None], target, seen)
        assert found.flatten().tolist() == pytest.approx(expected, abs=1e-12)


# the whole network


class Reference(Plain):
    """CADec for one sentence, from the weights alone; the second decoder is pre-norm whatever the first is."""

    def second(self, source: Tensor, target: Tensor, prefix: list[int]) -> Tensor:
        x = self.embed("target", prefix)
        for n in range(self.layers):
            name = f"second_decoder.{n}"
            steps = [
                ("self", lambda y, a=f"{name}.self_attention": self.self_attention(a, y, True)),
                ("memory", lambda y, a=f"{name}.memory_attention": self.cross_attention(a, y, source)),
                ("target", lambda y, a=f"{name}.target_attention": self.cross_attention(a, y, target)),
                ("feed_forward", lambda y, a=f"{name}.feed_forward": self.feed_forward(a, y)),
            ]
            for step, sublayer in steps:
                x = self.add(f"{name}.{step}_residual", x, sublayer, pre=True)
        return self.norm("second_norm", x)

    def logits(self, sentence: int, distances: set[int]) -> Tensor:
        source, target = [], []
        embedding = self.weights["target_embedding.weight"]
        for distance in (0, *distances):
            ids = STORE.source_ids(sentence - distance)
            states = self.encode(ids)
            said = STORE.target_ids(sentence - distance) if distance else greedy(self, ids, 2 * len(ids) + 10)
            mark = torch.eye(SCOPE + 1, dtype=torch.float64)[distance]
            source.append(torch.cat([states, mark.expand(len(states), -1)], 1))
            decoded = self.decode(states, [BOS, *said[:-1]])
            target.append(torch.cat([embedding[said], decoded, mark.expand(len(said), -1)], 1))
        prefix = [BOS, *STORE.target_ids(sentence)[:-1]]
        return self.linear("output", self.second(torch.cat(source), torch.cat(target), prefix))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_whole_network(norm: str) -> None:
    model = small_model("cadec", norm)
    batch, selection = all_selections()
    found = logits(model, batch, selection)
    for row, (sentence, distances) in enumerate(SELECTIONS):
        expected = Reference(model, 4, 2, norm).logits(sentence, distances)
        assert torch.allclose(found[row, : len(expected)], expected, atol=1e-10, rtol=0), (sentence, distances)


def test_given_drafts_are_used() -> None:
    model, batch = small_model("cadec"), batch_of(3, 4)
    base = model.sentence_model()
    own, _, lengths = drafts_of(base, batch, 2 * batch.plan.lengths[0] + 10)
    given = [ids[: n - 1] for ids, n in zip(own.tolist(), lengths.tolist())]
    found = [logits_with(model, batch, drafts) for drafts in (None, given, [[20], [21]])]
    real = batch.target.sentence >= 0
    assert torch.allclose(found[0][real], found[1][real], atol=1e-10, rtol=0)
    assert not torch.allclose(found[0][real], found[2][real], atol=1e-3, rtol=0)
    assert with_targets(batch, [[20], [21]]).target.ids[:, :2].tolist() == [[20, EOS], [21, EOS]]


@torch.no_grad()
def logits_with(model: SentNmt, batch: object, drafts: list[list[int]] | None) -> Tensor:
    bank = model.bank(batch, drafts)  # type: ignore[arg-type]
    return model.output(model.decode(model.encode(batch, batch.present, bank), batch))  # type: ignore[attr-defined]


# stage 2


@pytest.mark.parametrize("tie", ["all", "none"])
def test_stage_two_trains_the_second_decoder_only(tie: str) -> None:
    model = small_model("cadec", "pre", tie_embeddings=tie).train()
    freeze(model, Config(training=TrainingConfig(init="a sentence model")))
    batch, selection = all_selections()
    states = model.decode(model.encode(batch, selection), batch)
    model.output(states)[batch.target.sentence >= 0].log_softmax(-1)[:, 20].sum().backward()
    learning = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 1e-12}
    new = {n for n, _ in model.named_parameters() if n.split(".")[0] in ("second_decoder", "second_norm", "output")}
    assert learning == new
    assert {name.split(".")[0] for name, p in model.named_parameters() if not p.requires_grad} <= {*BASE, "base_output"}


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_the_output_layer_starts_as_the_sentence_model_s(tmp_path: Path, prepared: DataConfig, tie: str) -> None:
    source, target = load_subwords(prepared.folder)
    sizes: ModelConfig = dataclasses.replace(SMALL, tie_embeddings=tie)  # type: ignore[arg-type]
    earlier = build_translator(sizes, len(source), len(target))
    save_model(tmp_path / "sentence", Model(Config(model=sizes), earlier, source, target))
    config = Config(model=dataclasses.replace(sizes, kind="cadec"))
    model = build_translator(config.model, len(source), len(target))
    said = start_from(model, None, str(tmp_path / "sentence"), source, target)
    assert said[1] == "new, starting at random: second_decoder, second_norm"
    base = model.sentence_model()
    assert torch.equal(model.output.weight, earlier.output.weight)
    assert model.output.weight is not base.output.weight
    old = dict(earlier.named_parameters(remove_duplicate=False))
    for name, mine in base.named_parameters(remove_duplicate=False):
        assert torch.equal(mine, old.pop(name)), name
    assert not old
    # the base stays what it was, in a saved model and in one that starts from it
    with torch.no_grad():
        model.output.weight.add_(1.0)
    save_model(tmp_path / "cadec", Model(config, model, source, target))
    third = build_translator(config.model, len(source), len(target))
    assert start_from(third, None, str(tmp_path / "cadec"), source, target)[1] == "new, starting at random: nothing"
    for other in (load_model(tmp_path / "cadec").translator, third):
        assert torch.equal(other.output.weight, earlier.output.weight + 1.0)
        assert torch.equal(other.sentence_model().output.weight, earlier.output.weight)


def test_without_a_sentence_model_there_is_nothing_to_correct(prepared: DataConfig) -> None:
    source, target = load_subwords(prepared.folder)
    model = build_translator(dataclasses.replace(SMALL, kind="cadec"), len(source), len(target))
    with pytest.raises(DynctxError, match=r"model\.kind cadec learns on top of a sentence model"):
        start_from(model, None, "", source, target)
