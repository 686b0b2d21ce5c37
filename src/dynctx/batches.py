"""Batches: sentences laid end to end in rows of one fixed length, gathered by index on the device.

Short sentences padded to the longest waste most of a batch, and batches of ever new shapes are slow on a GPU. So
a batch is a fixed number of rows of fixed length, and each row holds as many whole sentences as fit ("packing").
Every token knows the number of its sentence; attention is allowed inside a sentence only, which
`dynctx.layers.same_sentence` turns into a mask. Decoding uses the same types with one sentence a row.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dynctx.corpus import Ints, TokenStore
from dynctx.packing import offsets_in_rows, round_up
from dynctx.planning import Plan, Shape
from dynctx.subwords import BOS, EOS, PAD, UNK


@dataclass(frozen=True)
class Packed:
    """Sentences in rows. R rows of L positions."""

    ids: Tensor  # [R, L] token ids, PAD where nothing lies
    sentence: Tensor  # [R, L] number of the token's sentence in the batch, -1 at padding
    position: Tensor  # [R, L] position inside the sentence, 0 at padding


@dataclass(frozen=True)
class Context(Packed):
    """The candidate sentences of every sentence of a batch, oldest first, in the row their sentence lies in.

    `slot` is distance - 1 of the candidate a token belongs to; each candidate ends in its EOS. A sentence without
    candidates (the first of a document) has a lone EOS here, with slot `scope`. Where the plan of a batch says which
    candidates will be selected, only those are here, and what nobody will look at costs nothing.
    """

    slot: Tensor  # [R, L]


@dataclass(frozen=True)
class Batch:
    """n sentences to translate. `sentences` are their numbers in the store."""

    sentences: Tensor  # [n]
    source: Packed  # [R, S]
    target: Packed  # [R, T] what is to be predicted, EOS included
    prefix: Tensor  # [R, T] what the decoder reads: BOS, then the target without its last token
    context: Context | None  # [R, N]
    present: Tensor  # [n, scope] which candidates exist
    plan: Plan  # where everything lies, known to the host
    origin: Gatherer  # the corpus they stand in

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def numbers(self) -> Ints:
        """[n] the same as `sentences`, known to the host."""
        return self.plan.sentences

    @property
    def target_tokens(self) -> int:
        return self.plan.target_tokens


class Gatherer:
    """A store's arrays as tensors on one device, from which batches are gathered.

    `lay_context`: whether the tokens of the candidates are laid beside their sentence. A model that encodes each
    sentence apart (`dynctx.translators.bank`) has no use for them there.
    """

    def __init__(
        self, store: TokenStore, scope: int, device: torch.device | str = "cpu", lay_context: bool = True
    ) -> None:
        self.store, self.scope, self.device = store, scope, torch.device(device)
        self.lay_context = lay_context and scope > 0
        with warnings.catch_warnings():  # a read-only memory map is what we want: nothing here writes
            warnings.simplefilter("ignore", UserWarning)
            self.source = torch.from_numpy(_signed(store.source)).to(device)
            self.target = torch.from_numpy(_signed(store.target)).to(device)
            self.source_starts = torch.from_numpy(np.asarray(store.source_starts)).to(device)
            self.target_starts = torch.from_numpy(np.asarray(store.target_starts)).to(device)
        self.firsts = store.document_starts
        self.document_starts = torch.from_numpy(self.firsts).to(device)

    def lengths(self) -> Ints:
        """[3, sentences] length of every sentence's source, target and candidate context."""
        return self.lengths_of(np.arange(len(self.store)))

    def gather(self, plan: Plan, shape: Shape) -> Batch:
        """Lay the planned sentences into rows. No value is read back to the host."""
        sentences = self.to_device(plan.sentences)
        row, offsets = self.to_device(plan.row), self.to_device(plan.offsets)
        lengths = self.to_device(plan.lengths)
        totals = [int(total) for total in plan.lengths.sum(1)]
        rows, lay_context = shape.rows, self.lay_context and shape.context > 0
        places = (row, row, row // shape.together) if lay_context else (row, row)
        tokens = [
            Tokens.lay(lengths[k], place, offsets[k], width, total)
            for k, (place, width, total) in enumerate(zip(places, (shape.source, shape.target, shape.context), totals))
        ]
        source_at = self.source_starts[sentences][tokens[0].sentence] + tokens[0].position
        source = tokens[0].packed(unsigned(self.source[source_at]), rows, shape.source)
        target_at = self.target_starts[sentences][tokens[1].sentence] + tokens[1].position
        target_ids = unsigned(self.target[target_at])
        target = tokens[1].packed(target_ids, rows, shape.target)
        # the token before it, BOS at the first position
        before = torch.where(tokens[1].position == 0, BOS, torch.roll(target_ids, 1))
        prefix = tokens[1].scatter(before, rows, shape.target, PAD)
        context_rows = rows // shape.together
        context = self._context(plan, sentences, tokens[2], context_rows, shape.context) if lay_context else None
        return Batch(sentences, source, target, prefix, context, self._present(sentences), plan, self)

    def bare(self, sentences: Ints) -> Batch:
        """The sentences without their words: what a selector is asked about."""
        nothing = torch.zeros(0, 0, dtype=torch.int64, device=self.device)
        words = Packed(nothing, nothing, nothing)
        count, here = len(sentences), self.to_device(sentences)
        plan = Plan(sentences, np.zeros(count, np.int64), *np.zeros((2, 3, count), np.int64))
        return Batch(here, words, words, nothing, None, self._present(here), plan, self)

    def _present(self, sentences: Tensor) -> Tensor:
        distances = torch.arange(1, self.scope + 1, device=self.device)
        return sentences[:, None] - distances >= self.document_starts[sentences][:, None]

    def _context(self, plan: Plan, sentences: Tensor, tokens: Tokens, rows: int, width: int) -> Context:
        ids, slot = self._all(sentences, tokens) if plan.chosen is None else self._some(plan, tokens)
        packed = tokens.packed(ids, rows, width)
        return Context(packed.ids, packed.sentence, packed.position, tokens.scatter(slot, rows, width, -1))

    def _all(self, sentences: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Ids and slots of all candidates' tokens, which lie in one range of the store."""
        first = self.document_starts[sentences]
        oldest = torch.maximum(sentences - self.scope, first)  # [n]
        begin = self.source_starts[oldest]
        count = sentences - oldest  # [n] candidates present
        empty = (count == 0)[tokens.sentence]
        at = torch.where(empty, 0, begin[tokens.sentence] + tokens.position)
        ids = torch.where(empty, EOS, unsigned(self.source[at]))
        # the sentence a token belongs to: the last start not after it
        owner = torch.searchsorted(self.source_starts, at, right=True) - 1
        slot = sentences[tokens.sentence] - owner - 1  # distance - 1
        return ids, torch.where(empty, self.scope, slot)

    def _some(self, plan: Plan, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Ids and slots of the chosen candidates' tokens; a lone EOS where none is chosen."""
        assert plan.chosen is not None
        none = ~plan.chosen.any(axis=1, keepdims=True)
        oldest_first = np.concatenate([none, plan.chosen[:, ::-1]], axis=1)
        number, column = np.nonzero(oldest_first)  # column 0: nothing chosen; then distances scope .. 1
        slot = np.where(column == 0, self.scope, self.scope - column)
        starts = self.store.source_starts
        candidate = np.maximum(plan.sentences[number] - slot - 1, 0)
        begin = np.where(column == 0, 0, starts[candidate])
        length = np.where(column == 0, 1, starts[candidate + 1] - starts[candidate])
        nowhere = self.to_device(np.zeros_like(length))
        parts = Tokens.lay(self.to_device(length), nowhere, nowhere, 0, int(length.sum()))
        slots = self.to_device(slot)[parts.sentence]
        ids = unsigned(self.source[self.to_device(begin)[parts.sentence] + parts.position])
        return torch.where(slots == self.scope, EOS, ids), slots

    def one_per_row(
        self, sentences: Ints, chosen: NDArray[np.bool_] | None = None, together: int = 1, multiple: int = 8
    ) -> Batch:
        """The sentences as a padded batch, one a row: the form that decoding takes. chosen [n, scope]: as in a plan.

        Contexts of so many neighbours share a row, as far as the number of rows can be divided (`evenly` makes them
        short): padded to the longest they would be several times as large.
        """
        lengths, row = self.lengths_of(sentences, chosen), np.arange(len(sentences))
        together = math.gcd(together, len(sentences))
        offsets = np.zeros_like(lengths)
        offsets[2] = offsets_in_rows(row // together, lengths[2])
        source, target, context = (round_up((offsets[k] + lengths[k]).max(), multiple) for k in range(3))
        plan = Plan(sentences, row, offsets, lengths, chosen)
        return self.gather(plan, Shape(len(sentences), source, target, context, together))

    def lengths_of(self, sentences: Ints, chosen: NDArray[np.bool_] | None = None) -> Ints:
        """[3, n] lengths of source, target and context, the context being all candidates or those chosen [n, scope]."""
        starts, targets = self.store.source_starts, self.store.target_starts
        context = np.zeros(len(sentences), np.int64)
        if self.lay_context and chosen is not None:
            candidate = np.maximum(sentences[:, None] - np.arange(1, self.scope + 1), 0)
            context = np.maximum(((starts[candidate + 1] - starts[candidate]) * chosen).sum(1), 1)
        elif self.lay_context:
            firsts = self.firsts[sentences]
            context = np.maximum(starts[sentences] - starts[np.maximum(sentences - self.scope, firsts)], 1)
        return np.stack(
            [starts[sentences + 1] - starts[sentences], targets[sentences + 1] - targets[sentences], context]
        )

    def candidates(self, sentences: Ints) -> Ints:
        """[n] how many earlier sentences each has that may be its context."""
        return np.minimum(sentences - self.firsts[sentences], self.scope)

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """A host array as a tensor on the device, without waiting."""
        tensor = torch.from_numpy(array)
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor


def without_some_words(batch: Batch, share: float) -> Batch:
    """The batch with so many of the words to be translated unknown, drawn at random, and all of their context known.

    What a sentence no longer says, its context may: a translator learns to look there (CoWord dropout, Fernandes et al.
    2021).
    """
    source = batch.source
    dropped = torch.rand(source.ids.shape, device=source.ids.device) < share
    dropped &= (source.sentence >= 0) & (source.ids != EOS)
    return replace(batch, source=replace(source, ids=torch.where(dropped, UNK, source.ids)))


def with_targets(batch: Batch, targets: list[list[int]]) -> Batch:
    """The same sentences, one a row, with these translations (ids without EOS) as their targets."""
    lengths = np.array([len(ids) + 1 for ids in targets])
    padded = np.full((len(targets), round_up(lengths.max())), PAD)
    for place, ids in zip(padded, targets):
        place[: len(ids) + 1] = [*ids, EOS]
    tokens = batch.origin.to_device(padded)
    row, position = (torch.arange(size, device=tokens.device) for size in tokens.shape)
    real = position < batch.origin.to_device(lengths)[:, None]
    target = Packed(tokens, torch.where(real, row[:, None], -1), torch.where(real, position, 0))
    plan = replace(batch.plan, lengths=np.stack([batch.plan.lengths[0], lengths, batch.plan.lengths[2]]))
    return replace(batch, target=target, prefix=shifted(target), plan=plan)


def retargeted(batch: Batch, numbers: Ints, targets: Tensor, room: Ints, lengths: Tensor | None = None) -> Batch:
    """The same batch with other targets for some of its sentences, and none for the rest.

    numbers [m]: which, ascending; targets [m, L] with EOS. Each is laid into as many positions as its room [m], of
    which its length [m] is used, where that is less. Sources stay where they are, so what was encoded of the batch
    serves both.
    """
    gatherer, row = batch.origin, batch.plan.row[numbers]
    offset = offsets_in_rows(row, room)
    width, count = round_up((offset + room).max(), 32), len(batch.source.ids)
    sizes, rows_t, offset_t, number = gatherer.to_device(np.stack([room, row, offset, numbers]))
    tokens = Tokens.lay(sizes, rows_t, offset_t, width, int(room.sum()))
    ids = tokens.scatter(targets[tokens.sentence, tokens.position], count, width, PAD)
    owner = number[tokens.sentence]
    if lengths is not None:
        owner = torch.where(tokens.position < lengths[tokens.sentence], owner, -1)
    sentence = tokens.scatter(owner, count, width, -1)
    target = Packed(ids, sentence, tokens.scatter(tokens.position, count, width, 0))
    return replace(batch, target=target, prefix=shifted(target))


def shifted(target: Packed) -> Tensor:
    """[R, T] the token before each one: what the decoder reads."""
    prefix = torch.where(target.position == 0, BOS, target.ids.roll(1, dims=1))
    return torch.where(target.sentence >= 0, prefix, PAD)


@dataclass(frozen=True)
class Tokens:
    """The tokens of some sentences, flat: whose they are and where they go."""

    sentence: Tensor  # [tokens]
    position: Tensor  # [tokens] inside the sentence
    place: Tensor  # [tokens] flat index into the rows

    @classmethod
    def lay(cls, lengths: Tensor, row: Tensor, offset: Tensor, width: int, total: int) -> Tokens:
        number = torch.arange(len(lengths), device=lengths.device)
        sentence = torch.repeat_interleave(number, lengths, output_size=total)
        first = torch.cumsum(lengths, 0) - lengths
        position = torch.arange(total, device=lengths.device) - first[sentence]
        return cls(sentence, position, (row * width + offset)[sentence] + position)

    def scatter(self, values: Tensor, rows: int, width: int, empty: int) -> Tensor:
        flat = torch.full((rows * width,), empty, dtype=torch.int64, device=values.device)
        flat[self.place] = values
        return flat.view(rows, width)

    def packed(self, ids: Tensor, rows: int, width: int) -> Packed:
        sentence = self.scatter(self.sentence, rows, width, -1)
        return Packed(self.scatter(ids, rows, width, PAD), sentence, self.scatter(self.position, rows, width, 0))


def _signed(tokens: np.ndarray) -> np.ndarray:
    """torch knows int16 everywhere and uint16 hardly anywhere: look at the same bits as int16."""
    return tokens.view(np.int16) if tokens.dtype == np.uint16 else np.asarray(tokens)


def unsigned(tokens: Tensor) -> Tensor:
    ids = tokens.to(torch.int64)
    return ids & 0xFFFF if tokens.dtype == torch.int16 else ids
