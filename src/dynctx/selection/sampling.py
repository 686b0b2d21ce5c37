"""Drawing candidates without replacement, and the probability of what was drawn.

The sequential (Plackett-Luce) law: the next candidate is drawn in proportion to its probability among those not drawn
yet. Adding Gumbel noise to the log-probabilities and taking the largest k draws from exactly this law.
"""

from __future__ import annotations

import torch
from torch import Tensor


def draw(log_probabilities: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Draw sizes[i] columns of row i. log_probabilities [n, C], -inf where a column cannot be drawn.

    Returns the order [n, C] of all columns, best first, and which of its places [n, C] were drawn (never an impossible
    column, so fewer where fewer exist).
    """
    uniform = torch.rand(log_probabilities.shape, device=log_probabilities.device)
    # -log(-log u); the clamp keeps u = 0 from becoming an infinity that could beat an impossible column's
    noise = -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))
    order = (log_probabilities.detach() + noise).argsort(dim=1, descending=True)
    places = torch.arange(order.shape[1], device=order.device)
    possible = log_probabilities.gather(1, order) > -torch.inf
    return order, (places < sizes[:, None]) & possible


def log_probability(log_probabilities: Tensor, order: Tensor, drawn: Tensor) -> Tensor:
    """log P of drawing these columns in this order: the sum of log p_i - log(1 - already drawn). [n]"""
    # [n, C]; what cannot be drawn as a number, however small: the gradient of an infinity is not a number
    ordered = log_probabilities.clamp(min=-1e4).gather(1, order)
    # what is left before each draw: the log of the sum over this place and all later ones
    left = torch.logcumsumexp(ordered.flip(1), dim=1).flip(1)
    return torch.where(drawn, ordered - left, 0.0).sum(dim=1)
