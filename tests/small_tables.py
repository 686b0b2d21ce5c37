"""A small table of results, for the tests of `dynctx reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FEW = ["training.updates=6", "training.validate_every=6", "training.average=0"]
TABLE: dict[str, Any] = {
    "title": "A small table",
    "test": "news",
    "settings": ["decoding.max_extra=5", "model.scope=2", *FEW],
    "runs": {
        "sentence": {},
        "tdnmt": {"init": "sentence", "settings": ["model.kind=tdnmt", "training.selector=random subset"]},
        "scorer": {
            "init": "tdnmt",
            "labels": "tdnmt",
            "settings": ["model.kind=tdnmt", "training.stage=scorer", "training.selector=probability-first"],
        },
    },
    "rows": [
        {"name": "SentNmt", "run": "sentence", "paper": 18.67},
        {"name": "TDNMT full", "run": "tdnmt", "selector": "full", "control": "SentNmt"},
        {"name": "TDNMT labels", "run": "scorer", "control": "TDNMT full", "others": ["SentNmt"]},
    ],
}


def write_table(folder: Path, config: Path, **changes: Any) -> Path:
    content = {**TABLE, "config": str(config), "folder": str(folder / "runs"), **changes}
    place = folder / "table.yaml"
    place.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return place
