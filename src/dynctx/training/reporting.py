"""What a run tells: lines for people, a bar where there is a terminal, TensorBoard and JSON lines for curves."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dynctx.config import TrainingConfig
from dynctx.errors import DynctxError, at
from dynctx.model_folder import named


class Reporter:
    """Only process 0 prints and writes; the sums it tells are those of all processes."""

    def __init__(self, output: Path, training: TrainingConfig, fabric: Any) -> None:
        from rich.console import Console

        self.output, self.training, self.fabric = output, training, fabric
        self.leader = fabric.global_rank == 0
        self.console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self.earlier: dict[str, list[float]] = {}  # sums of an interval that an earlier start did not finish
        self.sums: dict[str, Tensor] = {}  # [2] each: a sum and what it is to be divided by
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
        if self.fabric.device.type == "cuda":  # what an earlier run of this process took is not this one's
            torch.cuda.reset_peak_memory_stats(self.fabric.device)
        # what an earlier start logged after its last checkpoint is forgotten, not told twice
        self.board = SummaryWriter(str(self.output / "tensorboard"), purge_step=update + 1)
        self.rewind(update)
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
            self.sums = {
                name: torch.tensor(value, dtype=torch.float64, device=self.fabric.device)
                for name, value in self.earlier.items()
            }
            yield
        self.board.close()

    def rewind(self, update: int) -> None:
        """Leave in the log only what was known at this update; the rest will be written again."""
        place = self.output / "log.jsonl"
        if not place.exists():
            return
        kept = []
        for line in place.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                record = json.loads(line)
                if record["update"] <= update and "finished" not in record:
                    kept.append(line + "\n")
            except (KeyError, TypeError, ValueError):  # a line that was cut off
                continue
        beside = place.with_suffix(".partial")  # always the same name: what a crash leaves is written over
        beside.write_text("".join(kept), encoding="utf-8")
        beside.replace(place)

    def reset(self) -> None:
        self.sums = {}
        self.since = time.monotonic()

    def unfinished(self) -> dict[str, list[float]]:
        """The sums since the last line, to go on with at another start; of several processes each has its own."""
        return {name: value.tolist() for name, value in self.sums.items()} if self.fabric.world_size == 1 else {}

    def add(self, loss: Tensor, logs: dict[str, Tensor], tokens: int) -> None:
        """Called every batch: only adds on the device, never waits for it."""
        about_loss = torch.stack([loss.double(), torch.full_like(loss, tokens, dtype=torch.float64)])
        for name, value in {"loss": about_loss, **logs}.items():
            self.sums[name] = self.sums[name] + value.double() if name in self.sums else value.double()

    def collect(self) -> tuple[dict[str, float], int]:
        """Means over all processes since the last time, and the number of tokens that the loss is the mean of."""
        names = list(self.sums)
        if self.fabric.world_size > 1:  # a process that had no batch knows no names; the first always has one
            names = self.fabric.broadcast(names, src=0)
        nothing = torch.zeros(2, dtype=torch.float64, device=self.fabric.device)
        total = torch.stack([self.sums.get(name, nothing) for name in names])  # [names, 2]
        if self.fabric.world_size > 1:
            total = self.fabric.all_reduce(total, reduce_op="sum")
        found = dict(zip(names, total.tolist()))
        return {name: value / count if count else 0.0 for name, (value, count) in found.items()}, int(found["loss"][1])

    def log(self, update: int, epoch: int, rate: float) -> None:
        values, tokens = self.collect()
        check_finite(update, values["loss"])
        if self.leader:
            here = tokens - self.earlier.pop("loss", [0, 0])[1]
            speed = here / (time.monotonic() - self.since)
            memory = peak_memory(self.fabric.device) / 2**30
            record = {
                "update": update,
                "epoch": epoch,
                "rate": rate,
                "tokens_per_second": speed,
                "peak_gib": memory,
                **values,
            }
            self.write(record)
            for name, value in record.items():
                if name != "update":
                    self.board.add_scalar(f"train/{name}", value, update)
            shown = "  ".join(f"{name} {value:.4f}" for name, value in values.items())
            pace = f"{speed:,.0f} tokens/s"
            line = f"update {update}  epoch {epoch + 1}  {shown}  rate {rate:.2e}  {pace}  {memory:.1f} GiB"
            about = f"loss {values['loss']:.3f}  {pace}"
            self.bar.update(self.task, completed=update, description=about)
            self.say(line)
        self.reset()

    def validated(self, update: int, scores: dict[str, float], best: float, seconds: float) -> None:
        self.write({"update": update, "validation": scores, "seconds": round(seconds, 1)})
        for name, value in scores.items():
            self.board.add_scalar(f"dev/{name}", value, update)
        self.say(f"update {update}  dev: {self.scores(scores)}  best {figure(best)}  after {seconds:,.0f} s")

    @contextmanager
    def pause(self) -> Iterator[None]:
        """What takes time here is not training, and does not count for its speed."""
        began = time.monotonic()
        yield
        self.since += time.monotonic() - began

    @staticmethod
    def scores(scores: dict[str, float]) -> str:
        return "  ".join(f"{name} {figure(value)}" for name, value in scores.items() if name != "score")

    def write(self, record: dict[str, Any]) -> None:
        place = self.output / "log.jsonl"
        try:
            with open(place, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise DynctxError(f"{at(place)}: cannot be written: {error.strerror}") from None


def check_finite(update: int, loss: float) -> None:
    if not math.isfinite(loss):
        raise DynctxError(
            f"update {update}: the loss is {loss}, so the run has diverged; a lower training.schedule.peak, "
            "a longer warmup or training.clip may help (remove the run's state folder to start again)"
        )


def count_parameters(module: nn.Module) -> dict[str, tuple[int, int]]:
    """{part: (trainable, frozen)} by the first part of each name, and their total. Tied weights count once."""
    counts: dict[str, list[int]] = {}
    for name, parameter in named(module).items():
        part = counts.setdefault(name.split(".")[0], [0, 0])
        part[0 if parameter.requires_grad else 1] += parameter.numel()
    counts["total"] = [sum(part[k] for part in counts.values()) for k in (0, 1)]
    return {name: (part[0], part[1]) for name, part in counts.items()}


def in_words(training: TrainingConfig) -> str:
    """How long a run is, and its learning rate."""
    schedule = training.schedule
    rate = f"rising to {schedule.peak:g} over {schedule.warmup:,}, then" if schedule.warmup else f"{schedule.peak:g},"
    after = "constant" if schedule.kind == "constant" else "falling as 1/sqrt"
    return f"schedule: {training.updates:,} updates, learning rate {rate} {after}"


def figure(value: float) -> str:
    """BLEU to a thousandth; rewards and shares, which are below 1 and move little, to a ten-thousandth."""
    return f"{value:.4f}" if abs(value) < 1 else f"{value:.3f}"


def peak_memory(device: torch.device) -> int:
    """Bytes: of the GPU where there is one, else of the process; 0 where the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
