"""The linear map of every layer, through the fastest kernel there is for it.

On a CPU in float32, oneDNN multiplies the small matrices of decoding up to twice as fast as the default library,
more so with weights laid out beforehand. Under autocast a weight that is only used is rounded once, not at every use.
Everywhere else this is `torch.nn.Linear`. `to_int8` replaces linear maps by 8-bit ones for use on a CPU.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from dynctx.errors import DynctxError

try:
    _multiply: Any = torch.ops.mkldnn._linear_pointwise
    _lay_out: Any = torch.ops.mkldnn._reorder_linear_weight
    ONEDNN = torch.backends.mkldnn.is_available()
except AttributeError:  # a build of torch without oneDNN
    ONEDNN = False

Stamp = tuple[int, int, int]

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
        self._packed: tuple[Stamp, Tensor] | None = None
        self._rounded: tuple[Stamp, Tensor, Tensor | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # oneDNN's layout cannot be copied, only made again
        return self.__dict__ | {"_packed": None, "_rounded": None}

    def reset_parameters(self) -> None:
        for block in self.weight.chunk(self.blocks, dim=0):
            nn.init.xavier_uniform_(block)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() or self.weight.is_inference():
            return super().forward(x)
        if torch.is_autocast_enabled(x.device.type):
            rough = self.rough(x.device.type)
            return super().forward(x) if rough is None else F.linear(x.to(rough[0].dtype), *rough)
        if x.device.type != "cpu" or x.dtype != torch.float32 or not ONEDNN:
            return super().forward(x)
        if self.learned() or (torch.is_grad_enabled() and x.requires_grad):
            return _OneDnn.apply(x, self.weight, self.bias)
        return _multiply(x, self.packed(), self.bias, "none", [], "")

    def learned(self) -> bool:
        """Whether a gradient is to come back to this map."""
        own = self.weight.requires_grad or (self.bias is not None and self.bias.requires_grad)
        return own and torch.is_grad_enabled()

    def rough(self, kind: str) -> tuple[Tensor, Tensor | None] | None:
        """Weight and bias as products under autocast on this kind of device take them; None where they learn, or there
        is none, or torch does the rounding."""
        if torch.compiler.is_compiling() or self.weight.is_inference() or self.learned():
            return None
        return self.rounded(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else None

    def rectified(self, x: Tensor) -> Tensor:
        """relu(x W^T + b); in use under autocast in one product, so that the sum is not read again."""
        weight, bias = self.rough(x.device.type) or (self.weight, None)
        if bias is None or (torch.is_grad_enabled() and x.requires_grad):
            return F.relu(self(x))
        found = torch._addmm_activation(bias, x.to(weight.dtype).flatten(0, -2), weight.t())
        return found.view(*x.shape[:-1], -1)

    def negated_sum(self, base: Tensor, x: Tensor) -> Tensor:
        """-(base + x W^T + b); where products add what is given to them, in one of them."""
        if self.bias is not None or (x.device.type == "cpu" and x.dtype == torch.float32):
            return -(base + self(x))
        weight, _ = self.rough(x.device.type) or (self.weight, None)
        return torch.addmm(base.flatten(0, -2), x.flatten(0, -2), weight.t(), beta=-1, alpha=-1).view_as(base)

    def packed(self) -> Tensor:
        """The weight in oneDNN's own layout, made again when the weight has changed."""
        now = self.stamp()
        if self._packed is None or self._packed[0] != now:
            self._packed = (now, _lay_out(self.weight.detach(), TYPICAL_ROWS))
        return self._packed[1]

    def rounded(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Weight and bias in autocast's precision, rounded again when they have changed."""
        now = self.stamp()
        if self._rounded is None or self.stale(dtype):
            with torch.inference_mode(False), torch.no_grad():  # training may use them later
                bias = None if self.bias is None else self.bias.detach().to(dtype)
                found = (now, self.weight.detach().to(dtype), bias)
            if self.weight.is_cuda and torch.cuda.is_current_stream_capturing():
                return found[1:]  # a recording's own memory, which is not to be kept
            self._rounded = found
        return self._rounded[1:]

    def stale(self, dtype: torch.dtype) -> bool:
        """Whether the weight must be rounded again."""
        return self._rounded is None or self._rounded[0] != self.stamp() or self._rounded[1].dtype != dtype

    def stamp(self) -> Stamp:
        """Another one whenever the weight is another or has changed; no optimizer changes what is frozen."""
        learns = self.weight.requires_grad or (self.bias is not None and self.bias.requires_grad)
        return (self.weight.data_ptr(), self.weight._version, _optimizer_steps if learns else -1)


def round_together(module: nn.Module, dtype: torch.dtype) -> None:
    """Round all weights of linear maps inside that have changed, in a few kernels and not in two for each map."""
    maps = [x for x in module.modules() if isinstance(x, Linear) and not x.weight.is_inference() and x.stale(dtype)]
    given = [p.detach() for x in maps for p in (x.weight, x.bias) if p is not None]
    with torch.inference_mode(False), torch.no_grad():
        made = [torch.empty_like(p, dtype=dtype) for p in given]
        if made:
            torch._foreach_copy_(made, given)
    found = iter(made)
    for x in maps:
        x._rounded = (x.stamp(), next(found), None if x.bias is None else next(found))


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


class Int8Linear(nn.Module):
    """x W^T + b with weights of 8 bits; the scale of x is found on the fly, one for all rows of a batch: what stands in
    one of them changes how the others are rounded."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight, bias = linear.weight.detach().float(), linear.bias
        scale = weight.abs().max().clamp(min=1e-12).item() / 127.0
        with warnings.catch_warnings():  # torch announces another library as the future home of these
            warnings.simplefilter("ignore")
            weight = torch.quantize_per_tensor(weight, scale, 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(weight, None if bias is None else bias.detach().float())

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.packed, reduce_range=True)

    def negated_sum(self, base: Tensor, x: Tensor) -> Tensor:
        return -(base + self(x))

    def rectified(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_relu_dynamic(x, self.packed, reduce_range=True)


def to_int8(module: nn.Module) -> None:
    """Replace every `Linear` inside by one that multiplies in 8 bits."""
    if any(parameter.device.type != "cpu" for parameter in module.parameters()):
        raise DynctxError("int8 is for the CPU; choose the device cpu")
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Linear):
                setattr(parent, name, Int8Linear(child))
