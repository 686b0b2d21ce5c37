"""The state of a run on disk, written so that a run killed at any moment goes on as if nothing had happened.

    state/update-00001500/state.safetensors    parameters and both Adam moments
    state/update-00001500/progress.json        counters, history, config, and the checksum of all of it
    state/weights-00001500.safetensors         parameters alone, kept for averaging
    state/finished.json                        the final record, once the run has ended

A checkpoint is written beside its place and renamed; the one before it is kept. A checkpoint that does not match
its checksum is named and the one before it is used; it stays where it is until a new one is written.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dynctx.errors import DynctxError, at

KEPT = 2
GO_ON = "what was saved before is there: make room, and the same command goes on"
MOMENTS = ("exp_avg", "exp_avg_sq")


class Checkpoints:
    """The `state` folder of one run."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder, self.say = folder, say

    def begin(self) -> None:
        """A run that has begun has this folder, before it has a checkpoint or a model."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DynctxError(f"{at(self.folder)}: cannot be made: {error.strerror}") from None

    def save(self, update: int, tensors: dict[str, Tensor], progress: dict[str, Any], snapshots: int) -> None:
        """Write a checkpoint, and remove those before the last but one with the snapshots that only they need."""
        place = self.folder / f"update-{update:08d}"
        beside = self.folder / f"partial-{update:08d}"
        try:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)
            save_tensors(beside / "state.safetensors", tensors)
            content = {**progress, "update": update}
            content["checksum"] = checksum(beside / "state.safetensors", content)
            (beside / "progress.json").write_text(json.dumps(content), encoding="utf-8")
            shutil.rmtree(place, ignore_errors=True)
            beside.rename(place)
        except OSError as error:
            shutil.rmtree(beside, ignore_errors=True)
            raise DynctxError(f"{at(place)}: the checkpoint could not be written: {error.strerror}; {GO_ON}") from None
        for newer in self._all():  # was damaged, or this run would not be here
            if newer > place:
                shutil.rmtree(newer, ignore_errors=True)
        self._remove_old(update, snapshots)

    def latest(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint that is whole, or None at the start of a run."""
        for place in reversed(self._all()):
            try:
                progress = json.loads((place / "progress.json").read_text(encoding="utf-8"))
                if progress.pop("checksum") != checksum(place / "state.safetensors", progress):
                    raise ValueError("its contents do not match its checksum")
                return load_tensors(place / "state.safetensors"), progress
            except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
                self.say(f"{at(place)}: damaged checkpoint ({error}); looking for the one before it")
        if self._all():
            raise DynctxError(f"{at(self.folder)}: every checkpoint is damaged; remove this folder to start again")
        return None

    def tidy(self, update: int, snapshots: int) -> None:
        """Remove what an earlier start left half written or half removed, and snapshots it took after this update."""
        for leftover in [*self.folder.glob("partial-*"), *self.folder.glob("*.partial")]:
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink()
        for snapshot in self.snapshots():
            if _number(snapshot) > update:
                snapshot.unlink()
        self._remove_old(update, snapshots)

    def _remove_old(self, update: int, snapshots: int) -> None:
        for checkpoint in [place for place in self._all() if _number(place) <= update][:-KEPT]:
            shutil.rmtree(checkpoint, ignore_errors=True)
        oldest = _number(self._all()[0]) if self._all() else 0
        for snapshot in self.snapshots(oldest)[: -snapshots or None]:
            snapshot.unlink()

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("update-*"))

    def save_weights(self, update: int, weights: dict[str, Tensor]) -> None:
        """A snapshot for averaging."""
        place = self.folder / f"weights-{update:08d}.safetensors"
        beside = self.folder / "partial-weights"  # a folder, because safetensors leaves files of its own beside
        try:
            beside.mkdir(parents=True, exist_ok=True)
            save_tensors(beside / place.name, weights)
            (beside / place.name).replace(place)
        except OSError as error:
            raise DynctxError(f"{at(place)}: the weights could not be written: {error.strerror}; {GO_ON}") from None
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def snapshots(self, up_to: int | None = None) -> list[Path]:
        found = sorted(self.folder.glob("weights-*.safetensors"))
        return [file for file in found if up_to is None or _number(file) <= up_to]

    def finish(self, record: dict[str, Any]) -> None:
        place = self.folder / "finished.json"
        beside = place.with_suffix(".partial")
        try:
            beside.write_text(json.dumps(record), encoding="utf-8")
            beside.replace(place)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise DynctxError(f"{at(place)}: cannot be written: {error.strerror}") from None

    def finished(self) -> dict[str, Any] | None:
        """The record of the end of this run, if it has ended (it may have been lengthened since)."""
        try:
            record = json.loads((self.folder / "finished.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # then the end is simply worked out again
            return None
        return record if isinstance(record, dict) else None


def _number(place: Path) -> int:
    return int(place.stem.split("-")[1])


def average(files: list[Path]) -> dict[str, Tensor]:
    """The mean of several snapshots, summed in float64 so that the order of files cannot matter."""
    total: dict[str, Tensor] = {}
    for file in files:
        try:
            weights = load_tensors(file)
        except (OSError, ValueError) as error:
            raise DynctxError(f"{at(file)}: damaged ({error}); remove it to average without it") from None
        for name, tensor in weights.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(files)).float() for name, tensor in total.items()}


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # a full disk, in the words of the library
        raise OSError(0, str(error)) from None


def load_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(str(error)) from None


def checksum(path: Path, progress: dict[str, Any]) -> int:
    """Of the tensors in a file and what is written beside them."""
    value = zlib.crc32(json.dumps(progress).encode())
    with open(path, "rb") as file:
        while block := file.read(2**22):
            value = zlib.crc32(block, value)
    return value


def pack_state(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {f"parameter.{name}": parameter for name, parameter in module.named_parameters()}
    for name, parameter in module.named_parameters():
        state = optimizer.state.get(parameter, {})
        tensors |= {f"{moment}.{name}": state[moment] for moment in MOMENTS if moment in state}
    return tensors


def unpack_state(module: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], update: int) -> None:
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            saved = tensors.get(f"parameter.{name}")
            if saved is None or saved.shape != parameter.shape:
                raise DynctxError(
                    f"the checkpoint does not fit the configured model ({name}); "
                    "give the run another training.output, or remove its state folder"
                )
            parameter.copy_(saved)
            if f"exp_avg.{name}" in tensors:
                # fused Adam keeps its step count as a float32 tensor on the parameter's device
                step = torch.tensor(float(update), device=parameter.device)
                moments = {m: tensors[f"{m}.{name}"].to(parameter.device) for m in MOMENTS}
                optimizer.state[parameter] = {"step": step, **moments}
