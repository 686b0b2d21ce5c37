"""Where in a translation something belongs that had its place in the source.

All searches go outward from the place that the proportion gives, so that long texts with much markup stay cheap.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

# Han, kana, Hangul and their punctuation: text written without spaces between words, or nearly so
CJK = re.compile(
    r"[\u1100-\u11ff\u2e80-\u303f\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]"
)

PAUSES = ".,;:!?…，。；：！？"
NO_BREAK = "\u00a0\u2007\u202f"  # spaces at which no line ends
PAUSE = 6  # how many characters further away a line break after one of these may be
STICKS = 8  # what it costs, in characters, to part a mark from its content by a space
CONTRACTED = re.compile(r"(?<=\w)['’](?:s|t|m|d|re|ve|ll)\b", re.IGNORECASE)  # of "she's", which is one word


class Span(NamedTuple):
    """A stretch of the translation, and what is written in its place."""

    start: int
    end: int
    raw: str


class Finder:
    """Finds texts in a translation, each occurrence once at most."""

    def __init__(self, translation: str) -> None:
        self.translation = translation
        self.taken = bytearray(len(translation))
        self._exact: dict[str, list[tuple[int, int]]] = {}
        self._alike: dict[tuple[str, tuple[bool, bool]], list[list[tuple[int, int]]]] = {}

    def take(self, text: str, wanted: int, joined: tuple[bool, bool], exactly: bool) -> tuple[int, int] | None:
        """The free occurrence nearest to `wanted`. joined: whether it is a part of a word, at its start and its end."""
        for found in [self.exact(text)] if exactly else self.alike(text, joined):
            for start, end in outward_spans(found, wanted):
                if self.free(start, end):
                    self.taken[start:end] = b"\1" * (end - start)
                    return start, end
        return None

    def free(self, start: int, end: int) -> bool:
        return self.taken.find(1, start, end) < 0

    def exact(self, text: str) -> list[tuple[int, int]]:
        """In order; they may overlap."""
        if text not in self._exact:
            self._exact[text] = matches(re.escape(text), self.translation)
        return self._exact[text]

    def alike(self, text: str, joined: tuple[bool, bool]) -> list[list[tuple[int, int]]]:
        """The best first: as it is, with other case or spacing (`% S` for `%s`), inside a longer word if the text is
        long enough or special enough to be no coincidence there."""
        if (text, joined) not in self._alike:
            letters = r"\s*".join(re.escape(character) for character in text if not character.isspace())
            loose = matches(f"(?i:{letters})", self.translation) if letters else []
            found = [self.whole(self.exact(text), joined), self.whole(loose, joined)]
            if len(text) > 2 or text[:1] in "%{$":
                found += [self.exact(text), loose]
            self._alike[text, joined] = found
        return self._alike[text, joined]

    def whole(self, spans: list[tuple[int, int]], joined: tuple[bool, bool]) -> list[tuple[int, int]]:
        """Those that are no part of a word, except at the ends where the source is one too."""
        return [
            span
            for span in spans
            if all(allowed or not inside_word(self.translation, place) for place, allowed in zip(span, joined))
        ]

    def content(self, source: str, start: int, end: int, wanted: int, has_kept: bool) -> tuple[int, int] | None:
        """The nearest place where source[start:end] occurs, not as a part of a word unless it is one there.

        has_kept: whether there is a kept piece in it; then it is where that was found, else where none was.
        """
        text = source[start:end]
        if not any(map(str.isalnum, text)):
            return None
        joined = inside_word(source, start), inside_word(source, end)
        for a, b in outward_spans(self.whole(self.exact(text), joined), wanted):
            if self.free(a, b) != has_kept:
                return a, b
        return None


def matches(pattern: str, text: str) -> list[tuple[int, int]]:
    return [match.span(1) for match in re.finditer(f"(?=({pattern}))", text)]


def outward(wanted: int, low: int, high: int) -> Iterator[int]:
    """low .. high, the nearest to `wanted` first."""
    middle = min(max(wanted, low), high)
    for distance in range(max(middle - low, high - middle) + 1):
        if middle - distance >= low:
            yield middle - distance
        if distance and middle + distance <= high:
            yield middle + distance


def outward_spans(spans: list[tuple[int, int]], wanted: int) -> Iterator[tuple[int, int]]:
    """By the distance of their starts."""
    right = bisect_left(spans, (wanted, 0))
    left = right - 1
    while left >= 0 or right < len(spans):
        if right >= len(spans) or (left >= 0 and wanted - spans[left][0] <= spans[right][0] - wanted):
            yield spans[left]
            left -= 1
        else:
            yield spans[right]
            right += 1


def inside_word(text: str, place: int) -> bool:
    around = text[place - 1 : place + 1] if 0 < place < len(text) else ""
    return len(around) == 2 and all(c.isalnum() or c == "_" for c in around) and not CJK.search(around)


def contracted(text: str, place: int) -> bool:
    """Whether it is before or after the apostrophe of "she's"."""
    return any(CONTRACTED.match(text, start) for start in (place, place - 1) if start > 0)


def nearest_like(
    source: str, place: int, translation: str, wanted: int, low: int, before_after: tuple[int, int]
) -> int:
    """The place near `wanted`, not before `low`, whose surroundings are most like those of `place` in the source.

    before_after: what it costs, in characters, if there is a space before (after) only one of the two. Scripts without
    spaces fit everywhere, but content to which a mark sticks neither begins nor ends with a space in any script.
    """

    def spaces(text: str, at: int) -> tuple[bool | None, bool | None]:
        before, after = text[at - 1] if at else " ", text[at] if at < len(text) else " "
        return None if CJK.match(before) else before.isspace(), None if CJK.match(after) else after.isspace()

    def pauses(text: str, at: int) -> bool:
        return at < len(text) and text[at] in PAUSES

    opens = before_after[1] == STICKS
    there = [False if a is None and w == STICKS else a for w, a in zip(before_after, spaces(source, place))]
    splits_word = inside_word(source, place)
    best, lowest = low, float("inf")
    for candidate in outward(wanted, low, len(translation)):
        distance = abs(candidate - wanted)
        if distance >= lowest:
            break
        here = spaces(translation, candidate)
        cost = distance + sum(w for w, a, b in zip(before_after, there, here) if a is not b and None not in (a, b))
        if not splits_word and (inside_word(translation, candidate) or contracted(translation, candidate)):
            cost += 1000
        if opens and pauses(translation, candidate) and not pauses(source, place):  # nothing begins with a full stop
            cost += STICKS
        if cost < lowest:
            best, lowest = candidate, cost
    return best


def break_place(finder: Finder, wanted: int, low: int) -> tuple[int, int] | None:
    """A place for a line break: a space, or between two characters of a script without spaces if none is near.

    Where the speaker pauses, as subtitles are broken by hand, rather than between two words that belong together.
    """
    text = finder.translation
    best, lowest = None, float("inf")
    for start in outward(wanted, max(low, 1), len(text) - 1):
        distance = abs(start - wanted)
        if distance >= lowest:
            break
        pause = 0 if text[start - 1] in PAUSES else PAUSE
        if text[start].isspace() and text[start] not in NO_BREAK and finder.free(start, start + 1):
            cost = distance + (pause if distance else 0)  # what fits exactly needs nothing better
            span = start, start + 1
        elif CJK.match(text[start]) and CJK.match(text[start - 1]) and finder.free(start - 1, start + 1):
            cost, span = distance + pause + 3, (start, start)
        else:
            continue
        if cost < lowest:
            best, lowest = span, cost
    return best
