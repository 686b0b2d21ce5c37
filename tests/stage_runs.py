"""Short runs of the stages scorer and reinforce, for the tests of both."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny_runs import changed

from dynctx.training.reinforce import ReinforceRecipe

SCOPE = 2
SHORT = [
    "model.kind=tdnmt",
    f"model.scope={SCOPE}",
    "training.updates=4",
    "training.update_batches=1",
    "training.schedule.peak=0.01",
    "training.schedule.warmup=1",
    "training.validate_every=4",
    "training.validation.beam=1",
    "training.average=0",
    "training.checkpoint_every=3",
    "training.log_every=2",
    "scorer.pair_layers=1",
    "scorer.set_layers=1",
]


def reinforced(config: Path, stages: Path, *overrides: str) -> list[str]:
    return [*SHORT, "training.stage=reinforce", f"training.init={stages / 'scorer'}", *overrides]


def recipe_of(config: Path, stages: Path, *overrides: str) -> ReinforceRecipe:
    settings = reinforced(config, stages, "scorer.enabled=true", "model.dropout=0", *overrides)
    return ReinforceRecipe(changed(config, stages / "unused", *settings), torch.device("cpu"))
