"""How likely given targets are: the one way in which translations that exist already are scored.

Any number of (sentence, selection) pairs are scored together, the same sentence as often as one likes: the candidates
of a contrastive set, the 64 subsets of an oracle, a test set with and without context. Pairs of similar length are
packed into rows without padding, only the selected candidates are read, and the softmax goes through the positions in
chunks, so that the logits of a batch never exist at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynctx.batches import Batch, Gatherer
from dynctx.config import DecodingConfig
from dynctx.corpus import Ints
from dynctx.decoding import drafts_in_use
from dynctx.devices import many_shapes
from dynctx.losses import CHUNK_BYTES, token_losses
from dynctx.packing import pack
from dynctx.planning import Plan, Shape, choose_shape, round_rows
from dynctx.selection.reward import likelihoods_and_costs
from dynctx.translators.sentence import SentNmt

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

BATCH_TOKENS = {"cpu": 2**13, "cuda": 2**16}  # positions of a batch: source, context and target
SHORTEST_CLASS = 256  # the longest side of the pairs in the first class of lengths; each further class doubles it


@dataclass(frozen=True)
class Scores:
    """One row for each pair, in the order they were given."""

    log_probability: Floats  # [n] natural logarithm, summed over the target's pieces, EOS included
    tokens: Ints  # [n] pieces of the target, EOS included
    reward: Floats | None  # [n] eq. 5, where it was asked for


def score(
    model: SentNmt,
    gatherer: Gatherer,
    sentences: Ints,
    selection: Bools,
    *,
    rewards: bool = False,
    batch_tokens: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Scores:
    """Score the targets of these sentences of the store, each under its row of the selection [n, scope]."""
    found = sums(model, gatherer, sentences, selection, rewards, batch_tokens, progress)
    log_probability, cost = found.cpu().numpy()
    tokens = gatherer.lengths_of(sentences)[1]
    return Scores(log_probability, tokens, np.exp(-cost / tokens) if rewards else None)


@torch.inference_mode()
def sums(
    model: SentNmt,
    gatherer: Gatherer,
    sentences: Ints,
    selection: Bools,
    rewards: bool,
    batch_tokens: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Tensor:
    """[2, n] log-probability and cost (eq. 4), summed over each target: the same, where nobody waits for the device."""
    count, device = len(sentences), gatherer.device
    if selection.shape != (count, gatherer.scope):
        raise ValueError(f"a selection of shape {selection.shape} for {count} sentences of scope {gatherer.scope}")
    selection = np.array(selection, np.bool_)
    lengths = gatherer.lengths_of(sentences, selection)
    found = torch.zeros(2, count, dtype=torch.float64, device=device)
    size = batch_tokens or BATCH_TOKENS.get(device.type, 2**13)
    with without_dropout(model), many_shapes():
        drafts = drafts_in_use(model, gatherer, sentences, DecodingConfig())  # as in use
        for members, plan, shape in _plans(sentences, selection, lengths, size):
            batch = gatherer.gather(plan, shape)
            chosen = gatherer.to_device(selection[members])
            own = None if drafts is None else [drafts[number] for number in plan.sentences.tolist()]
            found[:, gatherer.to_device(members)] = _sums(model, batch, chosen, rewards, own)
            if progress is not None:
                progress(len(members))
    return found


@contextmanager
def without_dropout(model: SentNmt) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _plans(sentences: Ints, selection: Bools, lengths: Ints, batch_tokens: int) -> Iterator[tuple[Ints, Plan, Shape]]:
    """Batches of a few fixed shapes, the longest first: which pairs, and how they lie.

    A class holds pairs whose longest side is at most 256, 512, 1024, ... pieces. Inside a class they are shuffled,
    since among pairs of one length there are none that would fill up a row.
    """
    longest = lengths.max(axis=0)
    classes = np.maximum(0, np.ceil(np.log2(np.maximum(longest, 1) / SHORTEST_CLASS))).astype(np.int64)
    for number in sorted(set(classes.tolist()), reverse=True):
        members = np.random.default_rng(number).permutation(np.flatnonzero(classes == number))
        shape = choose_shape(lengths[:, members], np.ones(len(members), np.bool_), batch_tokens)
        order, row, offsets = pack(lengths[:, members], np.array([shape.source, shape.target, shape.context]))
        members = members[order]
        laid = lengths[:, members]
        last = int(row[-1]) + 1
        for first in range(0, last, shape.rows):
            a, b = np.searchsorted(row, [first, first + shape.rows])
            part = members[a:b]
            plan = Plan(sentences[part], row[a:b] - first, offsets[:, a:b], laid[:, a:b], selection[part])
            # the last batch has fewer rows: there is no need to compute empty ones
            yield part, plan, replace(shape, rows=round_rows(min(shape.rows, last - first), shape.rows))


@contextmanager
def fine_enough(kind: str) -> Iterator[None]:
    """float32; where layers ran in bfloat16, a GPU may round factors to ten bits and sum up in float32, in a tenth of
    the time: a logit of 10 is then known to a thousandth or so."""
    rough = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = rough or torch.is_autocast_enabled(kind)
    try:
        with torch.autocast(kind, enabled=False):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = rough


def _sums(model: SentNmt, batch: Batch, selection: Tensor, rewards: bool, drafts: list[list[int]] | None) -> Tensor:
    """[2, n] log-probability and cost (eq. 4) of each sentence of the batch, summed over its target."""
    states = model.decode(model.encode(batch, selection, model.bank(batch, drafts)), batch)  # [R, T, d]
    sentence = batch.target.sentence.flatten()
    real = torch.argsort(sentence < 0, stable=True)[: batch.target_tokens]  # as a mask would, but nobody waits
    states, ids, owner = states.flatten(0, 1)[real], batch.target.ids.flatten()[real], sentence[real]
    weight = model.target_embedding.weight
    rows = max(1, CHUNK_BYTES.get(states.device.type, 2**25) // (4 * len(weight)))
    total = torch.zeros(2, len(batch), dtype=torch.float64, device=states.device)
    for first in range(0, len(states), rows):
        part = slice(first, first + rows)
        # in full precision, whatever the layers ran in: in bfloat16 a logit of 10 is known to 0.03 only
        with fine_enough(states.device.type):
            logits = model.output(states[part].to(weight.dtype))
        if rewards:
            true, cost = likelihoods_and_costs(logits, ids[part])
            total[1].index_add_(0, owner[part], cost.double())
        else:
            true = -token_losses(logits, ids[part])
        total[0].index_add_(0, owner[part], true.double())
    return total
