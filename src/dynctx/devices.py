"""Where tensors live, and what the machine underneath should know."""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager, suppress

import torch

from dynctx.errors import DynctxError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt's names for its settings


def pick_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise DynctxError(f"device {name!r}: expected auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise DynctxError("device cuda: torch sees no GPU; use auto or cpu")
    device = torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        keep_freed_memory()
    return device


def keep_freed_memory() -> None:
    """Let the C library reuse large freed blocks instead of returning them to the system at once.

    Every step frees and asks for the same large tensors; getting them as fresh pages each time costs a tenth of
    the speed on a CPU. Only glibc has the setting; elsewhere nothing happens.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 2**25)
        libc.mallopt(M_TRIM_THRESHOLD, 2**30)
    except (OSError, AttributeError):
        pass


def return_freed_memory() -> None:
    """Give back to the system what was freed: for a process that runs for months, after its largest batches."""
    with suppress(OSError, AttributeError):  # as above
        ctypes.CDLL(None).malloc_trim(0)


def many_shapes() -> AbstractContextManager[None]:
    """For work whose tensors have ever new shapes: without cuDNN's attention, which is built anew for each of them.

    That takes some ten times as long as the attention itself. In training, with its one shape, it is the fastest.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
