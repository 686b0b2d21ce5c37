"""What a run tells: lines for people, a bar where there is a terminal, TensorBoard and JSON lines for curves."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dynctx.config import TrainingConfig


class Reporter:
    def __init__(self, output: Path, training: TrainingConfig, leader: bool) -> None:
        from rich.console import Console

        self.output, self.training, self.leader = output, training, leader
        self.console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self.bar: Any = None
        self.board: Any = None
        self.reset()

    def say(self, text: str) -> None:
        if self.leader:
            self.console.print(text, markup=False)

    def parameters(self, module: nn.Module) -> None:
        """Trainable and frozen parameters of each part."""
        for name, (trainable, frozen) in count_parameters(module).items():
            self.say(f"  {name:<24} {trainable:>13,} trainable {frozen:>13,} frozen")

    @contextmanager
    def progress(self, update: int) -> Iterator[None]:
        if not self.leader:
            yield
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from torch.utils.tensorboard import SummaryWriter

        self.output.mkdir(parents=True, exist_ok=True)
        # what an earlier start logged after its last checkpoint is forgotten, not drawn twice
        self.board = SummaryWriter(str(self.output / "tensorboard"), purge_step=update)
        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeRemainingColumn(),
        ]
        show = self.console.is_terminal
        with Progress(*columns, console=self.console, disable=not show, transient=True) as self.bar:
            self.task = self.bar.add_task("training", total=self.training.updates, completed=update)
            self.reset()
            yield
        self.board.flush()

    def reset(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.tokens = 0
        self.since = time.monotonic()

    def add(self, loss: Tensor, sums: dict[str, Tensor], tokens: int) -> None:
        """Called every batch: only adds on the device, never waits for it."""
        for name, value in {"loss": loss, **sums}.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.tokens += tokens

    def log(self, update: int, epoch: int, rate: float) -> None:
        if not self.leader:
            self.reset()
            return
        values = {name: float(value) / max(1, self.tokens) for name, value in self.sums.items()}
        speed = self.tokens / (time.monotonic() - self.since)
        record = {"update": update, "epoch": epoch, "rate": rate, "tokens_per_second": speed, **values}
        self.write(record)
        for name, value in record.items():
            if name != "update":
                self.board.add_scalar(f"train/{name}", value, update)
        shown = "  ".join(f"{name} {value:.4f}" for name, value in values.items())
        line = f"update {update}  epoch {epoch + 1}  {shown}  rate {rate:.2e}  {speed:,.0f} tokens/s"
        self.bar.update(self.task, completed=update, description=f"loss {values['loss']:.3f}  {speed:,.0f} tokens/s")
        self.say(line)
        self.reset()

    def validated(self, update: int, scores: dict[str, float], best: float, seconds: float) -> None:
        self.write({"update": update, "validation": scores, "seconds": round(seconds, 1)})
        for name, value in scores.items():
            self.board.add_scalar(f"dev/{name}", value, update)
        self.say(f"update {update}  dev: {self.scores(scores)}  best {best:.2f}  after {seconds:,.0f} s")
        self.reset()  # the time of validation is not the time of training

    @staticmethod
    def scores(scores: dict[str, float]) -> str:
        return "  ".join(f"{name} {value:.3f}" for name, value in scores.items() if name != "score")

    def write(self, record: dict[str, Any]) -> None:
        with open(self.output / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def close(self, record: dict[str, Any]) -> None:
        if self.leader:
            self.output.mkdir(parents=True, exist_ok=True)
            self.write({"finished": record})
            if self.board is not None:
                self.board.close()


def count_parameters(module: nn.Module) -> dict[str, tuple[int, int]]:
    """{part: (trainable, frozen)} by the first part of each name, and their total. Tied weights count once."""
    counts: dict[str, list[int]] = {}
    for name, parameter in module.named_parameters():
        part = counts.setdefault(name.split(".")[0], [0, 0])
        part[0 if parameter.requires_grad else 1] += parameter.numel()
    counts["total"] = [sum(part[k] for part in counts.values()) for k in (0, 1)]
    return {name: (part[0], part[1]) for name, part in counts.items()}


def peak_memory(device: torch.device) -> int:
    """Bytes: of the GPU where there is one, else of the process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
