"""Do the estimators follow the gradient of the expected reward? Against finite differences of a full enumeration.

One sentence with three candidates and a fixed reward for each of its eight subsets. The expected reward is a sum over
every order of draws (or every pattern of ins and outs), worked out in plain numbers; its derivative by each score is
what the loss of every estimator must descend on average, sign included.
"""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from dynctx.config import parse_config
from dynctx.selection.policy import Policy
from dynctx.training.reinforce import ReinforceRecipe

SCOPE = 3
SCORES = [0.9, 0.1, -0.4, 0.2]  # the last is NON's
REWARDS = [0.35, 0.9, 0.2, 0.55, 0.4, 0.7, 0.05, 0.5]  # of the subsets, by their number
CASES = [("sequential", 1, True), ("sequential", 2, True), ("sequential", 2, False), ("independent", 1, True)]


def expected_reward(scores: list[float], law: str, size: int, with_non: bool) -> float:
    if law == "independent":
        inclusion = [1 / (1 + math.exp(scores[-1] - score)) for score in scores[:-1]]
        total = 0.0
        for number in range(2**SCOPE):
            inside = [number >> column & 1 for column in range(SCOPE)]
            total += REWARDS[number] * math.prod(p if is_in else 1 - p for p, is_in in zip(inclusion, inside))
        return total
    weights = [math.exp(score) for score in scores[: SCOPE + with_non]]
    total = 0.0
    for order in itertools.permutations(range(len(weights)), size):
        left, probability = sum(weights), 1.0
        for column in order:
            probability *= weights[column] / left
            left -= weights[column]
        total += probability * REWARDS[sum(1 << column for column in order if column < SCOPE)]
    return total


def true_gradient(law: str, size: int, with_non: bool) -> list[float]:
    step = 1e-5
    found = []
    for column in range(SCOPE + 1):
        above, below = (
            expected_reward([s + sign * step * (k == column) for k, s in enumerate(SCORES)], law, size, with_non)
            for sign in (1, -1)
        )
        found.append((above - below) / (2 * step))
    return found


class Tabled(ReinforceRecipe):
    """The recipe's own estimators, without corpus or models: rewards come from the table."""

    def __init__(self, samples: int = 3) -> None:
        self.config = parse_config({"reinforce": {"samples": samples}})
        self.gatherer = SimpleNamespace(scope=SCOPE)  # type: ignore[assignment]

    def rewards(self, sentences: np.ndarray, *selections: Tensor) -> list[Tensor]:
        assert all(len(selection) == len(sentences) for selection in selections)
        table = torch.tensor(REWARDS, dtype=torch.float64)
        return [table[(selection * (1 << torch.arange(SCOPE))).sum(1)] for selection in selections]


def estimate(estimator: str, law: str, size: int, with_non: bool, copies: int) -> tuple[Tensor, Tensor]:
    """Mean and standard error of minus the gradient of the loss, over so many copies of the sentence. [4], [4]"""
    scores = torch.tensor([SCORES] * copies, dtype=torch.float64, requires_grad=True)
    policy = Policy(scores.log_softmax(dim=1), torch.full((copies,), size), with_non, law == "independent")
    star = torch.tensor([[True, False, True]]).expand(copies, -1)
    torch.manual_seed(8)
    drawn = policy.sample()
    loss, reward_star, reward_drawn = getattr(Tabled(), estimator)(np.arange(copies), policy, star, *drawn)
    loss.backward()
    assert scores.grad is not None
    assert reward_star.shape == reward_drawn.shape == (copies,)
    return -scores.grad.mean(0), scores.grad.std(0) / math.sqrt(max(1, copies - 1))


@pytest.mark.parametrize(("law", "size", "with_non"), CASES)
def test_exact_is_the_gradient(law: str, size: int, with_non: bool) -> None:
    found, _ = estimate("exact", law, size, with_non, copies=2)
    assert found.tolist() == pytest.approx(true_gradient(law, size, with_non), abs=1e-8)


@pytest.mark.parametrize("estimator", ["self_critical", "rloo"])
@pytest.mark.parametrize(("law", "size", "with_non"), CASES)
def test_draws_follow_the_gradient_on_average(estimator: str, law: str, size: int, with_non: bool) -> None:
    found, error = estimate(estimator, law, size, with_non, copies=100_000)
    expected = torch.tensor(true_gradient(law, size, with_non), dtype=torch.float64)
    assert bool(((found - expected).abs() <= 5 * error + 1e-9).all()), (found, expected, error)
    # close enough to tell it from its opposite, and from nothing
    assert float(expected.abs().max()) > 10 * float(error.max())


def test_the_gradient_is_not_a_trifle() -> None:
    """Two draws with NON among them: the first score is to rise, and the second to fall."""
    gradient = true_gradient("sequential", 2, True)
    assert gradient[0] > 0.02 and gradient[1] < -0.02
    assert sum(gradient) == pytest.approx(0.0, abs=1e-8)  # adding to all scores changes nothing


def test_self_critical_asks_only_where_the_draw_differs() -> None:
    """Rows whose draw is Z* earn 0 and cost nothing; the rewards of the others are the table's."""
    asked = []

    class Asked(Tabled):
        def rewards(self, sentences: np.ndarray, *selections: Tensor) -> list[Tensor]:
            asked.extend(sentences.tolist())
            return super().rewards(sentences, *selections)

    torch.manual_seed(1)
    copies = 200
    table = torch.tensor([SCORES] * copies, dtype=torch.float64).log_softmax(dim=1)
    star = torch.tensor([[True, False, False]]).expand(copies, -1)
    policy = Policy(table, torch.ones(copies, dtype=torch.int64), with_non=True)
    drawn, log_probability = policy.sample()
    _, reward_star, reward_drawn = Asked().self_critical(np.arange(copies), policy, star, drawn, log_probability)
    same = (drawn == star).all(dim=1)
    assert asked == torch.nonzero(~same).squeeze(1).tolist()
    assert 0 < len(asked) < copies
    assert not reward_star[same].any() and not reward_drawn[same].any()
    assert reward_star[~same].unique().tolist() == [REWARDS[1]]
    assert set(reward_drawn[~same].tolist()) == {REWARDS[0], REWARDS[2], REWARDS[4]}
