"""What SRT and WebVTT have in common: cues become sentences, and a long silence starts a new document.

A cue is one sentence, however many lines it has, except that a line which begins with a speaker's dash (or with a
WebVTT voice) begins a sentence. The line breaks inside a sentence are kept, near the same proportion of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from dynctx.formats.inline import Piece, single
from dynctx.formats.lines import joined
from dynctx.formats.template import Builder

# A minus before a number is no dash of a speaker.
DASH = re.compile(r"(?:\s|<[^<>]*>|\{[^{}]*\})*([-\u2010-\u2015\uff0d]+)(?![\d\-])\s*(?=\S)")
VOICE = re.compile(r"\s*<v[.\s]")

SCENE_GAP = 7.0  # seconds


class Cues:
    """Adds cues to a builder, and watches the time between them."""

    def __init__(
        self, builder: Builder, gap: float, pieces_of: Callable[[str], list[Piece]], escape: Callable[[str], str]
    ) -> None:
        self.builder, self.gap, self.pieces_of, self.escape = builder, gap, pieces_of, escape
        self.until: float | None = None  # the latest end so far: cues may overlap

    def timed(self, start: float, end: float) -> None:
        if self.until is not None and start - self.until > self.gap:
            self.builder.new_document()
        self.until = max(end, self.until or 0.0)

    def text(self, lines: list[str], number: int) -> None:
        """The lines of a cue, with their line ends, of which the first is line `number` of the file."""
        starts = [n for n, line in enumerate(lines) if not n or DASH.match(line) or VOICE.match(line)]
        for start, end in pairwise([*starts, len(lines)]):
            pieces = joined(lines[start:end], self._pieces)
            self.builder.write(self.builder.passage(pieces, number + start, escape=self.escape, whole=True))

    def _pieces(self, line: str) -> list[Piece]:
        dash = DASH.match(line)
        if dash is None:
            return self.pieces_of(line)
        start, end = dash.span(1)
        return [*self.pieces_of(line[:start]), single(line[start:end]), *self.pieces_of(line[end:])]


def seconds(hours: str | None, minutes: str, whole: str, thousandths: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(whole) + int(thousandths.ljust(3, "0")) / 1000
