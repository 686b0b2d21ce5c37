"""Whether two configs are those of one run: what may change between two starts of it, and what differs."""

from __future__ import annotations

from typing import Any

from dynctx.config import Config
from dynctx.plain_data import to_dict

# What may change between two starts of a run: how long it lasts, how it is watched and where it lies, but nothing
# that changes what is learned.
FREE = (
    *("decoding", "runtime", "data.test", "training.output", "training.updates", "training.minutes"),
    *("training.validate_every", "training.validation", "training.dev_documents", "training.patience"),
    *("training.average", "training.checkpoint_every", "training.log_every"),
)


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
