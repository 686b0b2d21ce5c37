"""Several processes that share the sentences of one call, as torchrun starts them: one a GPU, or some on a CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from dynctx.corpus import Ints
from dynctx.errors import DynctxError

PATIENCE = timedelta(days=7)  # for the slowest: a process that fails ends all of them, so nobody waits in vain

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process, and how many there are."""

    rank: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether it is this one that writes and speaks."""
        return self.rank == 0

    def share(self, sizes: Ints, kinds: Ints | None = None) -> Ints:
        """This process's share of things of these sizes [n]: their places, ascending. All shares are about as large.
        What is of one kind [n] stays together."""
        if self.count == 1:
            return np.arange(len(sizes))
        if kinds is not None:
            _, kind = np.unique(kinds, return_inverse=True)
            return np.flatnonzero(self._dealt(np.bincount(kind, sizes).astype(np.int64))[kind])
        return np.flatnonzero(self._dealt(sizes))

    def _dealt(self, sizes: Ints) -> NDArray[np.bool_]:
        """[n] whether each of them is this process's: the largest first, each to whoever has least."""
        mine, loads = np.zeros(len(sizes), np.bool_), [0] * self.count
        for place in np.argsort(-sizes, kind="stable").tolist():
            least = loads.index(min(loads))
            loads[least] += int(sizes[place])
            mine[place] = least == self.rank
        return mine

    def gathered(self, own: T) -> list[T]:
        """What each of them has found, in the order of their ranks; everybody gets all of it."""
        if self.count == 1:
            return [own]
        from torch import distributed

        found: list[T | None] = [None] * self.count
        distributed.all_gather_object(found, own)
        return [part for part in found if part is not None]


ALONE = Processes()


@contextmanager
def processes_here() -> Iterator[Processes]:
    """Under torchrun its processes, with a GPU for each where there are any; elsewhere this one alone.

    All say the same, so only the first is heard. Writing files is to be left to it, too.
    """
    count, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if count == 1:
        yield ALONE
        return
    from torch import distributed

    local, devices = int(os.environ.get("LOCAL_RANK", rank)), torch.cuda.device_count()
    if devices:
        if local >= devices:
            raise DynctxError(f"torchrun started process {local + 1} on a machine with {devices} GPUs; start one a GPU")
        torch.cuda.set_device(local)
    try:
        distributed.init_process_group("gloo", timeout=PATIENCE)
    except (ValueError, RuntimeError) as error:
        raise DynctxError(
            f"WORLD_SIZE is {count}, so this is one of {count} processes, but they do not find each other ({error}); "
            "start them with torchrun"
        ) from None
    try:
        if rank == 0:
            yield Processes(rank, count)
        else:
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
                yield Processes(rank, count)
    finally:
        distributed.destroy_process_group()
