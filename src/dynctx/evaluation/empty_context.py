"""Was context needed at all? Predictions of "no context" against people, or against the likelihood of the reference.

A sentence is *empty* if it can be translated well without any context (section 5.3 of the paper and its appendix).
Two annotators say so independently; a sentence is empty where both do. The automatic label needs no people: context
was needed where some of it makes the reference likelier by more than a margin.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynctx.errors import DynctxError, at
from dynctx.evaluation.bleu import corpus_bleu
from dynctx.evaluation.split import Split
from dynctx.files import StrPath, read_lines
from dynctx.scoring import Bools

MARGIN = 1.0  # nats: e times as likely


@dataclass(frozen=True)
class Prediction:
    """Predicted empty (rows) against truly empty (columns): table 5 and its counts in the appendix."""

    both: int  # predicted empty, and empty
    wrongly_empty: int
    missed: int
    neither: int

    @property
    def precision(self) -> float:
        return _share(self.both, self.both + self.wrongly_empty)

    @property
    def recall(self) -> float:
        return _share(self.both, self.both + self.missed)

    @property
    def f1(self) -> float:
        return _share(2 * self.both, 2 * self.both + self.wrongly_empty + self.missed)

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "precision": self.precision, "recall": self.recall, "f1": self.f1}


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def against(predicted: Sequence[bool] | Bools, truth: Sequence[bool] | Bools) -> Prediction:
    """Count; True is empty."""
    p, t = np.asarray(predicted, np.bool_), np.asarray(truth, np.bool_)
    if len(p) != len(t):
        raise ValueError(f"{len(p)} predictions for {len(t)} sentences")
    return Prediction(int((p & t).sum()), int((p & ~t).sum()), int((~p & t).sum()), int((~p & ~t).sum()))


def kappa(first: Sequence[bool], second: Sequence[bool]) -> float:
    """Cohen's kappa: agreement beyond what two such annotators would have by chance.

    1 where both give one and the same answer throughout, since then nothing can be told from chance.
    """
    counts = against(first, second)
    total = len(first)
    if not total:
        raise DynctxError("kappa: no sentence was annotated by both")
    observed = (counts.both + counts.neither) / total
    a, b = sum(first) / total, sum(second) / total
    by_chance = a * b + (1 - a) * (1 - b)
    return 1.0 if by_chance == 1 else (observed - by_chance) / (1 - by_chance)


@dataclass(frozen=True)
class Annotation:
    """What annotators said of one sentence: True is empty."""

    document: str
    sentence: int  # in the document, from 1
    labels: dict[str, bool]  # by annotator

    @property
    def empty(self) -> bool:
        """Where all of them agree that it is."""
        return all(self.labels.values())

    def to_line(self) -> str:
        record = {"document": self.document, "sentence": self.sentence, "labels": self.labels, "empty": self.empty}
        return json.dumps(record, ensure_ascii=False)


def read_annotations(path: StrPath) -> list[Annotation]:
    found = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            labels = {str(name): value for name, value in record["labels"].items()}
            entry = Annotation(str(record["document"]), int(record["sentence"]), labels)
        except (ValueError, TypeError, KeyError, AttributeError):
            labels = {}
        if not labels or not all(isinstance(value, bool) for value in labels.values()):
            raise DynctxError(
                f"{at(path, number)}: expected an object with document, sentence and labels (annotator: true/false)"
            )
        found.append(entry)
    if not found:
        raise DynctxError(f"{at(path)}: no annotation in it")
    return found


def agreement(annotations: Sequence[Annotation]) -> tuple[tuple[str, str], Prediction, float]:
    """The two annotators, how often they agree, and kappa."""
    names = list(dict.fromkeys(name for entry in annotations for name in entry.labels))
    if len(names) != 2:
        raise DynctxError(f"agreement is that of two annotators; the file has {len(names)}: {', '.join(names)}")
    a, b = names
    pairs = [(e.labels[a], e.labels[b]) for e in annotations if a in e.labels and b in e.labels]
    first, second = [x for x, _ in pairs], [y for _, y in pairs]
    return (a, b), against(first, second), kappa(first, second)


def find(split: Split, annotations: Sequence[Annotation]) -> dict[int, bool]:
    """The sentences of a split that were annotated: number -> empty."""
    places = {split.place(sentence): sentence for sentence in range(len(split))}
    found = {}
    for entry in annotations:
        key = (entry.document, entry.sentence)
        if key not in places:
            raise DynctxError(f"annotation of document {entry.document!r}, sentence {entry.sentence}: not in this set")
        found[places[key]] = entry.empty
    return found


def automatic(split: Split, margin: float = MARGIN) -> dict[int, bool]:
    """Every sentence that can be scored -> empty: no candidate alone, nor all together, helps by more than `margin`.

    Not the best of all subsets: the more contexts are tried, the more often one helps by chance.
    """
    scope, sentences = split.gatherer.scope, split.scorable
    none = split.score(np.zeros((len(sentences), scope), np.bool_), sentences).log_probability
    best = np.full(len(sentences), -np.inf)
    candidates = split.gatherer.candidates(sentences)
    tries = [np.arange(scope) == place for place in range(scope)] + [np.ones(scope, np.bool_)]
    for tried in tries if scope else []:
        rows = np.flatnonzero(candidates > (int(tried.argmax()) if tried.sum() == 1 else 0))
        if len(rows):
            given = np.broadcast_to(tried, (len(rows), scope))
            best[rows] = np.maximum(best[rows], split.score(given, sentences[rows]).log_probability)
    return dict(zip(sentences.tolist(), (best <= none + margin).tolist()))


@dataclass(frozen=True)
class EmptyReport:
    truth: str  # where it comes from
    sentences: int
    empty: int
    prediction: Prediction
    alone: int  # predicted empty because there is no candidate
    bleu: dict[str, tuple[float | None, float | None]]  # selector -> BLEU on the empty and on the other sentences

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "prediction": self.prediction.to_json()}

    def to_text(self) -> str:
        from dynctx.evaluation.evaluate import table

        p = self.prediction
        lines = [
            f"{self.sentences:,} sentences, {self.empty:,} of them need no context ({self.truth})",
            f"predicted empty: precision {100 * p.precision:.2f}, recall {100 * p.recall:.2f}, F1 {100 * p.f1:.2f}",
            f"of those predicted empty {self.alone:,} have no candidates (the first of a document)",
            "",
        ]
        rows = [["BLEU", "empty", "nonempty"]]
        rows += [[name, *("-" if v is None else f"{v:.2f}" for v in values)] for name, values in self.bleu.items()]
        return "\n".join(lines) + table(rows, "<>>")


def report(
    split: Split, truth: dict[int, bool], where: str, predicted: Bools, texts: dict[str, list[str]]
) -> EmptyReport:
    """predicted [sentences]: nothing selected. texts: translations by selector, of these at least."""
    sentences = sorted(truth)
    empty = [truth[sentence] for sentence in sentences]
    parts = [[s for s in sentences if truth[s]], [s for s in sentences if not truth[s]]]

    def bleu(lines: list[str], part: list[int]) -> float | None:
        if not part:
            return None
        references = [split.references[s] for s in part]
        return corpus_bleu([lines[s] for s in part], [references], language=split.language).value

    scores = {name: (bleu(lines, parts[0]), bleu(lines, parts[1])) for name, lines in texts.items()}
    first = split.gatherer.firsts[sentences] == sentences
    alone = int((first & predicted[sentences]).sum())
    return EmptyReport(where, len(sentences), sum(empty), against(predicted[sentences], empty), alone, scores)
