"""Was the right sentence selected? For contrastive items that mark the one decisive sentence.

Two figures: *exact*, the selection is that sentence and no other, and *contains*, it is among the selected. Neither
means much alone: whoever selects everything always contains it, and where the decisive sentence is nearly always the
previous one, a fixed rule beats any learned selector. So the rules stand beside, always.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynctx.evaluation.contrastive import Result, by

RULES = ("previous 1", "all", "random 1", "random, as many as selected")


@dataclass(frozen=True)
class Selected:
    """How a way of selecting does on one phenomenon; shares lie in 0..1."""

    phenomenon: str
    selector: str
    items: int
    exact: float
    contains: float
    size: float  # sentences selected on average

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def selection_accuracy(results: Sequence[Result], scope: int, name: str) -> list[Selected]:
    """The selections of `results`, made by the selector `name`, beside those of the rules that it is not itself."""
    marked = [result for result in results if result.item.distance]
    rows = []
    for phenomenon, members in by(marked, lambda result: result.item.phenomenon).items():
        found = [_mean(phenomenon, name, [_of(result) for result in members])]
        for rule in RULES:
            if rule == ("all" if name == "full" else name):
                continue
            found.append(_mean(phenomenon, rule, [_expected(rule, result, scope) for result in members]))
        rows += found
    return rows


Figures = tuple[float, float, float]  # exact, contains, size


def _of(result: Result) -> Figures:
    distance, selected = result.item.distance, result.selected
    return float(selected == (distance,)), float(distance in selected), float(len(selected))


def _expected(rule: str, result: Result, scope: int) -> Figures:
    """What a rule is expected to have: no draws, the probabilities themselves."""
    candidates = min(scope, len(result.item.source_context))
    distance = result.item.distance or 0
    if not candidates:
        return 0.0, 0.0, 0.0
    reachable = distance <= candidates
    if rule == "previous 1":
        return float(distance == 1), float(distance == 1), 1.0
    if rule == "all":
        return float(candidates == 1 and reachable), float(reachable), float(candidates)
    size = 1 if rule == "random 1" else min(len(result.selected), candidates)
    contains = size / candidates if reachable else 0.0  # each candidate is as likely as any other to be drawn
    return contains if size == 1 else 0.0, contains, float(size)


def _mean(phenomenon: str, name: str, figures: Sequence[Figures]) -> Selected:
    exact, contains, size = (float(value) for value in np.mean(figures, axis=0))
    return Selected(phenomenon, name, len(figures), exact, contains, size)


def to_text(rows: Sequence[Selected]) -> str:
    from dynctx.evaluation.evaluate import table

    lines = [("selection", "items", "exact", "contains", "sentences")]
    before = ""
    for row in rows:
        if row.phenomenon != before:
            lines.append((row.phenomenon, "", "", "", ""))
            before = row.phenomenon
        figures = (f"{row.items:,}", f"{100 * row.exact:.1f}", f"{100 * row.contains:.1f}", f"{row.size:.2f}")
        lines.append((f"  {row.selector}", *figures))
    return table(lines, "<>>>>")
