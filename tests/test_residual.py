"""Residual steps, their norms and their dropout, against values made by hand."""

from __future__ import annotations

import pytest
import torch

from dynctx.layers import Dropout, LayerNorm, LayerSizes, Residual


def test_post_norm_by_hand() -> None:
    residual = Residual(LayerSizes(width=2, inner=1, heads=1, norm="post", dropout=0.0))
    x, change = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0])
    assert residual.before(x).tolist() == [1.0, 2.0]
    # sum (1, 3): mean 2, variance 1
    assert residual.after(x, change).tolist() == pytest.approx([-1.0, 1.0], abs=1e-6)


def test_pre_norm_by_hand() -> None:
    residual = Residual(LayerSizes(width=2, inner=1, heads=1, norm="pre", dropout=0.0))
    assert residual.before(torch.tensor([1.0, 5.0])).tolist() == pytest.approx([-1.0, 1.0], abs=1e-6)
    assert residual.after(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0])).tolist() == [1.0, 3.0]


def test_norm_has_the_small_epsilon() -> None:
    residual = Residual(LayerSizes(width=2, inner=1, heads=1, norm="pre", dropout=0.0))
    # mean 0.001, variance 1e-6 = epsilon: half of what is divided by, hence 1 / sqrt(2)
    assert residual.before(torch.tensor([0.0, 0.002])).tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5], abs=1e-4)


def test_residual_dropout_is_on_the_change_alone() -> None:
    torch.manual_seed(0)
    residual = Residual(LayerSizes(width=1000, inner=1, heads=1, norm="pre", dropout=0.5))
    x, change = torch.full((1000,), 7.0), torch.ones(1000)
    found = residual.after(x, change) - x
    assert set(found.tolist()) == {0.0, 2.0}  # dropped, or scaled by 1 / (1 - 0.5)
    assert 400 < int((found == 0).sum()) < 600


def test_rough_states_stay_rough_where_nothing_learns() -> None:
    """(2, 4) has mean 3 and deviation 1: -1 and 1, times the gain, plus the bias."""
    norm = LayerNorm(2)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([3.0, 5.0]))
        norm.bias.copy_(torch.tensor([0.5, 1.0]))
    x = torch.tensor([[2.0, 4.0]])
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            found = norm(x.bfloat16())
            assert norm(x).dtype == torch.float32
        assert found.dtype == torch.bfloat16 and found.tolist() == [[-2.5, 6.0]]
        learned = norm(x.bfloat16().requires_grad_())
        learned.sum().backward()
    assert norm.weight.grad is not None and norm.weight.grad.tolist() == pytest.approx([-1.0, 1.0], abs=1e-4)


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    """0.3 of the values are 0 and the rest 1 / 0.7; no two calls are alike, and the gradient goes where values went."""
    torch.manual_seed(1)
    dropout, x = Dropout(0.3), torch.ones(333, 301, requires_grad=True)
    first, second = dropout(x), dropout(x)
    assert first.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert (first == 0).float().mean().item() == pytest.approx(0.3, abs=0.005)
    assert (first == second).float().mean().item() == pytest.approx(0.3**2 + 0.7**2, abs=0.01)
    columns = (first == 0).float().mean(0)  # nothing hangs on the place: no draw is used twice
    assert columns.min() > 0.15 and columns.max() < 0.45
    first.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, first.detach())
    torch.manual_seed(1)
    assert torch.equal(dropout(x), first)
    assert torch.equal(dropout.eval()(x), x) and torch.equal(Dropout(0.0)(x), x)
