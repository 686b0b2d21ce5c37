"""Gettext catalogues (.po, .pot): untranslated and fuzzy messages get a translation, all else stays.

The lines are found here, so that comments, references, flags, obsolete messages and blank lines come out as they
were; strings are read, escaped and wrapped as gettext does it by translate-toolkit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dynctx.document_formats import SPACES
from dynctx.errors import DynctxError, at
from dynctx.formats.inline import Kind, Piece, Warn, line_break, single, text_piece
from dynctx.formats.lines import lines_of
from dynctx.formats.placeholders import CHOICES, SEVERAL_IN_ONE, protected
from dynctx.formats.template import Builder, Passage, Template, as_it_is
from dynctx.formats.xml import VOID
from dynctx.languages import primary

KEYWORD = re.compile(r"(\s*)(msgctxt|msgid_plural|msgid|msgstr)(?:\[(\d+)\])?(\s*)(?=\")")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
TAG = re.compile(r"<(?P<close>/?)(?P<name>[a-zA-Z][\w\-]*)(?:\s[^<>]*)?/?>|(?P<percent>%%)|(?P<line>\n+)")
WRAPPED = 80  # a file with longer lines is not wrapped
UNWRAPPED = 10**9  # then only \\n ends a line
PERCENT = {f"{language}-format" for language in ("c", "objc", "python", "php", "perl", "ruby", "tcl", "lua", "awk")}


def doubled(text: str) -> str:
    """A percent sign that is a translation's own is no format."""
    return text.replace("%", "%%")


@dataclass
class Field:
    """A keyword and its string, which may go over several lines."""

    keyword: str
    form: int | None  # of a plural
    prefix: str  # the keyword as written
    first: int  # the first of its lines, counted from 0
    strings: list[str] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.strings)

    @property
    def text(self) -> str:
        from translate.storage.pypo import unquotefrompo

        return unquotefrompo(self.strings)


@dataclass
class Message:
    flags: set[str]
    fields: list[Field]

    def one(self, keyword: str) -> Field | None:
        return next((field for field in self.fields if field.keyword == keyword), None)


def read(text: str, name: str, languages: tuple[str, str], again: bool, warn: Warn) -> Template:
    lines = lines_of(text)
    messages = messages_of(lines, name)
    if not messages:
        raise DynctxError(f'{at(name)}: holds no message (msgid "..." and msgstr "...")')
    writer = Writer(Builder(name, "po", languages[0]), lines, again, warn)
    for message in messages:
        check_language(message, name, languages[1], warn)
        writer.message(message)
    writer.copy_until(len(lines))
    return writer.builder.template


def check_language(message: Message, name: str, language: str, warn: Warn) -> None:
    """The header, the translation of the empty text, may say the language of the file."""
    source, header = message.one("msgid"), message.one("msgstr")
    said = re.search(r"^Language: *(\w+)", header.text, re.MULTILINE) if header and source and not source.text else None
    if said and language and primary(said[1]) != primary(language):
        line = header.first + 1 if header else 1
        warn(f"{at(name, line)}: Language is {said[1]!r}, but the model translates to {language!r}")


def messages_of(lines: list[str], name: str) -> list[Message]:
    found: list[Message] = []
    flags: set[str] = set()  # of the comments above the next message
    for number, line in enumerate(lines):
        stripped = line.strip(SPACES)
        if not stripped or stripped.startswith("#"):
            if stripped.startswith("#~"):  # an obsolete message, which has flags of its own
                flags = set()
            elif stripped.startswith("#,"):
                flags |= {flag.strip() for flag in stripped[2:].split(",")}
            continue
        keyword = KEYWORD.match(line.lstrip("\ufeff") if number == 0 else line)
        previous = found[-1].fields[-1] if found else None
        if keyword:
            string = line[line.index('"') :].strip(SPACES)
            field = Field(
                keyword[2], int(keyword[3]) if keyword[3] else None, line[: line.index('"')], number, [string]
            )
            begins = field.keyword == "msgctxt" or (
                field.keyword == "msgid" and (previous is None or previous.keyword != "msgctxt")
            )
            if begins:
                check_complete(found, name)
                found.append(Message(flags, []))
                flags = set()
            elif not found:
                raise DynctxError(f"{at(name, number + 1)}: {field.keyword} without a msgid before it")
            found[-1].fields.append(field)
        elif stripped.startswith('"') and previous is not None and previous.end == number:
            string = stripped
            previous.strings.append(string)
        else:
            raise DynctxError(f"{at(name, number + 1)}: {stripped[:60]!r} is no line of a PO file")
        if not STRING.fullmatch(string):
            raise DynctxError(f"{at(name, number + 1)}: {string[:60]} is no string; it ends with a quotation mark")
    check_complete(found, name)
    return found


def check_complete(found: list[Message], name: str) -> None:
    if found and not (found[-1].one("msgid") and found[-1].one("msgstr")):
        line = found[-1].fields[0].first + 1
        missing = "msgstr" if found[-1].one("msgid") else "msgid"
        raise DynctxError(f"{at(name, line)}: the message has no {missing}; add it")


class Writer:
    def __init__(self, builder: Builder, lines: list[str], again: bool, warn: Warn) -> None:
        self.builder, self.lines, self.again, self.warn = builder, lines, again, warn
        self.line = 0
        self.wrap = all(len(line.rstrip("\r\n")) <= WRAPPED for line in lines if line.startswith(('"', "msg")))
        self.end = "\r\n" if any(line.endswith("\r\n") for line in lines) else "\n"

    def copy_until(self, line: int) -> None:
        self.builder.literal("".join(self.lines[self.line : line]))
        self.line = line

    def message(self, message: Message) -> None:
        """A plural has a passage for one and a passage for many, which may fill several forms."""
        source, plural = message.one("msgid"), message.one("msgid_plural")
        forms = [field for field in message.fields if field.keyword == "msgstr"]
        if source is None or not source.text:  # the header
            return
        done = all(field.text for field in forms) and "fuzzy" not in message.flags
        needed = self.again or not done
        if CHOICES.search(source.text):
            if not done:
                self.warn(f"{at(self.builder.template.name, source.first + 1)}: {SEVERAL_IN_ONE}")
            return
        context = message.one("msgctxt")
        self.builder.place = {"unit": context.text} if context else {}
        one = self.passage(source, message.flags, needed)
        many = self.passage(plural, message.flags, needed) if plural else one
        if not needed:
            return
        for form in forms:
            if form.text and not self.again and "fuzzy" not in message.flags:
                continue  # one of several forms that somebody has translated
            # languages without a plural have one form, for any number
            singular = plural is None or (form.form == 0 and len(forms) > 1)
            self.copy_until(form.first)
            self.write(one if singular else many, source if singular or plural is None else plural, form)

    def passage(self, source: Field, flags: set[str], needed: bool) -> Passage:
        formatted = any(flag.endswith("-format") and not flag.startswith("no-") for flag in flags)
        escape = doubled if flags & PERCENT else as_it_is
        pieces = pieces_of(source.text, formatted)
        return self.builder.passage(pieces, source.first + 1, escape=escape, needed=needed, title=True)

    def write(self, passage: Passage, source: Field, form: Field) -> None:
        ending = self.lines[form.end - 1]
        ending = ending[len(ending.rstrip("\r\n")) :]
        finish = quoted(form.prefix, source, self.wrap, self.end, ending)
        self.builder.write(replace(passage, finish=finish))
        self.line = form.end


def quoted(prefix: str, source: Field, wrap: bool, end: str, ending: str) -> Callable[[str], str]:
    """A msgstr from its text; one that is equal to its msgid has the same lines."""

    def finish(text: str) -> str:
        from translate.storage.pypo import PoWrapper, quoteforpo

        strings = source.strings
        if text != source.text:
            strings = quoteforpo(text, PoWrapper() if wrap else PoWrapper(UNWRAPPED)) or ['""']
        return prefix + end.join(strings) + ending

    return finish


def pieces_of(text: str, formatted: bool) -> list[Piece]:
    pieces: list[Piece] = []
    position = 0
    for match in TAG.finditer(text):
        if match["percent"] and not formatted:
            continue
        if match.start() > position:
            pieces.append(text_piece(text[position : match.start()]))
        if match["percent"]:
            pieces.append(Piece(Kind.TEXT, "%%", "%"))
        elif match["line"]:
            pieces.append(line_break(match[0]))
        elif match["name"].lower() == "br":
            pieces.append(line_break(match[0], ends_sentence=True))
        elif match[0].endswith("/>") or match["name"].lower() in VOID:
            pieces.append(single(match[0]))
        else:
            kind = Kind.CLOSE if match["close"] else Kind.OPEN
            pieces.append(Piece(kind, match[0], pair=match["name"].lower()))
        position = match.end()
    if position < len(text):
        pieces.append(text_piece(text[position:]))
    return protected(pieces, formatted)
