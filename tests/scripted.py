"""A recipe with known answers, for the tests of the loop: no data, no model, and the scores that a test wants."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dynctx.config import Config, parse_config
from dynctx.training.loop import train


class OneProcess:
    """All that the loop asks of Lightning Fabric where there is one process."""

    global_rank, world_size, device = 0, 1, torch.device("cpu")

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def barrier(self) -> None: ...


class Scripted:
    """One weight, which each update moves down by about the learning rate; the score is what the test says.

    A "plan" is a number of tokens n, and the loss of its batch is n^2 times the weight.
    """

    def __init__(self, score: Callable[[int, float], float]) -> None:
        self.module = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.module.weight, 10.0)
        self.score, self.seen = score, 0
        self.copied: list[str] = []
        self.validated: list[int] = []
        self.saved: list[tuple[int, float]] = []

    @property
    def weight(self) -> float:
        return self.module.weight.item()

    def updates(self, epoch: int, index: int) -> Iterator[tuple[int, int, Any]]:
        self.seen = index
        return self.count()

    def count(self) -> Iterator[tuple[int, int, Any]]:
        while True:
            self.seen += 1
            yield 0, self.seen - 1, [1, 2]

    def loss(self, plan: Any) -> tuple[Tensor, dict[str, Tensor]]:
        loss = plan * plan * self.module.weight.sum()
        return loss, {"twice": torch.stack([2 * loss, torch.tensor(float(plan))])}

    def normaliser(self, plans: Any) -> int:
        return sum(plans)

    def validate(self) -> dict[str, float]:
        self.validated.append(self.seen)
        return {"score": self.score(self.seen, self.weight), "loss": 1.5}

    def save(self, folder: Path, about: dict[str, Any]) -> None:
        self.saved.append((about["updates"], self.weight))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weight").write_text(repr(self.weight))
        (folder / "about.json").write_text(json.dumps({"updates": about["updates"]}))

    def describe(self) -> list[str]:
        return ["a scripted run"]


def scripted_config(output: Path, **training: Any) -> Config:
    schedule = {"kind": "constant", "peak": 1.0, "warmup": 0}
    settings = {"updates": 20, "validate_every": 1, "average": 0, "checkpoint_every": 100, "log_every": 100}
    return parse_config({"training": {"output": str(output), "schedule": schedule, **settings, **training}})


def play(output: Path, score: Callable[[int, float], float], **training: Any) -> tuple[Scripted, dict[str, Any]]:
    recipe = Scripted(score)
    record = train(scripted_config(output, **training), recipe, OneProcess())
    return recipe, record


SCORES = [0.0, 1.0, 5.0, 2.0, 4.0, 5.0, 3.0, 9.0]  # by update; equal is not better


def script(update: int, weight: float) -> float:
    return SCORES[update] if update < len(SCORES) else 0.0
