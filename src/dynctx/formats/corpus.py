"""The formats of corpora: JSON lines and TSV keep their shape if the output has the same, all else becomes text.

Reading, with all its messages, is `read_documents`; here the sentences get their place in the output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from dynctx.document_formats import SPACES, choose_columns, sentence_of
from dynctx.documents import Document, TextFile, read_documents
from dynctx.errors import at
from dynctx.files import BOM
from dynctx.formats.inline import Sentence, text_piece
from dynctx.formats.lines import is_blank, lines_of
from dynctx.formats.template import Group, Passage, Template, as_it_is


def read(path: str, text: str, name: str, format: str, column: str | None, keep: bool) -> Template:
    """keep: write the file's own lines, with only the texts in them changed; jsonl and tsv."""
    documents = list(read_documents(TextFile(path, format, column=column), borderless=True))
    if keep and format == "jsonl":
        return filled_in(documents, jsonl_parts(text, name, column), name, format)
    if keep and format == "tsv":
        return filled_in(documents, tsv_parts(text, name, column), name, format)
    return as_lines(documents, name)


def as_lines(documents: list[Document], name: str) -> Template:
    """One sentence a line, a blank line between documents."""
    template = Template(name, "txt")
    for number, document in enumerate(documents):
        sentences = [sentence(text, name) for text in document.sentences]
        template.groups.append(Group(document.id, sentences))
        template.parts += ["\n"] if number else []
        for each in sentences:
            template.parts += [Passage([each]), "\n"]
    return template


def sentence(text: str, name: str) -> Sentence:
    return Sentence([text_piece(text)] if text else [], as_it_is, name)


def filled_in(documents: list[Document], parts: Iterator[str | tuple[str, bool]], name: str, format: str) -> Template:
    """parts: literal text, and (text as written, whether it is a JSON string) for each sentence in order."""
    template = Template(name, format)
    template.groups = [Group(d.id, [sentence(text, name) for text in d.sentences]) for d in documents]
    ordered = (each for group in template.groups for each in group.sentences)
    for part in parts:
        if isinstance(part, str):
            template.parts.append(part)
            continue
        raw, quoted = part
        each = next(ordered)

        def finish(text: str, raw: str = raw, quoted: bool = quoted, before: str = each.text) -> str:
            if text == before:
                return raw
            return json.dumps(text, ensure_ascii=False) if quoted else text.replace("\t", " ")

        template.parts.append(Passage([each], finish))
    return template


def jsonl_parts(text: str, name: str, column: str | None) -> Iterator[str | tuple[str, bool]]:
    for number, line in enumerate(lines_of(text), 1):
        if is_blank(line):
            yield line
            continue
        start = line.index("{")  # read already: this is an object
        if column is None:
            column = choose_columns(list(json.loads(line.strip(SPACES))), None, None, at(name, number))[0]
        position = 0
        for begin, end in string_places(line, start, column):
            yield line[position:begin]
            yield line[begin:end], True
            position = end
        yield line[position:]


def string_places(line: str, start: int, column: str) -> list[tuple[int, int]]:
    """Where the strings of a key stand: its value, or the items of its list. Of a key twice, the last counts."""
    decoder, found = json.JSONDecoder(), []
    position = skip(line, start + 1, ",")
    while line[position] != "}":
        key, position = decoder.raw_decode(line, position)
        begin = skip(line, position, ":")
        value, position = decoder.raw_decode(line, begin)
        if key == column and isinstance(value, str):
            found = [(begin, position)]
        elif key == column:
            found, item = [], skip(line, begin + 1, ",")
            while line[item] != "]":
                end = decoder.raw_decode(line, item)[1]
                found.append((item, end))
                item = skip(line, end, ",")
        position = skip(line, position, ",")
    return found


def skip(line: str, position: int, sign: str) -> int:
    """Past white space and, once or not at all, a sign."""
    while line[position] in " \t\r\n" or line[position] == sign:
        position += 1
    return position


def tsv_parts(text: str, name: str, column: str | None) -> Iterator[str | tuple[str, bool]]:
    lines = lines_of(text)
    names = [cell.strip(SPACES) for cell in lines[0].lstrip(BOM).rstrip("\r\n").split("\t")]
    index = names.index(choose_columns(names, column, None, at(name, 1))[0])
    yield lines[0]
    for line in lines[1:]:
        content = line.rstrip("\r\n")
        cells = content.split("\t")
        cell = cells[index]
        stripped = sentence_of(cell.lstrip(BOM) if index == 0 else cell)
        begin = sum(len(before) + 1 for before in cells[:index]) + cell.index(stripped)
        yield line[:begin]
        yield stripped, False
        yield line[begin + len(stripped) :]
