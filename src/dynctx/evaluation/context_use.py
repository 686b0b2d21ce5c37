"""Does a model use its context? By how much the reference becomes likelier, and by what is lost with a wrong context.

CXMI (Fernandes et al. 2021) is the mean over sentences of log p(y | x, context) - log p(y | x), in nats; for one
sentence that difference is its P-CXMI. For BLEU, every sentence is given another context of the same length: sentences
of its own document that stand elsewhere, or a piece of another document. The texts are put into a changed store, so
every translator reads them as it reads anything else, and a learned selector chooses among what is there; a rule, a
draw or a file goes by the sentences of the split, so it selects the same distances under each condition. A translator
with context on the target side finds the references of these sentences there, not translations of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer
from dynctx.config import DecodingConfig
from dynctx.corpus import Ints, TokenStore
from dynctx.decoding import translate
from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.evaluation.bleu import corpus_bleu
from dynctx.evaluation.significance import Comparison, paired_bootstrap
from dynctx.evaluation.split import Split, selections
from dynctx.scoring import Bools, Floats, Scores, score
from dynctx.selection.strategies import BLIND, FromFile, Previous, Selector

Condition = Literal["true", "shuffled", "other document", "none"]
CONDITIONS: tuple[Condition, ...] = ("true", "shuffled", "other document", "none")


@dataclass(frozen=True)
class Information:
    """What the context tells about the reference, in nats."""

    per_sentence: Floats  # [n] P-CXMI of each sentence
    tokens: Ints  # [n]

    @property
    def cxmi(self) -> float:
        return float(self.per_sentence.mean())

    @property
    def per_token(self) -> float:
        return float(self.per_sentence.sum() / self.tokens.sum())


def information(with_context: Scores, without: Scores) -> Information:
    """From the scores of the same references with and without context."""
    return Information(with_context.log_probability - without.log_probability, with_context.tokens)


def cxmi(split: Split, selector: Selector) -> Information:
    """Of the sentences that can be scored, in order."""
    chosen = split.select(selector)
    return information(split.score(chosen), split.score(np.zeros_like(chosen)))


def changed_store(split: Split, condition: Condition, seed: int = 1) -> tuple[Gatherer, Ints]:
    """A store in which every sentence is the last of a document of its own, after as many sentences as before.

    Returns it with the number [sentences] that each sentence of the split has there. With the condition "true" (or
    "none") the sentences before it are its own. "shuffled": sentences of the same document in random order, neither
    itself nor its own context while there are enough others. "other document": consecutive sentences of another one.
    """
    scope = split.gatherer.scope
    store = TokenStore.from_ids(_changed(split.encoded, scope, condition, seed))
    return Gatherer(store, scope, split.gatherer.device), store.documents[1:] - 1


def _changed(
    documents: list[list[Any]], scope: int, condition: Condition, seed: int, wanted: set[int] | None = None
) -> list[list[Any]]:
    """For each sentence (of those wanted, by their number) the sentences before it under the condition, and itself."""
    if condition == "other document" and sum(1 for document in documents if document) < 2:
        raise DynctxError("context of another document: the test set has one document only")
    rng = np.random.default_rng([seed, CONDITIONS.index(condition)])
    found: list[list[Any]] = []
    seen = 0
    for number, document in enumerate(documents):
        for place, pair in enumerate(document):
            seen += 1
            if wanted is not None and seen - 1 not in wanted:
                continue
            count = min(scope, place)
            if condition == "shuffled":
                context = [document[i] for i in _elsewhere(rng, len(document), place, count)]
            elif condition == "other document":
                context = _piece(rng, documents, number, count)
            else:
                context = document[place - count : place]
            found.append([*context, pair])
    return found


def in_other_context(split: Split, sentences: Ints, condition: Condition, seed: int = 1) -> tuple[Split, Ints]:
    """A split in which each of these sentences [n] is the last of a document of its own, after other sentences; and
    their numbers in it. The conditions are those of `changed_store`."""
    pairs = list(zip(split.sources, split.references))
    documents = [pairs[a:b] for a, b in zip(split.starts, split.starts[1:])]
    made = _changed(documents, split.gatherer.scope, condition, seed, set(sentences.tolist()))
    sides = [tuple(Document(str(n), tuple(pair[k] for pair in d)) for k in (0, 1)) for n, d in enumerate(made)]
    found = Split(split.model, [(source, target) for source, target in sides])
    return found, found.starts[1:] - 1


class Carried:
    """A selection [sentences, scope] of a split's sentences, for the numbers [sentences] they have in a changed store.

    Random draws and files go by the number of a sentence: asked in the changed store itself, a draw would be another
    one than in the split, and a file would not fit.
    """

    def __init__(self, selection: Bools, numbers: Ints, name: str) -> None:
        self.selection, self.numbers, self.name = selection, numbers, name

    def select(self, batch: Batch, draw: int = 0) -> Tensor:
        rows = self.selection[np.searchsorted(self.numbers, batch.numbers)]
        return torch.from_numpy(rows).to(batch.present.device) & batch.present


def foreseen(split: Split, selector: Selector) -> Bools | None:
    """[sentences, scope] what a rule, a draw or a file selects in the split; a learned selector has to see the text."""
    return split.select(selector) if isinstance(selector, (*BLIND, FromFile)) else None


def _elsewhere(rng: np.random.Generator, size: int, place: int, count: int) -> list[int]:
    """`count` places of a document in random order: not `place`, nor the `count` before it while others suffice."""
    others = np.array([i for i in range(size) if not place - count <= i <= place])
    own = np.array([i for i in range(place - count, place)])
    drawn = rng.permutation(others)[:count]
    if len(drawn) < count:  # a short document: its own context has to help out, in another order
        drawn = np.concatenate([drawn, rng.permutation(own)[: count - len(drawn)]])
    return [int(i) for i in drawn]


def _piece(rng: np.random.Generator, documents: list[Any], own: int, count: int) -> list[Any]:
    """`count` consecutive sentences of other documents; of several where one is too short."""
    others = [i for i, document in enumerate(documents) if i != own and document]
    found: list[Any] = []
    while len(found) < count:
        document = documents[int(rng.choice(others))]
        first = int(rng.integers(max(1, len(document) - count + 1)))
        found += document[first : first + count - len(found)]
    return found


@dataclass(frozen=True)
class Use:
    """One condition: BLEU, its difference from the true context's, and CXMI with that context."""

    condition: Condition
    bleu: float
    against_true: Comparison | None
    cxmi: float
    cxmi_per_token: float
    texts: list[str]

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"condition": self.condition, "bleu": self.bleu, "cxmi": self.cxmi}
        found["cxmi_per_token"] = self.cxmi_per_token
        if self.against_true is not None:
            found |= {"delta": self.against_true.delta, "p_value": self.against_true.p_value}
            found["delta_interval"] = list(self.against_true.delta_interval)
        return found


def context_use(
    split: Split,
    selector: Selector,
    decoding: DecodingConfig | None = None,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
) -> list[Use]:
    """Translate and score the split under each condition."""
    model, settings = split.model, replace(decoding or split.model.config.decoding, sampling=False)
    uses: list[Use] = []
    true_score = None
    known = foreseen(split, selector)
    stores = {condition: changed_store(split, condition, seed) for condition in CONDITIONS}  # before any long work
    for condition, (gatherer, numbers) in stores.items():
        chosen = selector if known is None else Carried(known, numbers, selector.name)
        if condition == "none":
            chosen = Previous(0)
        found = translate(model.translator, gatherer, numbers[split.filled], settings, chosen, progress)
        texts = [""] * len(split)
        for sentence, text in zip(split.filled, model.target.decode([hypothesis.ids for hypothesis in found])):
            texts[sentence] = text
        made = corpus_bleu(texts, [split.references], language=split.language)
        scorable = numbers[split.scorable]
        selection = selections(gatherer, scorable, chosen)
        with_context = score(model.translator, gatherer, scorable, selection)
        without = score(model.translator, gatherer, scorable, np.zeros_like(selection))
        told = information(with_context, without)
        compared = None if true_score is None else paired_bootstrap(made, true_score)
        true_score = true_score or made
        uses.append(Use(condition, made.value, compared, told.cxmi, told.per_token, texts))
    return uses


def to_text(uses: list[Use]) -> str:
    from dynctx.evaluation.evaluate import table

    rows = [("context", "BLEU", "against true", "p", "CXMI", "a token")]
    for use in uses:
        delta = "" if use.against_true is None else f"{use.against_true.delta:+.2f}"
        p = "" if use.against_true is None else f"{use.against_true.p_value:.3f}"
        rows.append((use.condition, f"{use.bleu:.2f}", delta, p, f"{use.cxmi:+.4f}", f"{use.cxmi_per_token:+.4f}"))
    return table(rows, "<>>>>>")
