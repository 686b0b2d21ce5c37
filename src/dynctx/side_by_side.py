"""Rows of a search that stand side by side in one attention, which is several times as fast on a GPU.

A fused kernel of attention works on tiles of 64 queries. A sentence in a search has few, one for each hypothesis, and
alone it would leave its tile nearly empty. So several sentences share one: their queries and keys lie end to end, which
they do in memory anyway, and a mask lets each see its own keys only. What it may not see has a weight of exactly 0: as
long as all keys and values are finite, nothing is different but the time and how sums are rounded.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dynctx.packing import round_up

QUERIES, KEYS = 64, 256  # the most that stand side by side, keys where padding is not left out; more are no faster
ROWS = 16  # a search has a multiple of so many rows, as a prime number of them could not be joined


def together(rows: int, queries: int, keys: int) -> int:
    """How many rows share a tile."""
    group = 1
    while rows % (2 * group) == 0 and 2 * group * queries <= QUERIES and 2 * group * keys <= KEYS:
        group *= 2
    return group


def join(mask: Tensor, queries: int) -> Tensor:
    """[R, 1, Q or 1, K] additive -> [R / G, 1, G Q, G K] for G rows together."""
    rows, _, _, keys = mask.shape
    group = together(rows, queries, keys)
    if group == 1:
        return mask
    joined = mask.new_full((rows // group, group, queries, group, keys), -torch.inf)
    own = mask.expand(-1, 1, queries, -1).view(rows // group, group, queries, keys)
    joined.diagonal(dim1=1, dim2=3).copy_(own.permute(0, 2, 3, 1))  # [R / G, Q, K, G]
    return joined.view(rows // group, 1, group * queries, group * keys)


def seen_keys(mask: Tensor, queries: int) -> tuple[Tensor, Tensor]:
    """Which keys somebody sees, for G rows together: [R, 1, 1, K] additive -> their places [R / G, N] among the G K,
    and the mask [R / G, 1, G Q, N]. Padding, which nobody sees, is left out. Waits for the device, to know N.
    """
    rows, _, _, keys = mask.shape
    group = together(rows, queries, 1)
    seen = (mask[:, 0, 0] == 0).view(rows // group, group * keys)
    most = min(round_up(int(seen.sum(dim=1).max())), group * keys)
    place = torch.argsort(~seen, dim=1, stable=True)[:, :most]
    own = place[:, None, :] // keys == torch.arange(group, device=mask.device)[:, None]  # [R / G, G, N]
    own &= seen.gather(1, place)[:, None, :]
    joined = torch.zeros_like(own, dtype=mask.dtype).masked_fill_(~own, -torch.inf)
    return place, joined.repeat_interleave(queries, dim=1)[:, None]


def some_beside(x: Tensor, place: Tensor) -> Tensor:
    """[R, H, K, d/H] at the places [R / G, N] of rows that stand side by side -> [R / G, H, N, d/H]."""
    x = beside(x, len(x) // len(place)).transpose(1, 2)  # [R / G, G K, H, d/H]
    return x[torch.arange(len(x), device=x.device)[:, None], place].transpose(1, 2)


def beside(x: Tensor, group: int) -> Tensor:
    """[R, H, L, d/H] -> [R / G, H, G L, d/H]; nothing is copied where all heads of a position lie together."""
    rows, heads, length, size = x.shape
    return x.transpose(1, 2).reshape(rows // group, group * length, heads, size).transpose(1, 2)


def apart(x: Tensor, group: int) -> Tensor:
    """The way back."""
    rows, heads, length, size = x.shape
    return x.transpose(1, 2).reshape(rows * group, length // group, heads, size).transpose(1, 2)


def filled_up(rows: int, device: torch.device) -> Tensor:
    """The rows, and the last of them again up to a multiple of ROWS."""
    return torch.arange(-(-rows // ROWS) * ROWS, device=device).clamp(max=rows - 1)
