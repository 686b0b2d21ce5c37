"""The one training loop. What is learned is the recipe's business; how a run goes is the loop's.

An update is a fixed list of batches, whatever the number of processes: they share the batches out, each batch
draws its own random numbers from (seed, update, number of the batch), and gradients are summed. So a run on two
processes sees the same losses as on one, and a run that is killed and started again ends with the same weights.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dynctx import __version__
from dynctx.config import Config, ScheduleConfig, parse_config
from dynctx.errors import DynctxError
from dynctx.model_folder import find_model, named, origin_of, read_about, weights_of, write_down
from dynctx.plain_data import to_dict
from dynctx.planning import Plan
from dynctx.training.checkpoints import Checkpoints, average, pack_state, unpack_state
from dynctx.training.reporting import Reporter, check_finite, in_words
from dynctx.training.same_run import FREE, differences
from dynctx.training.stopping import stopping

LONGEST_UNSAVED = 600.0  # seconds of work that a crash may cost, whatever the config says


class Recipe(Protocol):
    """A stage of training: data, loss and validation of one kind of run."""

    copied: list[str]  # where the weights came from when the run began, in words

    @property
    def module(self) -> nn.Module:
        """All that is trained, and all that is saved."""

    def updates(self, epoch: int, index: int) -> Iterator[tuple[int, int, list[Plan]]]: ...

    def loss(self, plan: Plan) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss summed over the batch, and what else is to be logged: [2] each, a sum and what divides it."""

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


def train(
    config: Config, recipe: Recipe, fabric: Any, deadline: float | None = None, text: dict[str, str] | None = None
) -> dict[str, Any]:
    """Run to the end, from wherever an earlier run of the same command was stopped. Returns the final record.

    deadline (of time.monotonic): when to leave a checkpoint and return, with "paused" in the record. text: the
    fingerprints of what is learned from and validated on, by the names of the splits, which stay the same too.
    """
    training = Training(config, recipe, fabric, text)
    training.deadline = deadline
    return training.run()


class Training:
    """One run: its counters, its optimizer and its folder."""

    def __init__(self, config: Config, recipe: Recipe, fabric: Any, text: dict[str, str] | None = None) -> None:
        self.config, self.training, self.recipe, self.fabric = config, config.training, recipe, fabric
        self.output = Path(self.training.output)
        self.leader = fabric.global_rank == 0
        self.report = Reporter(self.output, self.training, fabric)
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
        self.text = text or {}
        parent = read_about(find_model(self.training.init)) if self.training.init else {}
        self.init: str | None = parent.get("weights")
        self.origin = origin_of(parent)
        self.update = self.epoch = self.index = 0
        self.best: dict[str, float] = {}  # update and scores of the model that is kept
        self.waited = 0  # validations since then
        self.history: list[dict[str, float]] = []
        self.seconds = 0.0  # of training, over all starts of this run
        self.started = self.saved = time.monotonic()
        self.unsaved = True
        self.deadline: float | None = None
        self.paused = False

    def run(self) -> dict[str, Any]:
        self.resume()
        for line in [*self.recipe.describe(), *([] if self.update else self.recipe.copied)]:
            self.report.say(line)
        self.report.say(in_words(self.training))
        self.report.parameters(self.recipe.module)
        if self.fabric.world_size > self.training.update_batches:
            self.report.say(
                f"{self.fabric.world_size} processes share {self.training.update_batches} batches an update: "
                "some have nothing to do; raise training.update_batches"
            )
        ended = self.checkpoints.finished()
        if ended and ended["updates"] == self.update and (reason := self.over()):
            self.report.say(f"this run has ended: {reason}; the model is in {self.output / 'model'}")
            return ended
        self.loop()
        return {"updates": self.update, "paused": True} if self.paused else self.finish()

    def loop(self) -> None:
        training = self.training
        if self.leader:
            self.checkpoints.begin()
        batches = self.recipe.updates(self.epoch, self.index)
        with self.report.progress(self.update), stopping(self.fabric.world_size == 1) as asked:
            while not (reason := self.over()):
                self.epoch, index, plans = next(batches)
                self.step(plans)
                self.update, self.index = self.update + 1, index + 1
                if self.update % training.log_every == 0:
                    self.report.log(self.update, self.epoch, learning_rate(training.schedule, self.update))
                if self.update % training.validate_every == 0:
                    self.validate()
                if self.update % training.checkpoint_every == 0 or self.overdue():
                    self.checkpoint()
                if asked:
                    self.checkpoint()
                    self.report.say(f"stopped at update {self.update}; the same command goes on from here")
                    raise asked[0]
                if self.deadline is not None and self.agree(time.monotonic() > self.deadline):
                    self.paused = True
                    self.checkpoint()
                    self.report.say(f"paused at update {self.update}")
                    return
            self.report.say(f"the end: {reason}")
            if not self.history or self.history[-1]["update"] != self.update:
                self.validate()
            if self.unsaved:
                self.checkpoint()

    def over(self) -> str:
        """Why the run has come to its end; empty if it has not."""
        training = self.training
        if self.update >= training.updates:
            return f"update {self.update} of {training.updates}"
        if training.patience and self.waited >= training.patience:
            return f"no better score in {self.waited} validations (training.patience)"
        # time is up when the leader says so, or processes would part ways
        if training.minutes and self.agree(self.elapsed() > training.minutes * 60):
            return f"the time is up (training.minutes: {training.minutes:g})"
        return ""

    def overdue(self) -> bool:
        """Whether the last checkpoint is long ago. Only the leader writes one, so the others need not agree."""
        return self.leader and time.monotonic() - self.saved > LONGEST_UNSAVED

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
                loss, logs = self.recipe.loss(plan)
            (loss / total).backward()
            self.report.add(loss.detach(), {k: v.detach() for k, v in logs.items()}, self.recipe.normaliser([plan]))
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
        for parameter in self.trainable:  # one that a batch did not use: every process must count it alike
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.fabric.world_size == 1:
            return
        flat = torch.cat([p.grad.flatten() for p in self.trainable if p.grad is not None])
        flat = self.fabric.all_reduce(flat, reduce_op="sum")
        for parameter, part in zip(self.trainable, flat.split([p.numel() for p in self.trainable])):
            parameter.grad = part.view_as(parameter)

    def validate(self) -> None:
        """Scores on dev (by the leader), the best model saved, a snapshot kept for averaging."""
        with self.report.pause():
            scores = self.agree(self.evaluate() if self.leader else {})
            for name in ("score", "loss"):
                check_finite(self.update, scores.get(name, 0.0))
            self.history.append({"update": self.update, **scores})
            self.unsaved = True
            if better(scores, self.best):
                self.best, self.waited = self.history[-1], 0
                if self.leader:
                    self.recipe.save(self.output / "model", self.about())
            else:
                self.waited += 1
            if self.leader:
                if self.training.average > 1:
                    self.checkpoints.save_weights(self.update, weights_of(self.recipe.module))
                self.report.validated(self.update, scores, self.best["score"], self.elapsed())

    def evaluate(self) -> dict[str, float]:
        # decoding has other shapes than training: what was compiled for one is no use to the other
        with torch.compiler.set_stance("force_eager"), self.autocast():
            return self.recipe.validate()

    def about(self) -> dict[str, Any]:
        return {
            "updates": self.update,
            "best_update": self.best["update"],
            "scores": self.best,
            "history": self.history,
            "minutes": round(self.elapsed() / 60, 2),
            "versions": {"torch": torch.__version__, "dynctx": __version__},
            **({"init": self.init} if self.init else {}),  # the weights that it began with
            **({"origin": self.origin} if self.origin else {}),
        }

    def checkpoint(self) -> None:
        self.unsaved, self.saved = False, time.monotonic()
        if self.leader:
            progress = {
                "epoch": self.epoch,
                "index": self.index,
                "best": self.best,
                "waited": self.waited,
                "history": self.history,
                "seconds": self.elapsed(),
                "sums": self.report.unfinished(),
                "config": to_dict(self.config),
                "text": self.text,
                "init": self.init,
                "origin": self.origin,
            }
            with self.report.pause():
                tensors = pack_state(self.recipe.module, self.optimizer)
                self.checkpoints.save(self.update, tensors, progress, self.training.average)

    def resume(self) -> None:
        found = self.checkpoints.latest()
        if found is None and (self.output / "model").exists() and not self.checkpoints.folder.exists():
            raise DynctxError(
                f"{self.output}: a finished model lies here, and nothing that a run could go on from; give the new run "
                "another training.output, or remove this one"
            )
        if found is not None:
            tensors, progress = found
            self.check_same(progress["config"])
            self.check_text(progress.get("text", {}))
            self.init = progress.get("init", self.init)  # which may be another model by now
            self.origin = progress.get("origin", self.origin)
            self.update, self.epoch, self.index = progress["update"], progress["epoch"], progress["index"]
            self.best, self.waited, self.history = progress["best"], progress["waited"], progress["history"]
            self.seconds, self.unsaved, self.report.earlier = progress["seconds"], False, progress.get("sums", {})
            unpack_state(self.recipe.module, self.optimizer, tensors, self.update)
            self.report.say(f"going on from update {self.update}")
            ended = self.checkpoints.finished()
            if ended and ended["updates"] <= self.update and better(ended["scores"], self.best):
                self.best = ended["scores"]  # of the average, which is the model by now
            self.check_validation(progress["config"])
        if self.agree(self.update) != self.update:
            raise DynctxError(f"{self.output}: not the same for all processes; they need a shared file system")
        self.fabric.barrier()  # nobody reads any more
        if self.leader:
            self.checkpoints.tidy(self.update, self.training.average)

    def check_same(self, earlier: dict[str, Any]) -> None:
        """A run goes on with the config it was begun with, as far as that changes what is learned."""
        then = parse_config(earlier, where=f"{self.output}: the config of the last checkpoint")
        differing = differences(then, self.config, FREE)
        if differing:
            raise DynctxError(
                f"{self.output}: this run was begun with another config: {'; '.join(differing)}. "
                "Set it back, or give the new run another training.output"
            )

    def check_validation(self, earlier: dict[str, Any]) -> None:
        """Scores on other sentences, or of another search, cannot be compared: what is best begins anew."""
        own = to_dict(self.config)["training"]
        changed = [name for name in ("dev_documents", "validation") if earlier["training"].get(name) != own[name]]
        if changed and self.best:
            names = " and ".join(f"training.{name}" for name in changed)
            self.report.say(f"{names} changed: earlier scores do not count, the next validation's model is kept")
            self.best, self.waited = {}, 0

    def check_text(self, earlier: dict[str, str]) -> None:
        """The same config may name other text: files change, and are prepared again, or labelled."""
        if other := [split for split, known in earlier.items() if known != self.text.get(split)]:
            raise DynctxError(
                f"{self.output}: this run was begun with other text than there is now ({', '.join(other)}; see "
                f"{self.config.data.folder}). Make the earlier anew, or give the new run another training.output"
            )

    def finish(self) -> dict[str, Any]:
        """The average of the last snapshots becomes the model if it scores better than the best of them."""
        kept = self.training.average
        files = self.checkpoints.snapshots(self.update)[-kept:] if kept > 1 else []
        if self.leader:
            self.best = read_about(self.output / "model").get("scores", self.best)  # of the model that is there
        record = self.about()
        if self.leader:
            if len(files) > 1:
                record = self.try_average(files)
            write_down(self.output / "model", run_updates=self.update)  # the best may be an earlier one
            self.report.write({"update": self.update, "finished": record})
            self.checkpoints.finish(record)
        self.fabric.barrier()
        return record

    def try_average(self, files: list[Path]) -> dict[str, Any]:
        own = {name: weight.clone() for name, weight in weights_of(self.recipe.module).items()}
        self._put(average(files))
        scores = self.evaluate()
        used = better(scores, self.best)
        self.report.say(
            f"average of {len(files)} snapshots: {self.report.scores(scores)} (best single {self.best['score']:.4f}): "
            + ("now the model" if used else "not better, not used")
        )
        if used:
            self.best = {"update": self.update, **scores}
        record = {**self.about(), "average": {"snapshots": len(files), "used": used, **scores}}
        if used:
            self.recipe.save(self.output / "model", record)
        self._put(own)
        return record

    def _put(self, weights: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in named(self.recipe.module).items():
                parameter.copy_(weights[name])


def better(scores: dict[str, float], best: dict[str, float]) -> bool:
    """By the score; where that is the same, as a BLEU of 0 is in the beginning, by the loss."""
    if not best or scores["score"] != best["score"]:
        return not best or scores["score"] > best["score"]
    return scores.get("loss", 0.0) < best.get("loss", 0.0)
