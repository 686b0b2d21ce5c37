"""Markdown (.md): headings, paragraphs, list items and table cells are translated, everything else stays.

markdown-it finds the blocks; of each it tells the lines and the text, which is looked up in those lines, so that
indentation, quote marks, bullets, code blocks, HTML blocks, front matter and link definitions are never touched.
Inside a block: code, addresses, images and footnote marks are kept; the text of links and emphasis is translated,
their marks follow it (see `inline`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection, Iterator
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from dynctx.files import BOM
from dynctx.formats.inline import Kind, Piece, kept, line_break, single, text_piece
from dynctx.formats.lines import lines_of
from dynctx.formats.placeholders import protected
from dynctx.formats.sentences import is_chinese
from dynctx.formats.template import Builder, Template
from dynctx.formats.xml import VOID

if TYPE_CHECKING:
    from markdown_it.rules_block import StateBlock

FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\n(?:.*\n)*?(?:\1|(?<=\n)\.\.\.)[ \t]*(?:\n|$)")
CONTAINER = re.compile(r"(?::{3,}|!!!|\?\?\?|===[!+]? (?=\"))")  # admonitions and tabs of several site generators
CONTAINER_TITLE = re.compile(r'"([^"]*[^"\s][^"]*)"\s*\Z')
DEFINITION = re.compile(r":[ \t]+(?=\S)")  # below a term: what it is
# what follows one of these, indented, is in it
INDENTED_BELOW = re.compile(r"(?:!!!|\?\?\?\+?) |===[!+]? \"|\[\^[^\]\s]+\]:|:[ \t]+\S")
INDENT = re.compile(r" {4}| {0,3}\t")
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
TARGET = r"\((?:[^()\\]|\\.|\((?:[^()\\]|\\.)*+\))*+\)"  # (address "title")
LABEL = r"[^\[\]\\]|\\.|\[(?:[^\[\]\\]|\\.)*+\]"  # what may stand in brackets
MARKUP = re.compile(
    rf"""
      (?P<escape>\\[!-/:-@\[-`{{-~])
    | (?P<code>(?P<ticks>(?<!`)`++)(?P<content>.+?)(?<!`)(?P=ticks)(?!`))
    | (?P<single>
          !\[(?:{LABEL})*+\](?:{TARGET}|\[[^\[\]]*\])           # an image
        | \[\^[^\]\s]+\]:?                                       # a footnote
        | \[![A-Za-z]+\]                                         # > [!NOTE]
        | \A\[[ xX]\](?=\s)                                      # a task
        | \{{[#.:][^{{}}]*\}}                                    # {{#anchor}}
        | <!--.*?-->
      )
    | !\[(?P<image>(?:{LABEL})*+)\]                            # one by its text alone, or brackets
    | \[(?P<label>(?:[^\[\]\\`]|\\.|`[^`]*+`|\[(?:[^\[\]\\]|\\.)*+\])*+)\](?P<target>{TARGET}|\[[^\[\]]*\])?
    | (?P<kept>
          <(?:[a-zA-Z][a-zA-Z0-9+.\-]*:[^\s<>]*|[^\s<>@]+@[^\s<>@]+)>
        | (?:https?://|www\.)(?:[^\s<>()\[\]`|]|\([^\s<>()\[\]`|]*\))*(?:[^\s<>()\[\]`|.,;:!?'"*_~]|\([^\s<>()\[\]`|]*\))
        | \$\$.+?\$\$
        | (?<![\w$])\$(?![\s$])(?:[^$\\\n]|\\.)*?(?<![\s\\])\$(?![\w$])    # $x_i$, but not $5 and $6
        | \{{\{{.*?\}}\}} | \{{%.*?%\}}
      )
    | (?P<element><(?P<name>code|kbd|samp|var)(?:\s[^<>]*)?>(?P<inside>[^<>]*)</(?P=name)>)
    | <(?P<close>/?)(?P<tag>[a-zA-Z][\w\-]*)(?:\s[^<>]*)?/?>
    | (?P<entity>&(?:[a-zA-Z][a-zA-Z0-9]*|\#[0-9]+|\#[xX][0-9a-fA-F]+);)
    | (?P<emphasis>\*+|_+|~~)
    """,
    re.VERBOSE | re.DOTALL,
)


Place = tuple[int, int, int]  # a line of the file, and from which column to which


class Delimiter(NamedTuple):
    raw: str
    opens: bool
    closes: bool


def read(text: str, name: str, language: str = "") -> Template:
    from markdown_it import MarkdownIt

    lines = lines_of(text)
    # a lone \r ends a line for markdown-it, and not for us; the marks at the start are not text
    body = text.replace("\r\n", "\n").replace("\r", " ").replace(BOM, " ")
    front = FRONT_MATTER.match(body.removeprefix(" ") if text.startswith(BOM) else body)
    skipped = front[0].count("\n") + (not front[0].endswith("\n")) if front else 0
    body = "\n" * skipped + "\n".join(unindented(body.split("\n")[skipped:]))
    environment: dict[str, Any] = {}
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])  # what is inside of blocks is looked at here
    parser.block.ruler.at("reference", no_footnote)
    tokens = parser.parse(body, environment)
    references = {label.casefold() for label in environment.get("references", {})}

    builder = Builder(name, "md", language)
    writer = Writer(builder, lines)
    cell = heading = False
    for token in tokens:
        if token.type in ("th_open", "td_open", "th_close", "td_close"):
            cell = token.nesting == 1
        elif token.type in ("heading_open", "heading_close"):
            heading = token.nesting == 1
        elif token.type == "inline" and token.map and token.content:
            content = token.content.replace("|", "\\|") if cell else token.content
            writer.block(content.split("\n"), token.map[0], references, cell, cell or heading)
    writer.finish()
    return builder.template


def no_footnote(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """CommonMark's link definitions, without `[^1]: 脚注`: text without spaces would pass for an address."""
    from markdown_it.rules_block import reference

    if state.src.startswith("[^", state.bMarks[line] + state.tShift[line]):
        return False
    return reference(state, line, end, silent)


def unindented(lines: list[str]) -> list[str]:
    """The lines below a footnote, a definition or the head of an admonition, without the indentation that puts them
    there: CommonMark, which knows none of these, would take them for code."""
    found: list[str] = []
    depth, fence = 0, ""  # how many of these the line is in
    for line in lines:
        inside = start = 0
        while inside < depth and (indent := INDENT.match(line, start)):
            start, inside = indent.end(), inside + 1
        line = line[start:]
        if inside < depth and line.strip():  # the end of some, and of a fence in them
            depth, fence = inside, ""
        if mark := FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence) and not line.strip(" \t`~"):
                fence = ""
        if not fence and INDENTED_BELOW.match(line):
            depth += 1
        found.append(line)
    return found


def definitions(members: list[tuple[str, Place]], split: bool) -> Iterator[tuple[list[str], list[Place]]]:
    """A term and what it is, each by itself and without its mark; all else as it is."""
    texts: list[str] = []
    places: list[Place] = []
    for text, (line, start, end) in members:
        if split and (mark := DEFINITION.match(text)):
            if texts:
                yield texts, places
            texts, places = [], []
            text, start = text[mark.end() :], start + mark.end()
        texts.append(text)
        places.append((line, start, end))
    yield texts, places


class Writer:
    """Walks through the lines of a file, from one block of text to the next."""

    def __init__(self, builder: Builder, lines: list[str]) -> None:
        self.builder, self.lines = builder, lines
        self.line = self.column = 0  # what is before is written

    def block(self, content: list[str], first: int, references: set[str], cell: bool, title: bool) -> None:
        """The lines of a block's text, of which the first is in line `first` of the file."""
        places = []
        content = [content[0], *(text.lstrip(" \t") for text in content[1:])]  # a tab is read as spaces
        for offset, text in enumerate(content):
            number = first + offset
            start = self.column if (number, offset) == (self.line, 0) else 0
            line = self.lines[number] if number < len(self.lines) else ""
            # cells come one after the other; other text is the last of its line, after numbers and quote marks
            found = line.find(text, start) if cell else line.rfind(text, start)
            if found < 0:
                return  # written otherwise than read; it stays as it is
            places.append((number, found, found + len(text)))
        for head, members in groupby(zip(content, places), key=lambda item: bool(CONTAINER.match(item[0]))):
            if head:  # and the ::: that ends one: no text, but for a title
                for text, (number, start, _) in members:
                    if found_title := CONTAINER_TITLE.search(text):
                        span = (number, start + found_title.start(1), start + found_title.end(1))
                        self.passage([found_title[1]], [span], references, cell, title=True, escaped=escape_quoted)
            else:
                for texts, spans in definitions(list(members), split=not (cell or title)):
                    self.passage(texts, spans, references, cell, title)

    def passage(
        self,
        content: list[str],
        places: list[Place],
        references: set[str],
        cell: bool,
        title: bool,
        escaped: Callable[[str], str] | None = None,
    ) -> None:
        (line, start, _), (last, _, end) = places[0], places[-1]
        self.copy_until(line, start)
        text = "\n".join(content)
        # line ends, with indentation and quote marks; in Chinese each ends a sentence
        breaks = (self.lines[a[0]][a[2] :] + self.lines[b[0]][: b[1]] for a, b in pairwise(places))
        pieces = list(with_breaks(protected(pieces_of(text, references)), breaks, is_chinese(text)))
        passage = self.builder.passage(
            pieces, line + 1, escape=escaped or (escape_cell if cell else escape), title=title
        )
        if not cell and not escaped:
            ends = {piece.raw for piece in pieces if piece.kind is Kind.BREAK and "\n" in piece.raw}
            passage.finish = no_new_block("".join(piece.raw for piece in pieces), ends)
        self.builder.write(passage)
        self.line, self.column = last, end

    def copy_until(self, line: int, column: int) -> None:
        if line > self.line:
            self.builder.literal(self.lines[self.line][self.column :] + "".join(self.lines[self.line + 1 : line]))
            self.column = 0
        self.builder.literal(self.lines[line][self.column : column] if line < len(self.lines) else "")
        self.line, self.column = line, column

    def finish(self) -> None:
        if self.line < len(self.lines):
            self.copy_until(len(self.lines), 0)


def with_breaks(pieces: list[Piece], breaks: Iterator[str], chinese: bool) -> Iterator[Piece]:
    """Each line end in the text as a piece of its own, written as in the file; a hard break ends a sentence."""
    for piece in pieces:
        if piece.kind is Kind.TEXT and "\n" in piece.raw:
            before = ""
            for number, line in enumerate(piece.text.split("\n")):
                if number:
                    backslash = "\\" if before.endswith("\\") else ""
                    hard = chinese or bool(backslash) or before.endswith("  ")
                    yield line_break(backslash + next(breaks), hard)
                before = line
                text = line.removesuffix("\\") if number < piece.text.count("\n") else line
                if text:
                    yield text_piece(text)
        elif "\n" in piece.raw:
            raw = re.sub("\n", lambda _: next(breaks), piece.raw)
            yield piece._replace(raw=raw, text=piece.text.replace("\n", " "))
        else:
            yield piece


def pieces_of(text: str, references: set[str]) -> list[Piece]:
    found: list[Piece | Delimiter] = []
    position = 0
    for match in MARKUP.finditer(text):
        pieces = pieces_of_match(match, references)
        if match.start() > position:
            found.append(text_piece(text[position : match.start()]))
        found += pieces
        position = match.end()
    if position < len(text):
        found.append(text_piece(text[position:]))
    return pair_emphasis(found)


def pieces_of_match(match: re.Match[str], references: set[str]) -> list[Piece] | list[Delimiter]:
    raw = match[0]
    if match["escape"]:
        return [Piece(Kind.TEXT, raw, raw[1])]
    if match["code"]:
        return [kept(raw, match["content"].strip() or raw)]
    if match["element"]:
        return [kept(raw, html.unescape(match["inside"]).strip() or raw)]
    if match["kept"]:
        return [kept(raw)]
    if match["single"]:
        return [single(raw)]
    if match["image"] is not None:
        if is_name(match["image"], references):
            return [single(raw)]
        return [text_piece("!["), *pieces_of(match["image"], references), text_piece("]")]
    if match["entity"]:
        return [Piece(Kind.TEXT, raw, html.unescape(raw))]
    if match["emphasis"]:
        return [delimiter(match)]
    if match["tag"]:
        tag = match["tag"].lower()
        if tag == "br":
            return [line_break(raw, ends_sentence=True)]
        if tag in VOID or raw.endswith("/>"):
            return [single(raw)]
        return [Piece(Kind.CLOSE if match["close"] else Kind.OPEN, raw, pair=f"<{tag}")]
    return link(match, references)


def link(match: re.Match[str], references: set[str]) -> list[Piece]:
    label, target = match["label"], match["target"] or ""
    if not target.startswith("(") and not is_name(target[1:-1] or label, references):  # brackets that are text
        return [text_piece("["), *pieces_of(label, references), text_piece("]" + target)]
    changed = f"][{' '.join(label.split())}]" if target in ("", "[]") else None  # the name of the link was its text
    pair = f"[{match.start()}"
    return [
        Piece(Kind.OPEN, "[", pair=pair),
        *pieces_of(label, references),
        Piece(Kind.CLOSE, f"]{target}", pair=pair, changed=changed),
    ]


def is_name(text: str, references: set[str]) -> bool:
    """Whether a link or an image can be found by this."""
    return " ".join(text.split()).casefold() in references


def delimiter(match: re.Match[str]) -> Delimiter:
    """Whether a run of * or _ can open or close emphasis here: CommonMark's flanking rules."""
    before = match.string[match.start() - 1 : match.start()] or " "
    after = match.string[match.end() : match.end() + 1] or " "

    def is_word(character: str) -> bool:
        return character.isalnum()

    left = not after.isspace() and (is_word(after) or not is_word(before))
    right = not before.isspace() and (is_word(before) or not is_word(after))
    if match[0].startswith("_"):
        left, right = left and not is_word(before), right and not is_word(after)
    return Delimiter(match[0], left, right)


def pair_emphasis(found: list[Piece | Delimiter]) -> list[Piece]:
    """Delimiters that belong together become marks; the others are text.

    A run may be several marks, each with a partner of its own: the *** of **bold *and more*** ends both.
    """
    runs = {number: item for number, item in enumerate(found) if isinstance(item, Delimiter)}
    left = {number: len(item.raw) for number, item in runs.items()}
    marks: dict[int, list[Piece]] = {number: [] for number in runs}  # the innermost first
    opened: list[int] = []
    for number, item in runs.items():
        while item.closes and left[number]:
            same = [place for place in opened if fits(runs[place], item)]
            if not same:
                break
            first = same[-1]
            mark = item.raw[: min(left[first], left[number])]
            for place, kind in ((first, Kind.OPEN), (number, Kind.CLOSE)):
                marks[place].append(Piece(kind, mark, pair=mark))
                left[place] -= len(mark)
            opened = [place for place in opened if place < first or (place == first and left[first])]
        if item.opens and left[number]:
            opened.append(number)
    pieces: list[Piece] = []
    for number, piece in enumerate(found):
        if isinstance(piece, Piece):
            pieces.append(piece)
            continue
        rest = [text_piece(piece.raw[: left[number]])] if left[number] else []
        ends = [mark for mark in marks[number] if mark.kind is Kind.CLOSE]
        pieces += [*ends, *rest, *reversed(marks[number][len(ends) :])]
    return pieces


def fits(opening: Delimiter, closing: Delimiter) -> bool:
    """Whether two runs can hold each other's marks; ~~ has no other lengths, and four asterisks are no emphasis."""
    one, other = opening.raw, closing.raw
    if one == other:
        return True
    if one[0] != other[0] or one[0] not in "*_" or max(len(one), len(other)) > 3:
        return False
    # CommonMark's rule of 3, where a run could do both: in **a*b**c the * is text
    return not (opening.closes or closing.opens) or len(one) + len(other) != 3


def escape(text: str) -> str:
    """A translation must not turn into HTML."""
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", text)


def escape_quoted(text: str) -> str:
    return escape(text).replace('"', "'")


def escape_cell(text: str) -> str:
    return escape(text).replace("|", "\\|")


BLOCK = re.compile(r"(#{1,6}|[>+*-]|\d{1,9}(?=[.)]))(?=[.)]?\s)")


def no_new_block(before: str, ends: Collection[str] = ()) -> Callable[[str], str]:
    """Nor a paragraph, or a line of it, into a list or a heading: "1. Januar" would."""
    starts = "|".join([r"\A", *(re.escape(end) for end in sorted(ends, key=len, reverse=True))])
    begins = re.compile(f"({starts}){BLOCK.pattern}")

    def finish(text: str) -> str:
        if begins.search(before):  # here it is text: it was there before
            return text
        return begins.sub(lambda m: f"{m[0]}\\" if m[2].isdigit() else f"{m[1]}\\{m[2]}", text)

    return finish
