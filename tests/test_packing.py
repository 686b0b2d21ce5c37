"""Packing: which row things go into, and in which order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynctx.packing import evenly, fill_rows, in_order, pack_rows, rows_by_size


def test_rows_are_packed_by_choice() -> None:
    """In their order these would take five rows of 8 and 8 (only 1 and 3 meet); well chosen, three full ones do."""
    source, target = [7, 1, 4, 5, 4, 3], [1, 7, 5, 4, 3, 4]
    row = pack_rows(np.array([source, target, [0] * 6]), np.array([8, 8, 0])).tolist()
    assert row[0] == row[1] and row[2] == row[4] and row[3] == row[5]
    assert sorted(set(row)) == [0, 1, 2]


@pytest.mark.parametrize("count", [1, 255, 257, 64 * 256 + 3])
def test_packed_rows_hold_everything_once(count: int) -> None:
    """Over the borders of windows too: no row is over-full, none is left out, and few positions stay empty."""
    rng = np.random.default_rng(count)
    source = rng.integers(1, 40, count)
    lengths = np.stack([source, np.clip(source + rng.integers(-5, 6, count), 1, None), rng.integers(20, 60, count)])
    widths = np.array([128, 128, 256])
    row = pack_rows(lengths, widths)
    filled = np.stack([np.bincount(row, weights=side) for side in lengths])
    assert (filled <= widths[:, None]).all() and (filled[0] > 0).all()
    if count > 1000:
        in_order = int(fill_rows(lengths, widths)[0][-1]) + 1
        assert len(filled[0]) < 0.95 * in_order


def test_the_largest_that_fits_comes_next() -> None:
    """5 and 3 fill a row of 8, twice; what is left is 3 and three of 2, of which two fit beside it."""
    assert rows_by_size(np.array([5, 2, 3, 3, 2, 5, 3, 2]), 8).tolist() == [0, 2, 0, 1, 2, 1, 2, 3]
    assert rows_by_size(np.array([], np.int64), 8).tolist() == []
    with pytest.raises(ValueError, match="longer than a row of 8"):
        rows_by_size(np.array([9]), 8)


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=300), st.integers(30, 100))
def test_rows_by_size_hold_everything_once(lengths: list[int], width: int) -> None:
    row = rows_by_size(np.array(lengths), width)
    filled = np.bincount(row, weights=lengths)
    assert (filled > 0).all() and (filled <= width).all()
    for this, room in enumerate(width - filled):  # what would have fitted into an earlier row is in none
        assert not ((row > this) & (np.array(lengths) <= room)).any()


def test_neighbours_are_evenly_long() -> None:
    """The longest of 9 7 6 5 | 4 3 2 1 with the shortest: each two have 10."""
    lengths = np.array([3, 9, 1, 6, 7, 4, 5, 2])
    assert lengths[evenly(lengths, 2)].tolist() == [9, 1, 7, 2, 6, 3, 5, 4]
    assert sorted(evenly(lengths, 4).tolist()) == list(range(8))
    assert evenly(np.array([5, 1, 3]), 4).tolist() == [0, 1, 2]  # cannot be divided: as they were


@pytest.mark.parametrize("most", [3, 2**16 - 1, 2**16, 2**40])
def test_sorting_keeps_equal_numbers_in_their_order(most: int) -> None:
    """On both sides of what two bytes hold: 65,536 would be 0 there."""
    numbers = [most, 1, 0, most, 1]
    assert in_order(np.array(numbers)).tolist() == [2, 1, 4, 0, 3]
    assert in_order(np.array([], np.int64)).tolist() == []
