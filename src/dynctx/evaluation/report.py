"""Everything worth knowing about what a model selects, gathered once: the facts that the report page shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dynctx.config import DecodingConfig
from dynctx.corpus import Ints
from dynctx.decoding import batches_by_length
from dynctx.documents import Document
from dynctx.evaluation import oracle
from dynctx.evaluation.bleu import Score, main_scores, sentence_bleus
from dynctx.evaluation.context_use import Information, information
from dynctx.evaluation.split import Given, Split
from dynctx.pipeline import translate_documents
from dynctx.scoring import Bools, Floats
from dynctx.selection.strategies import Fixed, Judged, Previous, Selector

NONE, FULL = "none", "full"


@dataclass(frozen=True)
class Run:
    """The whole test set translated with one way of selecting."""

    name: str
    texts: list[str]
    scores: tuple[Score, ...]
    sentence_bleu: Floats  # [sentences]
    rewards: Floats  # [scorable sentences]
    sentences_per_second: float


@dataclass(frozen=True)
class Facts:
    split: Split
    selector: str
    selection: Bools  # [sentences, scope]
    probabilities: Floats | None  # [sentences, scope + 1], the last for none of them; where a scorer chose
    own: Run
    none: Run
    full: Run
    told: Information
    oracle: oracle.OracleReport | None  # None: the scope is too large to try all subsets
    device: str
    beam: int

    @property
    def filled(self) -> Ints:
        return self.split.filled

    @property
    def sizes(self) -> Ints:
        """[filled sentences] how many were selected."""
        return self.selection[self.filled].sum(axis=1)

    @property
    def candidates(self) -> Ints:
        """[filled sentences] how many there were to select from."""
        return self.split.gatherer.candidates(self.filled)

    @property
    def reaches(self) -> Ints:
        """[filled sentences] the greatest distance selected; 0 where nothing was."""
        chosen = self.selection[self.filled]
        scope = chosen.shape[1]
        return np.where(chosen, np.arange(1, scope + 1), 0).max(axis=1) if scope else np.zeros(len(chosen), np.int64)

    @property
    def places(self) -> Ints:
        """[filled sentences] the number of each in its document, from 1."""
        return self.filled - self.split.gatherer.firsts[self.filled] + 1


def gather(
    split: Split,
    selector: Selector,
    decoding: DecodingConfig,
    oracle_sentences: Ints,
    progress: Callable[[int], None] | None = None,
) -> Facts:
    """Select, translate three times, score the references and try the oracle, where all subsets can be tried."""
    model = split.model
    countable = split.gatherer.scope <= oracle.LARGEST_SCOPE
    probabilities, selection = _probabilities(split, selector), split.select(selector)
    few = Document("", tuple(split.sources[: decoding.batch_sentences]))
    usual = Previous(None) if isinstance(selector, Fixed) else selector  # what is fixed is so for the whole text
    translate_documents(model, [few], decoding, usual)  # the first batch is always slow
    runs = {}
    for name, chosen in ((NONE, Previous(0)), (FULL, Previous(None)), ("own", selector)):
        began = time.perf_counter()
        texts = split.translate(chosen, decoding, progress)  # selecting is part of the work
        seconds = time.perf_counter() - began
        given = selection if name == "own" else split.select(chosen)
        runs[name] = _run(split, chosen.name, texts, given, len(split.filled) / max(seconds, 1e-9))
    with_context = split.score(selection)
    without = split.score(np.zeros_like(selection))
    best = None
    if countable:
        values = oracle.value_of_subsets(split, oracle_sentences, "reward")
        best = oracle.report(split, values, Given(selection, selector.name))
    return Facts(
        split,
        selector.name,
        selection,
        probabilities,
        runs["own"],
        runs[NONE],
        runs[FULL],
        information(with_context, without),
        best,
        torch.cuda.get_device_name() if model.device.type == "cuda" else "CPU",
        decoding.beam,
    )


def _run(split: Split, name: str, texts: list[str], selection: Bools, speed: float) -> Run:
    language = split.language
    scores = main_scores(texts, [split.references], split.sizes, language=language)
    rewards = split.score(selection, rewards=True).reward
    assert rewards is not None
    per_sentence = np.array(sentence_bleus(texts, split.references, language=language))
    return Run(name, texts, scores, per_sentence, rewards, speed)


@torch.inference_mode()
def _probabilities(split: Split, selector: Selector) -> Floats | None:
    if not isinstance(selector, Judged) or not split.gatherer.scope:
        return None
    found = np.zeros((len(split), split.gatherer.scope + 1))
    lengths = split.gatherer.lengths_of(split.filled)
    for rows in batches_by_length(lengths[0] + lengths[2], 256):
        sentences = split.filled[rows]
        found[sentences] = selector.probabilities(split.gatherer.bare(sentences)).float().cpu().numpy()
    return found


def rank_correlation(x: Floats, y: Floats) -> float | None:
    """Spearman's: the correlation of ranks, equal values sharing their mean rank. None where one side is constant."""
    if len(x) < 2:
        return None
    ranks = [_ranks(values) for values in (x, y)]
    spread = [float(rank.std()) for rank in ranks]
    if not all(spread):
        return None
    return float(((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())).mean() / (spread[0] * spread[1]))


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + 1 + last) / 2)[inverse]


def write(facts: Facts, model: str, split: str, output: Path, examples: int = 8) -> None:
    """The page, and its figures beside it in NAME.figures/."""
    from dynctx.evaluation import report_figures, report_page
    from dynctx.files import atomic_write

    figures = report_figures.draw_all(facts)
    folder = output.with_name(f"{output.stem}.figures")
    for figure in figures:
        with atomic_write(folder / f"{figure.name}.svg", "wb") as file:
            file.write(figure.svg.encode("utf-8"))
        with atomic_write(folder / f"{figure.name}.png", "wb") as file:
            file.write(figure.png)
    with atomic_write(output) as page:
        page.write(report_page.page(facts, figures, model, split, examples))
