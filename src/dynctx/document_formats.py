"""The file formats of document corpora, each a generator from lines to `Block`s.

A format finds the borders between documents and the sentences between the borders. What holds for all of
them (numbering documents that have no id, refusing empty ones) is in `documents.py`.
"""

from __future__ import annotations

import difflib
import html
import json
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn

from dynctx.errors import DynctxError, at
from dynctx.files import BOM

# str.strip() without arguments, and the byte order mark, which Unicode does not count as a space.
SPACES = "".join(chr(code) for code in range(0x3001) if chr(code).isspace()) + BOM

# The columns taken for the document id where the configuration names none.
DOCUMENT_COLUMNS = ("doc", "docid", "document", "doc_id")


class Block(NamedTuple):
    """A document as it stands in its file."""

    line: int  # where it starts, counted from 1
    id: str | None  # None where the format has no ids
    sentences: list[str]


def blank(lines: Iterable[str]) -> Iterator[Block]:
    """One sentence a line; one or more blank lines between documents."""
    sentences: list[str] = []
    start = 1
    for number, line in enumerate(lines, 1):
        sentence = line.strip(SPACES)
        if sentence:
            if not sentences:
                start = number
            sentences.append(sentence)
        elif sentences:
            yield Block(start, None, sentences)
            sentences = []
    if sentences:
        yield Block(start, None, sentences)


def docids(lines: Iterator[str], path: str, ids: Iterator[str], ids_path: str) -> Iterator[Block]:
    """One sentence a line, with its document's id on the same line of a second file.

    The ids mark the borders, so an empty line is an empty sentence.
    """

    def rows() -> Iterator[tuple[int, str, str]]:
        for number, (text, document) in enumerate(zip_longest(lines, ids), 1):
            if text is None or document is None:
                longer = number + sum(1 for _ in (ids if text is None else lines))
                counts = (number - 1, longer) if text is None else (longer, number - 1)
                raise DynctxError(
                    f"{at(path, counts[0])} ends after {counts[0]} lines but {at(ids_path, counts[1])} after "
                    f"{counts[1]} document ids; the two need one line for each sentence"
                )
            yield number, _document_id(document, at(ids_path, number)), sentence_of(text)

    return _join_rows(rows())


def d_lines(lines: Iterable[str], path: str) -> Iterator[Block]:
    """One sentence a line, and a line `<d>` before each document (the IWSLT17 and Europarl releases)."""
    block: Block | None = None
    for number, line in enumerate(lines, 1):
        sentence = line.strip(SPACES)
        if sentence == "<d>":
            if block:
                yield block
            block = Block(number, None, [])
        elif block:
            block.sentences.append(sentence)
        elif sentence:
            raise DynctxError(
                f"{at(path, number)}: {_short(sentence)} stands before the first <d>; "
                "put a line <d> before each document"
            )
    if block:
        yield block


def tsv(
    lines: Iterator[str], path: str, column: str | None, document_column: str | None, borderless: bool = False
) -> Iterator[Block]:
    """Tab-separated columns under a header line that names them; a document lasts as long as its id.

    borderless: where no column is an id, all rows are one document.
    """
    header = next(lines, "")
    if not header:
        return iter(())
    names = [name.strip(SPACES) for name in header.split("\t")]
    text, document = choose_columns(names, column, document_column, at(path, 1))
    if document is None and not borderless:
        raise _no_document_column(names, at(path, 1))
    text_index, document_index = names.index(text), names.index(document) if document else None

    def rows() -> Iterator[tuple[int, str | None, str]]:
        for number, line in enumerate(lines, 2):
            cells = line.split("\t")
            if len(cells) != len(names):
                raise DynctxError(
                    f"{at(path, number)}: {len(cells)} columns where the header has {len(names)}: "
                    f"{_short(line)}; a text must hold no tab, and an empty cell still needs its tab"
                )
            id = None if document_index is None else _document_id(cells[document_index], at(path, number))
            yield number, id, sentence_of(cells[text_index])

    return _join_rows(rows())


def jsonl(
    lines: Iterable[str], path: str, column: str | None, document_column: str | None, borderless: bool = False
) -> Iterator[Block]:
    """A JSON object a line: a sentence with its document's id, or a list of sentences that is a document.

    borderless: single sentences without an id are one document.
    """
    text: str | None = None
    document: str | None = None
    block: Block | None = None  # the document that single sentences are being added to
    for number, line in enumerate(lines, 1):
        if not line.strip(SPACES):
            continue
        where = at(path, number)
        entry = _json_object(line, where)
        if text is None:  # the first object decides for all
            text, document = choose_columns(list(entry), column, document_column, where)
        value = _value(entry, text, where)
        if isinstance(value, list):
            if block:
                yield block
            block = None
            # `id` names the document here; beside a single sentence it would name the sentence.
            key = document or ("id" if "id" in entry else None)
            id = _document_id(_value(entry, key, where), where) if key else None
            yield Block(number, id, [_json_text(item, text, where) for item in value])
            continue
        sentence = _json_text(value, text, where)
        if document is None and not borderless:
            raise _no_document_column(list(entry), where)
        id = _document_id(_value(entry, document, where), where) if document else None
        if block is None or block.id != id:
            if block:
                yield block
            block = Block(number, id, [])
        block.sentences.append(sentence)
    if block:
        yield block


# Tags that carry structure. Everything else, known or not, is passed over; inside a <seg> it is text.
_TAG = re.compile(r"<(/?)(doc|seg|src|ref|hyp)((?:\s[^<>]*|/)?)>", re.IGNORECASE)


def xml(lines: Iterable[str], path: str, column: str | None) -> Iterator[Block]:
    """`<doc docid="..">` and `<seg>`, as IWSLT and WMT write them (.xml, .sgm).

    These files often are no XML (bare `&`, no root, SGML case), so this looks for the few tags that matter.
    WMT files since 2021 hold all sides in each document: `column` chooses `src`, `ref` or `hyp`, and
    `ref:A` one of several translators.
    """
    block: Block | None = None
    segment: list[str] | None = None  # the lines of the open <seg>
    opened = 0  # the line of the open <seg>
    side: str | None = None  # the side of this document that is being kept
    kept = column is None  # whether segments here are of that side
    for number, line in enumerate(lines, 1):
        position = 0
        for tag in _TAG.finditer(line):
            closing, name, attributes = bool(tag[1]), tag[2].lower(), tag[3]
            if segment is not None:
                if name == "seg" and closing:
                    segment.append(line[position : tag.start()])
                    if kept and block:
                        block.sentences.append(sentence_of(_unescape("\n".join(segment))))
                    segment = None
                elif name in ("seg", "doc"):
                    _unclosed("seg", path, opened, number)
            elif name == "seg":
                if block is None or closing:
                    _stray(tag[0], path, number, "<doc>" if block is None else "<seg>")
                segment, opened, position = [], number, tag.end()
                if attributes.endswith("/"):
                    if kept:
                        block.sentences.append("")
                    segment = None
            elif name == "doc":
                if closing:
                    if block is None:
                        _stray(tag[0], path, number, "<doc>")
                    yield block
                    block = None
                    continue
                if block is not None:
                    _unclosed("doc", path, block.line, number)
                block = Block(number, _attribute(attributes, "docid", "id"), [])
                side, kept = None, column is None
            elif closing:
                kept = column is None
            else:
                label = ":".join(filter(None, (name, _attribute(attributes, "translator", "system"))))
                kept = column in (None, name, label)
                if kept and side is not None:
                    raise DynctxError(
                        f"{at(path, number)}: the document holds <{side}> and <{label}> side by side; "
                        f"choose one with column: {side} or column: {label}"
                    )
                side = label if kept else side
        if segment is not None:
            segment.append(line[position:])
    if segment is not None:
        _unclosed("seg", path, opened, None)
    if block is not None:
        _unclosed("doc", path, block.line, None)


# The lines of a train.tags file that are not sentences.
TAGS_LINE = re.compile(r"<(/?)(url|keywords|speaker|talkid|title|description|reviewer|translator|doc)((?:\s[^<>]*)?)>")


def tags(lines: Iterable[str], path: str) -> Iterator[Block]:
    """IWSLT train.tags: header lines in tags, all other lines are sentences.

    A talk starts at `<doc ..>` or, in the years without it, at `<url>`.
    """
    block: Block | None = None
    opened: int | None = None  # the line of the open <doc>
    for number, line in enumerate(lines, 1):
        text = line.strip(SPACES)
        tag = TAGS_LINE.match(text)
        if tag is None:
            if block is not None:
                block.sentences.append(text)
            elif text:
                _stray(_short(text), path, number, "<doc> or <url>")
        elif tag[2] == "doc" and tag[1]:
            if block is None or opened is None:
                _stray("</doc>", path, number, "<doc>")
            yield block
            block = opened = None
        elif tag[2] == "doc" or (tag[2] == "url" and not tag[1] and opened is None):
            if opened is not None:
                _unclosed("doc", path, opened, number)
            if block:
                yield block
            block = Block(number, _attribute(tag[3], "docid", "id"), [])
            opened = number if tag[2] == "doc" else None
        elif tag[2] == "talkid" and block is not None:
            talk = text[tag.end() :].removesuffix("</talkid>").strip(SPACES)
            block = block._replace(id=talk or block.id)
    if opened is not None:
        _unclosed("doc", path, opened, None)
    if block:
        yield block


def sentence_of(text: str) -> str:
    """A sentence on one line, whatever its cell, string or segment looked like."""
    text = text.strip(SPACES)
    return " ".join(part.strip(SPACES) for part in text.split("\n")) if "\n" in text else text


def _join_rows(rows: Iterable[tuple[int, str | None, str]]) -> Iterator[Block]:
    """Documents from (line, document id, sentence): a document lasts as long as its id."""
    for document, group in groupby(rows, key=itemgetter(1)):
        members = list(group)
        yield Block(members[0][0], document, [sentence for _, _, sentence in members])


def did_you_mean(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"


def choose_columns(
    names: list[str], column: str | None, document_column: str | None, where: str
) -> tuple[str, str | None]:
    """The column of the text and that of the document id, from what was asked for and what there is."""
    for asked in (column, document_column):
        if asked and asked not in names:
            raise DynctxError(f"{where}: nothing is called {asked!r}; {did_you_mean(asked, names)}")
    if document_column is None:
        document_column = next((name for name in DOCUMENT_COLUMNS if name in names), None)
    if column is None:
        rest = [name for name in names if name not in (document_column, "id")]
        if "sentences" in rest:
            column = "sentences"
        elif len(rest) == 1:
            column = rest[0]
        elif not rest:
            there = f"there are: {', '.join(names)}" if names else "there are none"
            raise DynctxError(f"{where}: no column can be the text ({there})")
        else:
            raise DynctxError(
                f"{where}: which column is the text? {' or '.join(rest)}? Name it: --column, or in a config column"
            )
    return column, document_column


def _no_document_column(names: list[str], where: str) -> DynctxError:
    return DynctxError(
        f"{where}: nothing tells the documents apart (there are: {', '.join(names)}); name the document id "
        f"with document_column, or call it {' or '.join(DOCUMENT_COLUMNS)}"
    )


def _document_id(value: Any, where: str) -> str:
    text = str(value).strip(SPACES) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text:
        raise DynctxError(f"{where}: {value!r} is no document id; each sentence needs one (a string or number)")
    return text


def _json_object(line: str, where: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DynctxError(f"{where}: not JSON ({error}): {_short(line)}; each line must be an object") from None
    if not isinstance(entry, dict):
        raise DynctxError(f"{where}: {_short(line)} is no JSON object; write {{...}} on each line")
    if "\\ud" in line.lower():
        try:
            json.dumps(entry, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise DynctxError(f"{where}: half of a surrogate pair (\\ud800..\\udfff); remove it") from None
    return entry


def _value(entry: dict[str, Any], key: str, where: str) -> Any:
    if key not in entry:
        raise DynctxError(f"{where}: nothing is called {key!r}; {did_you_mean(key, entry)}")
    return entry[key]


def _json_text(value: Any, column: str, where: str) -> str:
    if not isinstance(value, str):
        shown = _short(json.dumps(value))
        raise DynctxError(f"{where}: {column!r} holds {shown}; it must be a string or a list of strings")
    return sentence_of(value)


_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#[0-9]+|#[xX][0-9a-fA-F]+);")


def _unescape(text: str) -> str:
    # html.unescape alone would also take the bare "&para" of "R&parade" for an entity.
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)


def _attribute(attributes: str, *names: str) -> str | None:
    """The value of the first of these attributes that is there."""
    for name in names:
        found = re.search(rf"""\s{name}\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'/]+))""", attributes, re.IGNORECASE)
        if found:
            return _unescape(found[found.lastindex or 1]).strip(SPACES) or None
    return None


def _unclosed(name: str, path: str, line: int, until: int | None) -> NoReturn:
    end = "the end of the file" if until is None else f"line {until}"
    raise DynctxError(f"{at(path, line)}: <{name}> is not closed before {end}; add </{name}>")


def _stray(what: str, path: str, line: int, missing: str) -> NoReturn:
    raise DynctxError(f"{at(path, line)}: {what} without an open {missing}; add {missing} before it")


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
