"""Eq. 4 on probabilities small enough to work out by hand; eq. 5, the mean over a sentence, is in test_scoring.py."""

from __future__ import annotations

import math

import pytest
import torch

from dynctx.selection.reward import likelihoods_and_costs

A = [0.5, 0.3, 0.2]  # P1 = 0.5, P2 = 0.3: P1 / (P1 - P2) = 2.5


def logits(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def test_cost_of_each_word_of_one_distribution() -> None:
    """The best word costs log 2.5; the others add log(0.5 / 0.3) and log(0.5 / 0.2)."""
    likelihoods, costs = likelihoods_and_costs(logits(A, A, A) + 3, torch.tensor([0, 1, 2]))
    expected = [math.log(2.5), math.log(0.5 / 0.3) + math.log(2.5), 2 * math.log(2.5)]
    assert costs.tolist() == pytest.approx(expected, rel=1e-12)
    assert likelihoods.exp().tolist() == pytest.approx(A, rel=1e-12)


def test_two_best_words_alike_meet_the_clamp() -> None:
    """P1 = P2 = 0.4: the gap counts as 1e-6, so the best word costs log(0.4 / 1e-6), the last one log 2 more."""
    costs = likelihoods_and_costs(logits([0.4, 0.4, 0.2]).expand(3, 3), torch.tensor([0, 1, 2]))[1]
    expected = [math.log(0.4e6), math.log(0.4e6), math.log(0.8e6)]
    assert costs.tolist() == pytest.approx(expected, rel=1e-9)


def test_nothing_is_free_but_to_be_certain_and_right() -> None:
    sure = likelihoods_and_costs(torch.tensor([[60.0, 0.0, 0.0]], dtype=torch.float64), torch.tensor([0]))[1]
    assert sure.item() == pytest.approx(0.0, abs=1e-12)
    torch.manual_seed(1)
    many = likelihoods_and_costs(torch.randn(4, 9, 30).double() * 5, torch.randint(30, (4, 9)))[1]
    assert many.shape == (4, 9) and bool((many > 0).all())


def test_half_precision_logits_are_scored_in_float32() -> None:
    row, ids = torch.randn(5, 50).bfloat16(), torch.randint(50, (5,))
    for found, expected in zip(likelihoods_and_costs(row, ids), likelihoods_and_costs(row.float(), ids)):
        assert found.dtype == torch.float32
        assert torch.equal(found, expected)
