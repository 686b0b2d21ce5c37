"""The oracle: the best of all subsets of the scope, for each sentence, by someone who knows the reference.

It says how much selection could gain on a corpus at most (table 1 of the paper), and how often no context at all would
have been best. All subsets of a sentence's candidates are rows of the same batches. Every fixed way of selecting is one
of the subsets, so what it would have had is read off the same table of values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer
from dynctx.config import DecodingConfig
from dynctx.corpus import Ints
from dynctx.decoding import translate_pairs
from dynctx.errors import DynctxError
from dynctx.evaluation.bleu import corpus_bleu, sentence_bleus
from dynctx.evaluation.split import Split
from dynctx.scoring import Bools, Floats, score
from dynctx.selection.strategies import Selector
from dynctx.translators.sentence import SentNmt

Criterion = Literal["reward", "bleu", "value"]  # value: what somebody else's translator makes of it
UNITS = {"reward": ("mean reward", 4), "bleu": ("mean sentence BLEU", 2), "value": ("mean value", 4)}  # and digits
LARGEST_SCOPE = 10  # 1,024 subsets of each sentence
TRYING = "trying subsets"  # what it says while it does
SAME = 1e-5  # values nearer to each other than this share of them differ by rounding alone


def all_subsets(scope: int) -> Bools:
    """[2 ** scope, scope] every subset: the small ones first, among those the nearest sentences first.

    In this order the first of several equally good subsets is the one that asks for least.
    """
    if scope > LARGEST_SCOPE:
        raise DynctxError(f"the oracle tries 2 ** {scope} subsets of a scope of {scope}; {LARGEST_SCOPE} is the most")
    chosen = [subset for size in range(scope + 1) for subset in combinations(range(scope), size)]
    found = np.zeros((len(chosen), scope), np.bool_)
    for row, subset in enumerate(chosen):
        found[row, list(subset)] = True
    return found


@dataclass(frozen=True)
class Values:
    """What each subset is worth to each sentence."""

    criterion: Criterion
    sentences: Ints  # [n]
    candidates: Ints  # [n] how many candidates each has
    subsets: Bools  # [m, scope]
    values: Floats  # [n, m], -inf where a subset holds a candidate that does not exist
    texts: list[list[str | None]]  # [n][m] the translations, where the criterion needs them

    @property
    def best(self) -> Ints:
        """[n] the best subset of each sentence; of equal ones the smallest, then the nearest."""
        return first_best(self.values)

    def column(self, selection: Bools) -> Ints:
        """[n] the subset that each row of a selection [n, scope] is, candidates that do not exist left out."""
        scope = self.subsets.shape[1]
        exists = np.arange(scope) < self.candidates[:, None]
        bits = 2 ** np.arange(scope)
        place = np.zeros(len(self.subsets), np.int64)
        place[self.subsets @ bits] = np.arange(len(self.subsets))
        return place[(selection & exists) @ bits]


def first_best(values: Floats) -> Ints:
    """[n, m] -> [n] the first value of each row that is as good as the best."""
    return as_good(values, values.max(axis=1, keepdims=True)).argmax(axis=1)


def as_good(values: Floats, best: Floats) -> Bools:
    return values >= best - SAME * np.abs(best)


def value_of_subsets(
    split: Split,
    sentences: Ints,
    criterion: Criterion = "reward",
    decoding: DecodingConfig | None = None,
    progress: Callable[[int], None] | None = None,
) -> Values:
    """Try every subset on every one of these sentences."""
    gatherer, model = split.gatherer, split.model
    subsets = all_subsets(gatherer.scope)
    candidates = gatherer.candidates(sentences)
    number, column = _possible(candidates, subsets)
    values = np.full((len(sentences), len(subsets)), -np.inf)
    texts: list[list[str | None]] = []
    if criterion == "reward":
        values[number, column] = _rewards(model.translator, gatherer, sentences[number], subsets[column], progress)
    else:
        settings = decoding or model.config.decoding
        found = _translations(split, sentences[number], subsets[column], settings, progress)
        references = [split.references[sentence] for sentence in sentences[number]]
        values[number, column] = sentence_bleus(found, references, language=split.language)
        texts = [[None] * len(subsets) for _ in sentences]
        for n, m, text in zip(number.tolist(), column.tolist(), found):
            texts[n][m] = text
    return Values(criterion, sentences, candidates, subsets, values, texts)


def known_values(split: Split, sentences: Ints, table: Floats) -> Values:
    """From a table [sentences of the split, 2 ** scope] of values by the bits of each subset, nan where not asked."""
    subsets, sentences = all_subsets(split.gatherer.scope), sentences[~np.isnan(table[sentences, 0])]
    if not len(sentences):
        raise DynctxError("there is a value for no sentence of the test set")
    candidates = split.gatherer.candidates(sentences)
    number, column = _possible(candidates, subsets)
    values = np.full((len(sentences), len(subsets)), -np.inf)
    bits = subsets @ 2 ** np.arange(subsets.shape[1])
    values[number, column] = table[sentences[number], bits[column]]
    return Values("value", sentences, candidates, subsets, values, [])


def tries(gatherer: Gatherer, sentences: Ints) -> int:
    """How many pairs of a sentence and a subset there are: what progress is counted in."""
    return int((2 ** gatherer.candidates(sentences)).sum())


def _possible(candidates: Ints, subsets: Bools) -> tuple[Ints, Ints]:
    """The pairs of a sentence with so many candidates [n] and a subset of candidates that all exist."""
    reach = np.array([int(np.flatnonzero(row).max()) + 1 if row.any() else 0 for row in subsets])  # [m]
    number, column = np.nonzero(reach[None] <= candidates[:, None])
    return number, column


def _rewards(
    model: SentNmt,
    gatherer: Gatherer,
    sentences: Ints,
    selection: Bools,
    progress: Callable[[int], None] | None = None,
) -> Floats:
    """In full precision on every device: the best of 64 values is also the luckiest, and rounding would be luck."""
    with torch.autocast(gatherer.device.type, enabled=False):
        found = score(model, gatherer, sentences, selection, rewards=True, progress=progress).reward
    assert found is not None
    return found


def _translations(
    split: Split,
    sentences: Ints,
    selection: Bools,
    decoding: DecodingConfig,
    progress: Callable[[int], None] | None,
) -> list[str]:
    """Translations of repeated sentences, each under its own row of the selection."""
    found = translate_pairs(split.model.translator, split.gatherer, sentences, selection, decoding, progress)
    return split.model.target.decode([hypothesis.ids for hypothesis in found])


@dataclass(frozen=True)
class Way:
    """A way of selecting and what it comes to."""

    name: str
    value: float  # the mean reward, or the mean sentence BLEU
    corpus_bleu: float | None
    gain: float  # of the oracle over it
    size: float  # sentences selected on average

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class OracleReport:
    criterion: Criterion
    sentences: int
    ways: list[Way]
    empty_best: float  # share of sentences to which no subset is worth more than the empty one
    agreement: float  # share of sentences whose own selection is as good as the oracle's
    choice: float  # what own selections are worth beyond the same ones dealt at random
    choice_p: float  # share of such deals that are worth as much

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "ways": [way.to_json() for way in self.ways]}

    def to_text(self) -> str:
        from dynctx.evaluation.evaluate import table

        unit, digits = UNITS[self.criterion]
        rows = [("selection", unit, "oracle gains", "corpus BLEU", "sentences")]
        for way in self.ways:
            bleu = "-" if way.corpus_bleu is None else f"{way.corpus_bleu:.2f}"
            rows.append((way.name, f"{way.value:.{digits}f}", f"{way.gain:+.{digits}f}", bleu, f"{way.size:.2f}"))
        return (
            f"{self.sentences:,} sentences\n{table(rows, '<>>>>')}\n"
            f"the empty set is best for {100 * self.empty_best:.1f} % of them; "
            f"the model's own selection is as good as the oracle's for {100 * self.agreement:.1f} %\n"
            f"that each sentence has its own selection, not one dealt at random, is worth {self.choice:+.{digits}f} "
            f"(p = {self.choice_p:.3f})"
        )


def report(split: Split, found: Values, own: Selector, fixed_sizes: Sequence[int] = (1, 2)) -> OracleReport:
    """The oracle beside none, the previous n, full and the selector's own choice."""
    count, best = len(found.sentences), found.best
    scope = found.subsets.shape[1]
    sizes = found.subsets.sum(axis=1)
    rows = np.arange(count)
    everything = np.ones((count, scope), np.bool_)
    chosen = split.select(own)[found.sentences]
    mine = found.values[rows, found.column(chosen)]
    dealt, choice_p = deal(found, chosen)
    ways: dict[str, Ints] = {"none": np.zeros(count, np.int64)}
    for n in range(1, scope):
        ways[f"previous {n}"] = found.column(everything & (np.arange(scope) < n))
    if scope:
        ways["full"] = found.column(everything)
        ways[f"own ({own.name})"] = found.column(chosen)
        for n in (size for size in fixed_sizes if size < scope):  # row 3 of table 1; fewer where fewer exist
            fitting = np.where(sizes == np.minimum(found.candidates, n)[:, None], found.values, -np.inf)
            ways[f"oracle of size {n}"] = first_best(fitting)
    ways["oracle"] = best
    top = float(found.values[rows, best].mean())
    lines = []
    for name, columns in ways.items():
        value = float(found.values[rows, columns].mean())
        lines.append(Way(name, value, _corpus_bleu(split, found, columns), top - value, float(sizes[columns].mean())))
        if name.startswith("own"):
            lines.append(Way("own, dealt at random", dealt, None, top - dealt, lines[-1].size))
    agreement = float(as_good(mine, found.values[rows, best]).mean())
    choice = float(mine.mean()) - dealt
    return OracleReport(found.criterion, count, lines, float((best == 0).mean()), agreement, choice, choice_p)


def deal(found: Values, chosen: Bools, deals: int = 1000, seed: int = 1) -> tuple[float, float]:
    """What these selections [n, scope] come to when they are dealt at random among the sentences that have as many
    candidates: the mean over all deals, and the share of some deals that come to as much as the selections as they are.

    A selector that knows how many sentences to select, and how near, but not for whom, loses nothing by it.
    """
    column, rng = found.column(chosen), np.random.default_rng(seed)
    groups = [np.flatnonzero(found.candidates == size) for size in np.unique(found.candidates)]
    expected = 0.0  # in the mean over all deals each sentence has every selection of its group as often as it occurs
    for group in groups:
        which, often = np.unique(column[group], return_counts=True)
        expected += float((found.values[np.ix_(group, which)] @ often).sum()) / len(group)
    own = found.values[np.arange(len(column)), column].sum()
    reached = 1  # the selections as they are
    for _ in range(deals):
        total = sum(found.values[group, rng.permutation(column[group])].sum() for group in groups)
        reached += int(total >= own - 1e-9 * abs(own))  # sums of the same values in another order are equal
    return expected / max(1, len(column)), reached / (deals + 1)


def _corpus_bleu(split: Split, found: Values, columns: Ints) -> float | None:
    if not found.texts:
        return None
    lines = [found.texts[row][column] or "" for row, column in enumerate(columns)]
    references = [split.references[sentence] for sentence in found.sentences]
    return corpus_bleu(lines, [references], language=split.language).value


class Oracle:
    """The selector that knows: for each sentence the subset with the highest reward. Needs references in the store."""

    name = "oracle"

    def __init__(self, model: SentNmt, progress: Callable[[int], None] | None = None) -> None:
        self.model, self.progress = model, progress
        self.subsets = all_subsets(model.scope)

    def select(self, batch: Batch, draw: int = 0) -> Tensor:
        gatherer, sentences = batch.origin, batch.numbers
        if int(gatherer.lengths_of(sentences)[1].max()) == 1:
            raise DynctxError("the oracle selects by the reference, and this text has none")
        candidates = gatherer.candidates(sentences)
        number, column = _possible(candidates, self.subsets)
        values = np.full((len(sentences), len(self.subsets)), -np.inf)
        values[number, column] = _rewards(self.model, gatherer, sentences[number], self.subsets[column], self.progress)
        return torch.from_numpy(self.subsets[first_best(values)]).to(batch.sentences.device)
