"""The linear map of every layer, through the fastest kernel there is for it.

On a CPU in float32, oneDNN multiplies the small matrices of decoding up to twice as fast as the default library,
more so with weights laid out beforehand. Everywhere else this is `torch.nn.Linear`. `to_int8` replaces linear maps
by 8-bit ones for use on a CPU.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

try:
    _multiply: Any = torch.ops.mkldnn._linear_pointwise
    _lay_out: Any = torch.ops.mkldnn._reorder_linear_weight
    ONEDNN = torch.backends.mkldnn.is_available()
except AttributeError:  # a build of torch without oneDNN
    ONEDNN = False

TYPICAL_ROWS = 32  # the batch that the layout is chosen for

_optimizer_steps = 0


def _count_step(*_: Any) -> None:
    global _optimizer_steps
    _optimizer_steps += 1


# a fused optimizer changes weights without telling their version counters
register_optimizer_step_post_hook(_count_step)


class Linear(nn.Linear):
    """x W^T + b, initialised Glorot-uniform with zero bias.

    `blocks` stacked matrices of one fused projection are initialised as the matrices they stand for.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True, blocks: int = 1) -> None:
        self.blocks = blocks
        super().__init__(inputs, outputs, bias)
        self._packed: tuple[tuple[int, int, int], Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_packed": None}  # oneDNN's layout cannot be copied, only made again

    def reset_parameters(self) -> None:
        for block in self.weight.chunk(self.blocks, dim=0):
            nn.init.xavier_uniform_(block)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        plain = x.device.type != "cpu" or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu")
        if plain or not ONEDNN or torch.compiler.is_compiling() or self.weight.is_inference():
            return super().forward(x)
        trained = any(t is not None and t.requires_grad for t in (x, self.weight, self.bias))
        if trained and torch.is_grad_enabled():
            return _OneDnn.apply(x, self.weight, self.bias)
        return _multiply(x, self.packed(), self.bias, "none", [], "")

    def packed(self) -> Tensor:
        """The weight in oneDNN's own layout, made again when the weight has changed."""
        now = (self.weight.data_ptr(), self.weight._version, _optimizer_steps)
        if self._packed is None or self._packed[0] != now:
            self._packed = (now, _lay_out(self.weight.detach(), TYPICAL_ROWS))
        return self._packed[1]


class _OneDnn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return _multiply(x, weight, bias, "none", [], "")

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        flat = gradients[0].reshape(-1, len(weight))  # [n, out]
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        from_x = _multiply(flat, weight.t(), None, "none", [], "").view_as(x) if needs_x else None
        from_weight = flat.t() @ x.reshape(-1, x.shape[-1]) if needs_weight else None
        from_bias = flat.sum(0) if ctx.has_bias and needs_bias else None
        return from_x, from_weight, from_bias


def to_int8(module: nn.Module) -> None:
    """Replace every `Linear` inside by one that multiplies in 8 bits, with scales of the input found on the fly."""
    with warnings.catch_warnings():  # torch announces another library as the future home of these
        warnings.simplefilter("ignore")
        from torch.ao.nn.quantized.dynamic import Linear as Int8Linear
        from torch.ao.quantization import default_dynamic_qconfig

        for parent in list(module.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, Linear):
                    plain = nn.Linear(child.in_features, child.out_features, child.bias is not None)
                    plain.weight, plain.bias = child.weight, child.bias
                    plain.qconfig = default_dynamic_qconfig  # type: ignore[assignment]
                    setattr(parent, name, Int8Linear.from_float(plain))
