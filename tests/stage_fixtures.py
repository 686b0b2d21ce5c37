"""The stages before reinforcement, made once a session; a plugin of tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from stage_runs import SHORT
from tiny_runs import changed, train_here

from dynctx.commands import label_corpus


@pytest.fixture(scope="session")
def stages(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a translator, labels by it, and a scorer that learned from these; tests must not change it."""
    folder = tmp_path_factory.mktemp("stages")
    train_here(tiny_config, folder / "translator", *SHORT, "training.selector=random 1 or none", "training.updates=10")
    labels = [f"labels.model={folder / 'translator'}", f"labels.folder={folder / 'labels'}"]
    label_corpus(changed(tiny_config, folder / "unused", *SHORT, *labels))
    init = f"training.init={folder / 'translator'}"
    train_here(tiny_config, folder / "scorer", *SHORT, *labels, init, "training.stage=scorer")
    return folder
