"""What the tests of file formats share; a plugin, as the fixtures of training are."""

from __future__ import annotations

from pathlib import Path

import pytest
from format_helpers import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)
