"""Where sentences end in running text: by pysbd, and for Chinese and Japanese by punctuation."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import Any

from dynctx.document_formats import SPACES
from dynctx.languages import primary

PYSBD = re.compile("am|ar|bg|da|de|el|en|es|fa|fr|hi|hy|it|ja|kk|mr|my|nl|pl|ru|sk|ur|zh")  # the languages it knows
HAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
# the end of a Chinese sentence, with the quotation marks and brackets that close after it
CHINESE_END = re.compile(r"[。！？!?｡]+[”’」』）)】》〉\"']*")

# pysbd takes quadratic time: a paragraph as long as a book chapter is given to it in parts
CHUNK = re.compile(r".{1,2000}\Z|.{1,2000}[.!?](?=\s)|.{1,2000}(?=\s)|.{1,2000}", re.DOTALL)


def is_chinese(text: str) -> bool:
    """By the script: text with Han characters or kana is split at their punctuation and at line breaks."""
    return HAN.search(text) is not None


def split(text: str, language: str) -> list[tuple[int, int]]:
    """(start, end) of each sentence, without the spaces between. A line end ends a sentence."""
    borders: list[int] = []
    start = 0
    for line in text.split("\n"):
        if line.strip(SPACES):
            inner = chinese_borders(line) if is_chinese(line) else pysbd_borders(line, language)
            borders += [start + border for border in inner]
        start += len(line) + 1
        borders.append(start)
    return spans_between(text, borders)


def spans_between(text: str, borders: list[int]) -> list[tuple[int, int]]:
    """What there is between these places, without the spaces around it."""
    found = []
    for start, end in pairwise([0, *borders, len(text)]):
        part = text[start:end]
        stripped = part.strip(SPACES)
        if stripped:
            start += len(part) - len(part.lstrip(SPACES))
            found.append((start, start + len(stripped)))
    return found


def chinese_borders(text: str) -> list[int]:
    return [match.end() for match in CHINESE_END.finditer(text) if match.end() < len(text)]


def pysbd_borders(text: str, language: str) -> list[int]:
    """Borders only where there is a space: pysbd also cuts addresses and version numbers."""
    borders: list[int] = []
    for chunk in CHUNK.finditer(text):
        position = chunk.start()
        if position and text[position - 1] in ".!?":
            borders.append(position)
        for sentence in segmenter(language).segment(chunk[0]):
            found = text.find(sentence.strip(SPACES), position)
            if found < 0:  # some rare characters come back changed
                continue
            if found > chunk.start() and text[found - 1] in SPACES:
                borders.append(found)
            position = found + len(sentence.strip(SPACES))
    return borders


@cache
def segmenter(language: str) -> Any:
    import pysbd

    code = primary(language)
    return pysbd.Segmenter(language=code if PYSBD.fullmatch(code) else "en", clean=False)
