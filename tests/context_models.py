"""Small models and a small corpus for the tests of HAN, SAN and CADec."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer
from dynctx.config import ModelConfig
from dynctx.corpus import TokenStore
from dynctx.planning import Shape, plan_epoch
from dynctx.subwords import UNK
from dynctx.translators import build_translator
from dynctx.translators.sentence import SentNmt

V, SCOPE = 29, 3
SMALL = ModelConfig(width=16, feed_forward=24, heads=4, encoder_layers=2, decoder_layers=2, dropout=0.1, scope=SCOPE)
# sentences 0 .. 4 | 5 6; sentence 1 is an empty line, and 2 has an unknown word on both sides
STORE = TokenStore.from_ids(
    [
        [([7, 8], [20]), ([], [21, 22]), ([9, UNK, 11], [23, UNK]), ([12], [24, 25]), ([13, 14], [])],
        [([15], [26]), ([16, 17], [27, 28])],
    ]
)
# sentence, and the distances of what it has selected
SELECTIONS = [
    *((4, {1, 2, 3}), (4, {1, 3}), (4, {3}), (4, {2}), (4, set()), (3, {2}), (3, {1}), (3, {1, 2, 3})),
    *((2, {1, 2}), (1, {1}), (0, set()), (5, set()), (6, {1})),
]


def small_model(kind: str, norm: str = "post", **own: Any) -> Any:
    """In float64 and with every parameter random."""
    torch.manual_seed(4)
    config = dataclasses.replace(SMALL, kind=kind, norm=norm, **own)  # type: ignore[arg-type]
    model = build_translator(config, V, V).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def batch_of(*sentences: int, store: TokenStore = STORE) -> Batch:
    return Gatherer(store, SCOPE, lay_context=False).one_per_row(np.array(sentences))


def all_selections() -> tuple[Batch, Tensor]:
    """Everything in SELECTIONS as one batch, one sentence a row."""
    selection = [[distance in chosen for distance in range(1, SCOPE + 1)] for _, chosen in SELECTIONS]
    return batch_of(*(sentence for sentence, _ in SELECTIONS)), torch.tensor(selection)


def packed(store: TokenStore = STORE, rows: int = 4, run_length: int = 64) -> Batch:
    """All sentences in one batch, several a row."""
    gatherer = Gatherer(store, SCOPE, lay_context=False)
    shape = Shape(rows, source=10, target=10)
    documents = np.asarray(store.documents)
    plans = plan_epoch(gatherer.lengths(), np.asarray(store.usable), shape, 3, 0, run_length, documents)
    assert len(plans) == 1
    return gatherer.gather(plans[0], shape)


@torch.no_grad()
def logits(model: SentNmt, batch: Batch, selection: Tensor | None) -> Tensor:
    return model.output(model.decode(model.encode(batch, selection), batch))


def new_parameters(**model: Any) -> tuple[int, dict[str, tuple[int, int]]]:
    """At base size with 16,000 words: what is trained beyond the sentence model; trained and frozen by part."""
    from dynctx.training.reporting import count_parameters

    with torch.device("meta"):
        base = count_parameters(build_translator(ModelConfig(), 16000, 16000))
        parts = count_parameters(build_translator(ModelConfig(**model), 16000, 16000))
    return parts["total"][0] - base["total"][0], {n: c for n, c in parts.items() if n not in base}
