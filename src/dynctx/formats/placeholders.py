"""What programs put into messages: printf formats, braces and the like. A translation needs each of them again."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dynctx.formats.inline import Kind, Piece, kept, text_piece

# an address ends at a space, and where Chinese or Japanese goes on without one
NOT_IN_ADDRESS = r"""\s<>"'(){}\u3000-\u30ff\u3400-\u9fff\uff00-\uffef"""
MAIL = r"[a-zA-Z0-9][a-zA-Z0-9._%+\-]{0,63}@[a-zA-Z0-9][a-zA-Z0-9\-]*(?:\.[a-zA-Z0-9\-]+)*\.[a-zA-Z]{2,}"
BRACKETS = rf"\([^{NOT_IN_ADDRESS}]*\)"  # as in .../Rust_(programming_language)
ADDRESS = rf"(?:(?:https?://|www\.)(?:[^{NOT_IN_ADDRESS}]|{BRACKETS})*(?:[^{NOT_IN_ADDRESS}.,;:!?]|{BRACKETS})|{MAIL})"
PLACEHOLDER = re.compile(
    r"""
      %(?:\(\w+\)|\d+\$)?[-+\#0']*+(?:\d*|\*)(?:\.(?:\d+|\*))?(?:hh|h|ll|l|L|q|z|j|t)?  # %s %(name)s %-5.2f
          [diouxXeEfFgGaAcCsSpr@](?![a-zA-Z0-9_])
    | %\{[\w.]+\} | \$\{[\w.]+\} | \{\{\s*[\w.]+\s*\}\} | \{[\w.]*(?:![rsa])?(?::[^{}\s]*)?\}  # ${name} {name}
    |"""
    + ADDRESS,
    re.VERBOSE,
)
IS_ADDRESS = re.compile(ADDRESS)


# where the text is known to be a format: also before a letter, as in %dth, and Qt's %1, %L2 and %n
FORMAT = re.compile(
    r"%L?[1-9]\d?(?![\d$.]*[a-zA-Z@])|%n|" + PLACEHOLDER.pattern.replace("(?![a-zA-Z0-9_])", ""), re.VERBOSE
)


# a message of several, of which the program chooses one (ICU): {n, plural, =0 {none} other {many}}
SEVERAL_IN_ONE = "several messages in one ({..., plural, ...}): left without a translation; translate it by hand"
CHOICES = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")


def protected(pieces: Iterable[Piece], formatted: bool = False) -> list[Piece]:
    """The same pieces, with every placeholder in the text as a kept piece of its own."""
    pattern = FORMAT if formatted else PLACEHOLDER
    found: list[Piece] = []
    for piece in pieces:
        if piece.kind is not Kind.TEXT or piece.raw != piece.text:
            found.append(piece)
            continue
        position = 0
        for match in pattern.finditer(piece.text):
            if match.start() > position:
                found.append(text_piece(piece.text[position : match.start()]))
            found.append(kept(match[0]))
            position = match.end()
        if position < len(piece.text):
            found.append(text_piece(piece.text[position:]))
    return found
