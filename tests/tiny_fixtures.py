"""What the tests of training and of the commands share; a plugin, so that all of it is made once a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_runs import Warm, train_here, write_config, write_corpus

from dynctx.config import load_config
from dynctx.prepare import prepare


@pytest.fixture(scope="session")
def tiny_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A config whose corpus is prepared. Every run must be given a training.output of its own."""
    folder = tmp_path_factory.mktemp("tiny")
    write_corpus(folder)
    place = write_config(folder)
    prepare(load_config(place).data, say=lambda text: None, threads=1)
    return place


@pytest.fixture(scope="session")
def trained(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of one uninterrupted run in this process; tests must not change it."""
    output = tmp_path_factory.mktemp("trained") / "run"
    train_here(tiny_config, output)
    return output


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    server = Warm(tmp_path_factory.mktemp("warm"))
    yield server
    server.close()
