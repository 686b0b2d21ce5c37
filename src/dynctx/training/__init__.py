"""Training: one loop, and a recipe for each stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dynctx.config import Config
from dynctx.corpus import TokenStore
from dynctx.errors import DynctxError


def run(config: Config, deadline: float | None = None) -> dict[str, Any]:
    """Train what the config says. deadline (of time.monotonic): when to pause; the next call goes on."""
    from dynctx.training.loop import Recipe, make_fabric, train

    if not config.training.output.strip():  # as exported models have it: no rule for all configs
        raise DynctxError("training.output is empty: name the folder that the run is to be written to")
    fabric = make_fabric(config)
    recipe: Recipe
    if config.training.stage == "translation":
        from dynctx.training.translation import TranslationRecipe

        recipe = TranslationRecipe(config, fabric.device)
    else:
        config = replace(config, scorer=replace(config.scorer, enabled=True))
        if config.training.stage == "scorer" and config.labels.kind == "reward":
            from dynctx.training.rewarded import RewardedRecipe

            recipe = RewardedRecipe(config, fabric.device)
        elif config.training.stage == "scorer":
            from dynctx.training.scorer import ScorerRecipe

            recipe = ScorerRecipe(config, fabric.device)
        else:
            from dynctx.training.reinforce import ReinforceRecipe

            recipe = ReinforceRecipe(config, fabric.device)
    folder = Path(config.data.folder)
    text = {split: TokenStore.open(folder / split).fingerprint for split in ("train", "dev")}
    return train(config, recipe, fabric, deadline, text)
