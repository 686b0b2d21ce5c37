"""Sparsemax: by hand, against its definition, and its gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dynctx.translators.san import sparsemax

quick = settings(max_examples=40, deadline=None, derandomize=True, database=None)


def number(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_sparsemax_by_hand() -> None:
    """Sorted .9 .5 .3 -.2: 1 + 3 (.3) = 1.9 > 1.7 but 1 + 4 (-.2) = .2 < 1.5, so three stay and tau = .7 / 3."""
    scores = number([0.3, 0.9, -0.2, 0.5]).requires_grad_()
    weights = sparsemax(scores, torch.ones(4, dtype=torch.bool))
    assert torch.allclose(weights, number([1 / 15, 2 / 3, 0, 4 / 15]), atol=1e-12, rtol=0)
    weights.backward(number([1.0, 2.0, 3.0, 4.0]))  # less the mean of 1, 2 and 4, on the support
    assert scores.grad is not None
    assert torch.allclose(scores.grad, number([-4 / 3, -1 / 3, 0, 5 / 3]), atol=1e-12, rtol=0)


def test_sparsemax_over_a_part_by_hand() -> None:
    """Without .9: sorted .5 .3 -.2, 1 + 3 (-.2) = .4 < .6, two stay, tau = (.8 - 1) / 2."""
    scores = number([[0.3, 0.9, -0.2, 0.5], [0.3, 0.9, -0.2, 0.5], [9.0, 1.0, 1.0, 1.0]]).requires_grad_()
    seen = torch.tensor([[True, False, True, True], [False] * 4, [False, True, False, False]])
    weights = sparsemax(scores, seen)
    assert torch.allclose(weights, number([[0.4, 0, 0, 0.6], [0, 0, 0, 0], [0, 1, 0, 0]]), atol=1e-12, rtol=0)
    weights.backward(number([[1.0, 2.0, 3.0, 4.0]] * 3))
    assert scores.grad is not None
    assert torch.allclose(scores.grad, number([[-1.5, 0, 0, 1.5], [0] * 4, [0] * 4]), atol=1e-12, rtol=0)


@quick
@given(
    st.lists(st.tuples(st.floats(-3, 3), st.booleans()), min_size=1, max_size=7), st.floats(-50, 50), st.floats(0, 5)
)
def test_sparsemax_is_the_nearest_point_of_the_simplex(
    entries: list[tuple[float, bool]], shift: float, scale: float
) -> None:
    """p is right iff it sums to 1 and s - p is one threshold on the support and not above it elsewhere."""
    scores = number([score for score, _ in entries]) * scale + shift
    seen = torch.tensor([mark for _, mark in entries])
    weights = sparsemax(scores, seen)
    assert (weights[~seen] == 0).all()
    if not seen.any():
        return
    assert float(weights.sum()) == pytest.approx(1, abs=1e-9) and (weights >= 0).all()
    support = weights > 0
    threshold = (scores - weights)[support]
    assert float(threshold.max() - threshold.min()) < 1e-9
    assert (scores[seen & ~support] <= threshold.max() + 1e-9).all()


def test_the_gradient_of_sparsemax() -> None:
    torch.manual_seed(2)
    scores = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    seen = torch.rand(6, 5) < 0.7
    assert torch.autograd.gradcheck(lambda s: sparsemax(s, seen), scores)
