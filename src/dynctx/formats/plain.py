"""Plain text: one sentence a line (as it is read for training), or paragraphs to be split into sentences."""

from __future__ import annotations

import re
from itertools import groupby

from dynctx.errors import DynctxError, at
from dynctx.formats.inline import Warn
from dynctx.formats.lines import is_blank, joined, lines_of
from dynctx.formats.placing import CJK
from dynctx.formats.sentences import is_chinese
from dynctx.formats.template import Builder, Template

SENTENCE_END = re.compile(r"[。！？]+|(?<![.!?])[.!?]+(?=\s)")  # each mark is looked at once, however many there are
SEVERAL = 3  # sentences in a line, of which a model that has learned from single ones leaves some out
SHORTEST = 4  # letters, a Chinese one counting two; "No! No! No!" may stay together


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
            # paragraphs of Chinese are not broken into lines: there a line end is the end of a sentence
            pieces = joined(lines, ends_sentence=is_chinese("".join(lines)))
            builder.write(builder.passage(pieces, number + 1))
        else:
            for offset, line in enumerate(lines, 1):
                builder.write(builder.passage(joined([line]), number + offset, whole=True, every=True))
        number += len(lines)
    if is_blank(text):
        raise DynctxError(f"{at(name)}: holds no sentence; check that it is the file you mean")
    return builder.template


def is_paragraph(line: str) -> bool:
    parts = map(str.strip, SENTENCE_END.split(line))
    return sum(len(part) >= SHORTEST or len(part) + len(CJK.findall(part)) >= SHORTEST for part in parts) >= SEVERAL


def check_lines(text: str, name: str, warn: Warn) -> None:
    """Running text that is not to be split."""
    paragraphs = sum(map(is_paragraph, lines_of(text)))
    if paragraphs:
        lines = "1 line has" if paragraphs == 1 else f"{paragraphs:,} lines have"
        warn(f"{name}: {lines} several sentences, of which some may be lost; --split translates one by one")
