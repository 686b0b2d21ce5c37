"""Several systems on one test set, side by side: scores, and whether the differences are more than chance.

A system is a file of translations or a model folder, which is asked to translate. Every system is compared with one
baseline by paired bootstrap on the same resamples.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.evaluation import bleu
from dynctx.evaluation.bleu import Score
from dynctx.evaluation.evaluate import table
from dynctx.evaluation.significance import DEFAULT_SAMPLES, DEFAULT_SEED, Comparison, paired_bootstrap

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class System:
    """A name and the translations, a line for each sentence."""

    name: str
    lines: list[str]


@dataclass(frozen=True)
class Row:
    system: str
    scores: tuple[Score, ...]
    against: tuple[Comparison, ...]  # empty for the baseline itself


@dataclass(frozen=True)
class Table:
    """Rows in the order the systems were given."""

    baseline: str
    sentences: int
    documents: int
    rows: list[Row]
    samples: int
    seed: int

    @property
    def names(self) -> list[str]:
        return [score.name for score in self.rows[0].scores]

    def cells(self, row: Row, mark: str) -> list[str]:
        """The scores of a row as text; `mark` follows a value that differs significantly from the baseline's."""
        found = []
        for place, score in enumerate(row.scores):
            text = f"{score.value:.2f}"
            if row.against:
                comparison = row.against[place]
                star = mark if comparison.p_value < SIGNIFICANT else ""
                text += f"{star} ({comparison.delta:+.2f})"
            found.append(text)
        return found

    def note(self, mark: str) -> str:
        return (
            f"{self.sentences:,} sentences in {self.documents:,} documents. In brackets the difference from "
            f"{self.baseline}; {mark} p < {SIGNIFICANT} (paired bootstrap, {self.samples:,} resamples, "
            f"seed {self.seed})."
        )

    def to_text(self) -> str:
        lines = [["system", *self.names], *([row.system, *self.cells(row, "*")] for row in self.rows)]
        return f"{table(lines, '<' + '>' * len(self.names))}\n{self.note('*')}\n{self.signatures()}"

    def signatures(self) -> str:
        return "\n".join(f"{score.name}: {score.signature}" for score in self.rows[0].scores)

    def to_markdown(self) -> str:
        lines = [["system", *self.names], ["---", *["---:"] * len(self.names)]]
        lines += [[_markdown(row.system), *self.cells(row, r"\*")] for row in self.rows]
        body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        signatures = "\n".join(f"* {score.name}: `{score.signature}`" for score in self.rows[0].scores)
        return f"{body}\n\n{self.note(chr(92) + '*')}\n\n{signatures}"

    def to_latex(self) -> str:
        """A tabular for the booktabs package."""
        lines = [" & ".join(["System", *map(_latex, self.names)]) + r" \\", r"\midrule"]
        lines += [" & ".join([_latex(row.system), *self.cells(row, r"$^{*}$")]) + r" \\" for row in self.rows]
        body = "\n".join(lines)
        columns = "l" + "r" * len(self.names)
        signatures = "\n".join(f"% {score.name}: {score.signature}" for score in self.rows[0].scores)
        note = f"% {self.note('*')}"
        return (
            f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n{note}\n{signatures}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "baseline": self.baseline,
            "sentences": self.sentences,
            "documents": self.documents,
            "systems": [
                {
                    "name": row.system,
                    "scores": {score.name: score.value for score in row.scores},
                    "against": [asdict(comparison) for comparison in row.against],
                }
                for row in self.rows
            ],
            "signatures": {score.name: score.signature for score in self.rows[0].scores},
        }

    def to(self, form: str) -> str:
        if form == "json":
            return json.dumps(self.to_json(), indent=1, ensure_ascii=False)
        forms = {"text": self.to_text, "markdown": self.to_markdown, "latex": self.to_latex}
        if form not in forms:
            raise DynctxError(f"format {form!r}: expected text, markdown, latex or json")
        return forms[form]()


def _markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("*", r"\*")


def _latex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c) or (f"\\{c}" if c in "&%$#_{}" else c) for c in text)


def compare(
    systems: Sequence[System],
    references: Sequence[Document],
    baseline: str,
    language: str,
    samples: int = DEFAULT_SAMPLES,
    seed: int = DEFAULT_SEED,
) -> Table:
    """Score each system, and each but the baseline against the baseline."""
    names = [system.name for system in systems]
    check_names(names, baseline)
    sizes = [len(document.sentences) for document in references]
    lines = [sentence for document in references for sentence in document.sentences]
    for system in systems:
        if len(system.lines) != len(lines):
            raise DynctxError(f"{system.name}: {len(system.lines):,} translations for {len(lines):,} references")
    scores = {system.name: bleu.main_scores(system.lines, [lines], sizes, language=language) for system in systems}
    rows = []
    for name in names:
        pairs = zip(scores[name], scores[baseline]) if name != baseline else ()
        against = tuple(paired_bootstrap(own, other, samples=samples, seed=seed) for own, other in pairs)
        rows.append(Row(name, scores[name], against))
    return Table(baseline, len(lines), len(sizes), rows, samples, seed)


def check_names(names: Sequence[str], baseline: str) -> None:
    if len(set(names)) != len(names):
        raise DynctxError(f"two systems have one name ({', '.join(names)}); name them: NAME=PATH")
    if baseline not in names:
        raise DynctxError(f"baseline {baseline!r} is not among the systems: {', '.join(names)}")


def parse_system(text: str) -> tuple[str, Path, str | None]:
    """`NAME=PATH`, `PATH`, and for a model folder `PATH@SELECTOR`: name, path and selector."""
    name, equals, rest = text.partition("=")
    if not equals or Path(text).exists():
        name, rest = "", text
    path, selector = Path(rest), None
    if not path.exists() and "@" in rest:
        folder, _, selector = rest.rpartition("@")
        path = Path(folder)
    if not path.exists():
        raise DynctxError(f"{path}: no such file of translations or model folder")
    return name or rest, path, selector


def score_documents(found: list[Document], references: list[Document], language: str) -> list[bleu.Score]:
    """BLEU, tokenised BLEU as the paper computes it, document BLEU and chrF."""
    lines = [[sentence for document in side for sentence in document.sentences] for side in (found, references)]
    sizes = [len(document.sentences) for document in references]
    first, chrf, document = bleu.main_scores(lines[0], [lines[1]], sizes, language=language)
    return [first, bleu.tokenised_bleu(lines[0], [lines[1]], language=language), document, chrf]
