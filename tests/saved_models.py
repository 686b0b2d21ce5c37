"""A small model on disk, for the tests of model folders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dynctx.config import Config, DataConfig, DecodingConfig, ModelConfig
from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.model_folder import Model, weights_of
from dynctx.subwords import Subwords
from dynctx.translators import build_translator

TEXT = ["the cat sat on the mat", "a dog ran in the park", "it rains today again and again", "we saw a small house"]
DOCUMENTS = [Document("a", ("the cat sat", "", "a dog ran again")), Document("b", ("we saw the park today",))]


def make(source: Subwords, target: Subwords | None = None, seed: int = 0, tie: str = "all", **about: Any) -> Model:
    target = target or source
    torch.manual_seed(seed)
    sizes = ModelConfig(kind="sentence", width=16, feed_forward=32, heads=2, encoder_layers=1, decoder_layers=1)
    sizes.tie_embeddings = tie  # type: ignore[assignment]
    data = DataConfig(source_language="en", target_language="de", joint=target is source)
    config = Config(seed=seed, data=data, model=sizes, decoding=DecodingConfig(beam=2, max_extra=3))
    return Model(config, build_translator(sizes, len(source), len(target)).eval(), source, target, about)


def message(action: Callable[[], Any]) -> str:
    with pytest.raises(DynctxError) as caught:
        action()
    return str(caught.value)


def same_weights(first: Model, second: Model) -> bool:
    a, b = weights_of(first.translator), weights_of(second.translator)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
