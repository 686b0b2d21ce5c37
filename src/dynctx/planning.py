"""Planning: which sentences make up a batch, and in which row each lies.

A run has one shape of batch. The order of an epoch is a function of (seed, epoch) alone, so any step of a run can be
entered again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dynctx.corpus import Ints
from dynctx.errors import DynctxError
from dynctx.packing import fill_rows, pack, round_up

if TYPE_CHECKING:
    from dynctx.batches import Gatherer


@dataclass(frozen=True)
class Shape:
    """Rows of a batch and their lengths; `context` is 0 for models without one."""

    rows: int
    source: int
    target: int
    context: int = 0
    together: int = 1  # rows whose contexts share one, `context` long

    def __str__(self) -> str:
        context = f" + {self.context} context" if self.context else ""
        return f"{self.rows} rows of {self.source} source{context} and {self.target} target positions"


@dataclass(frozen=True)
class Plan:
    """Which sentences lie where: all that is needed to gather a batch."""

    sentences: Ints  # [n]
    row: Ints  # [n]
    offsets: Ints  # [3, n] where a sentence's source, target and context begin in its row
    lengths: Ints  # [3, n]
    chosen: NDArray[np.bool_] | None = None  # [n, scope] the candidates to bring along; None: all

    @property
    def target_tokens(self) -> int:
        return int(self.lengths[1].sum())


def choose_shape(
    lengths: Ints,
    usable: NDArray[np.bool_],
    batch_tokens: int,
    row_length: int = 0,
    multiple: int = 8,
    most: Ints | None = None,
) -> Shape:
    """The one shape of a run: rows wide enough for the longest sentence, sides in proportion to the corpus.

    `batch_tokens` counts every position of a batch: source, target and context. most: lengths that sentences may also
    come to have, where their context changes from epoch to epoch.
    """
    kept = lengths[:, usable]
    if kept.shape[1] == 0:
        raise DynctxError("no sentence pair of the training data is fit for training (see the data card)")
    longest, mean = (kept if most is None else most[:, usable]).max(1), kept.mean(1)
    target = max(round_up(longest[1], multiple), row_length or min(128, round_up(int(longest[1]) * 4, multiple)))
    widths = [round_up(max(longest[k], target * mean[k] / mean[1]), multiple) for k in (0, 2)]
    rows = max(1, batch_tokens // (target + sum(widths)))
    return Shape(rows, widths[0], target, widths[1])


def round_rows(used: int, most: int) -> int:
    """A few more rows than are used, so that batches of many sizes have few shapes: at most an eighth more."""
    return min(most, round_up(used, max(1, 2 ** (used.bit_length() - 1) // 8)))


def plan_epoch(
    lengths: Ints,
    usable: NDArray[np.bool_],
    shape: Shape,
    seed: int,
    epoch: int,
    run_length: int = 1,
    documents: Ints | None = None,
) -> list[Plan]:
    """Every usable sentence once, in an order that depends on (seed, epoch) alone, packed into batches.

    With `run_length` above 1 the order shuffles runs of neighbouring sentences (of the documents that begin at
    `documents`), so that sentences of one batch serve each other as context; rows are then filled in that order.
    """
    rng = np.random.default_rng([seed, epoch])
    widths = np.array([shape.source, shape.target, shape.context])
    order = rng.permutation(np.flatnonzero(usable)) if run_length == 1 else _runs(usable, run_length, documents, rng)
    if run_length == 1:
        packed, row, offsets = pack(lengths[:, order], widths, rng)
        order = order[packed]
    else:
        row, offsets = fill_rows(lengths[:, order], widths)
    laid = lengths[:, order]
    firsts = np.searchsorted(row, np.arange(0, int(row[-1]) + 1, shape.rows))  # where each batch begins
    plans = [
        Plan(order[a:b], row[a:b] - row[a], offsets[:, a:b], laid[:, a:b])
        for a, b in pairwise([*firsts.tolist(), len(order)])
    ]
    rng.shuffle(plans)
    return plans


def plan_pairs(gatherer: Gatherer, sentences: Ints, chosen: NDArray[np.bool_]) -> tuple[Ints, Plan, Shape]:
    """Sentences [m], each with its own choice of context [m, scope], packed into one batch: their order [m], and how.

    A sentence may come many times, with another context each time.
    """
    lengths = gatherer.lengths_of(sentences, chosen)
    shape = choose_shape(lengths, np.ones(len(sentences), np.bool_), batch_tokens=2**40, multiple=32)
    order, row, offsets = pack(lengths, np.array([shape.source, shape.target, shape.context]))
    # no more rows than it takes, in steps to keep the shapes few
    shape = replace(shape, rows=round_rows(int(row[-1]) + 1, shape.rows))
    return order, Plan(sentences[order], row, offsets, lengths[:, order], chosen[order]), shape


def _runs(usable: NDArray[np.bool_], run_length: int, documents: Ints | None, rng: np.random.Generator) -> Ints:
    borders = np.asarray(documents)
    starts = np.concatenate([np.arange(a, b, run_length) for a, b in pairwise(borders)])
    ends = np.append(starts[1:], len(usable))
    picked = rng.permutation(len(starts))
    order = np.concatenate([np.arange(starts[i], ends[i]) for i in picked])
    return order[usable[order]]


def updates(
    plans_of: Callable[[int], list[Plan]], group: int, epoch: int = 0, index: int = 0
) -> Iterator[tuple[int, int, list[Plan]]]:
    """Without end: (epoch, index of the update in it, its batches), from a given place on.

    An update is `group` batches whatever the number of devices, which share them out; the last update of an
    epoch may have fewer. The next epoch is planned while this one is worked off.
    """
    with ThreadPoolExecutor(1) as beside:
        coming = beside.submit(plans_of, epoch)
        while True:
            plans = coming.result()
            coming = beside.submit(plans_of, epoch + 1)
            groups = [plans[i : i + group] for i in range(0, len(plans), group)]
            for number in range(index, len(groups)):
                yield epoch, number, groups[number]
            epoch, index = epoch + 1, 0
