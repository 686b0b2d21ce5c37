"""TDNMT's gated attention to the context, its numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dynctx.layers import KeyValue, LayerSizes
from dynctx.translators.tdnmt import ContextAttention


def by_hand(norm: str, gated: bool, dropout: float = 0.0) -> tuple[ContextAttention, KeyValue, Tensor]:
    """Width 2, one head, weights such that x = (1, 2) has y = (5, 6) and the gate (3/4, 1/2).

    Contexts (0, 4), (sqrt(2) ln 3, 8) and one that is masked. Query = x, keys (c_1, 0): the scores are
    x_1 c_1 / sqrt(2) = 0 and ln 3, the weights 1/4 and 3/4. Values (c_2, 1): (4, 1) and (8, 1), mixed (7, 1).
    Output (5 * 1, 7 - 1) = (5, 6). Gate: sigmoid of (ln 3 * 1, 2) + (0, 0.8 * 5 - 6) = (ln 3, 0), so (3/4, 1/2).
    """
    attention = ContextAttention(LayerSizes(2, 4, 1, norm, dropout), gated, 2).double().eval()
    inner = attention.attention
    weights: list[tuple[Any, list[list[float]], list[float] | None]] = [
        (inner.query, [[1, 0], [0, 1]], [0, 0]),
        (inner.key_value, [[1, 0], [0, 0], [0, 1], [0, 0]], [0, 0, 0, 1]),
        (inner.output, [[0, 5], [1, 0]], [0, -1]),
    ]
    if gated:
        weights += [(attention.gate_state, [[math.log(3), 0], [0, 1]], None)]
        weights += [(attention.gate_context, [[0, 0], [0.8, -1]], None)]
    with torch.no_grad():
        for linear, weight, bias in weights:
            linear.weight.copy_(torch.tensor(weight, dtype=torch.float64))
            assert (linear.bias is None) == (bias is None)
            if bias is not None:
                linear.bias.copy_(torch.tensor(bias))
    states = torch.tensor([[[0.0, 4.0], [math.sqrt(2) * math.log(3), 8.0], [9.0, 9.0]]], dtype=torch.float64)
    mask = torch.tensor([[[[True, True, False]]]])
    return attention, inner.project(states), mask


def near(found: Tensor, expected: tuple[float, float], tolerance: float = 1e-12) -> bool:
    return torch.allclose(found.flatten(), torch.tensor(expected, dtype=torch.float64), atol=tolerance, rtol=0)


@pytest.mark.parametrize(("gated", "expected"), [(True, (2.0, 4.0)), (False, (6.0, 8.0))])
def test_context_attention_post_norm(gated: bool, expected: tuple[float, float]) -> None:
    """Gated: (3/4 * 1 + 1/4 * 5, 1/2 * 2 + 1/2 * 6) = (2, 4). Ungated: (1 + 5, 2 + 6)."""
    attention, context, mask = by_hand("post", gated)
    seen: dict[str, Tensor] = {}
    attention.attention.register_forward_hook(lambda module, inputs, output: seen.update(y=output))
    attention.norm.register_forward_hook(lambda module, inputs, output: seen.update(mixed=inputs[0]))
    with torch.no_grad():
        attention.norm.weight.copy_(torch.tensor([2.0, 3.0]))
        attention.norm.bias.copy_(torch.tensor([10.0, 20.0]))
        out = attention(torch.tensor([[[1.0, 2.0]]], dtype=torch.float64), context, mask)
    assert near(seen["y"], (5, 6))
    assert near(seen["mixed"], expected)
    # either way 1 below and 1 above the mean, so a variance of 1: -1 * 2 + 10 and 1 * 3 + 20, shrunk by eps
    shrunk = 1 / math.sqrt(1 + 1e-6)
    assert near(out, (10 - 2 * shrunk, 20 + 3 * shrunk))


@pytest.mark.parametrize(("gated", "expected"), [(True, (4.25, 7.0)), (False, (8.0, 10.0))])
def test_context_attention_pre_norm(gated: bool, expected: tuple[float, float]) -> None:
    """x = (3, 4) is normed to (-1, 1) + (2, 1) = (1, 2), whose y and gate are as above, and x itself stays whole.

    Gated: (3 + 1/4 * 5, 4 + 1/2 * 6). Ungated: (3 + 5, 4 + 6).
    """
    attention, context, mask = by_hand("pre", gated)
    with torch.no_grad():
        attention.norm.bias.copy_(torch.tensor([2.0, 1.0]))
        out = attention(torch.tensor([[[3.0, 4.0]]], dtype=torch.float64), context, mask)
    assert near(out, expected, tolerance=1e-4)  # (-1, 1) is shrunk by eps


def test_only_the_ungated_variant_has_dropout() -> None:
    x = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64).expand(1, 40, 2)
    for gated in (True, False):
        attention, context, mask = by_hand("post", gated, dropout=0.5)
        attention.norm = torch.nn.Identity()  # type: ignore[assignment]
        still, moved = attention(x, context, mask), attention.train()(x, context, mask)
        assert torch.equal(still, moved) == gated
    changes = (moved - x)[..., 0].detach().flatten().tolist()
    assert {round(change, 9) for change in changes} == {0, 10}  # dropped, or 5 / 0.5


def test_positions_that_go_round_the_context() -> None:
    attention, context, mask = by_hand("post", True)
    x = torch.tensor([[[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]], dtype=torch.float64)
    out = attention(x, context, mask, torch.tensor([[False, True, False]]))
    assert torch.equal(out[0, 1], x[0, 1])
    assert not torch.equal(out[0, 0], x[0, 0]) and torch.equal(out[0, 0], out[0, 2])
