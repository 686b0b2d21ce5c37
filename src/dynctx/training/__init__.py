"""Training: one loop, and a recipe for each stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynctx.config import Config
from dynctx.corpus import TokenStore
from dynctx.errors import DynctxError

if TYPE_CHECKING:
    import torch

    from dynctx.training.loop import Recipe


def run(config: Config, deadline: float | None = None) -> dict[str, Any]:
    """Train what the config says. deadline (of time.monotonic): when to pause; the next call goes on."""
    from dynctx.training.fabric import make_fabric
    from dynctx.training.loop import train

    if not config.training.output.strip():  # as exported models have it: no rule for all configs
        raise DynctxError("training.output is empty: name the folder that the run is to be written to")
    if (Path(config.training.output) / "config.yaml").exists():  # that model would go on being found there
        raise DynctxError(f"{config.training.output}: is a model; a run needs a folder of its own (training.output)")
    fabric = make_fabric(config)
    if config.training.stage != "translation":
        config = replace(config, scorer=replace(config.scorer, enabled=True))
    recipe, folder = recipe_of(config, fabric.device), Path(config.data.folder)
    text = {split: TokenStore.open(folder / split).fingerprint for split in ("train", "dev")}
    if config.training.stage == "scorer":
        from dynctx.labels.pseudo_labels import labels_fingerprint

        text |= {f"labels of {split}": labels_fingerprint(config.labels.folder, split) for split in ("train", "dev")}
    return train(config, recipe, fabric, deadline, text)


def recipe_of(config: Config, device: torch.device) -> Recipe:
    """What is done in the config's stage."""
    if config.training.stage == "translation":
        from dynctx.training.translation import TranslationRecipe

        return TranslationRecipe(config, device)
    if config.training.stage == "reinforce":
        from dynctx.training.reinforce import ReinforceRecipe

        return ReinforceRecipe(config, device)
    if config.labels.kind == "reward":
        from dynctx.training.rewarded import RewardedRecipe

        return RewardedRecipe(config, device)
    from dynctx.training.scorer import ScorerRecipe

    return ScorerRecipe(config, device)
