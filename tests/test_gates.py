"""A gate between two states: by hand, and on a GPU the same in one kernel."""

from __future__ import annotations

import math

import pytest
import torch

from dynctx.gates import fused, gated


def test_a_gate_by_hand() -> None:
    """g = sigmoid(ln 2 + ln 1.5) = 3/4: 8 + 1/4 * 4, and 3/4 * 8 + 1/4 * 4; a gate that is shut lets nothing in."""
    x, y, a, b = (torch.tensor([[v]], dtype=torch.float64) for v in (8.0, 4.0, math.log(2), math.log(1.5)))
    assert gated(x, y, a, b).item() == pytest.approx(9.0, abs=1e-12)
    assert gated(x, y, a, b, x).item() == pytest.approx(7.0, abs=1e-12)
    assert gated(x, y, a + 800, b, x).item() == 8.0
    assert gated(x, y, a - 800, b, x).item() == 4.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("added", [True, False])
def test_one_kernel_says_the_same(added: bool) -> None:
    x = 3 * torch.randn(64, 512, device="cuda")
    y, a, b = (3 * torch.randn(64, 512, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    rounded = None if added else x
    with torch.no_grad():
        found = gated(x, y, a, b, rounded)
    assert fused(added) is not None and found.dtype == torch.float32
    expected = gated(*(v.double().cpu() for v in (x, y, a, b)), None if added else x.double().cpu())
    assert torch.allclose(found.double().cpu(), expected, atol=1e-5)
