"""Texts of requests as templates: lines of plain text, or HTML; read as files are, and never more than is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynctx.errors import DynctxError
from dynctx.files import split_suffixes
from dynctx.formats import SUFFIXES, Reading, html, read_text
from dynctx.formats.lines import is_blank, joined, lines_of
from dynctx.formats.plain import is_paragraph
from dynctx.formats.subtitles import with_notes
from dynctx.formats.template import Builder, Template
from dynctx.serve.limits import Limits, Refused

FILES = ("srt", "vtt", "ass", "html")  # what the page reads with our help
MARK = re.compile(r"[\n\[(（［【<{♪]")
MOST_MARKS = 100_000
SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？]")


def templates_of(texts: Sequence[str], is_html: bool, language: str, limits: Limits) -> list[Template]:
    found: list[Template] = []
    for text in texts:
        found.append(html_text(text, language, limits) if is_html else plain_text(text, limits, language))
        check_count(sum(map(sentences_of, found)), limits)
    return found


def plain_text(text: str, limits: Limits, language: str = "") -> Template:
    """A sentence a line, and a note at its beginning or end, "[music] ...", another; a paragraph in one line is split,
    and blank lines are no sentences."""
    builder = Builder("text", "txt", language)
    for number, line in enumerate(lines_of(text), 1):
        if is_blank(line):
            builder.literal(line)
            continue
        if is_paragraph(line):
            check_length(line, limits)
            builder.write(builder.passage(joined([line]), number, every=True))
        else:
            builder.write(builder.passage(with_notes(joined([line]), at_edges=True), number, whole=True, every=True))
        check_count(sentences_of(builder.template), limits)
    return builder.template


def html_text(text: str, language: str, limits: Limits) -> Template:
    """What stands between block tags, split into sentences."""
    builder = Builder("html", "html", language)
    for block in html.blocks(text):
        if isinstance(block, str):
            builder.literal(block)
            continue
        check_length("".join(piece.text for piece in block), limits)
        builder.write(builder.passage(block, 1, escape=html.escape))
        check_count(sentences_of(builder.template), limits)
    return builder.template


def check_length(text: str, limits: Limits) -> None:
    """Splitting takes time, so what would be refused in the end is refused before it."""
    ends = sum(1 for _ in SENTENCE_END.finditer(text)) + 1
    if ends > 4 * limits.sentences:  # one in four may be an abbreviation or the like
        check_count(ends, limits)
    if len(text.strip()) > ends * limits.characters:
        raise Refused(413, f"a sentence has more than {limits.characters} characters")


def file_text(name: str, text: str, languages: tuple[str, str], limits: Limits) -> Template:
    """A file of subtitles or HTML, by its name. It may have more sentences than a request: a film has."""
    format = SUFFIXES.get(split_suffixes(name)[0], "")
    if format not in FILES:
        raise Refused(400, f"{name}: files of {', '.join(FILES)} are read here, by their names")
    if sum(1 for _ in MARK.finditer(text)) > MOST_MARKS:
        raise Refused(413, f"more than {MOST_MARKS:,} lines, tags and brackets; translate it in parts")
    try:
        if format == "html":
            return html_text(text, languages[0], limits)
        return read_text(text, name, format, Reading(*languages), lambda _: None)
    except DynctxError as error:
        raise Refused(400, str(error)) from None


def sentences_of(template: Template) -> int:
    return sum(len(group.sentences) for group in template.groups)


def check_count(count: int, limits: Limits) -> None:
    if count > limits.sentences:
        raise Refused(413, f"{count} sentences or more; one request may have {limits.sentences}")
