"""`dynctx prepare` as the tests call it: without a word, and what it says where it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from dynctx import prepare as preparing
from dynctx.config import DataConfig
from dynctx.errors import DynctxError


def prepare(config: DataConfig) -> dict[str, Any]:
    return preparing.prepare(config, say=lambda message: None, threads=1)


def message(config: DataConfig) -> str:
    with pytest.raises(DynctxError) as caught:
        prepare(config)
    return str(caught.value)
