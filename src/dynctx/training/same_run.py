"""Whether two configs are those of one run: what may change between two starts of it, and what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dynctx.config import Config
from dynctx.model_folder import find_model, read_about, read_config
from dynctx.plain_data import to_dict

# What may change between two starts of a run: how long it lasts, how it is watched and where it lies, but nothing
# that changes what is learned.
FREE = (
    *("decoding", "runtime", "data.test", "training.output", "training.updates", "training.minutes"),
    *("training.validate_every", "training.validation", "training.dev_documents", "training.patience"),
    *("training.average", "training.checkpoint_every", "training.log_every"),
)

# what does not change a run of a stage, or is set by the stage itself; a run may lie elsewhere than where it was made
ELSEWHERE = ("training.init", "data.folder", "labels.folder", "labels.model", "scorer.enabled")
UNUSED = {
    "translation": (*ELSEWHERE, "labels", "reinforce", "scorer"),
    "scorer": (
        *ELSEWHERE,
        "labels.batch_tokens",
        "reinforce.reward_tokens",
        "reinforce.generated",
        "training.selector",
    ),
    "reinforce": (*ELSEWHERE, "labels", "training.selector"),
}


def since(place: Path, config: Config) -> list[str]:
    """What a config says now of a run that lies here, and did not say when it was made."""
    # a finished run had so many updates; the model that it kept may be older than the last word on that
    ended = read_about(find_model(place)).get("run_updates") == config.training.updates
    free = [key for key in FREE if ended or key != "training.updates"]
    return differences(read_config(place), config, (*free, *UNUSED[config.training.stage]))


def differences(then: Config, now: Config, free: tuple[str, ...]) -> list[str]:
    """What differs between two configs, keys and sections that are `free` to left out."""
    before, after = flat(to_dict(then)), flat(to_dict(now))
    return [
        f"{key} was {before.get(key)!r} and is now {after.get(key)!r}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and not any(f"{key}.".startswith(f"{name}.") for name in free)
    ]


def flat(content: Any, key: str = "") -> dict[str, Any]:
    """{"model.width": 512, "data.train[0].source.path": ...}"""
    if isinstance(content, dict):
        inside = [flat(value, f"{key}.{name}" if key else name) for name, value in content.items()]
    elif isinstance(content, list):
        inside = [flat(value, f"{key}[{number}]") for number, value in enumerate(content)]
    else:
        return {key: content}
    return {name: value for part in inside for name, value in part.items()}
