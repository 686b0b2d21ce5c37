"""What the context scorer reads: each source sentence with each of its candidates, packed into rows.

    <DCS> x_1 .. x_I <SEP> z_1 .. z_J        one for each candidate
    <DCS> x_1 .. x_I <SEP> <NON>             one for the empty context

A sentence has up to scope + 1 of these, more tokens than the translator itself reads, so none is padded: like
training sentences they are laid end to end in rows of one length, and attention stays inside an instance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynctx.batches import Gatherer, Packed, Tokens, unsigned
from dynctx.corpus import Ints
from dynctx.packing import in_order, offsets_in_rows, round_up, rows_by_size
from dynctx.subwords import DCS, NON, SEP

ROWS = (64, 96, 128)  # positions of a row: attention goes over all of it, so the fewest that hold the longest instance
MANY = 256  # sentences for which rows of their own pay
TOKENS = {"cpu": 2**15, "cuda": 2**19}  # of instances that are read together: what memory holds and a device needs
ROWS_STEP = 16  # on a GPU rows are made up to a multiple of this, to keep the number of shapes small


@dataclass(frozen=True)
class Instances:
    """The pairs of a batch. Column j < scope is the candidate at distance j + 1, column `scope` is NON."""

    packed: Packed  # [R, L]; `sentence` is the number of the instance
    place: Tensor  # [I] where each instance's <DCS> lies, counted through all rows
    owner: Tensor  # [R, Q] the instances of each row by their numbers, -1 where it has no more
    slot: Tensor  # [I] where each stands in these, counted through all rows
    head: Tensor  # [n, scope + 1] the number of the instance, 0 where there is none
    present: Tensor  # [n, scope + 1]


def gather_instances(gatherer: Gatherer, sentences: Ints) -> Instances:
    """The instances of these sentences of the store [n]."""
    scope, device = gatherer.scope, gatherer.device
    count = len(sentences)
    sizes, exists = _sizes(gatherer, sentences)
    number, column = np.nonzero(sizes)
    size = sizes[number, column]
    longest = round_up(size.max())
    width = next((width for width in ROWS if width >= longest), longest)
    row = rows_by_size(size, width)
    order = in_order(row)
    row, size, number, column = row[order], size[order], number[order], column[order]
    offset = offsets_in_rows(row, size)
    rows = round_up(int(row[-1]) + 1, ROWS_STEP if gatherer.device.type == "cuda" else 1)

    # the heads of a row side by side
    beside = np.arange(len(row)) - np.searchsorted(row, row)  # [I] which of its row's
    most = round_up(beside.max() + 1)
    known = np.stack([size, row, offset, number, column, sentences[number], row * most + beside])
    size_t, row_t, offset_t, number_t, column_t, source_t, slot = gatherer.to_device(known)
    tokens = Tokens.lay(size_t, row_t, offset_t, width, int(size.sum()))
    ids = _instance_ids(gatherer, source_t, column_t, tokens)
    itself = torch.arange(len(row), device=device)
    owner = torch.full((rows * most,), -1, device=device).index_copy_(0, slot, itself)
    head = torch.zeros(count, scope + 1, dtype=torch.int64, device=device)
    head[number_t, column_t] = itself
    present = gatherer.to_device(np.concatenate([exists, np.ones((count, 1), np.bool_)], axis=1))
    packed = tokens.packed(ids, rows, width)
    return Instances(packed, row_t * width + offset_t, owner.view(rows, most), slot, head, present)


def alike(gatherer: Gatherer, sentences: Ints) -> list[Ints]:
    """Places of these sentences [n] in groups that are read together, whose instances have rows of one width: one long
    instance would widen the rows of all. What is too few for a group goes with those that need wider rows."""
    sizes = _sizes(gatherer, sentences)[0]
    kind = np.searchsorted(ROWS, sizes.max(1, initial=0))
    groups, left = [], np.arange(0)
    for number in range(len(ROWS) + 1):
        left = np.concatenate([left, np.flatnonzero(kind == number)])
        if len(left) >= MANY or (number == len(ROWS) and len(left)):
            share = np.cumsum(sizes.sum(1)[left]) // TOKENS.get(gatherer.device.type, 2**15)
            groups += np.split(left, np.flatnonzero(np.diff(share)) + 1)
            left = np.arange(0)
    return groups


def instance_tokens(gatherer: Gatherer, sentences: Ints) -> Ints:
    """[n] how many tokens the instances of each sentence have together."""
    return _sizes(gatherer, sentences)[0].sum(1)


def _sizes(gatherer: Gatherer, sentences: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """[n, scope + 1] tokens of each instance, 0 where there is none, and which candidates exist [n, scope]."""
    starts = gatherer.store.source_starts
    candidate = sentences[:, None] - np.arange(1, gatherer.scope + 1)  # [n, scope]
    exists = candidate >= gatherer.firsts[sentences][:, None]
    candidate = np.maximum(candidate, 0)
    own = (starts[sentences + 1] - starts[sentences])[:, None]  # EOS included
    # <DCS> and <SEP> take the places of the two EOS; NON's instance is <DCS> x <SEP> <NON>
    return np.concatenate([(own + starts[candidate + 1] - starts[candidate]) * exists, own + 2], axis=1), exists


def _instance_ids(gatherer: Gatherer, source: Tensor, column: Tensor, tokens: Tokens) -> Tensor:
    """Token ids of all instances, flat. source, column [instances]: the sentence, and its candidate's column."""
    starts, whose, place = gatherer.source_starts, tokens.sentence, tokens.position
    candidate = torch.where(column < gatherer.scope, source - column - 1, source)  # NON has no sentence: any will do
    length = starts[source + 1] - starts[source]  # [instances] with EOS
    inside = place - length[whose]  # 0 at <SEP>, 1.. in the candidate, negative in the source
    in_source = inside < 0
    at = torch.where(in_source, starts[source][whose] + place - 1, starts[candidate][whose] + inside - 1)
    ids = unsigned(gatherer.source[at.clamp(min=0)])
    ids = torch.where((inside > 0) & (column == gatherer.scope)[whose], NON, ids)
    ids = torch.where(inside == 0, SEP, ids)
    return torch.where(place == 0, DCS, ids)
