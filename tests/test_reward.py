"""Eq. 4 and 5 on probabilities small enough to work out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from dynctx.selection.reward import rewards as of_costs
from dynctx.selection.reward import token_costs

A = [0.5, 0.3, 0.2]  # P1 = 0.5, P2 = 0.3: P1 / (P1 - P2) = 2.5


def logits(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def rewards(logits: torch.Tensor, ids: torch.Tensor, sentence: torch.Tensor, count: int) -> torch.Tensor:
    return of_costs(token_costs(logits, ids), sentence, count)


def test_cost_of_each_word_of_one_distribution() -> None:
    """The best word costs log 2.5; the others add log(0.5 / 0.3) and log(0.5 / 0.2)."""
    found = token_costs(logits(A, A, A), torch.tensor([0, 1, 2]))
    expected = [math.log(2.5), math.log(0.5 / 0.3) + math.log(2.5), 2 * math.log(2.5)]
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


def test_two_best_words_alike_meet_the_clamp() -> None:
    """P1 = P2 = 0.4: the gap counts as 1e-6, so r = (1e-6 / 0.4) for a one-word sentence of the best word."""
    found = rewards(logits([0.4, 0.4, 0.2])[None], torch.tensor([[0]]), torch.tensor([[0]]), 1)
    assert found.item() == pytest.approx(1e-6 / 0.4, rel=1e-6)


def test_reward_is_the_mean_over_the_words_of_a_sentence() -> None:
    """Words 0 and 2: costs log 2.5 and 2 log 2.5, so r = 2.5 ** -1.5. One word: r = (0.3 / 0.5) / 2.5."""
    ids = torch.tensor([[0, 2, 1]])
    found = rewards(logits(A, A, A)[None], ids, torch.tensor([[0, 0, 1]]), 2)
    assert found.tolist() == pytest.approx([2.5**-1.5, 0.24], rel=1e-12)


def test_padding_never_counts() -> None:
    padded = torch.cat([logits(A, A), torch.full((3, 3), 7.0, dtype=torch.float64)])[None]
    ids = torch.tensor([[0, 2, 1, 1, 1]])
    sentence = torch.tensor([[0, 0, -1, -1, -1]])
    alone = rewards(logits(A, A)[None], ids[:, :2], sentence[:, :2], 1)
    assert torch.equal(rewards(padded, ids, sentence, 1), alone)


def test_a_certain_and_right_model_earns_one_and_nobody_more() -> None:
    sure = torch.tensor([[[60.0, 0.0, 0.0]]], dtype=torch.float64)
    assert rewards(sure, torch.tensor([[0]]), torch.tensor([[0]]), 1).item() == pytest.approx(1.0, abs=1e-12)
    torch.manual_seed(1)
    many = rewards(
        torch.randn(4, 9, 30).double() * 5, torch.randint(30, (4, 9)), torch.arange(4)[:, None].expand(4, 9), 4
    )
    assert bool((many > 0).all()) and bool((many <= 1).all())


def test_half_precision_logits_are_scored_in_float32() -> None:
    row = torch.randn(1, 5, 50).bfloat16()
    ids, sentence = torch.randint(50, (1, 5)), torch.zeros(1, 5, dtype=torch.int64)
    found = rewards(row, ids, sentence, 1)
    assert found.dtype == torch.float32
    assert torch.equal(found, rewards(row.float(), ids, sentence, 1))
