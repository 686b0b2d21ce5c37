"""Markup inside a sentence: taken out before translation, put back into the translation, never lost.

A passage of a file (a paragraph, a subtitle, a segment) is a row of pieces. Text and kept pieces (placeholders,
code, addresses) are what the model reads; marks (tags, emphasis, link targets) are not. In the translation

* a sentence that comes back unchanged is written as it stood, byte for byte;
* a mark that wraps the whole sentence wraps the whole translation;
* a pair of marks whose content occurs in the translation word for word goes around that occurrence;
* every other mark goes to the same proportion of the text, moved to the nearest place of the same kind
  (before a word, after a word, between words);
* a kept piece is looked for in the translation, nearest to its proportion; one that the translation has lost is
  put at the end, with a warning; a character with a spelling of its own (`&nbsp;`) has it again where it is found;
* a line break inside a sentence takes the place of the nearest space.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

Warn = Callable[[str], None]

# Han, kana, Hangul and their punctuation: text written without spaces between words, or nearly so
CJK = re.compile(
    r"[\u1100-\u11ff\u2e80-\u303f\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]"
)


class Kind(Enum):
    TEXT = "text"
    KEPT = "kept"  # read by the model, and must be found again in the translation
    OPEN = "open"
    CLOSE = "close"
    SINGLE = "single"
    BREAK = "break"  # a line break that ends no sentence; the model reads a space


class Piece(NamedTuple):
    """A stretch of a passage. Text of which `raw` is as long as `text` may be divided between sentences."""

    kind: Kind
    raw: str  # as it stands in the file
    text: str = ""  # as the model reads it
    pair: str = ""  # OPEN and CLOSE: what the two have in common; BREAK: not empty if it ends a sentence
    changed: str | None = None  # CLOSE: what to write instead of `raw` where the content has changed


class Mark(NamedTuple):
    place: int  # in the text of the sentence
    piece: Piece
    partner: int | None  # the other mark of the pair, if it is in the same sentence


class Span(NamedTuple):
    start: int
    end: int
    raw: str


def text_piece(text: str) -> Piece:
    return Piece(Kind.TEXT, text, text)


def kept(raw: str, text: str | None = None) -> Piece:
    return Piece(Kind.KEPT, raw, raw if text is None else text)


def line_break(raw: str, ends_sentence: bool = False) -> Piece:
    return Piece(Kind.BREAK, raw, " ", "end" if ends_sentence else "")


def single(raw: str) -> Piece:
    return Piece(Kind.SINGLE, raw)


def partners(pieces: list[Piece]) -> dict[int, int]:
    """Which OPEN belongs to which CLOSE, both ways; a mark without a partner is not listed."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for number, piece in enumerate(pieces):
        if piece.kind is Kind.OPEN and piece.pair:
            opened.append(number)
        elif piece.kind is Kind.CLOSE:
            same = [place for place in opened if pieces[place].pair == piece.pair]
            if same:
                opened = [place for place in opened if place < same[-1]]  # what was left open inside stays unpaired
                found |= {same[-1]: number, number: same[-1]}
    return found


@dataclass(eq=False)
class Sentence:
    """What the model gets as one sentence, and how to dress its translation."""

    pieces: list[Piece]
    escape: Callable[[str], str]
    where: str  # file and line, for warnings
    needed: bool = True  # False: has a translation already and is context alone

    def __post_init__(self) -> None:
        self.text = "".join(piece.text for piece in self.pieces)
        self.raw = "".join(piece.raw for piece in self.pieces)

    def dressed(self, translation: str, warn: Warn) -> str:
        """The translation with the sentence's marks, kept pieces and line breaks."""
        if translation == self.text:
            return self.raw
        held, lost = self._find_kept(translation)
        marks = self._marks()
        places = self._places(marks, translation, held)
        breaks = self._find_breaks(translation, held)
        for raw in lost:
            warn(f"{self.where}: the translation has lost {raw!r}, which now stands at its end: {translation!r}")
        return self._woven(translation, sorted(held + breaks), marks, places) + "".join(f" {raw}" for raw in lost)

    def _marks(self) -> list[Mark]:
        pairs, place, numbers = partners(self.pieces), 0, {}
        found: list[tuple[int, int]] = []  # place, number of the piece
        for number, piece in enumerate(self.pieces):
            if piece.kind in (Kind.OPEN, Kind.CLOSE, Kind.SINGLE):
                numbers[number] = len(found)
                found.append((place, number))
            place += len(piece.text)
        return [Mark(at, self.pieces[n], numbers[pairs[n]] if n in pairs else None) for at, n in found]

    def _scaled(self, place: int, translation: str) -> int:
        return round(place * len(translation) / max(len(self.text), 1))

    def _find_kept(self, translation: str) -> tuple[list[Span], list[str]]:
        found: list[Span] = []
        lost: list[str] = []
        place = 0
        for piece in self.pieces:
            if piece.kind is Kind.KEPT or (piece.kind is Kind.TEXT and piece.raw != piece.text):
                spans = [
                    span
                    for span in occurrences(piece.text, translation, exactly=piece.kind is Kind.TEXT)
                    if all(span[1] <= other.start or span[0] >= other.end for other in found)
                ]
                if spans:
                    start, end = closest(spans, self._scaled(place, translation))
                    found.append(Span(start, end, piece.raw))
                elif piece.kind is Kind.KEPT:
                    lost.append(piece.raw)
            place += len(piece.text)
        return found, lost

    def _find_breaks(self, translation: str, held: list[Span]) -> list[Span]:
        """Line breaks in order, each in the place of a space of its own; where there is none, between two characters
        of a script without spaces, or nowhere."""
        found: list[Span] = []
        place = low = 0
        for piece in self.pieces:
            if piece.kind is Kind.BREAK:
                free = [
                    (i, i + 1 if translation[i].isspace() else i)
                    for i in range(max(low, 1), len(translation))
                    if translation[i].isspace() or (CJK.match(translation[i - 1]) and CJK.match(translation[i]))
                ]
                free = [(i, j) for i, j in free if all(j <= span.start or i >= span.end for span in held)]
                if free:
                    start, end = break_place(free, self._scaled(place, translation))
                    found.append(Span(start, end, piece.raw))
                    low = end + 1 if end == start else end
            place += len(piece.text)
        return found

    def _places(self, marks: list[Mark], translation: str, held: list[Span]) -> list[int]:
        """Where each mark goes. Around what is found word for word, if all marks still nest; else all in order."""
        places = self._in_order(marks, translation, held)
        if any(mark.partner is None and mark.piece.kind is not Kind.SINGLE for mark in marks):
            return places
        moved = list(places)
        for number, mark in enumerate(marks):
            if mark.piece.kind is Kind.OPEN and mark.partner is not None:
                content = self.text[mark.place : marks[mark.partner].place]
                spans = whole_words(content, translation)
                if spans:
                    wanted = self._scaled(mark.place, translation)
                    moved[number], moved[mark.partner] = closest(spans, wanted)
        return moved if nested(marks, moved) else places

    def _in_order(self, marks: list[Mark], translation: str, held: list[Span]) -> list[int]:
        places: list[int] = []
        low = 0
        for number, mark in enumerate(marks):
            if number and mark.place == marks[number - 1].place:  # marks that stood together stay together
                places.append(low)
                continue
            place = nearest_like(mark, self.text, translation, self._scaled(mark.place, translation), low)
            for span in held:  # not into a placeholder
                if span.start < place < span.end:
                    place = span.start if mark.piece.kind is Kind.OPEN and span.start >= low else span.end
            places.append(place)
            low = place
        return places

    def _woven(self, translation: str, spans: list[Span], marks: list[Mark], places: list[int]) -> str:
        written: list[str] = []
        position = 0
        ordered = sorted(range(len(marks)), key=lambda number: (places[number], number))

        def text_until(end: int) -> None:
            nonlocal position
            while spans and spans[0].start < end:
                span = spans.pop(0)
                written.append(self.escape(translation[position : span.start]) + span.raw)
                position = max(position, span.end)
            if end > position:
                written.append(self.escape(translation[position:end]))
                position = end

        for number in ordered:
            text_until(places[number])
            mark = marks[number]
            raw = mark.piece.raw
            if mark.piece.changed is not None and mark.partner is not None:
                content = self.text[marks[mark.partner].place : mark.place]
                if translation[places[mark.partner] : places[number]] != content:
                    raw = mark.piece.changed
            written.append(raw)
        text_until(len(translation))
        return "".join(written)


def closest(spans: list[tuple[int, int]], wanted: int) -> tuple[int, int]:
    return min(spans, key=lambda span: abs(span[0] - wanted))


def break_place(free: list[tuple[int, int]], wanted: int) -> tuple[int, int]:
    """Between two characters only where there is no space nearby."""
    return min(free, key=lambda span: abs(span[0] - wanted) + 3 * (span[0] == span[1]))


def occurrences(text: str, translation: str, exactly: bool = False) -> list[tuple[int, int]]:
    """Where a kept piece is found: as it is, else with other case or spacing (`% S` for `%s`)."""
    found = [(match.start(), match.end()) for match in re.finditer(re.escape(text), translation)]
    if found or exactly:
        return found
    loose = r"\s*".join(re.escape(character) for character in text if not character.isspace())
    return [(m.start(), m.end()) for m in re.finditer(loose, translation, re.IGNORECASE)] if loose else []


def whole_words(content: str, translation: str) -> list[tuple[int, int]]:
    if not any(character.isalnum() for character in content):
        return []
    found = [(match.start(), match.end()) for match in re.finditer(re.escape(content), translation)]
    return [span for span in found if not any(inside_word(translation, place) for place in span)]


def inside_word(text: str, place: int) -> bool:
    if not 0 < place < len(text) or not (text[place - 1].isalnum() and text[place].isalnum()):
        return False
    return not (CJK.match(text[place - 1]) or CJK.match(text[place]))


def nearest_like(mark: Mark, source: str, translation: str, wanted: int, low: int) -> int:
    """The place near `wanted`, not before `low`, whose surroundings are most like those the mark has in the source."""

    def spaces(text: str, place: int) -> tuple[bool, bool]:
        return place == 0 or text[place - 1].isspace(), place == len(text) or text[place].isspace()

    before, after = spaces(source, mark.place)
    weights = {Kind.OPEN: (2, 8), Kind.CLOSE: (8, 2)}.get(mark.piece.kind, (3, 3))  # a mark sticks to its content
    split_word = inside_word(source, mark.place)

    def cost(place: int) -> float:
        there = spaces(translation, place)
        unlike = weights[0] * (there[0] != before) + weights[1] * (there[1] != after)
        return abs(place - wanted) + unlike + 1000 * (not split_word and inside_word(translation, place))

    return min(range(low, len(translation) + 1), key=cost)


def nested(marks: list[Mark], places: list[int]) -> bool:
    """Whether every pair of marks opens before it closes, and closes before what is around it does."""
    opened: list[int] = []
    for number in sorted(range(len(marks)), key=lambda n: (places[n], n)):
        mark = marks[number]
        if mark.piece.kind is Kind.OPEN:
            opened.append(number)
        elif mark.piece.kind is Kind.CLOSE and (not opened or opened.pop() != mark.partner):
            return False
    return True
