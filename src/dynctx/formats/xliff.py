"""XLIFF 1.2 and 2.x (.xlf, .xliff): sources are read, targets written; each <file> is a document.

A target that is there already is kept, and its source is context alone, unless the file itself says that it is not
a translation yet (state new or needs-translation in 1.2, initial in 2.x) or all are to be translated again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dynctx.errors import DynctxError, at
from dynctx.formats import xml
from dynctx.formats.inline import Warn
from dynctx.formats.placeholders import CHOICES, SEVERAL_IN_ONE
from dynctx.formats.template import Builder, Passage, Template
from dynctx.formats.xml import Element, Tags, XmlFile
from dynctx.languages import primary

TAGS_1 = Tags(paired=("g", "mrk"), opens=("bpt", "bx"), closes=("ept", "ex"))
TAGS_2 = Tags(paired=("pc", "mrk"), opens=("sc", "sm"), closes=("ec", "em"))
NOT_YET = ("new", "needs-translation", "needs-adaptation", "needs-l10n", "initial")


@dataclass(frozen=True)
class Segment:
    source: Element
    target: Element | None
    after: int  # where a new target goes
    state: str | None
    unit: str  # its id


def read(text: str, name: str, languages: tuple[str, str], again: bool, warn: Warn) -> Template:
    file = xml.parse(text, name)
    root = file.root
    version = root.attributes.get("version", "")
    if root.name != "xliff" or not version.startswith(("1.", "2.")):
        raise DynctxError(f"{at(name, root.line)}: <{root.name} version={version!r}> is no XLIFF 1.2 or 2")
    two = version.startswith("2")
    builder = Builder(name, "xliff", languages[0])
    builder.template.errors = "xmlcharrefreplace"
    if text.startswith("\ufeff"):
        builder.literal("\ufeff")
    writer = Writer(builder, file, TAGS_2 if two else TAGS_1, again, warn)
    if two:
        check_languages(root, "srcLang", "trgLang", languages, name, warn)
        writer.add_language(root, "trgLang", languages[1])
    for document in root.children:
        if document.name != "file" or document.space != root.space:
            continue
        builder.new_document(document.attributes.get("original") or document.attributes.get("id"))
        if not two:
            check_languages(document, "source-language", "target-language", languages, name, warn)
            writer.add_language(document, "target-language", languages[1])
        for segment in segments_of(document, two):
            writer.segment(segment)
    writer.copy_until(len(file.data))
    return builder.template


def check_languages(
    element: Element, source: str, target: str, languages: tuple[str, str], name: str, warn: Warn
) -> None:
    for attribute, language, way in zip((source, target), languages, ("from", "to")):
        said = element.attributes.get(attribute, "")
        if said and language and primary(said) != primary(language):
            warn(f"{at(name, element.line)}: {attribute} is {said!r}, but the model translates {way} {language!r}")


def segments_of(document: Element, two: bool) -> Iterator[Segment]:
    """Those that may be translated, in order."""
    unit_name, waiting = ("unit" if two else "trans-unit"), [(document, True)]
    while waiting:
        element, allowed = waiting.pop()
        said = element.attributes.get("translate")
        allowed = said == "yes" if said in ("yes", "no") else allowed
        if element.space != document.space or element.name in ("alt-trans", "bin-unit", "notes"):
            continue
        if element.name == unit_name:
            if allowed:
                holders = [child for child in element.children if child.name == "segment"] if two else [element]
                for holder in holders:
                    if holder.space == document.space:
                        yield from segments_in(holder, element.attributes.get("id", ""))
        else:
            waiting += [(child, allowed) for child in reversed(element.children)]


def segments_in(holder: Element, unit: str) -> Iterator[Segment]:
    source, target, divided = (holder.child(name) for name in ("source", "target", "seg-source"))
    if source is None:
        return
    state = (target.attributes.get("state") if target is not None else None) or holder.attributes.get("state")
    # a target has the segments that the source was divided into
    read = divided if divided is not None and divided.inner < divided.inner_end else source
    ours, theirs = marked(read), marked(target) if target is not None else {}
    filled = sum(segment.inner < segment.inner_end for segment in theirs.values())
    if 0 < filled < len(theirs) and list(ours) == list(theirs):  # some have a translation, some have none yet
        for name, segment in ours.items():
            yield Segment(segment, theirs[name], theirs[name].end, state, unit)
    else:
        yield Segment(read, target, (divided or source).end, state, unit)


def marked(element: Element) -> dict[str, Element]:
    """The segments that an element of XLIFF 1.2 is divided into, by name."""
    marks = (e for e in element.walk() if e.name == "mrk" and e.attributes.get("mtype") == "seg")
    return {mark.attributes.get("mid", ""): mark for mark in marks}


class Writer:
    """Copies a file up to the next place where something is put in."""

    def __init__(self, builder: Builder, file: XmlFile, tags: Tags, again: bool, warn: Warn) -> None:
        self.builder, self.file, self.tags, self.again, self.warn = builder, file, tags, again, warn
        self.position = 0

    def copy_until(self, place: int) -> None:
        self.builder.literal(self.file.raw(self.position, place))
        self.position = place

    def add_language(self, element: Element, attribute: str, language: str) -> None:
        if attribute not in element.attributes and language:
            self.copy_until(element.inner - 1 - element.empty)
            self.builder.literal(f' {attribute}="{language}"')

    def segment(self, segment: Segment) -> None:
        source, target, file = segment.source, segment.target, self.file
        self.builder.place = {"unit": segment.unit}
        filled = target is not None and xml.is_translation(file.content(target), file.content(source), self.tags)
        done = filled and segment.state not in NOT_YET
        if CHOICES.search(file.content(source)):
            if not done:
                self.warn(f"{at(self.builder.template.name, source.line)}: {SEVERAL_IN_ONE}")
            return
        passage = self.passage(source, needed=self.again or not done)
        if (done and not self.again) or not xml.has_text(file.content(source)):
            return
        if target is not None:
            self.replace(target, passage)
        else:
            tag = file.tag_name(source).removesuffix("source").removesuffix("seg-") + "target"
            self.copy_until(segment.after)
            self.builder.literal(f"{file.indentation(source)}<{tag}>")
            self.builder.write(passage)
            self.builder.literal(f"</{tag}>")

    def passage(self, element: Element, needed: bool) -> Passage:
        pieces = xml.pieces_of(self.file.content(element), self.tags)
        return self.builder.passage(pieces, element.line, escape=xml.escape, needed=needed, title=True)

    def replace(self, element: Element, passage: Passage) -> None:
        """A new content for an element."""
        if element.empty:
            self.copy_until(element.start)
            opening = self.file.raw(element.start, element.inner)
            self.builder.literal(opening[: opening.rindex("/")].rstrip() + ">")
            self.builder.write(passage)
            self.builder.literal(f"</{self.file.tag_name(element)}>")
        else:
            self.copy_until(element.inner)
            self.builder.write(passage)
        self.position = element.end if element.empty else element.inner_end
