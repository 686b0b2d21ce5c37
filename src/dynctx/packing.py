"""Packing: which row a sentence goes into, and where in it.

A thing to pack has a length on each of k sides (source, target, context), and so has a row; all sides of a thing go
into the same row.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from dynctx.corpus import Ints

WINDOW = 256  # things that are packed together
GONE = 1e9  # the length of what is not to be put into a row, or not any more: it fits nowhere


def fill_rows(lengths: Ints, widths: Ints) -> tuple[Ints, Ints]:
    """Lay things of these lengths [k, m] into rows, in order; a row ends where any of its k sides would overflow.

    Returns the row [m] of each, and where it begins in it [k, m].
    """
    if (lengths > widths[:, None]).any():
        raise ValueError(f"a sentence is longer than a row of {widths.tolist()}")
    ends = np.cumsum(lengths, axis=1)
    # [m] the first that no longer fits into a row that begins with this one
    over = np.min(
        [np.searchsorted(side, side - own + width, side="right") for side, own, width in zip(ends, lengths, widths)],
        axis=0,
    ).tolist()
    borders, first, total = [], 0, lengths.shape[1]
    while first < total:
        borders.append(first)
        first = over[first]
    row = np.repeat(np.arange(len(borders)), np.diff([*borders, total]))
    begins = (ends - lengths)[:, borders]  # [k, rows]
    return row, ends - lengths - begins[:, row]


def pack(lengths: Ints, widths: Ints, rng: np.random.Generator | None = None) -> tuple[Ints, Ints, Ints]:
    """Lay things of these lengths [k, m] into rows, in an order [m] that fills them well; rng shuffles the rows.

    Returns the order, and in it the row [m] of each, ascending, and where it begins in its row [k, m].
    """
    few = lengths.sum(1) * (WINDOW // 8) > widths * lengths.shape[1]  # things a row; many fill it in any order
    if not few.any():
        return np.arange(lengths.shape[1]), *fill_rows(lengths, widths)
    row = pack_rows(lengths, widths)
    if rng is not None:
        row = rng.permutation(int(row.max()) + 1)[row]
    order = in_order(row)
    row = row[order]
    return order, row, np.stack([offsets_in_rows(row, side) for side in lengths[:, order]])


def pack_rows(lengths: Ints, widths: Ints) -> Ints:
    """The row [m] of each of these things [k, m], chosen so that few positions of any side stay empty.

    Rows are filled one after the other, each from the `WINDOW` things whose turn it is.
    """
    if (lengths > widths[:, None]).any():
        raise ValueError(f"a sentence is longer than a row of {widths.tolist()}")
    things, room = (array[widths > 0].astype(np.float32) for array in (lengths, widths[:, None]))
    row = np.empty(lengths.shape[1], np.int64)
    used, some = 0, 64 * WINDOW  # windows at a time: as many as a processor's cache holds
    for first in range(0, len(row), some):
        part = slice(first, first + some)
        row[part] = used + _pack_windows(things[:, part], room)
        used = int(row[part].max()) + 1
    return row


def _pack_windows(lengths: NDArray[np.float32], widths: NDArray[np.float32]) -> Ints:
    """All windows go through the same steps together: n windows of W things. lengths [k, m], widths [k, 1]"""
    total = lengths.shape[1]
    count = -(-total // WINDOW)
    things = np.full((len(widths), count * WINDOW), GONE, np.float32)
    things[:, :total] = lengths
    things = things.reshape(-1, count, WINDOW)  # [k, n, W]
    scale = 1 / widths[:, None]
    size = (things * scale).max(0)  # [n, W] share of a row, on the side where it is largest
    room = np.repeat(widths, count, axis=1)  # [k, n]
    row, current = np.zeros((count, WINDOW), np.int64), np.zeros(count, np.int64)
    waiting = total
    while waiting:
        left = room[:, :, None] - things  # [k, n, W] if this thing were put in
        left *= scale
        least = left.min(0)
        # large things first, but those that leave the sides evenly full: a row ends when one of them is full
        score = np.where(least >= 0, size - (left.max(0) - least), -np.inf)
        best = score.argmax(1)  # [n]
        fits = least[np.arange(count), best] >= 0
        put, best = np.flatnonzero(fits), best[fits]
        row[put, best] = current[put]
        room[:, put] -= things[:, put, best]
        things[:, put, best] = GONE
        waiting -= len(put)
        room[:, ~fits] = widths
        current[~fits] += 1
    rows = row.max(1) + 1  # [n] of each window
    return (row + (np.cumsum(rows) - rows)[:, None]).reshape(-1)[:total]


def rows_by_size(lengths: Ints, width: int) -> Ints:
    """The row [m] of each of these things of one side [m]: the largest first, then always the largest that still fits.

    No length is 0. There are few different ones, so few different rows: all that are alike are filled at once, which
    makes this as fast as filling rows in order.
    """
    if (lengths > width).any():
        raise ValueError(f"a sentence is longer than a row of {width}")
    order = in_order(lengths)
    found, first, counts = np.unique(lengths[order], return_index=True, return_counts=True)
    sizes, begin, left = found.tolist(), first.tolist(), counts.tolist()  # ascending
    used, fillings = 0, []  # where things begin in the order, how many, how many of them in a row, the first row
    while sizes:
        room, here = width, []
        which = len(sizes) - 1
        while which >= 0:
            each = min(room // sizes[which], left[which])
            here.append((which, each))
            room -= each * sizes[which]
            which = bisect_right(sizes, room, hi=which) - 1
        rows = min(left[which] // each for which, each in here)
        for which, each in here:  # descending, so what is deleted moves none of the others
            fillings.append((begin[which], each * rows, each, used))
            begin[which] += each * rows
            left[which] -= each * rows
            if not left[which]:
                del sizes[which], begin[which], left[which]
        used += rows
    begins, many, each, base = np.array(fillings, np.int64).reshape(-1, 4).T
    number = np.arange(len(lengths)) - np.repeat(np.cumsum(many) - many, many)  # [m] inside its filling
    row = np.empty(len(lengths), np.int64)
    row[order[np.repeat(begins, many) + number]] = np.repeat(base, many) + number // np.repeat(each, many)
    return row


def in_order(numbers: Ints) -> Ints:
    """What sorts these numbers [m], none below 0; equal ones stay as they were. Those that two bytes hold are sorted
    by their digits, many times as fast."""
    small = numbers.max(initial=0) < 2**16
    return np.argsort(numbers.astype(np.uint16) if small else numbers, kind="stable")


def evenly(lengths: Ints, together: int) -> Ints:
    """An order [m] in which any `together` neighbours have about the same length in all, as far as m can be divided."""
    together = math.gcd(together, len(lengths))
    if together == 1:
        return np.arange(len(lengths))
    parts = np.argsort(-lengths, kind="stable").reshape(together, -1)  # the longest, those that follow, ...
    parts[1::2] = parts[1::2, ::-1]  # the longest of one with the shortest of the next
    return parts.T.ravel()


def offsets_in_rows(row: Ints, lengths: Ints) -> Ints:
    """Where things of these lengths begin, when those of one row (rows ascending) lie end to end."""
    before = np.cumsum(lengths) - lengths
    return before - before[np.searchsorted(row, row)]


def round_up(value: float, multiple: int = 8) -> int:
    return int(-(-value // multiple) * multiple)
