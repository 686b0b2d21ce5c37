"""`dynctx translate` with the tiny model, or with a translator that swaps upper and lower case; a plugin of tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from format_helpers import swapped
from tiny_runs import Ended, Run

from dynctx import commands_translate
from dynctx.documents import Document
from dynctx.pipeline import Choice


@pytest.fixture
def translating(run: Run, trained: Path) -> Run:
    """`dynctx translate` in this process, with the tiny model."""

    def translate(*arguments: str | Path, stdin: bytes = b"", command: str = "translate") -> Ended:
        return run(command, "-m", trained, *arguments, stdin=stdin)

    return translate


@pytest.fixture
def swap(monkeypatch: pytest.MonkeyPatch) -> list[list[Document]]:
    """A translator that swaps upper and lower case; what it was given."""
    given: list[list[Document]] = []

    def translate(
        model: Any, documents: Sequence[Document], *_: Any, **__: Any
    ) -> tuple[list[Document], list[list[Choice]]]:
        given.append(list(documents))
        found = [Document(d.id, tuple(map(swapped, d.sentences))) for d in documents]
        return found, [[Choice((), {}, None)] * len(d.sentences) for d in documents]

    monkeypatch.setattr(commands_translate, "translate_and_explain", translate)
    return given
