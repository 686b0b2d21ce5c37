"""What the tests of documents share; a plugin, as the fixtures of training are."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def put(tmp_path: Path):
    """Writes a file and returns its path."""

    def write(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write
