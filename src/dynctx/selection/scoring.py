"""How well a translator says given references with given contexts: likelihoods and rewards of many pairs at once.

A pair is a sentence with a choice of its candidates. Pairs are packed without padding, and of the candidates only the
chosen ones are read, so the 64 subsets of a scope of 6 cost what their words cost and no more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynctx.batches import Batch, Gatherer, plan_pairs
from dynctx.corpus import Ints
from dynctx.losses import token_losses
from dynctx.selection.reward import by_sentence, rewards, token_costs
from dynctx.translators.sentence import SentNmt

CHUNK_BYTES = {"cpu": 2**25, "cuda": 2**30}  # of float32 logits held at a time

Measure = Callable[[Tensor, Tensor], Tensor]  # logits [n, V], ids [n] -> a value for each token [n]


def by_token(states: Tensor, output: Tensor, ids: Tensor, measure: Measure) -> Tensor:
    """A value for every position, never holding the logits of all. states [..., d], output [V, d], ids [...]."""
    flat, wanted = states.flatten(0, -2), ids.flatten()
    rows = max(1, CHUNK_BYTES.get(states.device.type, 2**25) // (4 * len(output)))
    if torch.is_autocast_enabled(states.device.type):
        output = output.to(torch.get_autocast_dtype(states.device.type))
        flat = flat.to(output.dtype)
    parts = [
        measure(flat[first : first + rows] @ output.t(), wanted[first : first + rows])
        for first in range(0, len(flat), rows)
    ]
    return torch.cat(parts).view(ids.shape)


def log_likelihoods(translator: SentNmt, batch: Batch, selection: Tensor) -> Tensor:
    """[n] log P(Y | X, selection), summed over the reference's tokens, EOS included."""
    states = translator.decode(translator.encode(batch, selection), batch)
    losses = by_token(states, translator.output.weight, batch.target.ids, token_losses)
    return -by_sentence(losses, batch.target.sentence, len(batch))[0]


def batch_rewards(translator: SentNmt, batch: Batch, selection: Tensor) -> Tensor:
    """[n] r = exp(-mean_t g_t): eq. 5, for each sentence of the batch."""
    states = translator.decode(translator.encode(batch, selection), batch)
    costs = by_token(states, translator.output.weight, batch.target.ids, token_costs)
    return rewards(costs, batch.target.sentence, len(batch))


@torch.no_grad()
def score_pairs(
    translator: SentNmt,
    gatherer: Gatherer,
    sentences: Ints,
    chosen: NDArray[np.bool_],
    measure: Callable[[SentNmt, Batch, Tensor], Tensor],
    batch_tokens: int,
) -> Tensor:
    """[m] `log_likelihoods` or `batch_rewards` of m pairs, dropout off. sentences [m], chosen [m, scope]"""
    training = translator.training
    translator.eval()
    found = []
    plans, shape = plan_pairs(gatherer, sentences, chosen, batch_tokens)
    for plan in plans:
        batch = gatherer.gather(plan, shape)
        assert plan.chosen is not None
        found.append(measure(translator, batch, gatherer.to_device(plan.chosen)))
    translator.train(training)
    return torch.cat(found)
