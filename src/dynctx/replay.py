"""Doing the same step many times, on a GPU as replays of one CUDA graph.

A step of a decoder is a few hundred small kernels, and starting them takes several times as long as their work. A step
that changes nothing but the contents of tensors, and reads nothing back to the host, is recorded when it has been made
once, and all later ones are replays of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

BUSY = 4096  # hypotheses whose step keeps the device busy for as long as the host needs to start or record one


class Replayed:
    """A step to be called again and again; `changed` says that its tensors are other ones from now on.

    The first step is made as it is, since what steps need may come to be in it; in a later one nothing may. A large
    step is made as it is after every change, and the next one recorded while the device is busy with it.
    """

    def __init__(self, work: Callable[[], None], device: torch.device, hypotheses: int) -> None:
        self.work, self.on_gpu, self.large = work, device.type == "cuda", hypotheses >= BUSY
        self.graph: torch.cuda.CUDAGraph | None = None
        self.made = False

    def __call__(self) -> None:
        if self.graph is None and self.on_gpu and self.made and not self.large:
            self.record()
        if self.graph is not None:
            self.graph.replay()
            return
        self.work()
        self.made = True
        if self.on_gpu and self.large:
            self.record()

    def record(self) -> None:
        try:
            self.graph = record(self.work)
        except RuntimeError as error:  # nothing has been done: steps made one by one say the same, only later
            warnings.warn(f"a step could not be recorded, which makes decoding slow: {error}", stacklevel=3)
            self.on_gpu = False

    def changed(self, hypotheses: int) -> None:
        self.graph, self.large = None, hypotheses >= BUSY


_last: list[torch.cuda.CUDAGraph] = []  # the graph recorded last: its memory serves the next one
_beside: dict[torch.device, torch.cuda.Stream] = {}  # what is recorded on: memory serves one stream only


def record(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """The work, which must have been done once already, as a CUDA graph. It is not done now."""
    graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    beside = _beside.setdefault(here.device, torch.cuda.Stream(here.device))
    beside.wait_stream(here)
    with torch.cuda.stream(beside):
        # not torch.cuda.graph: it empties the allocator's cache first, which takes longer than all that is saved
        graph.capture_begin(pool=_last[0].pool() if _last else None, capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    here.wait_stream(beside)
    _last[:] = [graph]
    return graph
