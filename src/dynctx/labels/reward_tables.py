"""The rewards of all subsets of a sentence's candidates, written down once.

With 6 candidates there are 64 subsets, and while the translator stays as it is, so do their rewards. A table of them is
all that a scorer needs to learn which selection earns most: the expectation over all subsets is then exact, and an
update asks no translator anything. `dynctx label` with `labels.kind: reward` makes it.

Columns: subsets by their bits, distance 1 first (as in `selection.policy`). A subset with a candidate that does not
exist is worth what it is worth without. To learn from, a table may have gaps: the rewards of some subsets of many
sentences cost no more than those of all subsets of a few.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dynctx.batches import Gatherer
from dynctx.config_rules import LARGEST_SCOPES
from dynctx.corpus import Ints
from dynctx.errors import DynctxError
from dynctx.model_folder import Model
from dynctx.scoring import score
from dynctx.selection.policy import subsets
from dynctx.selection.strategies import uniform

Table = NDArray[np.float32]  # [sentences, 2 ** scope], nan where nothing was asked about a sentence or a subset


def subset_bits(scope: int) -> NDArray[np.bool_]:
    """[2 ** scope, scope] every subset, by its number."""
    most = LARGEST_SCOPES["exact"]
    if scope > most:
        raise DynctxError(f"a scope of {scope} has 2 ** {scope} subsets; a scope of {most} is the most that is tried")
    return np.array(subsets(scope))


def reward_values(model: Model, gatherer: Gatherer, sentences: Ints, batch_tokens: int, count: int = 0) -> Table:
    """[n, 2 ** scope] the reward (eq. 5) of each subset, or of so many of each sentence."""
    scope = gatherer.scope
    every = subset_bits(scope)
    exists = (1 << gatherer.candidates(sentences)) - 1  # [n] bits
    number = exists[:, None] & np.arange(2**scope)  # [n, 2 ** scope] what a subset comes to
    asked = some_subsets(sentences, exists, scope, count) if count else number == np.arange(2**scope)
    row, column = np.nonzero(asked)
    found = score(model.translator, gatherer, sentences[row], every[column], rewards=True, batch_tokens=batch_tokens)
    values = np.full((len(sentences), 2**scope), np.nan, np.float32)
    assert found.reward is not None
    values[row, column] = found.reward
    return np.take_along_axis(values, number, axis=1)


def some_subsets(sentences: Ints, exists: Ints, scope: int, count: int) -> NDArray[np.bool_]:
    """[n, 2 ** scope] `count` subsets of the candidates that exist [n bits], or all where there are no more: none of
    them, all of them, and others that depend on the sentence alone."""
    every = np.arange(2**scope)
    order = uniform(torch.from_numpy(sentences), 2**scope, seed=0, draw=0).numpy()
    order[(every == 0) | (every == exists[:, None])] = -1.0
    order[(every & ~exists[:, None]) != 0] = 2.0  # never
    first = np.argsort(order, axis=1, kind="stable")[:, :count]
    taken = np.zeros(order.shape, np.bool_)
    np.put_along_axis(taken, first, True, axis=1)
    return taken & (order < 2)


def statistics(table: Table, _: float = 0.0) -> dict[str, Any]:
    """What plain rules and the best subset of each sentence would earn in the mean, and how often none is best. Where
    a table has gaps, each is the mean of what is there, and the best that of the subsets that were tried."""
    judged = table[~np.isnan(table[:, 0])].astype(np.float64)
    scope = (table.shape[1] - 1).bit_length()
    best = np.fmax.reduce(judged, axis=1, initial=-np.inf)
    columns = [judged[:, 2**n - 1] for n in range(scope + 1)]
    return {
        "sentences": len(judged),
        "previous": [_mean(column[~np.isnan(column)]) for column in columns],  # none, previous 1, ..., full
        "oracle": _mean(best),
        "empty_is_best": int((judged[:, 0] >= best).sum()),
        "values": int((~np.isnan(judged)).sum()),
        "subsets": judged.size,
    }


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0


def describe(split: str, card: dict[str, Any]) -> str:
    lines = [f"{split}: {card['sentences']:,} sentences judged, mean rewards:"]
    for size, value in enumerate(card["previous"]):
        name = "none" if not size else "full" if size == len(card["previous"]) - 1 else f"previous {size}"
        lines.append(f"  {name:<12} {value:.4f}")
    lines.append(f"  {'oracle':<12} {card['oracle']:.4f}")
    if card["values"] < card["subsets"]:
        lines.append(f"  of {card['values'] / card['subsets']:.1%} of the subsets: the oracle knows these alone")
    lines.append(f"  none is best for {card['empty_is_best'] / max(1, card['sentences']):.1%}")
    return "\n".join(lines)
