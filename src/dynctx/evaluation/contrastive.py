"""Contrastive evaluation: does a model find the right translation likelier than those that the context makes wrong?

An item becomes a small document, the context sentences and then the sentence, once for each candidate. A candidate's
score is the sum of the log-probabilities of its pieces; the item is right if the true candidate alone scores highest.
A tie is wrong, and counted: with the truth always first, as in most sets, a plain argmax would call it right.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynctx.batches import Gatherer
from dynctx.corpus import Ints, TokenStore
from dynctx.evaluation.contrastive_sets import Item
from dynctx.evaluation.significance import DEFAULT_SAMPLES, DEFAULT_SEED, Interval, bootstrap_interval
from dynctx.evaluation.split import selections
from dynctx.model_folder import Model
from dynctx.scoring import Bools, score
from dynctx.selection.strategies import Selector

CHANGED = 1e-4  # a smaller change of a log-probability may be rounding


@dataclass(frozen=True)
class Result:
    """One item decided."""

    item: Item
    scores: tuple[float, ...]  # log-probability of each candidate
    selected: tuple[int, ...]  # distances of the context it was scored with, nearest first

    @property
    def best_other(self) -> float:
        return max(score for place, score in enumerate(self.scores) if place != self.item.true)

    @property
    def right(self) -> bool:
        return self.scores[self.item.true] > self.best_other

    @property
    def tie(self) -> bool:
        return self.scores[self.item.true] == self.best_other


@dataclass(frozen=True)
class Candidates:
    """All candidates of all items as documents of a store. What the model cannot tell apart stands there once."""

    gatherer: Gatherer
    last: Ints  # [documents] the sentence of each document that is scored
    document: list[list[int]]  # for each item, the document of each candidate


def lay_out(model: Model, items: Sequence[Item]) -> Candidates:
    """Scored twice, in other batches, what is the same to the model could differ by rounding: a tie would be decided
    by chance, and an accuracy could lie above its ceiling."""
    translator = model.translator
    source, target = _encoded(model, items)
    numbers: dict[Any, int] = {}
    documents: list[list[tuple[list[int], list[int]]]] = []
    places: list[list[int]] = []
    for item in items:
        places.append([])
        for context, candidate in zip(item.target_contexts, item.candidates):
            read = (item.source_context, context if translator.reads_targets else None) if translator.scope else None
            key = (item.source, candidate, read)
            if key not in numbers:
                numbers[key] = len(documents)
                before = [(source[s], target[t]) for s, t in zip(item.source_context, context)]
                documents.append([*before, (source[item.source], target[candidate])])
            places[-1].append(numbers[key])
    store = TokenStore.from_ids(documents)
    return Candidates(Gatherer(store, translator.scope, model.device), store.documents[1:] - 1, places)


def _encoded(model: Model, items: Sequence[Item]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Every text once."""
    sources = dict.fromkeys(text for item in items for text in (*item.source_context, item.source))
    targets = dict.fromkeys(
        text
        for item in items
        for context, candidate in zip(item.target_contexts, item.candidates)
        for text in (*context, candidate)
    )
    return (
        dict(zip(sources, model.source.encode(list(sources)))),
        dict(zip(targets, model.target.encode(list(targets)))),
    )


def decide(
    model: Model, items: Sequence[Item], selector: Selector, progress: Callable[[int], None] | None = None
) -> list[Result]:
    """Score every candidate with its context; the candidates of an item share one selection."""
    laid = lay_out(model, items)
    # the first that was laid out, not that of the first candidate: so items that look the same share a random draw
    firsts = np.array([min(documents) for documents in laid.document])
    chosen = selections(laid.gatherer, laid.last[firsts], selector)  # [items, scope]
    # a document is scored under the selection of the item it belongs to; the same one may belong to several, and
    # those that differ only in what is not selected are the same to the model
    wanted: dict[Any, int] = {}
    sentences: list[int] = []
    rows: list[Bools] = []
    places: list[list[int]] = []
    for item, documents, selection in zip(items, laid.document, chosen):
        places.append([])
        for place, document in enumerate(documents):
            key = (item.source, item.candidates[place], _selected(model, item, place, selection))
            if key not in wanted:
                wanted[key] = len(rows)
                sentences.append(int(laid.last[document]))
                rows.append(selection)
            places[-1].append(wanted[key])
    given = np.array(rows)
    scores = score(model.translator, laid.gatherer, np.array(sentences), given, progress=progress).log_probability
    return [
        Result(item, tuple(float(scores[k]) for k in where), tuple((np.flatnonzero(selection) + 1).tolist()))
        for item, where, selection in zip(items, places, chosen)
    ]


def _selected(model: Model, item: Item, place: int, selection: Bools) -> tuple[Any, ...]:
    """The context that the model reads with a candidate: distances, and the sentences there."""
    distances = (np.flatnonzero(selection) + 1).tolist()
    context = item.target_contexts[place] if model.translator.reads_targets else None
    return tuple((d, item.source_context[-d], context[-d] if context else None) for d in distances)


@dataclass(frozen=True)
class Accuracy:
    """A line of the table; shares lie in 0..1."""

    phenomenon: str
    part: str  # "" for all of it, or a distance or kind
    items: int
    right: float
    interval: Interval
    ties: int
    chance: float  # of a guess

    def to_json(self) -> dict[str, Any]:
        return {
            "phenomenon": self.phenomenon,
            "part": self.part,
            "items": self.items,
            "accuracy": self.right,
            "interval": list(self.interval),
            "ties": self.ties,
            "chance": self.chance,
        }


def accuracies(results: Sequence[Result], samples: int = DEFAULT_SAMPLES, seed: int = DEFAULT_SEED) -> list[Accuracy]:
    """For each phenomenon all of it, then by distance and by kind where there are several."""
    found = []
    for phenomenon, whole in by(results, lambda result: result.item.phenomenon).items():
        parts = {"": whole}
        for divide in (_distance, lambda result: result.item.kind):
            divided = by(whole, divide)
            if len(divided) > 1:
                parts |= dict(sorted(divided.items()))
        found += [_accuracy(phenomenon, part, members, samples, seed) for part, members in parts.items()]
    return found


def _accuracy(phenomenon: str, part: str, results: Sequence[Result], samples: int, seed: int) -> Accuracy:
    right = [float(result.right) for result in results]
    return Accuracy(
        phenomenon,
        part,
        len(results),
        float(np.mean(right)),
        bootstrap_interval(right, samples=samples, seed=seed),
        sum(result.tie for result in results),
        float(np.mean([1 / len(result.item.candidates) for result in results])),
    )


def _distance(result: Result) -> str:
    distance = result.item.distance
    return "distance unknown" if distance is None else f"distance {distance}"


def by(results: Sequence[Result], divide: Callable[[Result], str]) -> dict[str, list[Result]]:
    parts: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        parts[divide(result)].append(result)
    return dict(parts)


def ceiling(items: Sequence[Item], source_context: bool, target_context: bool) -> float:
    """The best accuracy there can be for a model that reads no more than this of the context.

    Items which look the same to it and have the same candidates get the same answer, which is true for some of them
    only. Of deixis, each sentence comes twice with one source: whoever reads the source alone has half of them. And an
    item whose true candidate stands there twice nobody has right: one of the two is never likelier than the other.
    """
    truths: dict[Any, Counter[str]] = defaultdict(Counter)
    for item in items:
        if undecidable(item):
            continue
        seen = (
            item.source,
            item.source_context if source_context else None,
            tuple(sorted(zip(item.candidates, item.target_contexts if target_context else item.candidates))),
        )
        truths[seen][item.candidates[item.true]] += 1
    return sum(max(counts.values()) for counts in truths.values()) / len(items)


def undecidable(item: Item) -> bool:
    """The true candidate, with its context, is also among the wrong ones."""
    texts = list(zip(item.candidates, item.target_contexts))
    return texts.count(texts[item.true]) > 1


@dataclass(frozen=True)
class Reads:
    """Which context a model's scores depend on."""

    source: bool
    target: bool


def what_it_reads(model: Model) -> Reads:
    """Found out by trying: a document of two sentences, the first of them changed on one side and on the other."""
    if not model.translator.scope:
        return Reads(False, False)
    words = [7 + number % (min(len(model.source), len(model.target)) - 7) for number in (0, 3, 5, 11, 13)]
    one, other = words[:2], words[2:4]
    last = (words[1:4], words[:3])
    stores = [[[first, last]] for first in ((one, one), (other, one), (one, other))]
    plain, source, target = (_score_last(model, TokenStore.from_ids(documents)) for documents in stores)
    return Reads(abs(plain - source) > CHANGED, abs(plain - target) > CHANGED)


def _score_last(model: Model, store: TokenStore) -> float:
    gatherer = Gatherer(store, model.translator.scope, model.device)
    selection = np.arange(gatherer.scope)[None] == 0
    return float(score(model.translator, gatherer, np.array([1]), selection).log_probability[0])


def remarks(results: Sequence[Result], reads: Reads) -> list[str]:
    """What the figures cannot show: where a model has no way to be better than a guess."""
    found = []
    blind = not any(result.selected for result in results)
    source, target = reads.source and not blind, reads.target and not blind
    what = "source and target" if source and target else "source" if source else "target" if target else "no"
    for phenomenon, part in by(results, lambda result: result.item.phenomenon).items():
        items = [result.item for result in part]
        best, twice = ceiling(items, source, target), sum(map(undecidable, items))
        chance = float(np.mean([1 / len(item.candidates) for item in items]))
        if twice:
            found.append(
                f"{phenomenon}: in {twice} items the true candidate stands twice, so no model can have them right; "
                "they are ties, save where a third candidate is likelier"
            )
        if best < 1 - twice / len(items):
            line = f"{phenomenon}: here the model reads {what} context, and items that look the same to it differ in "
            line += f"their truth, so it cannot have more than {100 * best:.1f} %"
            if best <= chance + 1e-9:
                line += ", which is chance"
            found.append(line)
        if not any(item.source_context for item in items):
            found.append(f"{phenomenon}: the file holds no context, so every model is scored without")
    return found


def to_text(rows: Sequence[Accuracy], notes: Sequence[str]) -> str:
    """A table for a terminal."""
    from dynctx.evaluation.evaluate import table

    lines = [("", "items", "accuracy", "95 % interval", "ties", "chance")]
    for row in rows:
        low, high = row.interval
        interval = f"[{100 * low:.1f}, {100 * high:.1f}]"
        name = f"  {row.part}" if row.part else row.phenomenon
        lines.append(
            (name, f"{row.items:,}", f"{100 * row.right:.1f}", interval, f"{row.ties:,}", f"{100 * row.chance:.1f}")
        )
    return "\n".join([table(lines, "<>>>>>"), *notes])
