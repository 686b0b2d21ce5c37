"""The rewards of all subsets of a sentence's candidates, written down once.

With 6 candidates there are 64 subsets, and while the translator stays as it is, so do their rewards. A table of them is
all that a scorer needs to learn which selection earns most: the expectation over all subsets is then exact, and an
update asks no translator anything. `dynctx label` with `labels.kind: reward` makes it.

Columns: subsets by their bits, distance 1 first (as in `selection.policy`). A subset with a candidate that does not
exist is worth what it is worth without.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynctx.batches import Gatherer
from dynctx.config_rules import LARGEST_SCOPES
from dynctx.corpus import Ints
from dynctx.errors import DynctxError
from dynctx.model_folder import Model
from dynctx.selection.policy import subsets
from dynctx.selection.scoring import score

Table = NDArray[np.float32]  # [sentences, 2 ** scope], nan where a sentence was not asked about


def subset_bits(scope: int) -> NDArray[np.bool_]:
    """[2 ** scope, scope] every subset, by its number."""
    most = LARGEST_SCOPES["exact"]
    if scope > most:
        raise DynctxError(f"a scope of {scope} has 2 ** {scope} subsets; a scope of {most} is the most that is tried")
    return np.array(subsets(scope))


def candidates_of(gatherer: Gatherer, sentences: Ints) -> Ints:
    """[n] how many candidates each has."""
    return np.minimum(sentences - gatherer.firsts[sentences], gatherer.scope)


def reward_values(model: Model, gatherer: Gatherer, sentences: Ints, batch_tokens: int) -> Table:
    """[n, 2 ** scope] the reward (eq. 5) of each subset."""
    scope = gatherer.scope
    every = subset_bits(scope)
    exists = (1 << candidates_of(gatherer, sentences)) - 1  # [n] bits
    number = exists[:, None] & np.arange(2**scope)  # [n, 2 ** scope] what a subset comes to
    row, column = np.nonzero(number == np.arange(2**scope))
    found = score(model.translator, gatherer, sentences[row], every[column], rewards=True, batch_tokens=batch_tokens)
    values = np.zeros((len(sentences), 2**scope), np.float32)
    assert found.reward is not None
    values[row, column] = found.reward
    return np.take_along_axis(values, number, axis=1)


def statistics(table: Table, _: float = 0.0) -> dict[str, Any]:
    """What plain rules and the best subset of each sentence would earn in the mean, and how often none is best."""
    judged = table[~np.isnan(table[:, 0])].astype(np.float64)
    scope = (table.shape[1] - 1).bit_length()
    best = judged.max(axis=1, initial=-np.inf)
    previous = [float(judged[:, 2**n - 1].mean()) if len(judged) else 0.0 for n in range(scope + 1)]
    return {
        "sentences": len(judged),
        "previous": previous,  # none, previous 1, ..., full
        "oracle": float(best.mean()) if len(judged) else 0.0,
        "empty_is_best": int((judged[:, 0] >= best).sum()),
    }


def describe(split: str, card: dict[str, Any]) -> str:
    lines = [f"{split}: {card['sentences']:,} sentences judged, mean rewards:"]
    for size, value in enumerate(card["previous"]):
        name = "none" if not size else "full" if size == len(card["previous"]) - 1 else f"previous {size}"
        lines.append(f"  {name:<12} {value:.4f}")
    lines.append(f"  {'oracle':<12} {card['oracle']:.4f}")
    lines.append(f"  none is best for {card['empty_is_best'] / max(1, card['sentences']):.1%}")
    return "\n".join(lines)
