"""Training: one loop, and a recipe for each stage."""

from __future__ import annotations

from typing import Any

from dynctx.config import Config


def run(config: Config) -> dict[str, Any]:
    """Train what the config says."""
    from dynctx.training.loop import make_fabric, train
    from dynctx.training.translation import TranslationRecipe

    fabric = make_fabric(config)
    return train(config, TranslationRecipe(config, fabric.device), fabric)
