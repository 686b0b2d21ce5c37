"""SubRip subtitles (.srt): a number, a timing line, lines of text, a blank line."""

from __future__ import annotations

import html
import re

from dynctx.document_formats import SPACES
from dynctx.errors import DynctxError, at
from dynctx.files import BOM
from dynctx.formats.inline import Kind, Piece, line_break, single, text_piece
from dynctx.formats.lines import is_blank, lines_of
from dynctx.formats.subtitles import MUSIC, SCENE_GAP, Cues
from dynctx.formats.template import Builder, Template

TIME = r"(\d+):(\d{1,2}):(\d{1,2})[,.](\d{1,3})"
TIMING = re.compile(rf"{TIME}\s*-->\s*{TIME}(?:\s.*)?")
NUMBER = re.compile(r"\d+")
# HTML-like tags, ASS overrides such as {\an8}, the notes around what is sung, and what converters leave behind:
# entities of HTML, and the line breaks and hard spaces of ASS
MARKUP = re.compile(
    rf"<(?P<close>/?)(?P<name>[a-zA-Z][\w.]*)[^<>]*>|\{{\\[^{{}}]*\}}|{MUSIC}"
    r"|(?P<entity>&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,7}|#x[0-9a-fA-F]{1,6});)|(?P<line>\\N|\\h(?![a-z]))"
)


def read(text: str, name: str, language: str = "", scene_gap: float = SCENE_GAP) -> Template:
    lines = lines_of(text)
    timings = find_timings(lines, name)
    # a number just above a timing belongs to it
    starts = [t - 1 if t and NUMBER.fullmatch(lines[t - 1].strip(SPACES)) else t for t in timings]
    for number, line in enumerate(lines[: starts[0]], 1):
        if NUMBER.fullmatch(line.strip(SPACES)) and number < len(lines):  # of a subtitle whose timing is broken
            raise no_timing(lines[number], name, number + 1)
        if not is_blank(line):
            raise DynctxError(f"{at(name, number)}: {shown(line)} before the first subtitle; it starts with a number")
    builder = Builder(name, "srt", language)
    cues = Cues(builder, scene_gap, pieces_of, escape)
    builder.literal("".join(lines[: starts[0]]))
    for start, timing, end in zip(starts, timings, [*starts[1:], len(lines)]):
        builder.literal("".join(lines[start : timing + 1]))
        match = TIMING.fullmatch(lines[timing].strip(SPACES))
        assert match is not None
        cues.timed(lines[start].strip(SPACES).lstrip(BOM) if start < timing else "", match)
        add_text(cues, lines, timing + 1, end, name)
    return builder.template


def escape(text: str) -> str:
    """A translation must not look like a timing."""
    return text.replace("-->", "->")


def find_timings(lines: list[str], name: str) -> list[int]:
    found = []
    for number, line in enumerate(lines):
        if TIMING.fullmatch(line.strip(SPACES)):
            found.append(number)
        elif "-->" in line:
            raise no_timing(line, name, number + 1)
    if not found:
        where = at(name, 1 if lines else None)
        raise DynctxError(f"{where}: holds no subtitle (a line such as 00:00:01,000 --> 00:00:02,500)")
    return found


def add_text(cues: Cues, lines: list[str], start: int, end: int, name: str) -> None:
    """Text up to the next subtitle. A blank line inside should not be there, but players show what follows it too."""
    while start < end:
        blank = is_blank(lines[start])
        stop = next((n for n in range(start, end) if is_blank(lines[n]) != blank), end)
        if blank:
            cues.builder.literal("".join(lines[start:stop]))
        else:
            numbered = stop - start > 1 and NUMBER.fullmatch(lines[start].strip(SPACES))
            if numbered and re.match(r"\s*\d+:\d", lines[start + 1]):
                raise no_timing(lines[start + 1], name, start + 2)
            cues.text(lines[start:stop], start + 1)
        start = stop


def no_timing(line: str, name: str, number: int) -> DynctxError:
    return DynctxError(f"{at(name, number)}: {shown(line)} is no timing; write 00:00:01,000 --> 00:00:02,500")


def shown(line: str) -> str:
    return repr(line.strip(SPACES)[:60])


def pieces_of(text: str) -> list[Piece]:
    pieces, position = [], 0
    for match in MARKUP.finditer(text):
        if match.start() > position:
            pieces.append(text_piece(text[position : match.start()]))
        tag = match["name"]
        if match["line"] or (tag and tag.lower() == "br"):
            pieces.append(line_break(match[0]))
        elif match["entity"]:
            pieces.append(Piece(Kind.TEXT, match[0], html.unescape(match[0])))
        elif tag:
            pieces.append(Piece(Kind.CLOSE if match["close"] else Kind.OPEN, match[0], pair=tag.lower()))
        else:
            pieces.append(single(match[0]))
        position = match.end()
    return [*pieces, text_piece(text[position:])] if position < len(text) else pieces
