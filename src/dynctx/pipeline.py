"""From documents of text to documents of translations: what `dynctx translate` and the Python API do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer
from dynctx.config import DecodingConfig
from dynctx.corpus import Ints, TokenStore
from dynctx.decoding import batches_by_length, translate
from dynctx.documents import Document
from dynctx.model_folder import Model
from dynctx.selection.strategies import Judged, Selector

LONGEST = 256  # pieces; a longer line is translated in parts, since no model has seen its like


@dataclass(frozen=True)
class Choice:
    """The context of one sentence. Distances count sentences back: 1 is the one just before."""

    selected: tuple[int, ...]  # distances, nearest first
    probabilities: dict[int, float]  # by distance, of every candidate; empty where no scorer chose
    non: float | None  # the probability of needing none of them


@dataclass(frozen=True)
class Line:
    """A sentence of the input as the model gets it: one unit, or several where the line is too long."""

    document: int
    units: range


class Units:
    """Documents as a token store, and the way back from the store's sentences to the lines of the documents."""

    def __init__(self, model: Model, documents: Sequence[Document], warn: Callable[[str], None] | None = None) -> None:
        self.lines: list[Line] = []
        units: list[list[list[int]]] = []  # ids of the units of each document
        count = 0
        for number, document in enumerate(documents):
            units.append([])
            for place, ids in enumerate(model.source.encode(document.sentences)):
                # an empty line is one unit too: it is not translated, but keeps its place among the candidates
                parts = [ids[i : i + LONGEST] for i in range(0, len(ids), LONGEST)] or [[]]
                if len(parts) > 1 and warn is not None:
                    warn(
                        f"document {document.id}, sentence {place + 1}: {len(ids)} pieces long, "
                        f"translated in {len(parts)} parts"
                    )
                self.lines.append(Line(number, range(count, count + len(parts))))
                units[-1] += parts
                count += len(parts)
        self.count = count
        self.line_of = np.array([number for number, line in enumerate(self.lines) for _ in line.units], np.int64)
        self.filled: Ints = np.flatnonzero([len(ids) for document in units for ids in document])
        store = TokenStore.from_ids([[(ids, []) for ids in document] for document in units if document])
        self.gatherer = Gatherer(store, model.translator.scope, model.device, model.translator.lays_context)


class Recorder:
    """A selector that remembers what it chose."""

    def __init__(self, selector: Selector) -> None:
        self.selector, self.name = selector, selector.name
        self.found: dict[int, tuple[list[bool], list[float] | None]] = {}

    def select(self, batch: Batch, draw: int = 0) -> Tensor:
        probabilities = None
        if isinstance(self.selector, Judged):
            probabilities = self.selector.probabilities(batch)
            selection = self.selector.choose(probabilities, batch.present)
        else:
            selection = self.selector.select(batch, draw)
        rows = probabilities.tolist() if probabilities is not None else [None] * len(batch)
        self.found |= dict(zip(batch.numbers.tolist(), zip(selection.tolist(), rows)))
        return selection

    def choices(self, units: Units) -> list[Choice]:
        """One for each line; a line of several units has the choice of its first."""
        return [self._choice(number, line, units) for number, line in enumerate(units.lines)]

    def _choice(self, number: int, line: Line, units: Units) -> Choice:
        unit = line.units.start
        if unit not in self.found:  # an empty line, or a translator that reads no context
            return Choice((), {}, None)
        selection, probabilities = self.found[unit]
        first = units.gatherer.firsts[unit]
        candidates = [place for place in range(len(selection)) if unit - place - 1 >= first]
        back = {place: int(number - units.line_of[unit - place - 1]) for place in candidates}
        selected = tuple(dict.fromkeys(back[place] for place in candidates if selection[place]))
        if probabilities is None:
            return Choice(selected, {}, None)
        # of several units of one line, the most probable speaks for it
        best: dict[int, float] = {}
        for place in candidates:
            best[back[place]] = max(best.get(back[place], 0.0), probabilities[place])
        return Choice(selected, best, probabilities[-1])


def translate_documents(
    model: Model,
    documents: Sequence[Document],
    decoding: DecodingConfig | None = None,
    selector: Selector | None = None,
    progress: Callable[[int], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> list[Document]:
    """Every sentence translated, documents and order kept. Empty sentences stay empty."""
    return translate_and_explain(model, documents, decoding, selector, progress, warn)[0]


def translate_and_explain(
    model: Model,
    documents: Sequence[Document],
    decoding: DecodingConfig | None = None,
    selector: Selector | None = None,
    progress: Callable[[int], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> tuple[list[Document], list[list[Choice]]]:
    """The translations, and what context each sentence was given."""
    decoding = decoding or model.config.decoding
    units, recorder = Units(model, documents, warn), Recorder(selector or model.selector)
    texts = [""] * units.count
    if len(units.filled):
        hypotheses = translate(model.translator, units.gatherer, units.filled, decoding, recorder, progress)
        for unit, text in zip(units.filled, model.target.decode([hypothesis.ids for hypothesis in hypotheses])):
            texts[unit] = text
    joiner = "" if model.config.data.target_language in ("zh", "ja") else " "
    translated: list[list[str]] = [[] for _ in documents]
    for line in units.lines:
        translated[line.document].append(joiner.join(texts[unit] for unit in line.units))
    found = [Document(d.id, tuple(sentences)) for d, sentences in zip(documents, translated)]
    return found, by_document(documents, recorder.choices(units))


@torch.inference_mode()
def select_documents(
    model: Model, documents: Sequence[Document], selector: Selector | None = None
) -> list[list[Choice]]:
    """What context each sentence would be given, without translating."""
    units, recorder = Units(model, documents), Recorder(selector or model.selector)
    if len(units.filled):
        lengths = units.gatherer.lengths_of(units.filled)[0]
        for chosen in batches_by_length(lengths, model.config.decoding.batch_sentences):
            recorder.select(units.gatherer.one_per_row(units.filled[chosen]))
    return by_document(documents, recorder.choices(units))


def by_document(documents: Sequence[Document], choices: list[Choice]) -> list[list[Choice]]:
    found = iter(choices)
    return [[next(found) for _ in document.sentences] for document in documents]
