"""What a run computes on: a device and its precision, alone or as one of several processes."""

from __future__ import annotations

import os
from typing import Any

import torch

from dynctx.config import Config
from dynctx.devices import pick_device


def make_fabric(config: Config) -> Any:
    """Devices and precision; under torchrun, one of several processes."""
    from lightning.fabric import Fabric

    accelerator = pick_device(config.runtime.device).type
    precision = config.runtime.precision
    if precision == "auto":
        precision = "bfloat16" if accelerator == "cuda" else "float32"
    world, local = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    torch.set_float32_matmul_precision("high")  # first, or Fabric would ask for it
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
    return fabric
