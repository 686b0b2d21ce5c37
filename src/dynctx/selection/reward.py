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
    log_probability = torch.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=-1)
    first, second = log_probability.topk(2, dim=-1).values.unbind(-1)
    true = log_probability.gather(-1, ids[..., None]).squeeze(-1)
    gap = (first.exp() - second.exp()).clamp(min=SMALLEST_GAP)
    return 2 * first - true - gap.log()


def rewards(logits: Tensor, ids: Tensor, sentence: Tensor, count: int) -> Tensor:
    """r = exp(-mean_t g_t), in (0, 1]: eq. 5 for each of `count` sentences.

    logits [R, T, V], ids and sentence [R, T] -> [count]. EOS is a target word like the others; padding (negative
    sentence numbers) is none.
    """
    costs = token_costs(logits, ids)
    real = sentence >= 0
    owner = sentence.clamp(min=0).flatten()
    total = torch.zeros(count, dtype=costs.dtype, device=costs.device)
    total.index_add_(0, owner, torch.where(real, costs, 0.0).flatten())
    length = torch.zeros_like(total).index_add_(0, owner, real.to(costs.dtype).flatten())
    return torch.exp(-total / length.clamp(min=1))
