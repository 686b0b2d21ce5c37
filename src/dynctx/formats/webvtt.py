"""WebVTT subtitles (.vtt): a header, then blocks between blank lines: cues, and NOTE, STYLE and REGION blocks."""

from __future__ import annotations

import html
import re

from dynctx.document_formats import SPACES
from dynctx.errors import DynctxError, at
from dynctx.files import BOM
from dynctx.formats.inline import Kind, Piece, line_break, single, text_piece
from dynctx.formats.lines import is_blank, lines_of
from dynctx.formats.srt import shown
from dynctx.formats.subtitles import MUSIC, SCENE_GAP, Cues
from dynctx.formats.template import Builder, Template

TIME = r"(?:(\d{2,}):)?([0-5]\d):([0-5]\d)\.(\d{3})"
TIMING = re.compile(rf"{TIME}[ \t]+-->[ \t]+{TIME}(?:[ \t].*)?")
OTHER = re.compile(r"(?:NOTE|STYLE|REGION)(?:\s|$)")
MARKUP = re.compile(
    rf"<(?P<close>/?)(?P<name>[a-zA-Z]+)[^<>]*>|<[^<>]*>|{MUSIC}|"
    r"(?P<entity>&(?:[a-zA-Z][a-zA-Z0-9]{1,31}|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});)"
)


def read(text: str, name: str, language: str = "", scene_gap: float = SCENE_GAP) -> Template:
    lines = lines_of(text)
    if not lines or not re.match(r"WEBVTT(?:\s|$)", lines[0].lstrip(BOM)):
        raise DynctxError(f"{at(name, 1 if lines else None)}: a WebVTT file begins with WEBVTT")
    builder = Builder(name, "vtt", language)
    cues = Cues(builder, scene_gap, pieces_of, escape)
    # a cue right below the header has no blank line before it
    start = next((n for n, line in enumerate(lines) if is_blank(line) or (n and "-->" in line)), len(lines))
    builder.literal("".join(lines[:start]))
    while start < len(lines):
        blank = is_blank(lines[start])
        stop = next((n for n in range(start, len(lines)) if is_blank(lines[n]) != blank), len(lines))
        if blank or OTHER.match(lines[start]):
            builder.literal("".join(lines[start:stop]))
        else:
            add_cue(cues, lines, start, stop, name)
        start = stop
    if not cues.count:
        raise DynctxError(f"{at(name)}: holds no subtitle (a line such as 00:01.000 --> 00:02.500)")
    return builder.template


def add_cue(cues: Cues, lines: list[str], start: int, stop: int, name: str) -> None:
    timing = start if "-->" in lines[start] else start + 1  # a name may stand above
    if timing >= stop:
        raise DynctxError(f"{at(name, start + 1)}: {shown(lines[start])} stands alone; a subtitle needs a timing line")
    for number in range(timing, stop):
        match = TIMING.fullmatch(lines[number].strip(SPACES))
        if (number == timing) != bool(match):
            if number == timing or "-->" in lines[number]:
                what = (
                    "is no timing; write 00:01.000 --> 00:02.500" if number == timing else "needs a blank line before"
                )
                raise DynctxError(f"{at(name, number + 1)}: {shown(lines[number])} {what}")
        elif match:
            cues.timed(lines[start].strip(SPACES) if start < timing else "", match)
    cues.builder.literal("".join(lines[start : timing + 1]))
    cues.text(lines[timing + 1 : stop], timing + 2)


def pieces_of(text: str) -> list[Piece]:
    pieces, position = [], 0
    for match in MARKUP.finditer(text):
        if match.start() > position:
            pieces.append(text_piece(text[position : match.start()]))
        if match["entity"]:
            pieces.append(Piece(Kind.TEXT, match[0], html.unescape(match[0])))
        elif match["name"] == "br":
            pieces.append(line_break(match[0]))
        elif match["name"]:
            pieces.append(Piece(Kind.CLOSE if match["close"] else Kind.OPEN, match[0], pair=match["name"]))
        else:
            pieces.append(single(match[0]))
        position = match.end()
    return [*pieces, text_piece(text[position:])] if position < len(text) else pieces


def escape(text: str) -> str:
    """A translation must not look like a tag, an entity or a timing."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("-->", "--&gt;")
