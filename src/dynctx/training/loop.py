"""The one training loop. What is learned is the recipe's business; how a run goes is the loop's.

An update is a fixed list of batches, whatever the number of processes: they share the batches out, each batch
draws its own random numbers from (seed, update, number of the batch), and gradients are summed. So a run on two
processes sees the same losses as on one, and a run that is killed and started again ends with the same weights.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dynctx.batches import Plan
from dynctx.config import Config, ScheduleConfig
from dynctx.devices import pick_device
from dynctx.errors import DynctxError
from dynctx.model_folder import weights_of
from dynctx.training.checkpoints import Checkpoints, average, pack_state, unpack_state
from dynctx.training.reporting import Reporter


class Recipe(Protocol):
    """A stage of training: data, loss and validation of one kind of run."""

    @property
    def module(self) -> nn.Module:
        """All that is trained, and all that is saved."""

    def updates(self, epoch: int, index: int) -> Iterator[tuple[int, int, list[Plan]]]: ...

    def loss(self, plan: Plan) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss summed over the batch, and sums to be logged (divided by the number of tokens)."""

    def normaliser(self, plans: list[Plan]) -> int: ...

    def validate(self) -> dict[str, float]:
        """Scores on dev; early stopping looks at "score", higher is better."""

    def save(self, folder: Path, about: dict[str, Any]) -> None: ...

    def describe(self) -> list[str]: ...


def learning_rate(schedule: ScheduleConfig, update: int) -> float:
    """The rate of the update with this number, counted from 1."""
    if schedule.kind == "constant":
        return schedule.peak * min(1.0, update / max(1, schedule.warmup))
    warmup = max(1, schedule.warmup)
    return schedule.peak * min(update / warmup, (warmup / update) ** 0.5)


def make_fabric(config: Config) -> Any:
    """Devices and precision; under torchrun, one of several processes."""
    from lightning.fabric import Fabric

    accelerator = pick_device(config.runtime.device).type
    precision = config.runtime.precision
    if precision == "auto":
        precision = "bfloat16" if accelerator == "cuda" else "float32"
    world, local = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    fabric = Fabric(
        accelerator=accelerator,
        devices=local,
        num_nodes=max(1, world // local),
        strategy="ddp" if world > 1 else "auto",
        precision={"float32": "32-true", "bfloat16": "bf16-mixed"}[precision],
    )
    fabric.launch()
    if config.runtime.threads:
        torch.set_num_threads(config.runtime.threads)
    torch.set_float32_matmul_precision("high")
    return fabric


def train(config: Config, recipe: Recipe, fabric: Any) -> dict[str, Any]:
    """Run to the end, from wherever an earlier run of the same command was stopped. Returns the final record."""
    return Training(config, recipe, fabric).run()


class Training:
    """One run: its counters, its optimizer and its folder."""

    def __init__(self, config: Config, recipe: Recipe, fabric: Any) -> None:
        self.config, self.training, self.recipe, self.fabric = config, config.training, recipe, fabric
        self.output = Path(self.training.output)
        self.leader = fabric.global_rank == 0
        self.report = Reporter(self.output, self.training, self.leader)
        self.checkpoints = Checkpoints(self.output / "state", self.report.say)
        recipe.module.to(fabric.device)
        trainable = [p for p in recipe.module.parameters() if p.requires_grad]
        if not trainable:
            raise DynctxError("nothing to train: every parameter is frozen")
        self.trainable = trainable
        self.optimizer = torch.optim.AdamW(
            trainable,
            lr=0.0,
            betas=(0.9, self.training.beta2),
            eps=1e-9,
            weight_decay=self.training.weight_decay,
            fused=True,
        )
        self.update = self.epoch = self.index = 0
        self.best = -float("inf")
        self.best_update = self.waited = 0
        self.history: list[dict[str, float]] = []
        self.seconds = 0.0  # of training, over all starts of this run

    def run(self) -> dict[str, Any]:
        self.resume()
        for line in self.recipe.describe():
            self.report.say(line)
        self.report.parameters(self.recipe.module)
        self.started = time.monotonic()
        if self.update == 0 or not self.over():
            self.loop()
        return self.finish()

    def loop(self) -> None:
        training = self.training
        with self.report.progress(self.update):
            for epoch, index, plans in self.recipe.updates(self.epoch, self.index):
                if self.over():
                    break
                self.step(plans)
                self.update, self.epoch, self.index = self.update + 1, epoch, index + 1
                if self.update % training.log_every == 0:
                    self.report.log(self.update, self.epoch, learning_rate(training.schedule, self.update))
                if self.update % training.validate_every == 0 or self.update == training.updates:
                    self.validate()
                if self.update % training.checkpoint_every == 0 or self.update == training.updates:
                    self.checkpoint()

    def over(self) -> bool:
        training = self.training
        if self.update >= training.updates or (training.patience and self.waited >= training.patience):
            return True
        # time is up when the leader says so, or processes would part ways
        return bool(training.minutes) and bool(self.agree(self.elapsed() > training.minutes * 60))

    def elapsed(self) -> float:
        return self.seconds + time.monotonic() - self.started

    def agree(self, value: Any) -> Any:
        return value if self.fabric.world_size == 1 else self.fabric.broadcast(value, src=0)

    def step(self, plans: list[Plan]) -> None:
        """One update: the gradient of the mean loss over all tokens of all its batches."""
        self.recipe.module.train()
        total = self.recipe.normaliser(plans)
        for number, plan in enumerate(plans):
            if number % self.fabric.world_size != self.fabric.global_rank:
                continue
            seed = np.random.SeedSequence([self.config.seed, self.update, number]).generate_state(1)[0]
            torch.manual_seed(int(seed))
            with self.autocast():
                loss, sums = self.recipe.loss(plan)
            (loss / total).backward()
            self.report.add(loss.detach(), {k: v.detach() for k, v in sums.items()}, self.recipe.normaliser([plan]))
        self.share_gradients()
        if self.training.clip:
            nn.utils.clip_grad_norm_(self.trainable, self.training.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.training.schedule, self.update + 1)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def autocast(self) -> AbstractContextManager[Any]:
        return self.fabric.autocast()

    def share_gradients(self) -> None:
        """Sum over processes, as one flat tensor: a sum of sums is what one process alone would have."""
        if self.fabric.world_size == 1:
            return
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.trainable]
        flat = torch.cat([g.flatten() for g in gradients])
        flat = self.fabric.all_reduce(flat, reduce_op="sum")
        for parameter, part in zip(self.trainable, flat.split([g.numel() for g in gradients])):
            parameter.grad = part.view_as(parameter)

    def validate(self) -> None:
        """Scores on dev (by the leader), the best model saved, a snapshot kept for averaging."""
        scores = {}
        if self.leader:
            scores = self.evaluate()
        scores = self.agree(scores)
        self.history.append({"update": self.update, **scores})
        if scores["score"] > self.best:
            self.best, self.best_update, self.waited = scores["score"], self.update, 0
            if self.leader:
                self.recipe.save(self.output / "model", self.about())
        else:
            self.waited += 1
        if self.leader:
            weights = weights_of(self.recipe.module)
            self.checkpoints.save_weights(self.update, weights, self.training.average)
            self.report.validated(self.update, scores, self.best, self.elapsed())

    def evaluate(self) -> dict[str, float]:
        # decoding has other shapes than training: what was compiled for one is no use to the other
        with torch.compiler.set_stance("force_eager"), self.autocast():
            return self.recipe.validate()

    def about(self) -> dict[str, Any]:
        return {
            "updates": self.update,
            "best_update": self.best_update,
            "scores": self.history[-1] if self.history else {},
            "history": self.history,
            "minutes": round(self.elapsed() / 60, 2),
            "versions": {"torch": torch.__version__, "dynctx": __import__("dynctx").__version__},
        }

    def checkpoint(self) -> None:
        if self.leader:
            progress = {
                "epoch": self.epoch,
                "index": self.index,
                "best": self.best,
                "best_update": self.best_update,
                "waited": self.waited,
                "history": self.history,
                "seconds": self.elapsed(),
                "seed": self.config.seed,
            }
            self.checkpoints.save(self.update, pack_state(self.recipe.module, self.optimizer), progress)

    def resume(self) -> None:
        found = self.checkpoints.latest()
        if found is None:
            return
        tensors, progress = found
        if progress["seed"] != self.config.seed:
            raise DynctxError(f"{self.output}: this run was begun with seed {progress['seed']}; give another output")
        self.update, self.epoch, self.index = progress["update"], progress["epoch"], progress["index"]
        self.best, self.best_update = progress["best"], progress["best_update"]
        self.waited, self.history, self.seconds = progress["waited"], progress["history"], progress["seconds"]
        unpack_state(self.recipe.module, self.optimizer, tensors, self.update)
        self.report.say(f"going on from update {self.update}")

    def finish(self) -> dict[str, Any]:
        """The average of the last snapshots becomes the model if it scores better than the best of them."""
        record = self.about()
        files = self.checkpoints.snapshots(self.update)
        if self.leader and len(files) > 1:
            own = {n: p.detach().clone() for n, p in self.recipe.module.named_parameters()}
            self._put(average(files))
            scores = self.evaluate()
            record["average"] = {"snapshots": len(files), **scores}
            self.report.say(
                f"average of {len(files)} snapshots: {self.report.scores(scores)} (best single {self.best:.2f})"
            )
            if scores["score"] > self.best:
                record["scores"] = {"update": self.update, **scores}
                self.recipe.save(self.output / "model", record)
            self._put(own)
        self.report.close(record)
        self.fabric.barrier()
        return record

    def _put(self, weights: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.recipe.module.named_parameters():
                parameter.copy_(weights[name])
