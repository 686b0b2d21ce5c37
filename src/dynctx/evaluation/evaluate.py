"""Score a translation: files in, a `Report` out.

The first reference says where documents begin and end. Every other file has the same borders, or none at all
and one line for each sentence: other systems know nothing of documents and write just that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import compress, islice
from typing import Any

from dynctx.documents import HEAD_LINES, TextFile, detect_format, read_documents, read_parallel, text_file
from dynctx.errors import DynctxError
from dynctx.evaluation import bleu
from dynctx.evaluation.bleu import Score
from dynctx.evaluation.significance import DEFAULT_SAMPLES, DEFAULT_SEED, Comparison, paired_bootstrap
from dynctx.files import StrPath, display_name, read_lines


@dataclass(frozen=True)
class SeenLines:
    """How many lines of the test set also occur in the training text."""

    count: int
    of: int
    left_out: bool
    by: str  # sources or references: which of them were looked for

    def __str__(self) -> str:
        if self.left_out:
            return f"left out {self.count:,} of {self.of:,} lines whose {self.by} also occur in train"
        return f"{self.count:,} of {self.of:,} {self.by} also occur in train, and are scored all the same"


@dataclass(frozen=True)
class Report:
    """What `dynctx evaluate` has to say. `documents` and `sentences` are those scored."""

    hypothesis: str
    references: tuple[str, ...]
    language: str
    documents: int
    sentences: int
    empty: int
    length_ratio: float
    seen: SeenLines | None
    scores: tuple[Score, ...]
    absent: dict[str, str]  # the scores that could not be made, and why
    against: str | None
    comparisons: tuple[Comparison, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts."""
        return {
            "hypothesis": self.hypothesis,
            "references": list(self.references),
            "language": self.language,
            "documents": self.documents,
            "sentences": self.sentences,
            "empty_translations": self.empty,
            "length_ratio": self.length_ratio,
            "seen_in_train": asdict(self.seen) if self.seen else None,
            "scores": [
                {"name": score.name, "value": score.value, "signature": score.signature} for score in self.scores
            ],
            "absent": dict(self.absent),
            "against": self._against_json(),
        }

    def _against_json(self) -> dict[str, Any] | None:
        if self.against is None:
            return None
        comparisons = [asdict(comparison) for comparison in self.comparisons]
        for comparison in comparisons:
            for interval in ("system_interval", "baseline_interval", "delta_interval"):
                comparison[interval] = list(comparison[interval])
        return {"baseline": self.against, "comparisons": comparisons}

    def to_text(self) -> str:
        """An aligned table for a terminal."""
        sections = [self._summary(), self._score_table()]
        if self.comparisons:
            sections.append(self._comparison_table())
        return "\n\n".join(sections) + "\n"

    def _summary(self) -> str:
        lines = [
            f"{_count(self.sentences, 'sentence')} in {_count(self.documents, 'document')}, "
            f"length ratio {self.length_ratio:.3f}"
        ]
        if self.empty:
            lines.append(_count(self.empty, "empty translation"))
        if self.seen:
            lines.append(str(self.seen))
        return "\n".join(lines)

    def _score_table(self) -> str:
        rows = [(score.name, f"{score.value:.2f}", score.signature) for score in self.scores]
        rows += [(name, "-", reason) for name, reason in self.absent.items()]
        return table(rows, "<><")

    def _comparison_table(self) -> str:
        rows = [("", "system", "baseline", "delta", "95 % interval", "p")]
        for each in self.comparisons:
            low, high = each.delta_interval
            rows.append(
                (
                    each.name,
                    f"{each.system:.2f}",
                    f"{each.baseline:.2f}",
                    f"{each.delta:+.2f}",
                    f"[{low:+.2f}, {high:+.2f}]",
                    f"{each.p_value:.3f}",
                )
            )
        first = self.comparisons[0]
        return (
            f"against {self.against} (paired bootstrap, {first.samples:,} resamples, seed {first.seed})\n"
            f"{table(rows, '<>>>>>')}"
        )


def evaluate(
    hypothesis: TextFile | StrPath,
    references: Sequence[TextFile | StrPath],
    *,
    language: str,
    sources: TextFile | StrPath | None = None,
    against: TextFile | StrPath | None = None,
    train: Sequence[TextFile | StrPath] = (),
    leave_out_seen: bool = False,
    samples: int = DEFAULT_SAMPLES,
    seed: int = DEFAULT_SEED,
) -> Report:
    """Score `hypothesis`, and compare it with the translation `against` if there is one.

    A line counts as seen in training when its source stands in a `train` file, spaces aside; without
    `sources` the references are looked for instead, and `train` should be of the target language.
    """
    if not references:
        raise DynctxError("evaluate: no reference translation given; name at least one file")
    if leave_out_seen and not train:
        raise DynctxError("evaluate: leaving out seen lines takes the training text; name it with --train")
    bleu.base_language(language)  # refuse what is no language before reading anything

    texts = _Texts.read(hypothesis, references, sources, against)
    seen = None
    keep = [True] * sum(texts.sizes)
    if train:
        unseen = _unseen(texts.looked_for, train)
        seen = SeenLines(
            unseen.count(False), len(unseen), leave_out_seen, "references" if sources is None else "sources"
        )
        if leave_out_seen:
            keep = unseen
            _check_some_left(keep, text_file(references[0]))
    texts = texts.only(keep)
    test_set = _TestSet(texts.references, texts.sizes, language)
    scores, absent = test_set.scores(texts.hypothesis)
    ter = bleu.corpus_ter(texts.hypothesis, texts.references, language=language)
    comparisons = [] if texts.baseline is None else test_set.compare(scores, texts.baseline, samples, seed)
    hypothesis_length, reference_length = scores[0].counts.sum(axis=0)[:2]  # in BLEU's tokens
    return Report(
        hypothesis=_name(text_file(hypothesis)),
        references=tuple(_name(text_file(file)) for file in references),
        language=language,
        documents=len(texts.sizes),
        sentences=sum(texts.sizes),
        empty=sum(not line for line in texts.hypothesis),
        length_ratio=float(hypothesis_length / reference_length) if reference_length else 0.0,
        seen=seen,
        scores=(*scores, ter),
        absent=absent,
        against=None if against is None else _name(text_file(against)),
        comparisons=tuple(comparisons),
    )


@dataclass(frozen=True)
class _Texts:
    """All that was read, line by line, in documents of these `sizes`."""

    sizes: list[int]
    references: list[list[str]]
    hypothesis: list[str]
    baseline: list[str] | None
    looked_for: list[list[str]]  # what may stand in the training text

    @classmethod
    def read(
        cls,
        hypothesis: TextFile | StrPath,
        references: Sequence[TextFile | StrPath],
        sources: TextFile | StrPath | None,
        against: TextFile | StrPath | None,
    ) -> _Texts:
        model = text_file(references[0])
        documents = [document.sentences for document in read_documents(model)]
        sizes = [len(sentences) for sentences in documents]

        def lines(file: TextFile | StrPath) -> list[str]:
            return read_aligned(text_file(file), model, sizes)

        first = [sentence for sentences in documents for sentence in sentences]
        versions = [first, *map(lines, references[1:])]
        return cls(
            sizes,
            references=versions,
            hypothesis=lines(hypothesis),
            baseline=None if against is None else lines(against),
            looked_for=versions if sources is None else [lines(sources)],
        )

    def only(self, keep: list[bool]) -> _Texts:
        def kept(lines: list[str]) -> list[str]:
            return list(compress(lines, keep))

        return _Texts(
            _kept(self.sizes, keep),
            references=list(map(kept, self.references)),
            hypothesis=kept(self.hypothesis),
            baseline=None if self.baseline is None else kept(self.baseline),
            looked_for=list(map(kept, self.looked_for)),
        )


@dataclass(frozen=True)
class _TestSet:
    """The references, as lines; the documents are the next `sizes[0]` lines, the next `sizes[1]`, ..."""

    references: list[list[str]]
    sizes: list[int]
    language: str

    def scores(self, hypotheses: list[str]) -> tuple[list[Score], dict[str, str]]:
        """The scores that systems are compared by, BLEU first, and why others could not be made."""
        first, chrf, document = bleu.main_scores(hypotheses, self.references, self.sizes, language=self.language)
        scores, absent = [first, document, chrf], {}
        try:
            scores.append(bleu.tokenised_bleu(hypotheses, self.references, language=self.language))
        except bleu.MissingTokenizer as missing:
            absent["tokenised BLEU"] = str(missing)
        return scores, absent

    def compare(self, scores: list[Score], baseline: list[str], samples: int, seed: int) -> list[Comparison]:
        """A system's `scores` against those of the `baseline` translation."""
        return [
            paired_bootstrap(score, other, samples=samples, seed=seed)
            for score, other in zip(scores, self.scores(baseline)[0])
        ]


def read_aligned(file: TextFile, model: TextFile, sizes: list[int]) -> list[str]:
    """The sentences of `file`, which has documents of these `sizes` as `model` has, or no borders."""
    documents = [document.sentences for document in read_documents(file)]
    found = [len(sentences) for sentences in documents]
    sentences = [sentence for sentences in documents for sentence in sentences]
    if found == sizes or (len(found) == 1 and len(sentences) == sum(sizes)):
        return sentences
    plain = _is_plain(file)
    # Blank lines may be empty translations in a file without borders: then each line is a sentence. Where
    # there are just as many blocks as documents they are borders, and equal counts an accident.
    if plain and (len(found) == 1 or len(found) != len(sizes)):
        lines = [line.strip() for line in read_lines(file.path)]
        if len(lines) == sum(sizes):
            return lines
    message = (
        f"{_name(file)} ({_count(sum(found), 'sentence')} in {_count(len(found), 'document')}) does not "
        f"match {_name(model)} ({_count(sum(sizes), 'sentence')} in {_count(len(sizes), 'document')})"
    )
    if "-" in (file.path, model.path):  # standard input cannot be read again to say where
        message += "; the two need the same documents, with one sentence for each sentence"
    else:
        try:
            for _ in read_parallel(model, file):
                pass
        except DynctxError as where:
            message += f": {where}"
    if plain and len(found) > len(sizes):
        message += "; an empty translation in plain text reads as a border: write .jsonl, or no borders at all"
    raise DynctxError(message)


def _unseen(looked_for: list[list[str]], train: Sequence[TextFile | StrPath]) -> list[bool]:
    """For each line of the test set, whether none of its versions stands in the training files.

    Training text is large and the test set small: only lines of the latter are held.
    """
    versions = [{_normalised(line) for line in lines} - {""} for lines in zip(*looked_for)]
    wanted = set().union(*versions)
    met = {
        line for file in train for sentence in _sentences(text_file(file)) if (line := _normalised(sentence)) in wanted
    }
    return [not lines & met for lines in versions]


def _check_some_left(keep: list[bool], model: TextFile) -> None:
    if not any(keep):
        raise DynctxError(
            f"{_name(model)}: all {len(keep):,} lines also occur in train, nothing is left to score; "
            "check that train does not name the test set"
        )


def _sentences(file: TextFile) -> Iterator[str]:
    """The sentences of a training file. Borders do not matter here, and without them all is one document."""
    if _is_plain(file):
        return read_lines(file.path)
    return (sentence for document in read_documents(file) for sentence in document.sentences)


def _is_plain(file: TextFile) -> bool:
    """Whether the file holds one sentence a line and nothing else, unless blank lines mark documents."""
    if file.path == "-" or file.docids is not None:
        return False
    if file.format == "auto":
        return detect_format(file.path, list(islice(read_lines(file.path), HEAD_LINES))) == "blank"
    return file.format == "blank"


def _kept(sizes: list[int], keep: list[bool]) -> list[int]:
    """The sizes of the documents after the lines not kept are gone; documents with no line left go too."""
    kept = iter(keep)
    return [count for size in sizes if (count := sum(islice(kept, size)))]


def _normalised(line: str) -> str:
    return " ".join(line.split())


def _name(file: TextFile) -> str:
    return display_name(file.path)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def table(rows: Sequence[Sequence[str]], alignment: str) -> str:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, alignment, widths)).rstrip() for row in rows
    )
