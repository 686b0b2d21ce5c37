"""The command line in this process: a fixture that runs a command and tells how it ended."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import Ended, Run

from dynctx import cli


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """A command in this process."""

    def run(*arguments: str | Path, stdin: bytes = b"") -> Ended:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["dynctx", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code: Any = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capfd.readouterr()
        return Ended(code, out, err)

    return run
