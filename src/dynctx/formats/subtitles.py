"""What SRT and WebVTT have in common: cues become sentences, and a long silence starts a new document.

A cue is one sentence, however many lines it has, except that a line which begins with a speaker's dash (or with a
WebVTT voice) begins a sentence. The line breaks inside a sentence are kept, near the same proportion of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dynctx.document_formats import SPACES
from dynctx.formats.inline import Piece, line_break, single
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
        sentence: list[Piece] = []
        began = number
        for offset, line in enumerate(lines):
            if sentence and (DASH.match(line) or VOICE.match(line)):
                self._add(sentence, began)
                sentence, began = [], number + offset
            sentence += self._pieces(line)
        self._add(sentence, began)

    def _pieces(self, line: str) -> list[Piece]:
        content = line.rstrip("\r\n")
        dash = DASH.match(content)
        pieces = self.pieces_of(content)
        if dash:
            start, end = dash.span(1)
            pieces = [*self.pieces_of(content[:start]), single(content[start:end]), *self.pieces_of(content[end:])]
        # at the end of a cue this is outside of the sentence, and stays as it is
        return [*pieces, line_break(line[len(content) :])] if line != content else pieces

    def _add(self, sentence: list[Piece], line: int) -> None:
        self.builder.write(self.builder.passage(sentence, line, escape=self.escape, whole=True))


def lines_of(text: str) -> list[str]:
    r"""Lines with their ends. Only `\n` and `\r\n` end one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def is_blank(line: str) -> bool:
    return not line.strip(SPACES)


def seconds(hours: str | None, minutes: str, whole: str, thousandths: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(whole) + int(thousandths.ljust(3, "0")) / 1000
