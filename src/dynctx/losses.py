"""Cross-entropy against a smoothed target, without ever holding the logits of a whole batch.

The softmax over the vocabulary is the largest tensor of a training step by far. `smoothed_cross_entropy` goes
through the positions in chunks and computes loss and gradient of a chunk together, so that no chunk's logits
outlive it: a fraction of the memory, and no slower, since nothing is computed twice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_BYTES = {
    "cpu": 2**25,
    "cuda": 2**29,
}  # of float32 logits; small enough on the CPU to be reused from the heap


def token_losses(logits: Tensor, ids: Tensor, smoothing: float = 0.0) -> Tensor:
    """Each token's loss in float32. The true class has 1 - smoothing, the others share the rest.

    logits [..., V], ids [...] -> [...]
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    log_partition = torch.logsumexp(logits, dim=-1)
    true = logits.gather(-1, ids[..., None]).squeeze(-1)
    negative = log_partition - true
    if not smoothing:
        return negative
    others = logits.shape[-1] - 1
    rest = others * log_partition - (logits.sum(-1) - true)  # sum of -log p over the other classes
    return (1 - smoothing) * negative + smoothing / others * rest


def chunk_loss_and_gradient(logits: Tensor, ids: Tensor, weight: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Summed loss of a chunk, and each row's gradient: softmax minus target. All that takes time here is how often
    memory goes by, so the softmax is made once, for both, out of logits as rough as they come.

    logits [n, V], ids [n], weight [n] -> scalar, [n, V] (not yet times the weight), as rough as the logits
    """
    exact = logits.dtype if logits.dtype == torch.float64 else torch.float32
    log_probability = torch.log_softmax(logits, dim=-1, dtype=exact)
    true = log_probability.gather(1, ids[:, None]).squeeze(1)
    low = smoothing / (logits.shape[-1] - 1)  # what each wrong class is to have
    losses = -(1 - smoothing) * true
    if smoothing:
        losses = losses - low * (log_probability.sum(1) - true)
    gradient = log_probability.exp_().sub_(low)
    change = torch.full((len(ids), 1), low - (1 - smoothing), dtype=exact, device=gradient.device)
    return (losses * weight).sum(), gradient.scatter_add_(1, ids[:, None], change).to(logits.dtype)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, output: Tensor, ids: Tensor, weight: Tensor, smoothing: float, compute: Any
    ) -> Tensor:
        """states [n, d], output [V, d] -> the summed loss; gradients are made on the way."""
        rows = max(1, CHUNK_BYTES.get(states.device.type, 2**25) // (4 * len(output)))
        low = states.dtype  # under autocast the products run in bfloat16, as elsewhere
        matrix = output.to(low)
        total = torch.zeros((), dtype=torch.float32 if low != torch.float64 else low, device=states.device)
        states_gradient = torch.empty_like(states)
        output_gradient = torch.zeros_like(output)
        for first in range(0, len(states), rows):
            part = slice(first, first + rows)
            loss, gradient = compute(states[part] @ matrix.t(), ids[part], weight[part], smoothing)
            total += loss
            times = weight[part, None].to(low)
            torch.mm(gradient, matrix, out=states_gradient[part]).mul_(times)
            if low == output.dtype:
                output_gradient.addmm_(gradient.t(), states[part] * times)
            else:
                output_gradient += gradient.t() @ (states[part] * times)
        ctx.save_for_backward(states_gradient, output_gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states_gradient, output_gradient = ctx.saved_tensors
        upstream = gradients[0]
        return states_gradient * upstream, output_gradient * upstream, None, None, None, None


def smoothed_cross_entropy(
    states: Tensor,
    output: Tensor,
    ids: Tensor,
    weight: Tensor,
    smoothing: float,
    compute: Any = chunk_loss_and_gradient,
) -> Tensor:
    """The loss summed over all positions, each times its weight (0 at padding).

    states [..., d], output [V, d], ids [...], weight [...] -> scalar
    """
    if torch.is_autocast_enabled(states.device.type):
        states = states.to(torch.get_autocast_dtype(states.device.type))
    states, ids, weight = states.flatten(0, -2), ids.flatten(), weight.flatten()
    with torch.autocast(states.device.type, enabled=False):
        return _Chunked.apply(states, output, ids, weight.float(), smoothing, compute)
