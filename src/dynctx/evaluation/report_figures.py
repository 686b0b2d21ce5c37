"""The figures of the report, drawn with Matplotlib, each as an SVG for the page and as SVG and PNG files."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from dynctx.evaluation.report import Facts, rank_correlation

INK = "#1f2328"  # text and axes of the files; on the page they take the page's colour
BARS = 12  # at most, in one figure
COLOURS = ("#3b82c4", "#e07b39", "#4d9e63", "#b65f9f", "#8a6fd1", "#c2a02f", "#7f8790")
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: searchable, and in the page's font
    "font.size": 10,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True)
class Drawn:
    name: str
    title: str
    svg: str  # a whole file
    inline: str  # for the page
    png: bytes


Draw = Callable[[Any, Facts], None]  # axes, facts


def draw_all(facts: Facts) -> list[Drawn]:
    scope = facts.split.gatherer.scope
    figures: list[tuple[str, str, Draw]] = []
    if scope:
        figures += [
            ("sizes", "How many sentences were selected", sizes),
            ("reaches", "How far back the farthest selected sentence is", reaches),
            ("distances", "How often each distance was selected", distances),
            ("positions", "By the place of the sentence in its document", positions),
            ("reward-bleu", "Change of reward against change of BLEU, from no context", reward_and_bleu),
        ]
    if scope and facts.oracle is not None:
        figures.append(("oracle", "What the best possible selection would gain", oracle_ways))
    figures.append(("cost", "Speed", cost))
    return [draw(name, title, function, facts) for name, title, function in figures]


def draw(name: str, title: str, function: Draw, facts: Facts) -> Drawn:
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}):
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        axes = figure.add_subplot()
        function(axes, facts)
        svg, png = io.BytesIO(), io.BytesIO()
        # no date and no version: the same facts give the same bytes
        FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None, "Creator": None})
        figure.set_facecolor("white")
        figure.set_dpi(160)
        FigureCanvasAgg(figure).print_png(png, metadata={"Software": None})
    text = svg.getvalue().decode("utf-8")
    return Drawn(name, title, text, inline(text, title, name), png.getvalue())


def inline(svg: str, title: str, name: str) -> str:
    """An SVG to stand in a page: no prolog, no background, ink in the page's colour, ids of its own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="patch_1">.*?</g>', "", svg, count=1, flags=re.DOTALL)  # the figure's background
    svg = re.sub(r'<g id="patch_2">\s*<path [^>]*style="fill: #ffffff"[^>]*/>\s*</g>', "", svg, count=1)  # the axes'
    svg = svg.replace(INK, "currentColor")
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)


def _shares(axes: Any, values: Any, names: Sequence[str]) -> None:
    bars = axes.bar(names, values, color=COLOURS[0])
    axes.bar_label(bars, [f"{100 * value:.1f} %" for value in values], padding=2, fontsize=8)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylim(0, max(0.05, 1.15 * max(values)))
    axes.set_ylabel("share of sentences")


def histogram(values: Any, most: int) -> Any:
    """[most + 1] the share of each number."""
    return np.bincount(values, minlength=most + 1) / max(1, len(values))


def ranges(facts: Facts) -> list[tuple[int, int]]:
    """Distances, first and last, that share a bar or a line: each has its own in a small scope.

    A scope of whole documents would be hundreds of bars that nobody can read: there they are those that occur, in
    at most BARS ranges of one width.
    """
    most = facts.split.gatherer.scope
    if most <= BARS:
        return [(n, n) for n in range(1, most + 1)]
    most = max(1, int(facts.candidates.max(initial=0)))
    width = -(-most // BARS)
    return [(first, min(first + width - 1, most)) for first in range(1, most + 1, width)]


def named(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _histogram(axes: Any, facts: Facts, values: Any) -> None:
    shares, parts = histogram(values, facts.split.gatherer.scope), [(0, 0), *ranges(facts)]
    _shares(axes, [shares[a : b + 1].sum() for a, b in parts], [named(a, b) for a, b in parts])


def sizes(axes: Any, facts: Facts) -> None:
    _histogram(axes, facts, facts.sizes)
    axes.set_xlabel("context sentences selected (0: none needed)")


def reaches(axes: Any, facts: Facts) -> None:
    _histogram(axes, facts, facts.reaches)
    axes.set_xlabel("greatest distance in sentences (0: none selected)")


def distances(axes: Any, facts: Facts) -> None:
    chosen, parts = facts.selection[facts.filled], ranges(facts)
    shares = []
    for first, last in parts:
        there = facts.candidates[:, None] >= np.arange(first, last + 1)
        shares.append(float(chosen[:, first - 1 : last][there].mean()) if there.any() else 0.0)
    _shares(axes, shares, [named(a, b) for a, b in parts])
    axes.set_ylabel("share of sentences that have it")
    axes.set_xlabel("distance: 1 is the sentence just before")


def positions(axes: Any, facts: Facts, bins: int = 12) -> None:
    """Mean probability of each candidate (or, without a scorer, its share) along the document."""
    places, scope = facts.places, facts.split.gatherer.scope
    edges = np.unique(np.quantile(places, np.linspace(0, 1, bins + 1)).astype(int))
    group = np.clip(np.searchsorted(edges, places, side="right") - 1, 0, max(0, len(edges) - 2))
    middles = [float(places[group == g].mean()) for g in np.unique(group)]
    probable = facts.probabilities is not None
    table = facts.probabilities[facts.filled] if facts.probabilities is not None else facts.selection[facts.filled]
    highest = 0.0
    lines = [(f"{named(a, b)} before", np.arange(a, b + 1)) for a, b in ranges(facts)]
    if probable:
        lines.append(("none needed", np.array([scope + 1])))
    for number, (name, distances) in enumerate(lines, 1):
        there = (facts.candidates[:, None] >= distances) | (distances > scope)  # the last column is there for all
        if not there.any():  # no document is as long as that
            continue
        values = table[:, distances - 1]
        groups = [(group == g)[:, None] & there for g in np.unique(group)]
        line = [float(values[members].mean()) if members.any() else np.nan for members in groups]
        highest = max(highest, *(value for value in line if value == value))
        axes.plot(middles, line, marker="o", markersize=3, label=name, color=COLOURS[number % len(COLOURS)])
    axes.set_ylim(0, 1.3 * highest or 1)
    axes.set_xlabel("place of the sentence in its document")
    axes.set_ylabel("mean probability" if probable else "share selected")
    if axes.lines:
        axes.legend(fontsize=8, frameon=False, ncols=2)


def reward_and_bleu(axes: Any, facts: Facts) -> None:
    rewards, bleus = changes(facts)
    axes.scatter(rewards, bleus, s=6, color=COLOURS[0], alpha=0.5, linewidths=0, rasterized=len(rewards) > 2000)
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.axvline(0, color=INK, linewidth=0.6)
    axes.set_xlabel("change of reward")
    axes.set_ylabel("change of sentence BLEU")
    found = rank_correlation(rewards, bleus)
    if found is not None:
        axes.set_title(f"rank correlation {found:.2f}, {len(rewards):,} sentences with a selection", fontsize=9)


def changes(facts: Facts) -> tuple[Any, Any]:
    """Of the sentences with something selected: reward and BLEU with it, less those without."""
    sentences = facts.split.scorable
    chosen = facts.selection[sentences].any(axis=1)
    bleus = facts.own.sentence_bleu[sentences] - facts.none.sentence_bleu[sentences]
    return (facts.own.rewards - facts.none.rewards)[chosen], bleus[chosen]


def fitting(name: str) -> str:
    """A name that leaves room for the figure beside it: a file of selections may have a long path."""
    return name if len(name) <= 40 else f"{name[:12]} … {name[-25:]}"


def oracle_ways(axes: Any, facts: Facts) -> None:
    assert facts.oracle is not None
    ways = facts.oracle.ways
    colours = [COLOURS[1] if way.name.startswith("oracle") else COLOURS[0] for way in ways]
    bars = axes.barh([fitting(way.name) for way in ways], [way.value for way in ways], color=colours)
    axes.bar_label(bars, [f"{way.value:.4f}" for way in ways], padding=2, fontsize=8)
    axes.set_xlim(0, 1.15 * max(way.value for way in ways) or 1)
    axes.invert_yaxis()
    axes.set_xlabel("mean reward of the reference (higher is better)")


def cost(axes: Any, facts: Facts) -> None:
    runs = {run.name: run for run in (facts.none, facts.full, facts.own)}
    bars = axes.barh(
        [fitting(name) for name in runs], [run.sentences_per_second for run in runs.values()], color=COLOURS[0]
    )
    axes.bar_label(bars, [f"{run.sentences_per_second:,.1f}" for run in runs.values()], padding=2, fontsize=8)
    axes.set_xlim(0, 1.15 * max(run.sentences_per_second for run in runs.values()))
    axes.invert_yaxis()
    axes.set_xlabel("sentences a second, selecting included")
