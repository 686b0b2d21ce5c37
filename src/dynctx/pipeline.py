"""From documents of text to documents of translations: what `dynctx translate` and the Python API do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dynctx.batches import Gatherer
from dynctx.config import DecodingConfig
from dynctx.corpus import TokenStore
from dynctx.decoding import translate
from dynctx.documents import Document
from dynctx.model_folder import Model
from dynctx.selection.strategies import Selector

LONGEST = 256  # pieces; a longer line is translated in parts, since no model has seen its like


@dataclass(frozen=True)
class Line:
    """A sentence of the input as the model gets it: one unit, or several where the line is too long."""

    document: int
    units: range


def translate_documents(
    model: Model,
    documents: Sequence[Document],
    decoding: DecodingConfig | None = None,
    selector: Selector | None = None,
    progress: Callable[[int], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> list[Document]:
    """Every sentence translated, documents and order kept. Empty sentences stay empty."""
    decoding = decoding or model.config.decoding
    lines: list[Line] = []
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
            lines.append(Line(number, range(count, count + len(parts))))
            units[-1] += parts
            count += len(parts)
    texts = [""] * count
    wanted = np.flatnonzero([len(ids) for document in units for ids in document])
    if len(wanted):
        store = TokenStore.from_ids([[(ids, []) for ids in document] for document in units if document])
        gatherer = Gatherer(store, model.translator.scope, model.device)
        hypotheses = translate(model.translator, gatherer, wanted, decoding, selector or model.selector, progress)
        for unit, text in zip(wanted, model.target.decode([hypothesis.ids for hypothesis in hypotheses])):
            texts[unit] = text
    joiner = "" if model.config.data.target_language in ("zh", "ja") else " "
    translated: list[list[str]] = [[] for _ in documents]
    for line in lines:
        translated[line.document].append(joiner.join(texts[unit] for unit in line.units))
    return [Document(d.id, tuple(sentences)) for d, sentences in zip(documents, translated)]
