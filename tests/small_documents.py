"""Small documents, selections in them, and every translator that reads context, in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer
from dynctx.config import HanConfig, ModelConfig, SanConfig, TdnmtConfig
from dynctx.corpus import TokenStore
from dynctx.planning import Shape, plan_epoch
from dynctx.translators import build_translator
from dynctx.translators.sentence import SentNmt

# a translator, and what is special about its configuration
KINDS = [
    "concat",
    "tdnmt",
    "tdnmt bypass",
    "tdnmt bilstm",
    "han",
    "han encoder",
    "han decoder",
    "san",
    "san live",
    "cadec",
]
# those to which the order of the selected sentences matters
ORDERED = ["concat", "tdnmt", "tdnmt bypass", "tdnmt bilstm", "cadec"]
WITH_TARGETS = ["han", "han decoder", "cadec"]  # those that read translations of the selected sentences too
VARIANTS: dict[str, Any] = {
    "bypass": {"tdnmt": TdnmtConfig(empty_context="bypass")},
    "bilstm": {"tdnmt": TdnmtConfig(context_encoder="bilstm")},
    "encoder": {"han": HanConfig(decoder=False)},
    "decoder": {"han": HanConfig(encoder=False)},
    "live": {"san": SanConfig(context_states="live_detached")},
}

# "all others" holds the rest, which tell more precisely what leaks: enough to ask of each model once
OUTSIDERS = ["unselected", "beyond the scope", "later", "other documents", "all others"]
LEAKS = [(kind, which) for kind in KINDS for which in OUTSIDERS if " " not in kind or which == "all others"]

kinds = pytest.mark.parametrize("kind", KINDS)
norms = pytest.mark.parametrize("norm", ["post", "pre"])

V = 31
SCOPE = 4

# lengths of source and target, documents 0 | 1 2 | 3 .. 9 | 10 11 12; sentence 5 is an empty line
LENGTHS = [
    [(3, 4)],
    [(2, 3), (4, 2)],
    [(3, 2), (2, 4), (0, 1), (2, 3), (5, 3), (1, 2), (3, 3)],
    [(3, 2), (3, 3), (2, 0)],
]
FIRSTS = [0, 1, 1, 3, 3, 3, 3, 3, 3, 3, 10, 10, 10]  # the first sentence of each one's document
# sentence -> distances of what is selected: nothing, some side by side, some apart, everything
SELECTED: dict[int, set[int]] = {
    **{0: set(), 1: set(), 2: {1}},
    **{3: set(), 4: set(), 5: {2}, 6: {1, 3}, 7: {1, 2, 3, 4}, 8: {2, 4}, 9: {3}},
    **{10: set(), 11: {1}, 12: {1, 2}},
}
ALL = sorted(SELECTED)


def small_model(kind: str, norm: str) -> SentNmt:
    """In float64 and with every parameter random, so that nothing rests on a zero bias."""
    name, _, variant = kind.partition(" ")
    layers = 2 if name in ("concat", "tdnmt") else 1  # where context is read between the layers, or behind them all
    config = ModelConfig(width=16, feed_forward=24, heads=4, encoder_layers=layers, decoder_layers=layers, scope=SCOPE)
    settings = VARIANTS[variant] if variant else {}
    torch.manual_seed(5)
    model = build_translator(dataclasses.replace(config, kind=name, norm=norm, **settings), V, V).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            elif "embedding" not in name:
                parameter.mul_(2.0)
    return model


def small_store(changed: set[int] | None = None, sides: tuple[int, ...] = (0, 1)) -> TokenStore:
    """The documents; in sentences of `changed` every word of the source (0) and the target (1) is another."""
    rng = np.random.default_rng(3)
    documents, number = [], 0
    for lengths in LENGTHS:
        pairs = []
        for pair in lengths:
            words = [rng.integers(7, V, length).tolist() for length in pair]
            for side in sides if number in (changed or set()) else ():
                words[side] = [7 + (word - 7 + 5) % (V - 7) for word in words[side]]
            pairs.append((words[0], words[1]))
            number += 1
        documents.append(pairs)
    return TokenStore.from_ids(documents)


def packed(store: TokenStore) -> Batch:
    """All sentences in one batch, several a row, and a last row with none."""
    gatherer, shape = Gatherer(store, SCOPE), Shape(rows=7, source=11, target=12, context=25)
    plans = plan_epoch(gatherer.lengths(), np.asarray(store.usable), shape, seed=3, epoch=0)
    assert len(plans) == 1
    return gatherer.gather(plans[0], shape)


def one_per_row(store: TokenStore, sentences: list[int]) -> Batch:
    return Gatherer(store, SCOPE).one_per_row(np.array(sentences))


def selection_of(batch: Batch) -> Tensor:
    rows = [[distance in SELECTED[s] for distance in range(1, SCOPE + 1)] for s in batch.sentences.tolist()]
    return torch.tensor(rows)


@torch.no_grad()
def logits(model: SentNmt, batch: Batch, selection: Tensor | None) -> Tensor:
    return model.output(model.decode(model.encode(batch, selection), batch))


def by_sentence(batch: Batch, tensor: Tensor) -> dict[int, Tensor]:
    """What belongs to each sentence of the store."""
    return {s: tensor[batch.target.sentence == n] for n, s in enumerate(batch.sentences.tolist())}


def translated(model: SentNmt, batch: Batch) -> dict[int, Tensor]:
    return by_sentence(batch, logits(model, batch, selection_of(batch)))
