"""Plain text: one sentence a line (as it is read for training), or paragraphs to be split into sentences."""

from __future__ import annotations

from itertools import groupby

from dynctx.errors import DynctxError, at
from dynctx.formats.inline import Piece, line_break, text_piece
from dynctx.formats.sentences import is_chinese
from dynctx.formats.subtitles import is_blank, lines_of
from dynctx.formats.template import Builder, Template


def read(text: str, name: str, language: str = "", split: bool = False) -> Template:
    """Without split, a line is a sentence and a blank line ends a document; with it, the file is one document."""
    builder = Builder(name, "txt", language)
    number = 0
    for blank, group in groupby(lines_of(text), key=is_blank):
        lines = list(group)
        if blank:
            builder.literal("".join(lines))
            if not split:
                builder.new_document()
        elif split:
            chinese = is_chinese("".join(lines))
            pieces = [piece for line in lines for piece in pieces_of(line, chinese)]
            builder.write(builder.passage(pieces, number + 1))
        else:
            for offset, line in enumerate(lines, 1):
                builder.write(builder.passage(pieces_of(line), number + offset, whole=True, every=True))
        number += len(lines)
    if not builder.template.groups:
        raise DynctxError(f"{at(name)}: holds no sentence; check that it is the file you mean")
    return builder.template


def pieces_of(line: str, chinese: bool = False) -> list[Piece]:
    """The line end is a break: between the lines of a paragraph it is kept, at the end it is outside the text.

    Paragraphs of Chinese are not broken into lines, so that there a line end is the end of a sentence.
    """
    content = line.rstrip("\r\n")
    pieces = [text_piece(content)] if content else []
    return [*pieces, line_break(line[len(content) :], chinese)] if line != content else pieces
