"""A gate between two states, on a GPU in one kernel where no gradient is asked for.

Step by step it is half a dozen kernels, each of which reads and writes whole states, and in a search that takes as long
as the products that the gate is made of. torch compiles such a kernel from a line of C++ when it is first needed.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

FORMULA = "template <typename T> T NAME(T x, T y, T a, T b) { return x + (DIFFERENCE) / (T(1) + ::exp(a + b)); }"


def gated(x: Tensor, y: Tensor, of_x: Tensor, of_y: Tensor, rounded: Tensor | None = None) -> Tensor:
    """x + (1 - g) * y with g = sigmoid(of_x + of_y); or, where x is given once more (rounded), g * x + (1 - g) * y."""
    if x.is_cuda and not torch.is_grad_enabled() and not torch.compiler.is_compiling():
        kernel = fused(added=rounded is None)
        if kernel is not None:
            return kernel(x, y, of_x, of_y)
    shut = torch.sigmoid(-(of_x + of_y))  # 1 - g, exact where it is small
    return x + shut * (y if rounded is None else y - rounded)


@functools.cache
def fused(added: bool) -> Callable[..., Tensor] | None:
    """The same in one kernel, or nothing where torch cannot make one."""
    name, difference = ("gated_sum", "y") if added else ("gated_mean", "y - x")
    code = FORMULA.replace("NAME", name).replace("DIFFERENCE", difference)
    try:
        kernel: Callable[..., Tensor] = torch.cuda.jiterator._create_jit_fn(code)
        one = torch.ones(1, device="cuda")
        kernel(one, *(one.to(torch.bfloat16) for _ in range(3)))  # as under autocast
    except Exception as error:  # a part of torch that may change, and compilers fail in many ways
        warnings.warn(f"gates are computed step by step, which is slower: {error}", stacklevel=3)
        return None
    return kernel
