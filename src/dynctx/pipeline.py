"""From documents of text to documents of translations: what `dynctx translate` and the Python API do."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer
from dynctx.config import DecodingConfig
from dynctx.corpus import Ints, TokenStore
from dynctx.decoding import translate
from dynctx.documents import Document
from dynctx.languages import is_kept, is_read
from dynctx.model_folder import Model
from dynctx.processes import ALONE, Processes
from dynctx.selection.strategies import Fixed, Judged, Selector
from dynctx.translators.bank import BankedNmt

FORGOTTEN = re.compile(r"(?<=[a-z\u00e0-\u024f]),(?=[A-Za-z\u00c0-\u024f])")  # 1,000 and (A,B) are written so
LONGEST = 256  # pieces; a longer line is translated in parts, since no model has seen its like


@dataclass(frozen=True)
class Choice:
    """The context of one sentence. Distances count sentences back: 1 is the one just before."""

    selected: tuple[int, ...]  # distances, nearest first
    probabilities: dict[int, float]  # by distance, of every candidate; empty where no scorer chose
    non: float | None  # the probability of needing none of them
    kept: bool = False  # not in the source language's script, so left as it is
    candidates: tuple[int, ...] = field(default=(), compare=False)  # distances of all that could have been selected


@dataclass(frozen=True)
class Wish:
    """What is wanted of one document, where that is less than all of it or more than a selector would say."""

    places: Collection[int]  # of the sentences to translate, from 0; the others serve as context only
    selected: Mapping[int, Collection[int]] = field(default_factory=dict)  # distances given by hand, by place


@dataclass(frozen=True)
class Line:
    """A sentence of the input as the model gets it: one unit, several where it is too long, none if not for it."""

    document: int
    place: int  # in the document, from 0
    units: range
    kept: bool = False  # stays as it is


class Units:
    """Documents as a token store, and the way back from the store's sentences to the lines of the documents."""

    def __init__(
        self,
        model: Model,
        documents: Sequence[Document],
        warn: Callable[[str], None] | None = None,
        for_people: bool = False,
    ) -> None:
        self.documents = documents
        language = model.config.data.source_language or ""
        self.lines: list[Line] = []
        units: list[list[list[int]]] = []  # ids of the units of each document
        count = 0
        for number, document in enumerate(documents):
            units.append([])
            for place, ids in enumerate(model.source.encode(document.sentences)):
                # in a corpus an empty line is one unit too: not translated, but with its place among the candidates
                parts = [ids[i : i + LONGEST] for i in range(0, len(ids), LONGEST)] or [[]]
                text = document.sentences[place]
                kept = for_people and is_kept(text, language)
                if for_people and not is_read(text, language):
                    parts = []
                if len(parts) > 1 and warn is not None:
                    warn(
                        f"document {document.id}, sentence {place + 1}: {len(ids)} pieces long, "
                        f"translated in {len(parts)} parts"
                    )
                self.lines.append(Line(number, place, range(count, count + len(parts)), kept))
                units[-1] += parts
                count += len(parts)
        self.count = count
        self.line_of = np.array([number for number, line in enumerate(self.lines) for _ in line.units], np.int64)
        lengths = np.array([len(ids) for document in units for ids in document], np.int64)
        self.filled: Ints = np.flatnonzero(lengths > 0)
        store = TokenStore.from_ids([[(ids, []) for ids in document] for document in units if document])
        self.gatherer = Gatherer(store, model.translator.scope, model.device, model.translator.lays_context)

    def asked(self, selector: Selector, wishes: Sequence[Wish] | None) -> tuple[Ints, Selector]:
        """The units to do something about, and the selector with what was wished for; without wishes, all."""
        selector = self.adapted(selector)
        if wishes is None:
            return self.filled, selector
        return self.wanted(wishes), Fixed(selector, self.by_hand(wishes))

    def share(self, wanted: Ints, processes: Processes, documents: bool) -> Ints:
        """Places of these units that are for this process; documents: whole ones, as their states serve each other."""
        lengths = self.gatherer.lengths_of(wanted)[0]
        return processes.share(lengths, self.gatherer.firsts[wanted] if documents else None)

    def wanted(self, wishes: Sequence[Wish]) -> Ints:
        """The units to translate."""
        return np.array([u for u in self.filled if self._line(u).place in wishes[self._line(u).document].places], int)

    def by_hand(self, wishes: Sequence[Wish]) -> dict[int, set[int]]:
        """Distances that were wished for, in units."""
        given = {n: wishes[line.document].selected.get(line.place) for n, line in enumerate(self.lines)}
        return self.in_units({number: distances for number, distances in given.items() if distances is not None})

    def in_units(self, given: Mapping[int, Collection[int]]) -> dict[int, set[int]]:
        """Distances in lines, by the number of the line, as what a selection has columns for: distances in units."""
        found: dict[int, set[int]] = {}
        for number, distances in given.items():
            line = self.lines[number]
            earlier = [u for back in distances if back <= line.place for u in self.lines[number - back].units]
            found |= {unit: {unit - u for u in earlier} for unit in line.units}
        return found

    def adapted(self, selector: Selector) -> Selector:
        """A selector that goes by the numbers of lines, as one that goes by those of units; any other as it is."""
        if not isinstance(selector, Fixed):
            return selector
        selector.check([sentence for document in self.documents for sentence in document.sentences])
        return Fixed(selector.base, self.in_units(selector.distances), selector.name)

    def _line(self, unit: int) -> Line:
        return self.lines[self.line_of[unit]]


class Recorder:
    """A selector that remembers what it chose."""

    def __init__(self, selector: Selector, units: Units) -> None:
        self.selector, self.name, self.units = selector, selector.name, units
        self.found: dict[int, tuple[list[bool], list[float] | None]] = {}

    def select(self, batch: Batch, draw: int = 0) -> Tensor:
        probabilities = None
        chooser = self.selector.base if isinstance(self.selector, Fixed) else self.selector
        if isinstance(chooser, Judged):
            probabilities = chooser.probabilities(batch)
            selection = chooser.choose(probabilities, batch.present)
        else:
            selection = chooser.select(batch, draw)
        if isinstance(self.selector, Fixed):
            selection = self.selector.put(selection, batch)
        rows = probabilities.tolist() if probabilities is not None else [None] * len(batch)
        self.found |= dict(zip(batch.numbers.tolist(), zip(selection.tolist(), rows)))
        return selection

    def choices(self) -> list[Choice]:
        """One for each line; a line of several units has the choice of its first."""
        return [self._choice(number, line, self.units) for number, line in enumerate(self.units.lines)]

    def _choice(self, number: int, line: Line, units: Units) -> Choice:
        unit = line.units.start
        if not line.units or unit not in self.found:  # not for the model, or empty, or a translator without context
            return Choice((), {}, None, line.kept)
        selection, probabilities = self.found[unit]
        first = units.gatherer.firsts[unit]
        candidates = [place for place in range(len(selection)) if unit - place - 1 >= first]
        back = {place: int(number - units.line_of[unit - place - 1]) for place in candidates}
        selected = tuple(dict.fromkeys(back[place] for place in candidates if selection[place]))
        could = tuple(dict.fromkeys(back.values()))
        if probabilities is None:
            return Choice(selected, {}, None, candidates=could)
        # of several units of one line, the most probable speaks for it
        best: dict[int, float] = {}
        for place in candidates:
            best[back[place]] = max(best.get(back[place], 0.0), probabilities[place])
        return Choice(selected, best, probabilities[-1], candidates=could)


def translate_documents(
    model: Model,
    documents: Sequence[Document],
    decoding: DecodingConfig | None = None,
    selector: Selector | None = None,
    progress: Callable[[int], None] | None = None,
    warn: Callable[[str], None] | None = None,
    processes: Processes = ALONE,
) -> list[Document]:
    """Every sentence translated, documents and order kept. Empty sentences stay empty."""
    return translate_and_explain(model, documents, decoding, selector, progress, warn, processes=processes)[0]


def translate_and_explain(
    model: Model,
    documents: Sequence[Document],
    decoding: DecodingConfig | None = None,
    selector: Selector | None = None,
    progress: Callable[[int], None] | None = None,
    warn: Callable[[str], None] | None = None,
    wishes: Sequence[Wish] | None = None,
    for_people: bool = False,
    processes: Processes = ALONE,
) -> tuple[list[Document], list[list[Choice]]]:
    """The translations, and what context each sentence was given.

    wishes: one a document; default: all of each. for_people: a sentence without a letter of the source language's
    script stays as it is, and neither it nor an empty one is anybody's context; and a space that the model forgot after
    a comma is put there. Where models are scored, all is translated, and every translation is taken as it is.
    processes: they share the work, and each has all of it in the end.
    """
    decoding, selector = decoding or model.config.decoding, selector or model.selector
    units = Units(model, documents, warn, for_people)
    wanted, selector = units.asked(selector, wishes)
    recorder = Recorder(selector, units)
    own = wanted[units.share(wanted, processes, isinstance(model.translator, BankedNmt))]
    told = None if progress is None else lambda count: progress(count * processes.count)  # as if all were as fast
    hypotheses = translate(model.translator, units.gatherer, own, decoding, recorder, told)
    said = dict(zip(own.tolist(), model.target.decode([hypothesis.ids for hypothesis in hypotheses])))
    texts = [""] * units.count
    for found, chosen in processes.gathered((said, recorder.found)):
        recorder.found |= chosen
        for unit, text in found.items():
            texts[unit] = text
    joiner = "" if model.config.data.target_language in ("zh", "ja") else " "
    translated: list[list[str]] = [[] for _ in documents]
    for line in units.lines:
        text = joiner.join(texts[unit] for unit in line.units)
        if for_people and joiner:
            text = FORGOTTEN.sub(", ", text)
        translated[line.document].append(documents[line.document].sentences[line.place] if line.kept else text)
    results = [Document(d.id, tuple(sentences)) for d, sentences in zip(documents, translated)]
    return results, by_document(documents, recorder.choices())


@torch.inference_mode()
def select_documents(
    model: Model,
    documents: Sequence[Document],
    selector: Selector | None = None,
    for_people: bool = False,
    wishes: Sequence[Wish] | None = None,
) -> list[list[Choice]]:
    """What context each sentence would be given, without translating."""
    units = Units(model, documents, for_people=for_people)
    wanted, selector = units.asked(selector or model.selector, wishes)
    recorder = Recorder(selector, units)
    if len(wanted):
        recorder.select(units.gatherer.bare(wanted))
    return by_document(documents, recorder.choices())


def first_candidates(sentences: Sequence[str], scope: int, language: str) -> list[int]:
    """For each sentence the place of the first that can be its context: `scope` back, those that are not for the model
    not counted; its own place where there is none."""
    found, read = list[int](), deque[int](maxlen=scope)
    for place, sentence in enumerate(sentences):
        found.append(read[0] if read else place)
        if is_read(sentence, language):
            read.append(place)
    return found


def by_document(documents: Sequence[Document], choices: list[Choice]) -> list[list[Choice]]:
    found = iter(choices)
    return [[next(found) for _ in document.sentences] for document in documents]
