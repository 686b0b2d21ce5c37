"""Documents: read from the formats corpora come in, alone or aligned, and written back.

Reading streams: of a corpus of any size one document (one pair of documents) is in memory.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest

from dynctx import document_formats as formats
from dynctx.document_formats import SPACES, Block
from dynctx.errors import DynctxError, at
from dynctx.files import StrPath, atomic_write, display_name, read_lines, split_suffixes

FORMATS = ("auto", "blank", "docids", "d", "tsv", "jsonl", "xml", "tags")

# Files for people, which `dynctx translate` takes apart: as a corpus their timings and tags would be sentences.
MARKED = (".srt", ".vtt", ".ass", ".ssa", ".md", ".markdown", ".html", ".htm", ".xlf", ".xliff", ".tmx", ".po", ".pot")

# Detection looks no further: headers of talks and news files are a dozen lines.
HEAD_LINES = 100


@dataclass(frozen=True)
class Document:
    id: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class TextFile:
    """How one side of a corpus is read; only `path` is needed where the file shows its format."""

    path: str
    format: str = "auto"
    docids: str | None = None  # plain text only: a file with one document id a line
    column: str | None = None  # tsv, jsonl: the text; xml: src, ref or hyp where a file holds several
    document_column: str | None = None  # tsv, jsonl: the document id


def detect_format(path: StrPath, first_lines: Sequence[str]) -> str:
    """The format of a file: by a suffix that says it, else by the first lines; plain text if neither does."""
    by_suffix = {".tsv": "tsv", ".jsonl": "jsonl", ".xml": "xml", ".sgm": "xml", ".sgml": "xml"}
    suffix = split_suffixes(path)[0]
    if suffix in by_suffix:
        return by_suffix[suffix]
    lines = [line.strip(SPACES) for line in first_lines]
    first = next(filter(None, lines), "")
    if "<d>" in lines:
        return "d"
    if first.startswith("<") and re.search(r"<(\?xml|(src|ref|tst)set|seg)\b", "\n".join(lines), re.IGNORECASE):
        return "xml"
    if formats.TAGS_LINE.match(first):
        return "tags"
    if first.startswith("{"):
        try:
            json.loads(first)
            return "jsonl"
        except (ValueError, RecursionError):
            return "blank"
    cells = first.split("\t")
    if len(cells) > 1 and any(cell in formats.DOCUMENT_COLUMNS for cell in cells):
        return "tsv"
    return "blank"


def read_documents(file: TextFile | StrPath, borderless: bool = False) -> Iterator[Document]:
    """The documents of a file, in order; those of formats without ids are called "1", "2", ...

    borderless: JSON lines and TSV without document ids are one document. Right for a file to translate; of a corpus to
    learn from it would make one endless document, and is a mistake.
    """
    return map(_document, _read_blocks(text_file(file), borderless))


def read_parallel(source: TextFile | StrPath, target: TextFile | StrPath) -> Iterator[tuple[Document, Document]]:
    """The documents of two files in lock step, each pair with as many sentences on either side.

    Ids are not compared: a translation of a text without ids, say, knows its documents by number alone.
    """
    left, right = text_file(source), text_file(target)
    if left.path == right.path == "-":
        raise DynctxError("<stdin>: cannot be both source and target; name a file for one of them")
    lefts, rights = _read_blocks(left), _read_blocks(right)
    lines = 0, 0
    for index, (a, b) in enumerate(zip_longest(lefts, rights)):
        if a is None or b is None:
            longer, extra, shorter, last = (left, a, right, lines[1]) if a else (right, b, left, lines[0])
            raise DynctxError(
                f"document {extra.id!r} at {_at(longer, extra.line)} ({len(extra.sentences)} sentences) has "
                f"no counterpart: the last of the {index} documents in the other file is at "
                f"{_at(shorter, last)}; add the missing one or remove this one"
            )
        if len(a.sentences) != len(b.sentences):
            if index == 0:
                more_left, more_right = next(lefts, None), next(rights, None)
                if more_left is None and more_right is not None:
                    raise _no_borders(left, a, right, b)
                if more_right is None and more_left is not None:
                    raise _no_borders(right, b, left, a)
            other = "" if a.id == b.id else f" document {b.id!r}"
            raise DynctxError(
                f"document {a.id!r} has {len(a.sentences)} sentences at {_at(left, a.line)} but{other} "
                f"{len(b.sentences)} at {_at(right, b.line)}; the two sides need the same documents, "
                "with one sentence for each sentence"
            )
        lines = a.line, b.line
        yield _document(a), _document(b)


def is_text(sentence: str) -> bool:
    """Half of a surrogate pair, as a careless cut leaves it, is no text: it can be neither encoded nor written."""
    try:
        sentence.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_documents(documents: Iterable[Document], path: StrPath) -> None:
    """Plain text, one sentence a line and a blank line between documents (format `blank`).

    Line breaks and spaces around a sentence, which the format has no room for, become a space or nothing.
    """
    with atomic_write(path) as file:
        for index, document in enumerate(documents):
            if index:
                file.write("\n")
            _check_written(document, path)
            for number, sentence in enumerate(document.sentences, 1):
                line = formats.sentence_of(sentence)
                if not line:
                    raise DynctxError(
                        f"{at(path)}: sentence {number} of document {document.id!r} is empty ({sentence!r}), "
                        "which plain text cannot tell from a document border; write .jsonl instead"
                    )
                file.write(line + "\n")


def write_jsonl(documents: Iterable[Document], path: StrPath) -> None:
    """A JSON object a document: its `id` and its `sentences`, empty ones included."""
    with atomic_write(path) as file:
        for document in documents:
            _check_written(document, path)
            file.write(json.dumps({"id": document.id, "sentences": document.sentences}, ensure_ascii=False) + "\n")


def _read_blocks(file: TextFile, borderless: bool = False) -> Iterator[Block]:
    """Blocks that all have an id and at least one sentence; never none at all."""
    number = 0
    for number, block in enumerate(_parse(file, borderless), 1):
        if not block.sentences:
            named = "" if block.id is None else f" {block.id!r}"
            raise DynctxError(f"{_at(file, block.line)}: document{named} has no sentences; remove it (on both sides)")
        yield block if block.id is not None else block._replace(id=str(number))
    if not number:
        raise DynctxError(f"{_at(file)}: holds no sentence; check that it is the file you mean")


def _parse(file: TextFile, borderless: bool) -> Iterator[Block]:
    """The blocks of a file in the format that is asked for or, with `auto`, detected."""
    if file.format not in FORMATS:
        near = formats.did_you_mean(file.format, FORMATS)
        raise DynctxError(f"{_at(file)}: unknown format {file.format!r}; {near}")
    suffix = split_suffixes(file.path)[0]
    if file.format == "auto" and file.docids is None and suffix in MARKED:
        raise DynctxError(
            f"{_at(file)}: sentences to learn from or to score are not read from {suffix}, whose markup would be "
            "taken for text; write one sentence a line, or JSON lines (`dynctx translate` can: -o NAME.jsonl)"
        )
    lines = read_lines(file.path)
    format = file.format
    if format == "auto" and file.docids is not None:
        format = "docids"
    elif format == "auto":
        head = list(islice(lines, HEAD_LINES))
        format = detect_format(file.path, head)
        lines = chain(head, lines)
    _check_options(file, format)
    name = display_name(file.path)
    match format:
        case "docids":
            ids = file.docids or ""
            return formats.docids(lines, name, read_lines(ids), display_name(ids))
        case "d":
            return formats.d_lines(lines, name)
        case "tsv":
            return formats.tsv(lines, name, file.column, file.document_column, borderless)
        case "jsonl":
            return formats.jsonl(lines, name, file.column, file.document_column, borderless)
        case "xml":
            return formats.xml(lines, name, file.column)
        case "tags":
            return formats.tags(lines, name)
        case _:
            return formats.blank(lines)


def _check_options(file: TextFile, format: str) -> None:
    """An option that the format has no use for is a mistake, most often in the format."""
    if format == "docids" and not file.docids:
        raise DynctxError(f"{_at(file)}: format 'docids' needs docids, a file with one document id a line")
    options = {"docids": file.docids, "column": file.column, "document_column": file.document_column}
    used = {"docids": ["docids"], "tsv": ["column", "document_column"], "xml": ["column"]}
    used["jsonl"] = used["tsv"]
    for option, value in options.items():
        if value is not None and option not in used.get(format, ()):
            raise DynctxError(
                f"{_at(file)}: {option} {value!r} has no meaning in format {format!r}; remove it or set the format"
            )


def _check_written(document: Document, path: StrPath) -> None:
    if not document.sentences:
        raise DynctxError(f"{at(path)}: document {document.id!r} has no sentences and cannot be written; leave it out")


def _no_borders(bare: TextFile, one: Block, other: TextFile, first: Block) -> DynctxError:
    return DynctxError(
        f"{_at(bare, one.line)} has no document borders (one document of {len(one.sentences)} sentences) but "
        f"{_at(other, first.line)} has (its first document has {len(first.sentences)}); mark the same "
        "borders in both, or give docids"
    )


def text_file(file: TextFile | StrPath) -> TextFile:
    return file if isinstance(file, TextFile) else TextFile(os.fspath(file))


def _document(block: Block) -> Document:
    return Document(str(block.id), tuple(block.sentences))


def _at(file: TextFile, line: int | None = None) -> str:
    return at(display_name(file.path), line)
