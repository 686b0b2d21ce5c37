"""A file taken apart: what stays as it is, and the sentences whose translations take the place of the rest.

Every format is read into a `Template`, and this is the one way back: the parts in order, each passage filled with
its translations. What is not a passage is never touched, so layout, comments and line ends come out as they were.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, NamedTuple

from dynctx.document_formats import SPACES, sentence_of
from dynctx.documents import Document
from dynctx.errors import at
from dynctx.formats.inline import PARTS, Kind, Piece, Sentence, Warn, partners
from dynctx.formats.placeholders import IS_ADDRESS
from dynctx.formats.placing import CJK
from dynctx.formats.sentences import spans_between, split
from dynctx.languages import is_read

ENDED = re.compile(r"""[.。!！?？…:：;；]["'”’」』)）\]】]*$""")
FULL_STOP = re.compile(r"(?<!\S)([^\s.。]+)[.。]$")  # not that of "U.S." or "..."


def as_it_is(text: str) -> str:
    return text


class Between(NamedTuple):
    """What stands between two sentences. A space that only the other language needs comes after what closes here."""

    closing: str
    opening: str = ""

    @property
    def raw(self) -> str:
        return self.closing + self.opening


@dataclass(eq=False)
class Passage:
    """A paragraph, a subtitle, a segment: sentences and what stands around and between them."""

    parts: list[str | Between | Sentence]
    finish: Callable[[str], str] = as_it_is  # what the format does with the whole of it, quoting for instance
    title: bool = False  # a heading, a cell, a label: has no full stop unless the source has one

    @property
    def sentences(self) -> list[Sentence]:
        return [part for part in self.parts if isinstance(part, Sentence)]

    def filled(self, translations: Mapping[Sentence, str], warn: Warn) -> str:
        written: list[str] = []
        for number, part in enumerate(self.parts):
            if isinstance(part, Sentence):
                written.append(part.dressed(translations[part], warn))
            elif isinstance(part, Between):
                left, right = self.parts[number - 1], self.parts[number + 1]
                assert isinstance(left, Sentence) and isinstance(right, Sentence)
                written.append(gap(part, left.text, right.text, translations[left], translations[right]))
            else:
                written.append(self._edge(part, number, translations))
        return self.finish("".join(written))

    def _edge(self, part: str, number: int, translations: Mapping[Sentence, str]) -> str:
        """What stands before the first sentence or after the last, apart from it where the new language has spaces."""
        for other, place, back in ((number + 1, 0, -1), (number - 1, -1, 0)):
            beside = self.parts[other] if 0 <= other < len(self.parts) else ""
            if not isinstance(beside, Sentence) or not part or not part[back].isalnum() or not translations[beside]:
                continue
            if CJK.match(beside.text[place]) and not CJK.match(translations[beside][place]):
                return f" {part}" if place else f"{part} "
        return part


def gap(between: Between, left: str, right: str, new_left: str, new_right: str) -> str:
    """What stands between two sentences: a space comes or goes where only one of the languages writes one."""

    def spaced(a: str, b: str) -> bool:
        return bool(a and b) and not (CJK.match(a[-1]) and CJK.match(b[0]))

    raw = between.raw
    if raw == " " and spaced(left, right) and new_left and new_right and not spaced(new_left, new_right):
        return ""
    ends = ((left[-1:], new_left[-1:]), (right[:1], new_right[:1]))
    changed = any(CJK.match(old) and not CJK.match(new) for old, new in ends)
    if changed and spaced(new_left, new_right) and not any(map(str.isspace, raw)):
        return f"{between.closing} {between.opening}"
    return raw


@dataclass
class Group:
    """The sentences of one document, in order."""

    id: str
    sentences: list[Sentence]


@dataclass
class Template:
    name: str  # the file, for messages
    format: str
    parts: list[str | Passage] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    encoding: str = "utf-8"
    errors: str = "strict"  # what becomes of a character that the encoding lacks

    def needed(self, scope: int, language: str = "") -> Template:
        """Without sentences that have a translation and are no candidate of one that needs it; empty lines and those in
        another script than the language's are nobody's, and not counted."""
        groups = []
        for group in self.groups:
            left = 0  # candidates that the last sentence which needs a translation, seen from the end, may still have
            kept: list[Sentence] = []
            for sentence in reversed(group.sentences):
                if sentence.needed:
                    kept.append(sentence)
                    left = scope
                elif left:
                    kept.append(sentence)
                    left -= is_read(sentence.text, language)
            if kept:
                groups.append(Group(group.id, kept[::-1]))
        return replace(self, groups=groups)

    @property
    def documents(self) -> list[Document]:
        return [Document(group.id, tuple(sentence.text for sentence in group.sentences)) for group in self.groups]

    @property
    def places(self) -> list[list[Mapping[str, Any]]]:
        """Where in the file each sentence of each document is found."""
        return [[sentence.place for sentence in group.sentences] for group in self.groups]

    def filled(self, documents: Sequence[Document], warn: Warn) -> bytes:
        """The file with these translations of its documents."""
        return self.text(documents, warn).encode(self.encoding, self.errors)

    def text(self, documents: Sequence[Document], warn: Warn) -> str:
        translations = {
            sentence: sentence_of(translation)
            for group, document in zip(self.groups, documents)
            for sentence, translation in zip(group.sentences, document.sentences)
        }
        for passage in self.parts:
            if isinstance(passage, Passage) and passage.title:
                for last in passage.sentences[-1:]:
                    if not ENDED.search(last.text):
                        translations[last] = FULL_STOP.sub(r"\1", translations[last])
        return "".join(part if isinstance(part, str) else part.filled(translations, warn) for part in self.parts)


class Builder:
    """Collects the parts of a template in the order of the file."""

    def __init__(self, name: str, format: str, language: str = "") -> None:
        self.template, self.language = Template(name, format), language
        self._fresh = True  # the next sentence starts a document
        self._id: str | None = None
        self.place: dict[str, Any] = {}  # of what is added, besides the line

    def literal(self, text: str) -> None:
        if text:
            self.template.parts.append(text)

    def new_document(self, id: str | None = None) -> None:
        self._fresh, self._id = True, id

    def passage(
        self,
        pieces: list[Piece],
        line: int,
        *,
        escape: Callable[[str], str] = as_it_is,
        whole: bool = False,
        needed: bool = True,
        every: bool = False,
        title: bool = False,
    ) -> Passage:
        """Sentences of pieces, added to the document; where the passage is written is the caller's to say.

        whole: one sentence, split by nothing but marks that say so. needed: False where a translation is there
        already. every: also what has no letter in it, "..." and "42" and code, which is left alone otherwise. title: as
        that of a heading, its translation gets no full stop that the source does not have.
        """
        where = at(self.template.name, line)
        parts = assemble(pieces, self.language, escape, where, whole=whole, needed=needed, every=every)
        passage = Passage(parts, title=title)
        for sentence in passage.sentences:
            sentence.place = {**self.place, "line": line}
        if passage.sentences:
            if self._fresh:
                groups = self.template.groups
                groups.append(Group(self._id if self._id is not None else str(len(groups) + 1), []))
                self._fresh = False
            self.template.groups[-1].sentences += passage.sentences
        return passage

    def write(self, passage: Passage) -> None:
        self.template.parts.append(passage)


def assemble(
    pieces: list[Piece],
    language: str,
    escape: Callable[[str], str],
    where: str,
    *,
    whole: bool = False,
    needed: bool = True,
    every: bool = False,
) -> list[str | Between | Sentence]:
    """A passage as sentences, each with the marks inside it, and literal text: what is around and between."""
    text = "".join(map(outline, pieces))
    spans = spans_between(text, places_of_parting(pieces)) if whole else split(text, language)
    spans = without_addresses(text, spans, pieces)
    atoms = divided(pieces, {place for span in spans for place in span})
    parts: list[str | Between | Sentence] = []
    loose: list[Piece] = []  # outside of all sentences, since the last one
    for owner, run in groupby(zip(owned(atoms, spans), atoms), key=itemgetter(0)):
        members = [piece for _, (_, piece) in run]
        if owner is None or not (every or has_words(members)):
            loose += members
            continue
        if parts:
            parts.append(between(loose))
        elif loose:
            parts.append("".join(piece.raw for piece in loose))
        parts.append(Sentence(members, escape, where, needed))
        loose = []
    return [*parts, "".join(piece.raw for piece in loose)] if loose else parts


def between(pieces: list[Piece]) -> Between:
    first = next((n for n, piece in enumerate(pieces) if piece.kind is Kind.OPEN), len(pieces))
    closing, opening = ("".join(piece.raw for piece in part) for part in (pieces[:first], pieces[first:]))
    return Between(closing, opening)


def has_words(pieces: list[Piece]) -> bool:
    """Whether there is anything to translate: a letter outside of code and placeholders."""
    return any(piece.kind is Kind.TEXT and any(map(str.isalpha, piece.text)) for piece in pieces)


def outline(piece: Piece) -> str:
    """A piece as the splitting into sentences sees it."""
    if piece.kind is Kind.KEPT:  # code and placeholders may hold full stops; no sentence ends inside
        return "x" * len(piece.text)
    if piece.kind is Kind.BREAK:  # an empty line ends a sentence, and so does a break that was made on purpose
        return "\n" if piece.pair or piece.raw.count("\n") > 1 else " "
    return piece.text


def places_of_parting(pieces: list[Piece]) -> list[int]:
    places = accumulate((len(piece.text) for piece in pieces), initial=0)
    return [place for place, piece in zip(places, pieces) if piece.pair is PARTS]


def without_addresses(text: str, spans: list[tuple[int, int]], pieces: list[Piece]) -> list[tuple[int, int]]:
    """An address that a sentence begins or ends with stays there: what it says does not depend on it."""
    ends: dict[int, int] = {}  # where each address begins, and where it ends
    for place, piece in zip(accumulate((len(piece.text) for piece in pieces), initial=0), pieces):
        if piece.kind is Kind.KEPT and IS_ADDRESS.fullmatch(piece.text):
            ends[place] = place + len(piece.text)
    starts = {end: start for start, end in ends.items()}
    found = []
    for whole in spans:
        start, end = whole
        while start in ends and start < end:
            start = ends[start]
            start += len(text[start:end]) - len(text[start:end].lstrip(SPACES))
        while end in starts and start < end:
            end = start + len(text[start : starts[end]].rstrip(SPACES))
        found.append((start, end) if start < end else whole)
    return found


def divided(pieces: list[Piece], borders: set[int]) -> list[tuple[int, Piece]]:
    """Each piece with its place in the text; text is cut at the borders of sentences."""
    found: list[tuple[int, Piece]] = []
    ordered, place = sorted(borders), 0
    for piece in pieces:
        end = place + len(piece.text)
        inner = [b - place for b in ordered[bisect_right(ordered, place) : bisect_left(ordered, end)]]
        if inner and piece.kind is Kind.TEXT and len(piece.raw) == len(piece.text):
            for a, b in zip([0, *inner], [*inner, len(piece.text)]):
                found.append((place + a, Piece(Kind.TEXT, piece.raw[a:b], piece.text[a:b])))
        else:
            found.append((place, piece))
        place = end
    return found


def owned(atoms: list[tuple[int, Piece]], spans: list[tuple[int, int]]) -> list[int | None]:
    """The number of the sentence that each atom is inside of.

    A mark at the edge of a sentence is inside if its partner is (`[link](target) and more`), else around it.
    """
    starts = [start for start, _ in spans]
    pairs = partners([piece for _, piece in atoms])

    def holder(place: int, strictly: bool) -> int | None:
        number = (bisect_left if strictly else bisect_right)(starts, place) - 1
        return number if number >= 0 and place < spans[number][1] else None

    owners: list[int | None] = []
    for index, (place, piece) in enumerate(atoms):
        owner = holder(place, strictly=not piece.text)
        if owner is None and index in pairs:
            other = holder(atoms[pairs[index]][0], strictly=True)
            owner = other if other is not None and place in spans[other] else None
        owners.append(owner)
    # a mark between one that is inside and the text of the sentence is inside with it
    for step, edge in ((1, 0), (-1, 1)):
        for index in list(range(len(atoms)))[::step]:
            beside = index - step
            if owners[index] is not None or not 0 <= beside < len(atoms) or atoms[beside][1].text:
                continue
            owner = owners[beside]
            if owner is not None and atoms[index][0] == atoms[beside][0] == spans[owner][edge]:
                owners[index] = owner if not atoms[index][1].text else None
    return owners
