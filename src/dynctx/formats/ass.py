r"""Advanced SubStation Alpha and its forerunner (.ass, .ssa): of the section [Events] the text of each Dialogue line.

    Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
    Dialogue: 0,0:00:12.80,0:00:15.00,Default,,0,0,0,,{\i1}that{\i0} is one line\Nand the next

Everything else (styles, fonts, comments, positions, drawings, karaoke timings) stays as it is.
"""

from __future__ import annotations

import re
from itertools import pairwise

from dynctx.document_formats import SPACES
from dynctx.errors import DynctxError, at
from dynctx.files import BOM
from dynctx.formats.inline import Kind, Piece, line_break, single, text_piece
from dynctx.formats.lines import lines_of
from dynctx.formats.srt import shown
from dynctx.formats.subtitles import MUSIC, SCENE_GAP, Cues, seconds
from dynctx.formats.template import Builder, Template

TIME = r"(\d+):(\d{1,2}):(\d{1,2})[.,:](\d{1,3})"
TIMING = re.compile(rf"{TIME} --> {TIME}")
ENTRY = re.compile(r"\s*(Format|Dialogue)\s*:[ \t]*", re.IGNORECASE)
SECTION = re.compile(r"\s*\[(.*)\]\s*")
FIELDS = ["layer", "start", "end", "style", "name", "marginl", "marginr", "marginv", "effect", "text"]
# override blocks and comments, of which those that switch one style on or off are pairs; breaks; the fixed space
MARKUP = re.compile(rf"\{{\\(?P<name>[ibus])(?P<on>[01])\}}|(?P<block>\{{[^{{}}]*\}})|(?P<end>\\[Nn])|\\h|{MUSIC}")
DRAWING = re.compile(r"\\p(\d+)")  # from \p1 on what stands outside of blocks is a drawing, until \p0


class Events(Cues):
    """The signs of a whole film may stand before what is said in it: a long way back starts a document, too."""

    since = 0.0  # the start of the last one

    def timed(self, name: str, timing: re.Match[str]) -> None:
        start = seconds(*timing.group(1, 2, 3, 4))
        if start < self.since - self.gap:
            self.builder.new_document()
            self.until = None
        self.since = start
        super().timed(name, timing)


def read(text: str, name: str, language: str = "", scene_gap: float = SCENE_GAP) -> Template:
    builder = Builder(name, "ass", language)
    cues = Events(builder, scene_gap, pieces_of, escape, trimmed)
    fields, inside = FIELDS, False
    for number, line in enumerate(lines_of(text), 1):
        section, entry = SECTION.fullmatch(line.lstrip(BOM)), ENTRY.match(line)
        if section:
            inside = section[1].strip().lower() == "events"
        if not inside or entry is None:
            builder.literal(line)
        elif entry[1].lower() == "format":
            fields = [field.strip().lower() for field in line[entry.end() :].split(",")]
            if fields[-1] != "text" or not {"start", "end"} <= set(fields):
                raise DynctxError(f"{at(name, number)}: {shown(line)}: Start, End and, at the end, Text are needed")
            builder.literal(line)
        else:
            add_cue(cues, line, entry.end(), fields, at(name, number), number)
    if not cues.count:
        raise DynctxError(f"{at(name)}: holds no line of Dialogue below [Events]")
    return builder.template


def add_cue(cues: Cues, line: str, start: int, fields: list[str], where: str, number: int) -> None:
    """line: a Dialogue, whose fields begin at `start`."""
    *values, text = line[start:].split(",", len(fields) - 1)
    if len(values) + 1 < len(fields):
        raise DynctxError(f"{where}: {shown(line)} has {len(values) + 1} fields; {len(fields)} are needed")
    told = dict(zip(fields, values))
    timing = TIMING.fullmatch(f"{told['start'].strip()} --> {told['end'].strip()}")
    if timing is None:
        raise DynctxError(f"{where}: {told['start']!r} to {told['end']!r} is no timing; write 0:00:01.00,0:00:02.50")
    cues.timed("", timing)
    cues.builder.literal(line[: len(line) - len(text)])
    if text.strip(SPACES):
        cues.text(lines_in(text), number)
    else:
        cues.builder.literal(text)


def lines_in(text: str) -> list[str]:
    r"""Each with the \N at its end; one inside of a block ends none."""
    ends = [match.end() for match in MARKUP.finditer(text) if match[0] == "\\N"]
    return [text[a:b] for a, b in pairwise([0, *ends, len(text)]) if b > a]


def trimmed(line: str) -> str:
    r"""Without the spaces around it and the \N at its end."""
    content = line.strip(SPACES)
    while content.endswith("\\N"):
        content = content[:-2].rstrip(SPACES)
    return content


def pieces_of(text: str) -> list[Piece]:
    pieces, position, drawing = [], 0, False

    def add_text(end: int) -> None:
        if end > position:
            between = text[position:end]
            pieces.append(single(between) if drawing else text_piece(between))

    for match in MARKUP.finditer(text):
        add_text(match.start())
        if match["name"]:
            pieces.append(Piece(Kind.OPEN if match["on"] == "1" else Kind.CLOSE, match[0], pair=match["name"]))
        elif match["end"]:
            pieces.append(line_break(match[0]))
        elif match[0] == "\\h":
            pieces.append(Piece(Kind.TEXT, match[0], "\xa0"))
        else:
            pieces.append(single(match[0]))
            drawn = DRAWING.findall(match["block"] or "")
            drawing = int(drawn[-1]) > 0 if drawn else drawing
        position = match.end()
    add_text(len(text))
    return pieces


def escape(text: str) -> str:
    """A translation must not look like a block or a break."""
    return text.replace("{", "(").replace("}", ")").replace("\\", "/")
