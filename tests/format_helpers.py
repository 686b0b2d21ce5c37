"""For the tests of file formats: a file from its text, and translators whose work can be foreseen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.formats import Reading, open_file
from dynctx.formats.template import Template

# a file of subtitles, and one of messages of which the first has its translation
SRT = "1\n00:00:01,000 --> 00:00:02,000\n<i>the cat</i>\n\n2\n00:00:20,000 --> 00:00:21,000\nthe dog\n"
PO = 'msgid "the cat"\nmsgstr "tac eht"\n\nmsgid "the dog"\nmsgstr ""\n'


def unexpected(message: str) -> None:
    raise AssertionError(f"an unexpected warning: {message}")


class Files:
    """Reads contents as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warnings: list[str] = []

    def open(self, name: str, content: str | bytes, **reading: object) -> Template:
        (self.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return self.open_path(name, **reading)

    def open_path(self, name: str, **reading: object) -> Template:
        options = {"source_language": "en", "target_language": "de", **reading}
        return open_file(str(self.folder / name), Reading(**options), self.warnings.append)  # type: ignore[arg-type]

    def refused(self, name: str, content: str | bytes, **reading: object) -> str:
        """The message, without the folder."""
        with pytest.raises(DynctxError) as caught:
            self.open(name, content, **reading)
        text = str(caught.value)
        assert "\n" not in text
        return text.replace(f"{self.folder}/", "")


def sentences(template: Template) -> list[list[str]]:
    return [list(document.sentences) for document in template.documents]


def translated(template: Template, translate: Callable[[str], str], warn: Callable[[str], None] = unexpected) -> str:
    documents = [Document(d.id, tuple(translate(s) for s in d.sentences)) for d in template.documents]
    return template.filled(documents, warn).decode(template.encoding)


def unchanged(template: Template) -> str:
    return translated(template, lambda sentence: sentence)


def swapped(sentence: str) -> str:
    """Every letter changes, no length does: all markup has to find its place again."""
    return "".join(c.swapcase() if c.isascii() else c for c in sentence)


def shouted(template: Template) -> str:
    return translated(template, swapped)


def replaced(template: Template, pairs: dict[str, str], warn: Callable[[str], None] = unexpected) -> str:
    """Translations from a table; what is not in it is a mistake."""
    return translated(template, lambda sentence: pairs[sentence], warn)


def put(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def held(folder: Path) -> dict[str, str]:
    """What lies in a folder, by name."""
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}
