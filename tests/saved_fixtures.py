"""A small subword model, and a model folder made with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from saved_models import TEXT, make

from dynctx.model_folder import save_model
from dynctx.subwords import Subwords, train_subwords


@pytest.fixture(scope="module")
def subwords() -> Subwords:
    return train_subwords(TEXT, 60, kind="bpe", byte_fallback=False, threads=1)


@pytest.fixture
def saved(tmp_path: Path, subwords: Subwords) -> Path:
    save_model(tmp_path / "model", make(subwords, updates=7))
    return tmp_path / "model"
