"""Sheets for annotators of empty context, in the three steps of the paper's appendix.

    step 1  the source alone: translate it
    step 2  the reference beside your translation: is yours appropriate?
    step 3  the six sentences before with their references: would you now change yours?

A sentence is "empty" where the answers are yes and no. Each step is a table of tab-separated columns with an empty last
column to fill in. A step's sheet is written once the one before is filled, so that nobody sees the reference or the
context too early; rows are in random order, so that no row is context of the next. Both annotators get the same
sentences: `sample.json` remembers them, and what they were drawn from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dynctx.errors import DynctxError, at
from dynctx.evaluation.empty_context import Annotation
from dynctx.evaluation.split import Pairs
from dynctx.files import atomic_write, read_lines

ANSWERS = {"yes": True, "no": False}
FILL = ("translation", "appropriate", "needs change")  # the last column of each step
SAMPLE = "sample.json"


@dataclass(frozen=True)
class Sample:
    """The sentences to annotate, by their place: document id and number in it, from 1."""

    places: list[tuple[str, int]]
    scope: int
    # what it was drawn from: the name of the split, a digest of its text, how many were asked for, the seed; a file
    # of an earlier version does not say
    split: str | None = None
    text: str | None = None
    sentences: int | None = None
    seed: int | None = None

    def save(self, folder: Path) -> None:
        with atomic_write(folder / SAMPLE) as file:
            json.dump(asdict(self), file, ensure_ascii=False, indent=1)

    def check(
        self, folder: Path, split: str, pairs: Pairs, sentences: int | None, scope: int | None, seed: int | None
    ) -> None:
        """Refuse to write sheets of anything else than this sample; None: not asked for."""
        where = at(folder / SAMPLE)
        if self.split not in (None, split):
            raise DynctxError(f"{where}: the sheets here are of {self.split!r}, not of {split!r}; use another folder")
        if self.text not in (None, digest(pairs)):
            raise DynctxError(f"{where}: the sheets here are of another text named {split!r}; use another folder")
        for name, wanted, drawn in (
            ("sentences", sentences, self.sentences),
            ("scope", scope, self.scope),
            ("seed", seed, self.seed),
        ):
            if wanted is not None and drawn not in (None, wanted):
                raise DynctxError(
                    f"{where}: the sheets here were drawn with --{name} {drawn}, not {wanted}; use another folder"
                )


def digest(pairs: Pairs) -> str:
    content = [(source.id, source.sentences, target.sentences) for source, target in pairs]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def load_sample(folder: Path) -> Sample | None:
    path = folder / SAMPLE
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        places = [(str(document), int(number)) for document, number in content.pop("places")]
        return Sample(places, int(content.pop("scope")), **content)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise DynctxError(f"{at(path)}: damaged; remove it and the sheets to begin anew") from None


def draw(pairs: Pairs, count: int, scope: int, seed: int, split: str | None = None) -> Sample:
    """`count` sentences that have all `scope` sentences before them, in random order."""
    if count < 1 or scope < 1:
        raise DynctxError(f"{count} sentences with {scope} of context: both must be at least 1")
    places = [
        (source.id, number)
        for source, target in pairs
        for number in range(scope + 1, len(source.sentences) + 1)
        if source.sentences[number - 1].strip() and target.sentences[number - 1].strip()
    ]
    if not places:
        raise DynctxError(f"no document has a sentence with {scope} before it")
    drawn = np.random.default_rng(seed).permutation(len(places))[:count]
    return Sample([places[i] for i in drawn], scope, split, digest(pairs), count, seed)


def write_next(folder: Path, annotator: str, pairs: Pairs, sample: Sample) -> tuple[Path, int]:
    """Write the sheet of the next step; returns it and the step, or the last sheet and 4 when all are filled."""
    if not annotator.replace("-", "").replace("_", "").isalnum():
        raise DynctxError(f"annotator {annotator!r}: use letters, digits, - and _ (it becomes a file name)")
    texts = Texts(pairs)
    filled: list[list[str]] = []
    for step in (1, 2, 3):
        path = sheet(folder, annotator, step)
        if not path.exists():
            write_sheet(path, [header(step, sample.scope), *rows(step, sample, texts, filled)])
            return path, step
        filled.append(read_sheet(path, step, sample))
    return path, 4


def sheet(folder: Path, annotator: str, step: int) -> Path:
    return folder / f"{annotator}.step{step}.tsv"


class Texts:
    """Sentences by document id and number."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = {source.id: (source, target) for source, target in pairs}

    def of(self, place: tuple[str, int], back: int = 0) -> tuple[str, str]:
        """Source and reference, `back` sentences before the place."""
        document, number = place
        if document not in self.pairs or number > len(self.pairs[document][0].sentences):
            raise DynctxError(f"document {document!r}, sentence {number}: in {SAMPLE}, but not in this test set")
        source, target = self.pairs[document]
        return source.sentences[number - 1 - back], target.sentences[number - 1 - back]


def header(step: int, scope: int) -> list[str]:
    columns = ["number", "source"]
    if step > 1:
        columns += ["translation", "reference"]
    if step == 3:
        for back in range(scope, 0, -1):
            columns += [f"source {back} before", f"reference {back} before"]
    return [*columns, FILL[step - 1]]


def rows(step: int, sample: Sample, texts: Texts, filled: list[list[str]]) -> list[list[str]]:
    found = []
    for number, place in enumerate(sample.places):
        source, reference = texts.of(place)
        row = [str(number + 1), source]
        if step > 1:
            row += [filled[0][number], reference]
        if step == 3:
            for back in range(sample.scope, 0, -1):
                row += texts.of(place, back)
        found.append([*row, ""])
    return found


def write_sheet(path: Path, lines: list[list[str]]) -> None:
    with atomic_write(path) as file:
        for cells in lines:
            file.write("\t".join(" ".join(cell.split()) for cell in cells) + "\n")


def read_sheet(path: Path, step: int, sample: Sample) -> list[str]:
    """The column that was filled in, in the order of the sample; every row must have an answer."""
    lines = [line.split("\t") for line in read_lines(path)]
    columns = header(step, sample.scope)
    if not lines or [cell.strip() for cell in lines[0]] != columns:
        raise DynctxError(f"{at(path, 1)}: the first line should name the columns: {', '.join(columns)}")
    answers: dict[int, str] = {}
    for line, cells in enumerate(lines[1:], 2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(columns):
            raise DynctxError(f"{at(path, line)}: {len(cells)} columns, expected {len(columns)}")
        number, answer = cells[0].strip(), cells[-1].strip()
        if not number.isdecimal() or not 1 <= int(number) <= len(sample.places):
            raise DynctxError(f"{at(path, line)}: {number!r} is no number of a sentence (1 to {len(sample.places)})")
        if int(number) in answers:
            raise DynctxError(f"{at(path, line)}: sentence {number} stands here a second time")
        if not answer:
            raise DynctxError(f"{at(path, line)}: {columns[-1]!r} of sentence {number} is not filled in yet")
        if step > 1 and answer.lower() not in ANSWERS:
            raise DynctxError(f"{at(path, line)}: {columns[-1]!r} is {answer!r}; answer yes or no")
        answers[int(number)] = answer
    missing = sorted(set(range(1, len(sample.places) + 1)) - answers.keys())
    if missing:
        raise DynctxError(f"{at(path)}: sentence {missing[0]} is missing ({len(missing)} in all)")
    return [answers[number] for number in range(1, len(sample.places) + 1)]


def read_back(folder: Path, annotators: Sequence[str]) -> list[Annotation]:
    """All three sheets of each annotator, as annotations."""
    sample = load_sample(folder)
    if sample is None:
        raise DynctxError(f"{at(folder)}: no {SAMPLE} here; 'dynctx annotate write' makes it")
    labels: list[dict[str, bool]] = [{} for _ in sample.places]
    for annotator in annotators:
        read_sheet(sheet(folder, annotator, 1), 1, sample)
        appropriate = read_sheet(sheet(folder, annotator, 2), 2, sample)
        change = read_sheet(sheet(folder, annotator, 3), 3, sample)
        for entry, fit, changed in zip(labels, appropriate, change):
            entry[annotator] = ANSWERS[fit.lower()] and not ANSWERS[changed.lower()]
    return [Annotation(document, number, entry) for (document, number), entry in zip(sample.places, labels)]
