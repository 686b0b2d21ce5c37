"""HTML (.html, .htm): the text between block tags is translated; tags, comments, scripts and code stay.

Inline tags (emphasis, links) are marks inside a sentence, as in the other formats. HTML of the wild is often broken,
so nothing is refused: what does not look like a tag is text, and a tag that has no partner stays where it was.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from html.entities import html5
from typing import NamedTuple

from dynctx.errors import DynctxError, at
from dynctx.formats.inline import Kind, Piece, kept, single, text_piece
from dynctx.formats.placeholders import protected
from dynctx.formats.template import Builder, Template

# possessive (*+): a tag that never ends is found out in one pass, not in one for each of its letters
VALUE = r"""(?:"[^"]*+"|'[^']*+'|[^\s"'<>][^\s<>]*+)"""
# as browsers read it: a quotation mark that is not just after a = is a part of a name
TAG = re.compile(rf"""</?([a-zA-Z][^\s/<>"']*+)(?:[\s/]++|=?[^\s/<>=]++(?:\s*+=\s*+{VALUE}?+)?+|=)*+>""")
INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|data|del|dfn|em|font|i|ins|label|mark|q|rb|ruby|s|small|span|strike|strong|sub|sup|"
    "time|tt|u"
)
TITLES = re.compile("h[1-6]|title|th|td|caption|button|option|legend|summary|dt")
UNCLOSED = ("p", "li", "dt", "dd", "td", "th", "tr", "option", "rt", "rp")  # elements whose end tag may be left out
CODE = ("code", "kbd", "samp", "var")  # inside a sentence, but not translated
MARKS = ("svg", "math", "rt", "rp")  # inside a sentence, and not read: pictures, and how a word is pronounced
KEPT_WHOLE = (*CODE, *MARKS, "pre", "textarea")
RAW = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style")}  # hold no tags
NO_TRANSLATION = re.compile(
    r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*(?:["'][^"']*(?<![\w\-]))?notranslate(?![\w\-])""", re.IGNORECASE
)
VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
IN_LINE_VOID = ("img", "input", "wbr")  # those that part no sentences
# entities that browsers also read without a semicolon
OLD = "|".join(sorted((name for name in html5 if not name.endswith(";")), key=len, reverse=True))
# what is written otherwise than it is read: entities, and white space, of which any amount is one space
SPELLED = re.compile(
    r"(&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});"
    rf"|&(?:{OLD})"
    r"|(?:[\t\r\n\f]| (?=[ \t\r\n\f]))[ \t\r\n\f]*)"
)


class Markup(NamedTuple):
    """A tag, a comment, or an element that is kept whole, by its place in the text."""

    start: int
    end: int
    name: str = ""  # in lower case; empty where it is no element
    opens: bool = False
    whole: bool = False


def read(text: str, name: str, language: str = "") -> Template:
    """The file is one document."""
    builder = Builder(name, "html", language)
    line, title = 1, False
    for block in blocks(text):
        if isinstance(block, str):
            builder.literal(block)
            tag = TAG.fullmatch(block)
            title = tag is not None and block[1] != "/" and TITLES.fullmatch(tag[1].lower()) is not None
            line += block.count("\n")
        else:
            raw = "".join(piece.raw for piece in block)
            before = raw[: len(raw) - len(raw.lstrip())].count("\n")
            builder.write(builder.passage(block, line + before, escape=escape, title=title))
            line += raw.count("\n")
    if not text.strip():
        raise DynctxError(f"{at(name)}: holds no text; check that it is the file you mean")
    return builder.template


def escape(text: str) -> str:
    return html.escape(text, quote=False)


def blocks(text: str) -> Iterator[str | list[Piece]]:
    """What stands between block tags, as pieces, and all the rest as it is, in order."""
    pieces: list[Piece] = []
    end = 0
    for mark in elements(text):
        pieces += spelled(text[end : mark.start])
        end = mark.end
        raw = text[mark.start : mark.end]
        piece = inline(mark, raw)
        if piece is not None:
            pieces.append(piece)
            continue
        if pieces:
            yield protected(pieces)
        yield raw
        pieces = []
    pieces += spelled(text[end:])
    if pieces:
        yield protected(pieces)


def inline(mark: Markup, raw: str) -> Piece | None:
    """As a piece of a sentence, if it can stand inside of one."""
    in_line = INLINE.fullmatch(mark.name) is not None
    if raw.startswith("<!--") or mark.name in IN_LINE_VOID or mark.name in MARKS:
        return single(raw)
    if mark.whole and (in_line or mark.name in CODE):
        inner = shown(raw)
        return kept(raw, inner) if inner else single(raw)
    if in_line and not mark.whole:
        return Piece(Kind.OPEN if mark.opens else Kind.CLOSE, raw, pair=mark.name)
    return None


def shown(raw: str) -> str:
    """The text of an element."""
    found, end = [], 0
    for start, after, _, _ in markup(raw):
        found.append(raw[end:start])
        end = after
    return " ".join(html.unescape("".join([*found, raw[end:]])).split())


def spelled(text: str) -> list[Piece]:
    pieces = []
    for number, part in enumerate(SPELLED.split(text)):
        if number % 2:
            read = " " if part.isspace() else html.unescape(part)
            pieces.append(Piece(Kind.TEXT, part, read))
        elif part:
            pieces.append(text_piece(part))
    return pieces


class Whole:
    """An element that is kept whole, and what is open in it."""

    def __init__(self, name: str, first: int) -> None:
        self.name, self.first = name, first
        self.inside: list[str] = []
        self.count: Counter[str] = Counter()  # of these, by name: in long rows of tags nothing is looked for

    def ended_before(self, name: str, opens: bool) -> bool:
        """Whether a tag shows that the element's own end tag was left out: its like, or the end of what is around."""
        if self.name not in UNCLOSED or self.count[name] or (name == self.name and not opens):
            return False
        return (name == self.name and not self.inside) or (bool(name) and not opens)

    def ends_with(self, name: str, opens: bool, alone: bool) -> bool:
        """Take in a tag; True if it is the element's end."""
        if opens:
            if not alone:
                self.inside.append(name)
                self.count[name] += 1
            return False
        if not self.count[name]:
            return name == self.name
        while (last := self.inside.pop()) != name:  # what was open inside ends with it
            self.count[last] -= 1
        self.count[name] -= 1
        return False


def elements(text: str) -> Iterator[Markup]:
    """Tags, comments and elements that hold no prose, in order."""
    whole: Whole | None = None
    for start, end, name, opens in markup(text):
        alone = name in VOID or text.endswith("/>", start, end)
        if whole is not None and whole.ended_before(name, opens):
            yield Markup(whole.first, start, whole.name, whole=True)
            whole = None
        if whole is not None:
            if whole.ends_with(name, opens, alone):
                yield Markup(whole.first, end, whole.name, whole=True)
                whole = None
        elif opens and name not in VOID and (name in KEPT_WHOLE or NO_TRANSLATION.search(text, start, end)):
            if alone:
                yield Markup(start, end, name, whole=True)
            else:
                whole = Whole(name, start)
        else:
            yield Markup(start, end, name, opens)
    if whole is not None:
        yield Markup(whole.first, len(text))


def markup(text: str) -> Iterator[tuple[int, int, str, bool]]:
    """Tags and comments: begin, end, name in lower case, whether it opens. Reads the text once, whatever it holds."""
    at = 0
    while (at := text.find("<", at)) >= 0:
        name, opens = "", False
        if text.startswith("<!--", at):
            end = past(text, "-->", at + 4)
        elif text.startswith(("<!", "<?"), at):
            end = past(text, ">", at)
        elif tag := TAG.match(text, at):
            end, name, opens = tag.end(), tag[1].lower(), text[at + 1] != "/"
            if opens and name in RAW:
                closing = RAW[name].search(text, end)
                end = closing.start() if closing else len(text)
        else:  # a lone "<" is text
            at += 1
            continue
        yield at, end, name, opens
        at = end


def past(text: str, closing: str, start: int) -> int:
    """Where what ends with `closing` ends; without one it is the rest of the text, as browsers have it."""
    found = text.find(closing, start)
    return found + len(closing) if found >= 0 else len(text)
