"""What formats of subtitles have in common: cues become sentences, and a long silence starts a new document.

A cue is one sentence, however many lines it has, except that a speaker's dash, name or WebVTT voice begins a sentence,
and that a note in brackets, [music] or (laughs), which a model would leave out, is a sentence of its own, and so is a
line in another script. The line breaks inside a sentence are kept, near the same proportion of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate, pairwise

from dynctx.document_formats import SPACES
from dynctx.formats.inline import PARTS, Kind, Piece, single, text_piece
from dynctx.formats.lines import joined, trimmed
from dynctx.formats.placing import CJK
from dynctx.formats.template import Builder
from dynctx.languages import is_foreign

# A minus before a number is no dash of a speaker.
DASH = re.compile(r"(?:\s|<[^<>]*>|\{[^{}]*\})*([-\u2010-\u2015\uff0d]+)(?![\d\-])\s*(?=\S)")
# a second speaker in the line of the first: "- Where? -Here."; a dash between two spaces may be one of the sentence
NEXT_DASH = re.compile(
    r"(?:(?<=\s)|(?<=\\N))[-\u2010-\u2015\uff0d]+(?=[^\W\d_]|\s*[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])"
)
# a name and a colon: 小红：... or MARY: ...
NAME = re.compile(r"(?:\s|<[^<>]*>|\{[^{}]*\})*(?:[^\W\d_]{1,8}：|[A-Z][A-Z .'\-]{1,20}:\s)(?=.*[^\W\d_])")
VOICE = re.compile(r"\s*<v[.\s]")

# around what is sung; a # before or after a letter or a digit is another thing (#1, C#)
MUSIC = r"[♩♪♫♬]+|\A#+(?![A-Za-z0-9#])|(?<![A-Za-z0-9#])#+\Z"
NOTE = re.compile(r"[\[［【][^\[\]［］【】]*[\]］】]|(?P<round>[(（])[^()（）]*[)）]")
NEAR = 20  # characters beside a bracket that are looked at
NARROW = str.maketrans("（）［］【】", "()[][]")

SCENE_GAP = 7.0  # seconds


class Cues:
    """Adds cues to a builder, and watches the time between them."""

    def __init__(
        self,
        builder: Builder,
        gap: float,
        pieces_of: Callable[[str], list[Piece]],
        escape: Callable[[str], str],
        content_of: Callable[[str], str] = trimmed,
    ) -> None:
        self.builder, self.gap, self.pieces_of, self.escape = builder, gap, pieces_of, escape
        self.content_of = content_of
        self.until: float | None = None  # the latest end so far: cues may overlap
        self.count = 0

    def timed(self, name: str, timing: re.Match[str]) -> None:
        """name: what the file calls the cue; without one it is counted. timing: two times, in four groups each."""
        start, end = seconds(*timing.group(1, 2, 3, 4)), seconds(*timing.group(5, 6, 7, 8))
        if self.until is not None and start - self.until > self.gap:
            self.builder.new_document()
        self.until = max(end, self.until or 0.0)
        self.count += 1
        first, _, last = timing[0].partition("-->")
        self.builder.place = {
            "subtitle": name or str(self.count),
            "start": first.strip(SPACES),
            "end": last.split()[0],
        }

    def text(self, lines: list[str], number: int) -> None:
        """The lines of a cue, with their ends, of which the first is in line `number` of the file."""
        apart = [self._stands_apart(line) for line in lines]
        above = list(accumulate((line.count("\n") for line in lines), initial=number))  # the number of each line
        starts = [n for n, line in enumerate(lines) if not n or begins_speech(line) or apart[n] or apart[n - 1]]
        for start, end in pairwise([*starts, len(lines)]):
            pieces = with_notes(joined(lines[start:end], self._pieces, content_of=self.content_of))
            passage = self.builder.passage(pieces, above[start], escape=self.escape, whole=True)
            passage.finish = narrowed("".join(lines[start:end]))
            self.builder.write(passage)

    def _stands_apart(self, line: str) -> bool:
        """Signs alone, or words of another script, as below each line of subtitles in two languages."""
        words = "".join(piece.text for piece in self.pieces_of(line)).split()
        if not any(character.isalnum() for word in words for character in word):
            return True
        return len(words) > 1 and is_foreign(" ".join(words), self.builder.language)

    def _pieces(self, line: str) -> list[Piece]:
        dash = DASH.match(line)
        if dash is None:
            return self.pieces_of(line)
        start, end = dash.span(1)
        pieces = [*self.pieces_of(line[:start]), single(line[start:end])]
        for other in NEXT_DASH.finditer(line, end):
            pieces += [*self.pieces_of(line[end : other.start()]), Piece(Kind.SINGLE, other[0], pair=PARTS)]
            end = other.end()
        return [*pieces, *self.pieces_of(line[end:])]


def begins_speech(line: str) -> bool:
    return any(pattern.match(line) for pattern in (DASH, VOICE, NAME))


def with_notes(pieces: list[Piece], at_edges: bool = False) -> list[Piece]:
    """The same with the brackets of notes as marks, which part sentences. at_edges: only of those first or last."""
    text = "".join(piece.text for piece in pieces)
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    brackets: dict[int, Kind] = {}
    for match in NOTE.finditer(text):
        if at_edges and first < match.start() and match.end() < last:
            continue
        if any(map(str.isalpha, match[0])) and not (match["round"] and belongs(text, *match.span())):
            brackets |= {match.start(): Kind.OPEN, match.end() - 1: Kind.CLOSE}
    found: list[Piece] = []
    borders, place = list(brackets), 0
    for piece in pieces:
        end, cut = place + len(piece.text), 0
        inner = borders[bisect_left(borders, place) : bisect_left(borders, end)]
        for border in inner if piece.raw == piece.text else []:
            before = piece.text[cut : border - place]
            found += [text_piece(before)] if before else []
            cut = border - place + 1
            found.append(Piece(brackets[border], piece.text[cut - 1], pair=PARTS))
        if cut == 0:
            found.append(piece)
        elif cut < len(piece.text):
            found.append(text_piece(piece.text[cut:]))
        place = end
    return found


def belongs(text: str, start: int, end: int) -> bool:
    """Whether what is in round brackets is a part of its sentence: the man (my brother) left."""
    before, after = text[max(start - NEAR, 0) : start].rstrip(), text[end : end + NEAR].lstrip()
    return bool(before and after) and before[-1].isalnum() and not CJK.match(before[-1]) and not CJK.match(after[0])


def narrowed(raw: str) -> Callable[[str], str]:
    """Brackets as the new language has them, and no full stop in them that was not there."""

    def finish(text: str) -> str:
        if text == raw or CJK.search(re.sub(r"[（）［］【】]", "", text)):
            return text
        text = text.translate(NARROW)
        return text if re.search(r"[.。][\])］】）]", raw) else re.sub(r"(?<!\.)(?<!\.\w)\.(?=[\])])", "", text)

    return finish


def seconds(hours: str | None, minutes: str, whole: str, thousandths: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(whole) + int(thousandths.ljust(3, "0")) / 1000
