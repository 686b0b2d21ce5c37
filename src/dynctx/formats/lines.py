"""Lines with their ends, and several of them as one passage."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from dynctx.document_formats import SPACES
from dynctx.formats.inline import Piece, line_break, text_piece
from dynctx.formats.placeholders import protected


def lines_of(text: str) -> list[str]:
    r"""Lines with their ends. Only `\n` and `\r\n` end one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def is_blank(line: str) -> bool:
    return not line.strip(SPACES)


def trimmed(line: str) -> str:
    return line.strip(SPACES)


def plain_text(text: str) -> list[Piece]:
    return [text_piece(text)] if text else []


def joined(
    lines: Sequence[str],
    pieces_of: Callable[[str], list[Piece]] = plain_text,
    ends_sentence: bool = False,
    content_of: Callable[[str], str] = trimmed,
) -> list[Piece]:
    """Lines as one passage: what is between the text of one and of the next is a line break, with all its spaces.

    After the last line it is outside of any sentence, and stays as it is.
    """
    pieces: list[Piece] = []
    between = ""
    for line in lines:
        content = content_of(line)
        start = line.index(content) if content else 0
        between += line[:start]
        if between:
            pieces.append(line_break(between, ends_sentence))
        pieces += protected(pieces_of(content))
        between = line[start + len(content) :]
    return [*pieces, line_break(between)] if between else pieces
