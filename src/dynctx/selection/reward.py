"""What a reward is made of (eq. 4 and 5): how easily the translator says the reference when it has that context.

The reward of a sentence is r = exp(-mean_t g_t), in (0, 1], over the tokens of its reference, EOS among them.
"""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST_GAP = 1e-6


def likelihoods_and_costs(logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """log P(y_t) and g_t = log P1 - log P(y_t) + log(P1 / (P1 - P2)) (eq. 4). logits [..., V], ids [...] -> [...] each

    P1 and P2 are the two highest probabilities. The first part says how far the true word is from the best one, the
    second how unsure the best one is of itself. At least in float32; the vocabulary is gone through as seldom as
    possible: this is all that scoring waits for.
    """
    log_probability = torch.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=-1)
    true = log_probability.gather(-1, ids[..., None]).squeeze(-1)
    # the two largest by two searches for the largest: several times as fast as a top-k over a vocabulary
    best = log_probability.max(dim=-1, keepdim=True)
    first, second = best.values.squeeze(-1), log_probability.scatter_(-1, best.indices, -torch.inf).amax(dim=-1)
    gap = (first.exp() - second.exp()).clamp(min=SMALLEST_GAP)
    return true, 2 * first - true - gap.log()
