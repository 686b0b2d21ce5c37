"""Selectors: which candidates a translator gets, as a boolean [n, scope].

Column j is the sentence at distance j + 1. A candidate that does not exist is never selected. Random selections
depend on (seed, draw, sentence) and not on the batch, so they are the same however sentences are batched.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from dynctx.batches import Batch
from dynctx.errors import DynctxError, at
from dynctx.files import read_lines
from dynctx.selection.scorer import probability_first, size_first

FORMS = (
    "none",
    "full",
    "previous N",
    "random N",
    "random subset",
    "random 1 or none",
    "attend",
    "fixed FILE",
    "probability-first",
    "size-first N",
)


class Selector(Protocol):
    name: str

    def select(self, batch: Batch, draw: int = 0) -> Tensor:
        """[n, scope]; `draw` makes random selections differ, from one epoch to the next for instance."""


class Previous:
    """The n sentences just before: none of them (n = 0), or all of the scope (n = None)."""

    def __init__(self, n: int | None) -> None:
        self.n = n
        self.name = "full" if n is None else f"previous {n}" if n else "none"

    def select(self, batch: Batch, draw: int = 0) -> Tensor:
        if self.n is None:
            return batch.present
        near = torch.arange(batch.present.shape[1], device=batch.present.device) < self.n
        return batch.present & near


class Random:
    """n of the candidates that exist (all, where fewer do); n = None: any number of them, none included."""

    def __init__(self, n: int | None, seed: int) -> None:
        self.n, self.seed = n, seed
        self.name = "random subset" if n is None else f"random {n}"

    def select(self, batch: Batch, draw: int = 0) -> Tensor:
        present = batch.present
        scores = uniform(batch.sentences, present.shape[1] + 1, self.seed, draw)  # [n, scope + 1]
        order = scores[:, :-1].masked_fill(~present, 2.0)
        rank = order.argsort(dim=1).argsort(dim=1)
        if self.n is None:  # every size is as likely as any other
            size = (scores[:, -1] * (present.sum(1) + 1)).floor().long()
            return present & (rank < size[:, None])
        return present & (rank < self.n)


class OneOrNone:
    """One of the candidates that exist or none of them, each as likely as any other."""

    name = "random 1 or none"

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def select(self, batch: Batch, draw: int = 0) -> Tensor:
        count = batch.present.sum(1, keepdim=True)  # [n, 1]; existing candidates are the nearest ones
        drawn = (uniform(batch.sentences, 1, self.seed, draw) * (count + 1)).floor().long()  # [n, 1], count: none
        return batch.present & (torch.arange(batch.present.shape[1], device=count.device) == drawn)


BLIND = (Previous, Random, OneOrNone)  # whatever a model says, they select the same: it can be known beforehand


class Judged:
    """By the probabilities of a scorer: probability-first, or size-first where a size is given."""

    def __init__(self, probabilities: Callable[[Batch], Tensor], size: int | None = None) -> None:
        self.probabilities, self.size = probabilities, size
        self.name = "probability-first" if size is None else f"size-first {size}"

    def select(self, batch: Batch, draw: int = 0) -> Tensor:
        return self.choose(self.probabilities(batch), batch.present)

    def choose(self, probabilities: Tensor, present: Tensor) -> Tensor:
        """[n, scope + 1], [n, scope] -> [n, scope]"""
        if self.size is None:
            return probability_first(probabilities)
        return size_first(probabilities, present, self.size)


class Fixed:
    """Distances given by hand for some sentences, by their number in the store; `base` chooses for the others."""

    def __init__(self, base: Selector, distances: Mapping[int, Collection[int]], name: str = "") -> None:
        self.base, self.distances = base, distances
        self.name = name or f"{base.name}, some by hand"

    def check(self, sentences: Sequence[str]) -> None:
        """Whether this was given for the text of these sentences."""

    def select(self, batch: Batch, draw: int = 0) -> Tensor:
        return self.put(self.base.select(batch, draw), batch)

    def put(self, selection: Tensor, batch: Batch) -> Tensor:
        """[n, scope] with the rows that are given by hand in the place of what was chosen for them."""
        scope, numbers = selection.shape[1], batch.numbers.tolist()
        rows = [row for row, number in enumerate(numbers) if number in self.distances]
        given = [[slot + 1 in self.distances[numbers[row]] for slot in range(scope)] for row in rows]
        selection = selection.clone()
        if given:
            selection[rows] = torch.tensor(given, dtype=torch.bool, device=selection.device).view(len(rows), scope)
        return selection & batch.present


class FromFile(Fixed):
    """What a file of JSON lines says, one for each sentence in order, as `dynctx select` writes them."""

    def __init__(self, path: str) -> None:
        given: list[set[int]] = []
        self.texts: list[str | None] = []  # the sentence that each line is about, where it says so
        for number, line in enumerate(read_lines(path), 1):
            try:
                record = json.loads(line)
                given.append({int(distance) for distance in record["selected"]})
            except (KeyError, TypeError, ValueError):
                raise DynctxError(
                    f'{at(path, number)}: expected a JSON object with "selected", a list of distances'
                ) from None
            self.texts.append(record.get("text"))
        super().__init__(Previous(0), dict(enumerate(given)), f"fixed {path}")
        self.path = path

    def check(self, sentences: Sequence[str]) -> None:
        self.check_count(len(sentences))
        for number, (said, text) in enumerate(zip(self.texts, sentences), 1):
            if said is not None and said != text:
                raise DynctxError(f"{at(self.path, number)}: is about {said!r}, and here that sentence is {text!r}")

    def check_count(self, sentences: int) -> None:
        if len(self.distances) != sentences:
            raise DynctxError(f"{at(self.path)}: {len(self.distances)} lines for {sentences} sentences")

    def put(self, selection: Tensor, batch: Batch) -> Tensor:
        self.check_count(len(batch.origin.store))
        return super().put(selection, batch)


def uniform(sentences: Tensor, count: int, seed: int, draw: int) -> Tensor:
    """[n, count] numbers in [0, 1), a hash of (seed, draw, sentence, column): splitmix64 in int64 arithmetic."""
    column = torch.arange(count, device=sentences.device)
    state = _mix(sentences[:, None] * 0x1000003 + column)
    state = _mix(state + _mix(torch.tensor(seed * 0x10001 + draw, device=sentences.device)))
    return ((state >> 11) & (2**53 - 1)).double() / 2**53


def _mix(x: Tensor) -> Tensor:
    x = x + -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number; int64 wraps around, as it should
    x = (x ^ ((x >> 30) & (2**34 - 1))) * -4658895280553007687  # 0xBF58476D1CE4E5B9
    x = (x ^ ((x >> 27) & (2**37 - 1))) * -7723592293110705685  # 0x94D049BB133111EB
    return x ^ ((x >> 31) & (2**33 - 1))


def parse_selector(text: str, seed: int, judge: Callable[[Batch], Tensor] | None = None) -> Selector:
    """A selector from its name in a config or on the command line. judge: what a scorer says, if there is one."""
    words = text.split()
    if words == ["probability-first"] or (words[:1] == ["size-first"] and is_size(words[1:])):
        if judge is None:
            raise DynctxError(f"selector {text!r}: this model has no context scorer")
        return Judged(judge, int(words[1]) if len(words) == 2 else None)
    if words == ["none"]:
        return Previous(0)
    if words in (["full"], ["attend"]):  # SAN attends by itself to what it needs of all
        return Previous(None)
    if words[:1] == ["fixed"] and len(words) > 1:
        return FromFile(text.split(maxsplit=1)[1].strip())
    if words == ["random", "subset"]:
        return Random(None, seed)
    if words == ["random", "1", "or", "none"]:
        return OneOrNone(seed)
    if words[:1] in (["previous"], ["random"]) and is_size(words[1:]):
        n = int(words[1])
        return Previous(n) if words[0] == "previous" else Random(n, seed)
    near = difflib.get_close_matches(text, FORMS, n=1, cutoff=0.7)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise DynctxError(f"selector {text!r}: expected one of: {', '.join(FORMS)}{meant}")


def is_size(words: list[str]) -> bool:
    return len(words) == 1 and words[0].isdecimal() and len(words[0]) < 1000 and int(words[0]) > 0
