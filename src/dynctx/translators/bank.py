"""A bank: states of context sentences, each encoded apart and once, for models that attend to such states.

Neighbours in a batch share most of their candidates. So the context sentences of a batch are collected on the host,
each of them once, and laid into rows like any other sentences; the sentence model encodes them (and decodes their
translations, where a model wants those) without gradient and without dropout. `lay_past` and `lay_pairs` then say, for
every row of the batch, where in the bank its context lies. Nothing is read back from the device on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer, Tokens
from dynctx.config import ModelConfig
from dynctx.corpus import Ints
from dynctx.devices import many_shapes
from dynctx.errors import DynctxError
from dynctx.linear import round_together
from dynctx.packing import fill_rows, offsets_in_rows, round_up
from dynctx.planning import Plan, Shape
from dynctx.translators.sentence import Memory, SentNmt

ROWS_STEP = 16  # rows are made up to a multiple of this, to keep the number of shapes small
WIDTH_STEP = 64  # and so are their widths


@dataclass(frozen=True)
class Side:
    """States of sentences, source or target, laid flat."""

    states: Tensor  # [X, d]
    read: Tensor  # [X] the token that was read at each position
    said: Tensor | None  # [X] target: the token that each state predicts
    begins: Ints  # [m] where each sentence begins
    lengths: Ints  # [m]


@dataclass(frozen=True)
class Bank:
    numbers: Ints  # [m] sentences of the store, ascending
    source: Side
    target: Side | None


def merge(banks: list[Bank]) -> Bank:
    """One bank that holds the sentences of several."""
    if len(banks) == 1:
        return banks[0]
    numbers = np.concatenate([bank.numbers for bank in banks])
    order = np.argsort(numbers, kind="stable")
    targets = [bank.target for bank in banks if bank.target is not None]
    target = _merge_sides(targets, order) if targets else None
    return Bank(numbers[order], _merge_sides([bank.source for bank in banks], order), target)


def _merge_sides(sides: list[Side], order: Ints) -> Side:
    ends = np.cumsum([0, *(len(side.states) for side in sides)])
    said = [side.said for side in sides if side.said is not None]
    return Side(
        torch.cat([side.states for side in sides]),
        torch.cat([side.read for side in sides]),
        torch.cat(said) if said else None,
        np.concatenate([side.begins + end for side, end in zip(sides, ends)])[order],
        np.concatenate([side.lengths for side in sides])[order],
    )


@contextmanager
def quiet(model: SentNmt) -> Iterator[None]:
    """Without gradient and without dropout."""
    training, kind = model.encoder.training, model.target_embedding.weight.device.type
    model.eval()
    try:
        with torch.no_grad(), many_shapes():
            if torch.is_autocast_enabled(kind):
                round_together(model, torch.get_autocast_dtype(kind))
            yield
    finally:
        model.train(training)


def rounded(x: Tensor) -> Tensor:
    """As autocast would round it at every use: once is enough, and takes half the memory."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


class BankedNmt(SentNmt):
    """A translator that attends to states of earlier sentences."""

    lays_context = False

    def __init__(self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(config, source_vocabulary, target_vocabulary)
        self.scope = config.scope
        self.run_length = max(64, config.scope)

    def context_model(self) -> SentNmt:
        """What the context sentences are encoded by."""
        return self.sentence_model()

    def bank(self, batch: Batch, drafts: list[list[int]] | None = None, known: Bank | None = None) -> Bank:
        """All candidates of a batch; their translations are the references."""
        if known is not None:
            return known
        return self.bank_of(batch.origin, candidates(batch, self.scope), batch.source.ids.shape[1])

    def allowed(self, batch: Batch, selection: Tensor | None) -> Tensor:
        """The selection [n, up to scope], less what does not exist; a missing one is the empty one."""
        if selection is None:
            selection = torch.zeros_like(batch.present)
        return (selection & batch.present)[:, : self.scope]

    def bank_of(self, gatherer: Gatherer, numbers: Ints, width: int = 0) -> Bank:
        """These sentences of the store (ascending), packed in rows of at least this width."""
        lengths = gatherer.lengths_of(numbers)
        lengths[2] = 0
        if not self.reads_targets:
            lengths[1] = 0
        widths = np.maximum(width, [round_up(side.max(), WIDTH_STEP) for side in lengths[:2]])
        widths[1] *= self.reads_targets
        row, offsets = fill_rows(lengths[:2], widths)
        rows = round_up(row[-1] + 1, ROWS_STEP)
        plan = Plan(numbers, row, np.concatenate([offsets, np.zeros_like(offsets[:1])]), lengths)
        return self.remember(gatherer.gather(plan, Shape(rows, int(widths[0]), int(widths[1]))))

    def remember(self, past: Batch) -> Bank:
        """The states of these sentences and, where the model reads targets, of their translations."""
        model, plan = self.context_model(), past.plan
        with quiet(model):
            memory = model.encode(past)
            states = rounded(model.decode(memory, past)) if self.reads_targets else None
            kept = rounded(memory.states)
        order = np.argsort(plan.sentences, kind="stable")
        begins = plan.row * [[past.source.ids.shape[1]], [past.target.ids.shape[1]]] + plan.offsets[:2]
        begins, lengths = begins[:, order], plan.lengths[:, order]
        source = Side(kept.flatten(0, 1), past.source.ids.flatten(), None, begins[0], lengths[0])
        target = None
        if states is not None:
            said = past.target.ids.flatten()
            target = Side(states.flatten(0, 1), past.prefix.flatten(), said, begins[1], lengths[1])
        return Bank(plan.sentences[order], source, target)


def candidates(batch: Batch, scope: int) -> Ints:
    """The sentences that are a candidate of any sentence of the batch, ascending."""
    if batch.present.shape[1] == 0:
        raise DynctxError("this translator reads context, but the batch was gathered without (scope 0)")
    numbers = batch.numbers
    oldest = np.maximum(numbers - scope, batch.origin.firsts[numbers])
    _, low, high = ranges(np.zeros_like(numbers), oldest, numbers)
    if not len(low):  # nobody has any: a bank is never empty
        return numbers[:1]
    return _expand(low, high)[1]


def ranges(group: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """The union of the ranges [low, high) of each group, as few disjoint ranges: their group, low and high.

    Ranges that touch become one.
    """
    some = high > low
    order = np.lexsort((low[some], group[some]))
    group, low, high = group[some][order], low[some][order], high[some][order]
    if not len(group):
        return group, low, high
    step = int(high.max()) + 1  # sets groups apart on one line
    reached = np.maximum.accumulate(group * step + high)
    opens = np.append(True, (group * step + low)[1:] > reached[:-1])
    firsts = np.flatnonzero(opens)
    return group[firsts], low[firsts], np.maximum.reduceat(high, firsts)


def _expand(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Every member of the ranges: the range it is in, and itself."""
    sizes = high - low
    which = np.repeat(np.arange(len(low)), sizes)
    first = np.cumsum(sizes) - sizes
    return which, np.arange(len(which)) - first[which] + low[which]


@dataclass(frozen=True)
class Past:
    """The candidates of each row of a batch, every sentence once, oldest first. They are the row's `columns`."""

    index: Tensor  # [R, N] place in the bank
    column: Tensor  # [R, N] whose token this is, -1 at padding
    columns: int  # J: columns of a row
    nearest: Tensor  # [n] the column of the sentence at distance 1; distance 2 is the one before, and so on

    def rows(self, chosen: slice) -> Past:
        return Past(self.index[chosen], self.column[chosen], self.columns, self.nearest)


def lay_past(batch: Batch, bank: Bank, side: Side, scope: int) -> Past:
    gatherer, numbers, row = batch.origin, batch.numbers, batch.plan.row
    oldest = np.maximum(numbers - scope, gatherer.firsts[numbers])
    range_row, low, high = ranges(row, oldest, numbers)
    which, who = _expand(low, high)
    rows = len(batch.source.ids)
    at_row = np.searchsorted(range_row[which], np.arange(rows + 1))  # where each row begins among them
    column = np.arange(len(who)) - at_row[range_row[which]]
    # the sentence just before stands in the last range of its row that begins before it
    nearest = np.zeros_like(numbers)
    some = numbers > oldest
    step = int(numbers.max()) + 1
    home = np.searchsorted(range_row * step + low, row[some] * step + numbers[some] - 1, side="right") - 1
    nearest[some] = column[np.searchsorted(which, home)] + numbers[some] - 1 - low[home]
    index, column_t = _lay(gatherer, bank, side, range_row[which], who, rows, column)
    columns = round_up(max(1, int(column.max(initial=0)) + 1))
    return Past(index, column_t, columns, gatherer.to_device(nearest))


@dataclass(frozen=True)
class Pairs:
    """The candidates of each sentence of a batch, in the sentence's row: what two sentences share is there twice."""

    index: Tensor  # [R, N] place in the bank
    sentence: Tensor  # [R, N] the sentence whose candidate this is, -1 at padding
    distance: Tensor  # [R, N] of the candidate, 0 at padding


def lay_pairs(batch: Batch, bank: Bank, side: Side, scope: int) -> Pairs:
    gatherer, numbers, row = batch.origin, batch.numbers, batch.plan.row
    which, who = _expand(np.maximum(numbers - scope, gatherer.firsts[numbers]), numbers)
    tags = which, numbers[which] - who
    index, sentence, distance = _lay(gatherer, bank, side, row[which], who, len(batch.source.ids), *tags)
    return Pairs(index, sentence, distance.clamp(min=0))


def _lay(gatherer: Gatherer, bank: Bank, side: Side, row: Ints, who: Ints, rows: int, *tags: Ints) -> list[Tensor]:
    """Sentences `who` of the bank end to end in their rows (ascending): places [R, N], and their tags [R, N] each.

    What is not in the bank has no words: a search leaves out what nobody has selected.
    """
    place = np.minimum(np.searchsorted(bank.numbers, who), len(bank.numbers) - 1)
    lengths = np.where(bank.numbers[place] == who, side.lengths[place], 0)
    offset = offsets_in_rows(row, lengths)
    width = round_up(max(1, int((offset + lengths).max(initial=0))), WIDTH_STEP)
    size_t, row_t, offset_t, begin_t, *tags_t = gatherer.to_device(
        np.stack([lengths, row, offset, side.begins[place], *tags])
    )
    tokens = Tokens.lay(size_t, row_t, offset_t, width, int(lengths.sum()))
    index = tokens.scatter(begin_t[tokens.sentence] + tokens.position, rows, width, 0)
    return [index, *(tokens.scatter(tag[tokens.sentence], rows, width, -1) for tag in tags_t)]


def sentence_memory(batch: Batch, memory: Memory) -> Memory:
    """[n, S, d] a packed memory with one sentence a row, as a search needs it."""
    begins = batch.plan.row * memory.states.shape[1] + batch.plan.offsets[0]
    return _one_per_row(batch.origin, memory.states.flatten(0, 1), begins, batch.plan.lengths[0])


def own_memory(batch: Batch, bank: Bank) -> Memory | None:
    """The same from a bank that has the sentences of the batch; None where it has not."""
    place = np.minimum(np.searchsorted(bank.numbers, batch.numbers), len(bank.numbers) - 1)
    if (bank.numbers[place] != batch.numbers).any():
        return None
    side = bank.source
    return _one_per_row(batch.origin, side.states, side.begins[place], side.lengths[place])


def _one_per_row(gatherer: Gatherer, states: Tensor, begins: Ints, lengths: Ints) -> Memory:
    """states [X, d] of sentences that begin at these places -> [n, S, d]"""
    first, length = gatherer.to_device(np.stack([begins, lengths]))[:, :, None]
    position = torch.arange(round_up(lengths.max()), device=first.device)
    inside = position < length  # [n, S]
    number = torch.arange(len(lengths), device=first.device)[:, None]
    return Memory(states[torch.where(inside, first + position, 0)], torch.where(inside, number, -1))
