"""Draws without replacement against exact enumeration."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch

from dynctx.selection.sampling import draw, log_probability

P = [0.5, 0.3, 0.15, 0.05]


def exact(order: tuple[int, ...]) -> float:
    """The sequential law, step by step."""
    left, probability = 1.0, 1.0
    for column in order:
        probability *= P[column] / left
        left -= P[column]
    return probability


@pytest.mark.parametrize("size", [1, 2, 3])
def test_frequencies_match_enumeration(size: int) -> None:
    count = 40_000
    torch.manual_seed(5)
    table = torch.tensor(P).log().expand(count, -1)
    order, drawn = draw(table, torch.full((count,), size))
    assert bool((drawn.sum(1) == size).all())
    found = Counter(map(tuple, order[:, :size].tolist()))
    for expected in itertools.permutations(range(len(P)), size):
        share = exact(expected)
        spread = math.sqrt(share * (1 - share) / count)
        assert abs(found[expected] / count - share) < 5 * spread + 1e-4, expected


def test_log_probability_matches_enumeration() -> None:
    table = torch.tensor([P], dtype=torch.float64).log()
    for size in range(len(P) + 1):
        for order in itertools.permutations(range(len(P))):
            drawn = torch.arange(len(P))[None] < size
            found = log_probability(table, torch.tensor([order]), drawn).item()
            assert found == pytest.approx(math.log(exact(order[:size])), abs=1e-12)


def test_literal_log_probability() -> None:
    """Column 1, then column 0: 0.3 * 0.5 / 0.7."""
    table = torch.tensor([P], dtype=torch.float64).log()
    found = log_probability(table, torch.tensor([[1, 0, 2, 3]]), torch.tensor([[True, True, False, False]]))
    assert found.item() == pytest.approx(math.log(0.3 * 0.5 / 0.7), abs=1e-12)


def test_impossible_columns_are_never_drawn() -> None:
    table = torch.tensor([[0.6, 0.0, 0.4]]).log().expand(2000, -1)
    torch.manual_seed(1)
    order, drawn = draw(table, torch.full((2000,), 3))
    assert bool((drawn.sum(1) == 2).all())
    assert 1 not in order[drawn].tolist()
    assert bool(torch.isfinite(log_probability(table, order, drawn)).all())


def test_gradient_is_that_of_the_sum_over_draws() -> None:
    """d/dz log P(first = i) of a softmax is onehot(i) - p."""
    z = torch.tensor([[0.2, -0.4, 1.0]], dtype=torch.float64, requires_grad=True)
    log_probability(z.log_softmax(1), torch.tensor([[2, 0, 1]]), torch.tensor([[True, False, False]])).sum().backward()
    expected = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64) - z.detach().softmax(1)
    assert z.grad is not None and torch.allclose(z.grad, expected, atol=1e-12)


def test_nothing_drawn_has_probability_one() -> None:
    table = torch.tensor([P]).log()
    order, drawn = draw(table, torch.tensor([0]))
    assert not bool(drawn.any())
    assert log_probability(table, order, drawn).item() == 0.0
