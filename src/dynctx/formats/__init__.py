"""Files that people translate: text, Markdown, HTML, subtitles, XLIFF, TMX, PO, and the formats of corpora.

`open_file` takes a file apart into a `Template`: its documents, sentence by sentence, and a way to write the same
file with their translations. One module a format; `template` is the way back, `inline` the markup in a sentence.
"""

from __future__ import annotations

import codecs
import io
import re
import sys
from dataclasses import dataclass

from dynctx.document_formats import did_you_mean
from dynctx.documents import HEAD_LINES, detect_format
from dynctx.errors import DynctxError, at
from dynctx.files import BOM, display_name, not_utf8, read_bytes, split_suffixes
from dynctx.formats import ass, corpus, html, markdown, plain, po, srt, tmx, webvtt, xliff
from dynctx.formats.inline import Warn
from dynctx.formats.subtitles import SCENE_GAP
from dynctx.formats.template import Template

# what a file name says
SUFFIXES = {
    ".txt": "txt",
    ".md": "md",
    ".markdown": "md",
    ".html": "html",
    ".htm": "html",
    ".srt": "srt",
    ".vtt": "vtt",
    ".ass": "ass",
    ".ssa": "ass",
    ".xlf": "xliff",
    ".xliff": "xliff",
    ".tmx": "tmx",
    ".po": "po",
    ".pot": "po",
    ".jsonl": "jsonl",
    ".tsv": "tsv",
    ".xml": "xml",
    ".sgm": "xml",
    ".sgml": "xml",
}
CORPORA = ("jsonl", "tsv", "xml", "d", "tags")
FORMATS = tuple(dict.fromkeys([*SUFFIXES.values(), *CORPORA]))
# to be read as text these would have their markup translated; each with a way out
REFUSED = {
    **dict.fromkeys((".sub", ".sbv", ".ttml", ".dfxp", ".lrc"), "save it as .srt or .vtt"),
    **dict.fromkeys((".doc", ".docx", ".odt", ".rtf", ".epub", ".pdf"), "save it as .html or .txt"),
    **dict.fromkeys((".xls", ".xlsx", ".ods", ".csv"), "save it as .tsv"),
    **dict.fromkeys((".yaml", ".yml", ".properties", ".strings", ".resx", ".ts"), "export it as .xlf or .po"),
    **dict.fromkeys((".ppt", ".pptx", ".odp", ".tex", ".rst", ".adoc"), "export its text as .txt"),
}
REMEDY = "say what it is, for instance --encoding gb18030 for Chinese, or convert it"
DECLARED = re.compile(r"""((?:<meta\s[^<>]*?|"Content-Type:[^"]*?)charset\s*=\s*["']?)[\w.\-]+""", re.IGNORECASE)
XML_ENCODING = re.compile(rb"""\A\s*<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._\-]+)["']""")


@dataclass(frozen=True)
class Reading:
    """How files are read; the defaults are those of the command line."""

    source_language: str = ""
    target_language: str = ""
    format: str = "auto"
    split: bool = False  # plain text: paragraphs to be split, not one sentence a line
    scene_gap: float = SCENE_GAP  # subtitles: seconds of silence that end a document
    again: bool = False  # XLIFF, TMX, PO: also what has a translation
    column: str | None = None  # JSON lines, TSV: which key or column is the text; XML corpora: which side
    encoding: str = "utf-8"  # of files that do not say it themselves; what is written is UTF-8 then
    output_suffix: str = ""  # .jsonl and .tsv keep their shape where the output has the same


def open_file(path: str, reading: Reading, warn: Warn) -> Template:
    name = display_name(path)
    if reading.format not in ("auto", *FORMATS):
        raise DynctxError(f"unknown format {reading.format!r}; {did_you_mean(reading.format, ('auto', *FORMATS))}")
    if reading.format == "auto":
        check_suffix(path)  # before it is read: most of these are no text at all
    data = read_bytes(path)
    if path == "-":  # the formats of corpora read it once more
        sys.stdin = io.TextIOWrapper(io.BytesIO(data))
    text, encoding = decoded(data, name, reading.encoding)
    if reading.encoding != "utf-8" and encoding == "utf-8" and is_utf8(data):
        warn(f"{name}: looks like UTF-8, but is read as {reading.encoding}; leave out --encoding if this is wrong")
    format = detected(path, text) if reading.format == "auto" else reading.format
    if format in ("html", "po") and reading.encoding != "utf-8" and encoding == "utf-8":
        text = DECLARED.sub(r"\1utf-8", text, count=1)  # what is written says what it is
    if format in CORPORA and reading.encoding != "utf-8":
        raise DynctxError(f"{at(name)}: {format} is read as UTF-8 alone; convert it and leave out --encoding")
    if format in CORPORA:
        template = corpus.read(path, text, name, format, reading.column, reading.output_suffix == f".{format}")
    else:
        template = read_text(text, name, format, reading, warn)
    template.encoding = encoding
    if format in ("html", "md"):
        template.errors = "xmlcharrefreplace"  # a letter that a declared encoding lacks
    return template


def read_text(text: str, name: str, format: str, reading: Reading, warn: Warn) -> Template:
    """A file of which the text is there already; not the formats of corpora."""
    language, languages = reading.source_language, (reading.source_language, reading.target_language)
    match format:
        case "txt":
            if not reading.split:
                plain.check_lines(text, name, warn)
            return plain.read(text, name, language, reading.split)
        case "md":
            return markdown.read(text, name, language)
        case "html":
            return html.read(text, name, language)
        case "srt":
            return srt.read(text, name, language, reading.scene_gap)
        case "vtt":
            return webvtt.read(text, name, language, reading.scene_gap)
        case "ass":
            return ass.read(text, name, language, reading.scene_gap)
        case "xliff":
            return xliff.read(text, name, languages, reading.again, warn)
        case "tmx":
            return tmx.read(text, name, languages, reading.again, warn)
        case "po":
            return po.read(text, name, languages, reading.again, warn)
        case _:
            raise DynctxError(f"{at(name)}: {format} is read from files alone")


def check_suffix(path: str) -> None:
    suffix = split_suffixes(path)[0]
    if suffix in REFUSED:
        known = " ".join(SUFFIXES)
        raise DynctxError(
            f"{at(path)}: {suffix} files cannot be read; {REFUSED[suffix]} (or give --format). These can: {known}"
        )


def detected(path: str, text: str) -> str:
    """By the suffix, and where that says nothing by the first lines."""
    format = SUFFIXES.get(split_suffixes(path)[0], "")
    if format not in ("", "txt", "xml"):
        return format
    lines = text.lstrip(BOM).split("\n", HEAD_LINES)[:HEAD_LINES]
    head = "\n".join(lines)
    if format != "txt":
        for found, sign in SIGNS.items():
            if sign.search(head):
                return found
    found = detect_format(path, [line.rstrip("\r") for line in lines])
    return "txt" if found == "blank" else found


SIGNS = {
    "vtt": re.compile(r"\AWEBVTT(?:\s|\Z)"),
    "srt": re.compile(r"\A\s*\d+\s*\n\s*\d+:\d\d:\d\d[,.]\d+\s*-->"),
    "ass": re.compile(r"\A\s*\[Script Info\]", re.IGNORECASE),
    "xliff": re.compile(r"\A\s*<[^!].*?<?(?:\w+:)?xliff\b[^>]*\sversion\s*=", re.DOTALL),
    "tmx": re.compile(r"\A\s*<.*?<tmx\b|\A\s*<tmx\b", re.DOTALL),
    "po": re.compile(r"^msgid \".*\"\s*\n(?:\".*\"\s*\n|msgid_plural .*\n)*msgstr", re.MULTILINE),
}


def decoded(data: bytes, name: str, given: str = "utf-8") -> tuple[str, str]:
    """The text with its byte order mark, if it has one, and the encoding to write it in again.

    given: where the file itself does not say; then it is written as UTF-8, which has every letter of the translation.
    """
    encoding, said = given, True
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16-le" if data.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    elif declared := XML_ENCODING.match(data[:200]):
        encoding = declared[1].decode()
    else:
        said = False
    try:
        text = data.decode(encoding)
        if "\0" in text:
            raise no_text(name, text.count("\n", 0, text.index("\0")) + 1)
        return text, encoding if said else "utf-8"
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        if encoding.lower() == "utf-8" and b"\0" in data:
            line = data.count(b"\n", 0, data.index(b"\0")) + 1
            raise no_text(name, line) from None
        if encoding.lower() == "utf-8":
            start = data.rfind(b"\n", 0, error.start) + 1
            raise not_utf8(name, line, data[error.start], error.start - start, REMEDY) from None
        raise DynctxError(f"{at(name, line)}: not {encoding}, as it was said: {error.reason}") from None
    except (LookupError, UnicodeError):  # there is one that is called "undefined"
        raise DynctxError(f"{at(name, 1)}: unknown encoding {encoding!r}; save the file as UTF-8") from None


def is_utf8(data: bytes) -> bool:
    """Whether letters beyond ASCII are there and all are UTF-8, which in other encodings hardly ever happens."""
    try:
        return not data.isascii() and bool(data.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def no_text(name: str, line: int) -> DynctxError:
    return DynctxError(
        f"{at(name, line)}: no text: it holds a NUL byte, as pictures and programs do "
        "(UTF-16 without a byte order mark: give --encoding utf-16-le or utf-16-be)"
    )
