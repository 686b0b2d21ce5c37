"""The reward of a selection (eq. 4 and 5): how easily the translator says the reference when it has that context."""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST_GAP = 1e-6


def token_costs(logits: Tensor, ids: Tensor) -> Tensor:
    """g_t = log P1 - log P(y_t) + log(P1 / (P1 - P2)): eq. 4, in float32. logits [..., V], ids [...] -> [...]

    P1 and P2 are the two highest probabilities. The first part says how far the true word is from the best one, the
    second how unsure the best one is of itself.
    """
    return likelihoods_and_costs(logits, ids)[1]


def likelihoods_and_costs(logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """log P(y_t) and g_t. The vocabulary is gone through as seldom as possible: this is all that scoring waits for."""
    log_probability = torch.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=-1)
    true = log_probability.gather(-1, ids[..., None]).squeeze(-1)
    # the two largest by two searches for the largest: several times as fast as a top-k over a vocabulary
    best = log_probability.max(dim=-1, keepdim=True)
    first, second = best.values.squeeze(-1), log_probability.scatter_(-1, best.indices, -torch.inf).amax(dim=-1)
    gap = (first.exp() - second.exp()).clamp(min=SMALLEST_GAP)
    return true, 2 * first - true - gap.log()


def by_sentence(values: Tensor, sentence: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Sums of token values [R, T] over each of `count` sentences, and the number of their tokens. [count], [count]

    EOS is a token like the others; padding (negative sentence numbers) is none.
    """
    real = sentence >= 0
    owner = sentence.clamp(min=0).flatten()
    total = torch.zeros(count, dtype=values.dtype, device=values.device)
    total.index_add_(0, owner, torch.where(real, values, 0.0).flatten())
    return total, torch.zeros_like(total).index_add_(0, owner, real.to(values.dtype).flatten())


def rewards(costs: Tensor, sentence: Tensor, count: int) -> Tensor:
    """r = exp(-mean_t g_t), in (0, 1]: eq. 5 for each of `count` sentences. costs and sentence [R, T] -> [count]"""
    total, length = by_sentence(costs, sentence, count)
    return torch.exp(-total / length.clamp(min=1))
