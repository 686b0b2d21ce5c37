"""What the tests of the configuration share."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest

from dynctx.config import parse_config
from dynctx.errors import DynctxError

PAIR = {"source": "a.en", "target": "a.de"}


def refused(content: dict[str, Any]) -> str:
    with pytest.raises(DynctxError) as caught:
        parse_config(content, where="my.yaml")
    text = str(caught.value)
    assert text.startswith("my.yaml: ") and "\n" not in text
    return text.removeprefix("my.yaml: ")


def keys(kind: Any, path: str = "") -> set[str]:
    """Every key of a configuration, sections expanded: seed, training.schedule.peak, ..."""
    found: set[str] = set()
    for name, hint in typing.get_type_hints(kind).items():
        found |= keys(hint, f"{path}{name}.") if dataclasses.is_dataclass(hint) else {path + name}
    return found
