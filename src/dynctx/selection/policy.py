"""What a selection is drawn from, and how likely it was: the policy whose expected reward is raised.

Two laws. `sequential`, the paper's: so many draws without replacement from P_select, NON among what can be drawn;
drawing NON adds no sentence. `independent`: each candidate is in or out by itself, in with probability
p / (p + p_NON), so that probability-first is the most likely selection of all.

Columns: [n, C] with C = scope + 1, the last NON's. Subsets of the scope are numbered by their bits, distance 1 first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor

from dynctx.config import ReinforceConfig
from dynctx.selection.sampling import draw, log_probability
from dynctx.selection.strategies import Judged


@dataclass(frozen=True)
class Policy:
    """P_select of a batch under a law. `sizes` [n] are the draws of the sequential law."""

    log_probabilities: Tensor  # [n, C], -inf where there is no candidate
    sizes: Tensor  # [n]
    with_non: bool  # whether NON can be drawn
    independent: bool = False

    @property
    def drawable(self) -> Tensor:
        """[n, C] log-probabilities of what can be drawn."""
        if self.with_non:
            return self.log_probabilities
        nothing = torch.full_like(self.log_probabilities[:, :1], -torch.inf)
        return torch.cat([self.log_probabilities[:, :-1], nothing], dim=1)

    @property
    def logits(self) -> Tensor:
        """[n, scope] log p - log p_NON: above 0 where probability-first selects."""
        return self.log_probabilities[:, :-1] - self.log_probabilities[:, -1:]

    def sample(self) -> tuple[Tensor, Tensor]:
        """A selection [n, scope] and its log-probability [n]."""
        if self.independent:
            inclusion = torch.sigmoid(self.logits.detach())
            selection = torch.rand_like(inclusion) < inclusion
            exists = self.logits > -torch.inf
            terms = torch.where(selection, F.logsigmoid(self.logits), F.logsigmoid(-self.logits.clamp(min=-1e4)))
            return selection, torch.where(exists, terms, 0.0).sum(dim=1)
        order, drawn = draw(self.drawable, self.sizes)
        picked = torch.zeros_like(drawn).scatter(1, order, drawn)  # [n, C] by column
        return picked[:, :-1], log_probability(self.drawable, order, drawn)

    def exact(self) -> Tensor:
        """The probability of every subset of the scope, [n, 2 ** scope]; each row sums to 1."""
        with torch.autocast(self.log_probabilities.device.type, enabled=False):  # its sums are not to be rounded
            return self._independent() if self.independent else self._sequential()

    def _independent(self) -> Tensor:
        inclusion = torch.sigmoid(self.logits)  # 0 where there is no candidate
        found = inclusion.new_ones(len(inclusion), 1)
        for column in range(inclusion.shape[1]):  # the bit of a later column counts for more
            one = inclusion[:, column : column + 1]
            found = torch.cat([found * (1 - one), found * one], dim=1)
        return found

    def _sequential(self) -> Tensor:
        """f(S) = sum over i in S of f(S - i) p_i / p(not in S - i): i was the last of S to be drawn."""
        # [n, C], 0 where it cannot be drawn; need not sum to 1, as f is of ratios. What is left may be next to nothing
        probability = self.drawable.double().exp()
        count = probability.shape[1]
        levels = drawings(count)
        members = torch.tensor(subsets(count), dtype=probability.dtype, device=probability.device)  # [2 ** C, C]
        # [n, 2 ** C] what is left once S is drawn, as a sum: 1 minus what was drawn would be all rounding
        left = (probability @ (1 - members).t()).clamp(min=1e-300)
        zero = torch.zeros(len(probability), 2**count, dtype=probability.dtype, device=probability.device)
        full = zero.index_fill(1, torch.tensor([0], device=zero.device), 1.0)
        for numbers, before, last in levels:  # all S of one size
            here = torch.tensor(numbers, device=zero.device)
            earlier, item = torch.tensor(before, device=zero.device), torch.tensor(last, device=zero.device)
            value = (full[:, earlier] * probability[:, item] / left[:, earlier]).sum(dim=2)  # [n, sets of this size]
            full = full + zero.index_add(1, here, value)
        size = members.sum(1)  # [2 ** C]
        drawn = torch.where(size == self.sizes[:, None], full, 0.0)
        half = 2 ** (count - 1)  # sets without NON, then the same with it
        return (drawn[:, :half] + drawn[:, half:]).to(self.log_probabilities.dtype)

    def entropy(self) -> Tensor:
        """[n] of the selections of the independent law; of P_select, from which the sequential law draws."""
        if self.independent:
            logits = self.logits.clamp(min=-1e4)  # where there is no candidate nothing is open
            inside, outside = F.logsigmoid(logits), F.logsigmoid(-logits)
            return -(inside.exp() * inside + outside.exp() * outside).sum(dim=1)
        probability = self.log_probabilities.exp()
        return -torch.where(probability > 0, probability * self.log_probabilities.clamp(min=-1e4), 0.0).sum(dim=1)


def policy_of(own: ReinforceConfig, strategy: Judged, log_probabilities: Tensor, star: Tensor) -> Policy:
    """What selections are drawn from beside the strategy's own [n, scope]."""
    sizes, with_non = star.sum(1), strategy.size is None and own.sampling == "include_non"
    sizes = sizes.clamp(min=1) if with_non else sizes
    return Policy(log_probabilities, sizes, with_non, own.law == "independent")


@lru_cache
def subsets(count: int) -> list[list[bool]]:
    """[2 ** count, count]: every subset, by its number."""
    return [[bool(number >> column & 1) for column in range(count)] for number in range(2**count)]


@lru_cache
def drawings(count: int) -> list[tuple[list[int], list[list[int]], list[list[int]]]]:
    """For each size: the sets of that size, and for each of its members the set without it, and the member."""
    levels = []
    for size in range(1, count + 1):
        sets = list(combinations(range(count), size))
        numbers = [sum(1 << item for item in items) for items in sets]
        before = [[number - (1 << item) for item in items] for number, items in zip(numbers, sets)]
        levels.append((numbers, before, [list(items) for items in sets]))
    return levels
