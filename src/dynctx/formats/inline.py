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
* a line break inside a sentence takes the place of the nearest space, or of one after punctuation not much further.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from typing import Any, NamedTuple

from dynctx.formats.placing import STICKS, Finder, Span, break_place, inside_word, nearest_like

Warn = Callable[[str], None]
PARTS = "parts"  # the pair of a mark that ends a sentence, such as the bracket of a note
MANY = 500  # marks of a sentence that no person wrote: their order is kept, and nothing is looked for


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
    pair: str = ""  # OPEN and CLOSE: what the two have in common; BREAK: not empty if it ends a sentence; or PARTS
    changed: str | None = None  # CLOSE: what to write instead of `raw` where the content has changed


class Mark(NamedTuple):
    place: int  # in the text of the sentence
    piece: Piece
    partner: int | None  # the other mark of the pair, if it is in the same sentence


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
    waiting: Counter[str] = Counter()  # what the opened ones wait for: one that closes none of them is passed at once
    for number, piece in enumerate(pieces):
        if piece.kind is Kind.OPEN and piece.pair:
            opened.append(number)
            waiting[piece.pair] += 1
        elif piece.kind is Kind.CLOSE and waiting[piece.pair]:
            other = opened.pop()
            waiting[pieces[other].pair] -= 1
            while pieces[other].pair != piece.pair:  # what was left open inside stays unpaired
                other = opened.pop()
                waiting[pieces[other].pair] -= 1
            found |= {other: number, number: other}
    return found


@dataclass(eq=False)
class Sentence:
    """What the model gets as one sentence, and how to dress its translation."""

    pieces: list[Piece]
    escape: Callable[[str], str]
    where: str  # file and line, for warnings
    needed: bool = True  # False: has a translation already and is context alone
    place: Mapping[str, Any] = field(default_factory=dict)  # what people find it by: line, subtitle, unit

    def __post_init__(self) -> None:
        self.text = "".join(piece.text for piece in self.pieces)
        self.raw = "".join(piece.raw for piece in self.pieces)

    def dressed(self, translation: str, warn: Warn) -> str:
        """The translation with the sentence's marks, kept pieces and line breaks."""
        if translation == self.text:
            return self.raw
        finder = Finder(translation)
        held, lost = self._find_kept(finder)
        marks = self._marks()
        places = self._places(marks, finder)
        breaks = self._find_breaks(finder)
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

    def _find_kept(self, finder: Finder) -> tuple[list[Span], list[str]]:
        """Where they are found, and those that are lost; the longest first, lest a part of it be taken for another."""
        found: list[Span] = []
        lost: list[tuple[int, str]] = []
        places = list(accumulate((len(piece.text) for piece in self.pieces), initial=0))
        for place, piece in sorted(zip(places, self.pieces), key=lambda item: -len(item[1].text)):
            if piece.kind is Kind.KEPT or (piece.kind is Kind.TEXT and piece.raw != piece.text):
                wanted = self._scaled(place, finder.translation)
                joined = inside_word(self.text, place), inside_word(self.text, place + len(piece.text))
                span = finder.take(piece.text, wanted, joined, exactly=piece.kind is Kind.TEXT)
                if span is not None:
                    found.append(Span(*span, piece.raw))
                elif piece.kind is Kind.KEPT:
                    lost.append((place, piece.raw))
        return found, [raw for _, raw in sorted(lost)]

    def _find_breaks(self, finder: Finder) -> list[Span]:
        """Line breaks in order, each with a place of its own; one for which there is none is left out."""
        found: list[Span] = []
        place = low = 0
        for piece in self.pieces:
            if piece.kind is Kind.BREAK:
                span = break_place(finder, self._scaled(place, finder.translation), low)
                if span is None:
                    break
                found.append(Span(*span, piece.raw))
                low = span[0] + 1
            place += len(piece.text)
        return found

    def _places(self, marks: list[Mark], finder: Finder) -> list[int]:
        """Where each mark goes. Around what is found word for word, if all marks still nest; else all in order."""
        places = self._in_order(marks, finder)
        if len(marks) > MANY or any(mark.partner is None and mark.piece.kind is not Kind.SINGLE for mark in marks):
            return places
        moved = list(places)
        for number, mark in enumerate(marks):
            if mark.piece.kind is Kind.OPEN and mark.partner is not None:
                wanted = self._scaled(mark.place, finder.translation)
                end = marks[mark.partner].place
                span = finder.content(self.text, mark.place, end, wanted, self._has_kept(mark.place, end))
                if span is not None:
                    moved[number], moved[mark.partner] = span
        return moved if nested(marks, moved) else places

    def _has_kept(self, start: int, end: int) -> bool:
        place = 0
        for piece in self.pieces:
            if piece.kind is Kind.KEPT and start <= place < end:
                return True
            place += len(piece.text)
        return False

    def _in_order(self, marks: list[Mark], finder: Finder) -> list[int]:
        places: list[int] = []
        translation, low = finder.translation, 0
        for number, mark in enumerate(marks):
            if number and mark.place == marks[number - 1].place:  # marks that stood together stay together
                places.append(low)
                continue
            wanted = self._scaled(mark.place, translation)
            weights = {Kind.OPEN: (2, STICKS), Kind.CLOSE: (STICKS, 2)}.get(mark.piece.kind, (3, 3))
            low = nearest_like(self.text, mark.place, translation, wanted, low, weights)
            places.append(low)
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
