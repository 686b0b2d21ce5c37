"""A test set as a model reads it: its texts, encoded, with the references beside the sources.

`pipeline` translates text whose translation is not known. Here it is known, and stands in the store, so that targets
can be scored and translators with context on the target side find it there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer
from dynctx.config import DecodingConfig
from dynctx.corpus import Ints, TokenStore
from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.evaluation.bleu import in_documents
from dynctx.model_folder import Model
from dynctx.pipeline import Wish, translate_and_explain
from dynctx.scoring import Bools, Scores, score
from dynctx.selection.strategies import Selector

Pairs = Sequence[tuple[Document, Document]]


class Given:
    """A selector that repeats what was chosen before: `selection` [n, scope] of the sentences 0 .. n - 1 of a store."""

    def __init__(self, selection: Bools, name: str = "given") -> None:
        self.selection, self.name = selection, name

    def select(self, batch: Batch, draw: int = 0) -> Tensor:
        return torch.from_numpy(self.selection[batch.numbers]).to(batch.sentences.device) & batch.present


class Split:
    """Documents of source and reference, and the store made of them. Sentences are numbered through."""

    def __init__(self, model: Model, pairs: Pairs) -> None:
        self.model = model
        self.ids = [source.id for source, _ in pairs]  # of the documents
        self.sources = [sentence for source, _ in pairs for sentence in source.sentences]
        self.references = [sentence for _, target in pairs for sentence in target.sentences]
        self.sizes = [len(source.sentences) for source, _ in pairs]  # of the documents, in sentences
        self.starts: Ints = np.cumsum([0, *self.sizes])  # [documents + 1]
        encoded = list(zip(model.source.encode(self.sources), model.target.encode(self.references)))
        self.encoded = [encoded[a:b] for a, b in zip(self.starts, self.starts[1:])]
        self.gatherer = Gatherer(TokenStore.from_ids(self.encoded), model.translator.scope, model.device)
        filled = np.array([bool(source) for source, _ in encoded], np.bool_)
        self.filled: Ints = np.flatnonzero(filled)  # sentences that are translated
        # sentences whose reference can be scored: an empty one would be an EOS and nothing else
        self.scorable: Ints = np.flatnonzero(filled & np.array([bool(target) for _, target in encoded], np.bool_))
        if not len(self.scorable):
            raise DynctxError("the test set has no sentence with both a source and a reference")

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def language(self) -> str:
        return self.model.config.data.target_language or "en"

    def place(self, sentence: int) -> tuple[str, int]:
        """The document's id and the place in it, from 1, of a sentence."""
        document = int(np.searchsorted(self.starts, sentence, side="right")) - 1
        return self.ids[document], int(sentence - self.starts[document]) + 1

    def documents(self, lines: Sequence[str]) -> list[list[str]]:
        """Lines, one a sentence, as documents."""
        return in_documents(lines, self.sizes)

    def select(self, selector: Selector) -> Bools:
        """[sentences, scope]"""
        return selections(self.gatherer, np.arange(len(self)), selector)

    def score(
        self,
        selection: Bools,
        sentences: Ints | None = None,
        *,
        rewards: bool = False,
    ) -> Scores:
        """References under a selection [n, scope] of these sentences; without any, of all that can be scored."""
        if sentences is None:
            sentences = self.scorable
            selection = selection[sentences]
        return score(self.model.translator, self.gatherer, sentences, selection, rewards=rewards)

    def translate(
        self,
        selector: Selector,
        decoding: DecodingConfig | None = None,
        progress: Callable[[int], None] | None = None,
        only: Collection[int] | None = None,
    ) -> list[str]:
        """A translation of each sentence, as the model makes it where no reference is known.

        only: the others may be left out; a model that reads earlier translations needs them all the same.
        """
        settings = replace(decoding or self.model.config.decoding, sampling=False)
        documents = [Document(name, tuple(lines)) for name, lines in zip(self.ids, self.documents(self.sources))]
        wishes = None
        if only is not None and not self.model.translator.reads_targets:
            wishes = [Wish({s - a for s in only if a <= s < b}) for a, b in pairwise(self.starts.tolist())]
        found, _ = translate_and_explain(self.model, documents, settings, selector, progress, wishes=wishes)
        return [sentence for document in found for sentence in document.sentences]


@torch.inference_mode()
def selections(gatherer: Gatherer, sentences: Ints, selector: Selector) -> Bools:
    """[n, scope] what a selector gives these sentences."""
    if not gatherer.scope:
        return np.zeros((len(sentences), 0), np.bool_)
    return selector.select(gatherer.bare(sentences)).cpu().numpy()
