"""HAN: the module by hand, the whole network against one written out here, and what stage 2 trains."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from context_models import SELECTIONS, SMALL, STORE, all_selections, batch_of, logits, new_parameters, small_model
from plain import Plain
from torch import Tensor

from dynctx.config import Config, DataConfig, HanConfig, TrainingConfig
from dynctx.layers import KeyValue, LayerSizes
from dynctx.model_folder import Model, save_model
from dynctx.prepared import load_subwords
from dynctx.subwords import BOS, EOS, UNK
from dynctx.training.translation import freeze, start_from
from dynctx.translators import build_translator
from dynctx.translators.han import HierarchicalAttention, Words

SIDES = [HanConfig(), HanConfig(decoder=False), HanConfig(encoder=False)]
sides = pytest.mark.parametrize("han", SIDES, ids=["joint", "encoder", "decoder"])
norms = pytest.mark.parametrize("norm", ["post", "pre"])


# size


def test_new_parameters_at_base_size() -> None:
    # two attentions of 4 (512 512 + 512); feed-forward 2 512 2048 + 2048 + 512; gate 1024 512 + 512; five norms
    module = 2 * 1_050_624 + 2_099_712 + 524_800 + 5 * 1_024
    assert module == 4_730_880
    both, one = (module, 0), {"encoder_context": (module, 0)}
    assert new_parameters(kind="han") == (9_461_760, {"encoder_context": both, "decoder_context": both})
    assert new_parameters(kind="han", han=HanConfig(decoder=False)) == (module, one)
    assert new_parameters(kind="han", han=HanConfig(encoder=False)) == (module, {"decoder_context": both})


# the module, by hand


def by_hand() -> tuple[HierarchicalAttention, Words]:
    """Width 2, one head, every norm the identity, h = (1, 2).

    Sentence 1 has two words, with values (4, 0) and (8, 0); h scores them 0 and ln 3, so the weights are 1/4 and 3/4
    and s_1 = (7, 0). Sentence 2 has one word of value (0, 6): s_2 = (0, 6). Sentence 3 is not selected.
    Sentence level: keys (s_1, 0), scores h_1 s_1 / sqrt(2) scaled to ln 2 * 7 / 7 = ln 2 and 0: weights 2/3 and 1/3;
    values as they are: d = (14/3, 2). The feed-forward adds (0, 1): relu(d_2) / 2. d = (14/3, 3).
    Gate: sigmoid of (0, ln 3) = (1/2, 3/4). out = (1/2 * 1 + 1/2 * 14/3, 1/4 * 2 + 3/4 * 3) = (17/6, 11/4).
    """
    module = HierarchicalAttention(LayerSizes(2, 1, 1, "post", 0.0)).double().eval()
    names = "word_query_norm", "sentence_query_norm", "word_norm", "feed_forward_norm", "norm"
    for name in names:
        setattr(module, name, torch.nn.Identity())
    weights: list[tuple[Any, list[list[float]], list[float]]] = [
        (module.word_attention.query, [[1, 0], [0, 1]], [0, 0]),
        (module.word_attention.output, [[1, 0], [0, 1]], [0, 0]),
        (module.sentence_attention.query, [[math.sqrt(2) * math.log(2) / 7, 0], [0, 0]], [0, 0]),
        (module.sentence_attention.key_value, [[1, 0], [0, 0], [1, 0], [0, 1]], [0, 0, 0, 0]),
        (module.sentence_attention.output, [[1, 0], [0, 1]], [0, 0]),
        (module.feed_forward.inner, [[0, 1]], [0]),
        (module.feed_forward.outer, [[0], [0.5]], [0, 0]),
        (module.gate, [[0, 0, 0, 0], [0, 1, 0, 0]], [0, math.log(3) - 2]),
    ]
    with torch.no_grad():
        for linear, weight, bias in weights:
            linear.weight.copy_(torch.tensor(weight, dtype=torch.float64))
            linear.bias.copy_(torch.tensor(bias, dtype=torch.float64))
    key = torch.tensor([[0.0, 0], [math.sqrt(2) * math.log(3), 0], [5, 5], [9, 9]], dtype=torch.float64)
    value = torch.tensor([[4.0, 0], [8, 0], [0, 6], [99, 99]], dtype=torch.float64)
    masks = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)  # what is missing sees all
    words = KeyValue(key[None, None], value[None, None])
    return module, Words(words, masks[:, None, None, None], torch.tensor([[[True, True, False]]]))


H = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)


def near(found: Tensor, expected: list[float]) -> bool:
    return torch.allclose(found.flatten(), torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=0)


def test_the_module_by_hand() -> None:
    module, words = by_hand()
    summaries = module.summarise(H, words)
    assert near(summaries[0, 0, :2], [7, 0, 0, 6])
    assert near(module.weigh(H, summaries, words.exists), [14 / 3, 2])
    assert near(module(H, words), [17 / 6, 11 / 4])


@torch.no_grad()
def test_each_dropout_by_hand() -> None:
    """A half is dropped, what is left is doubled; each of three places by itself, in training and not in use."""
    module, words = by_hand()
    summaries = module.summarise(H, words)
    module.word_attention.dropout = module.sentence_attention.dropout = module.dropout.p = 0.5
    assert near(module.summarise(H, words)[0, 0, :2], [7, 0, 0, 6]) and near(module(H, words), [17 / 6, 11 / 4])
    module.train()
    torch.manual_seed(0)
    # the words weigh 1/4 and 3/4 of (4, 0) and (8, 0), the sentences 2/3 and 1/3 of (7, 0) and (0, 6)
    found = {round(float(module.summarise(H, words)[0, 0, 0, 0]), 9) for _ in range(100)}
    assert found == {0.0, 2.0, 12.0, 14.0}
    found = {round(float(module.weigh(H, summaries, words.exists)[0, 0, 0]), 9) for _ in range(100)}
    assert found == {0.0, round(28 / 3, 9)}
    # d_2 = 2 and what the feed-forward adds, 0 or twice 1: out_2 = 1/4 2 + 3/4 d_2
    module.word_attention.dropout = module.sentence_attention.dropout = 0.0
    assert {round(float(module(H, words)[0, 0, 1]), 9) for _ in range(100)} == {2.0, 3.5}


def test_without_context_the_state_goes_on_alone_by_hand() -> None:
    module, words = by_hand()
    words.exists[:] = False
    assert torch.equal(module(H, words), H)
    module.norm = torch.nn.LayerNorm(2, eps=1e-6).double()  # which is then all that is left
    shrunk = 0.5 / math.sqrt(0.25 + 1e-6)
    assert near(module(H, words), [-shrunk, shrunk])


def test_only_the_gated_state_carries_gradient() -> None:
    """out = (1 - g) h + g d, with d fixed: the derivative of the sum is 1 - g, and the gate's own part."""
    module, words = by_hand()
    h = H.clone().requires_grad_()
    module(h, words).sum().backward()
    # the gate's second entry has slope g (1 - g) = 3/16 in h_2, times d_2 - h_2 = 1
    assert h.grad is not None and near(h.grad, [1 / 2, 1 / 4 + 3 / 16])


# the whole network


class Reference(Plain):
    """HAN for one sentence, from the weights alone."""

    def module(self, name: str, h: Tensor, context: list[Tensor]) -> Tensor:
        if not context:
            return self.norm(f"{name}.norm", h)
        summaries = [
            self.norm(
                f"{name}.word_norm",
                self.cross_attention(f"{name}.word_attention", self.norm(f"{name}.word_query_norm", h), states),
            )
            for states in context
        ]
        rows = []
        for t, query in enumerate(self.norm(f"{name}.sentence_query_norm", h)):
            own = torch.stack([summary[t] for summary in summaries])  # [k, d]
            rows.append(self.cross_attention(f"{name}.sentence_attention", query[None], own))
        d = torch.cat(rows)
        d = d + self.feed_forward(f"{name}.feed_forward", self.norm(f"{name}.feed_forward_norm", d))
        gate = self.linear(f"{name}.gate", torch.cat([h, d], -1)).sigmoid()
        return self.norm(f"{name}.norm", (1 - gate) * h + gate * d)

    def logits(self, han: HanConfig, sentence: int, distances: set[int]) -> Tensor:
        sources, targets = [], []
        for distance in sorted(distances, reverse=True):
            ids = STORE.source_ids(sentence - distance)
            read = [BOS, *STORE.target_ids(sentence - distance)[:-1]]
            states = self.encode(ids)
            words = [states[n] for n, word in enumerate(ids) if word not in (UNK, EOS)]
            sources += [torch.stack(words)] if words else []
            said = self.decode(states, read)
            words = [said[n] for n, word in enumerate(read) if word not in (UNK, BOS)]
            targets += [torch.stack(words)] if words else []
        memory = self.encode(STORE.source_ids(sentence))
        if han.encoder:
            memory = self.module("encoder_context", memory, sources)
        states = self.decode(memory, [BOS, *STORE.target_ids(sentence)[:-1]])
        if han.decoder:
            states = self.module("decoder_context", states, targets)
        return self.linear("output", states)


@sides
@norms
def test_the_whole_network(han: HanConfig, norm: str) -> None:
    model = small_model("han", norm, han=han)
    batch, selection = all_selections()
    found = logits(model, batch, selection)
    for row, (sentence, distances) in enumerate(SELECTIONS):
        expected = Reference(model, 4, 2, norm).logits(han, sentence, distances)
        assert torch.allclose(found[row, : len(expected)], expected, atol=1e-10, rtol=0), (sentence, distances)


def test_an_empty_line_and_an_empty_selection_are_the_same() -> None:
    model = small_model("han", han=HanConfig(decoder=False))
    batch = batch_of(3, 3)
    found = logits(model, batch, torch.tensor([[False, True, False], [False, False, False]]))
    assert torch.equal(found[0], found[1])


# stage 2


@sides
def test_stage_two_trains_everything(han: HanConfig) -> None:
    model = small_model("han", "pre", han=han)
    freeze(model, Config(training=TrainingConfig(init="a sentence model")))
    batch, selection = all_selections()
    states = model.decode(model.encode(batch, selection), batch)
    model.output(states)[batch.target.sentence >= 0].log_softmax(-1)[:, 20].sum().backward()
    still = {name for name, p in model.named_parameters() if p.grad is None or p.grad.abs().max() < 1e-12}
    assert still == set()


def test_joint_may_start_from_the_encoder_s_model(tmp_path: Path, prepared: DataConfig) -> None:
    """The module of the first keeps its weights."""
    source, target = load_subwords(prepared.folder)
    first, joint = (
        Config(model=dataclasses.replace(SMALL, kind="han", han=HanConfig(decoder=decoder)))
        for decoder in (False, True)
    )
    earlier = build_translator(first.model, len(source), len(target))
    save_model(tmp_path / "encoder", Model(first, earlier, source, target))
    model = build_translator(joint.model, len(source), len(target))
    said = start_from(model, None, str(tmp_path / "encoder"), source, target)
    assert said[1] == "new, starting at random: decoder_context"
    own = dict(model.named_parameters())
    assert sum(name.startswith("encoder_context.") for name, _ in earlier.named_parameters()) == 28
    assert all(torch.equal(parameter, own[name]) for name, parameter in earlier.named_parameters())
