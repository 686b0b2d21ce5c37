"""TMX translation memories (.tmx): each unit that lacks the target language gets it.

The unit's variant (<tuv>) in the model's source language is read; a variant in its target language is filled where
it is there and empty, kept where it is there and has a text, and added where it is missing.
"""

from __future__ import annotations

from dynctx.errors import DynctxError, at
from dynctx.formats import xml
from dynctx.formats.inline import Warn
from dynctx.formats.template import Builder, Template
from dynctx.formats.xliff import Writer
from dynctx.formats.xml import XML_LANG, Element, Tags
from dynctx.languages import primary

TAGS = Tags(paired=("hi",), opens=("bpt",), closes=("ept",))


def read(text: str, name: str, languages: tuple[str, str], again: bool, warn: Warn) -> Template:
    file = xml.parse(text, name)
    if file.root.name != "tmx":
        raise DynctxError(f"{at(name, file.root.line)}: <{file.root.name}> is no TMX")
    source, target = languages[0] or source_language(file.root), languages[1]
    if not source or not target:
        raise DynctxError(f"{at(name)}: the model does not say its languages (data.source_language, target_language)")
    builder = Builder(name, "tmx", source)
    builder.template.errors = "xmlcharrefreplace"
    if text.startswith("\ufeff"):
        builder.literal("\ufeff")
    writer = Writer(builder, file, TAGS, again, warn)
    units = [element for element in file.root.walk() if element.name == "tu"]
    for unit in units:
        translate_unit(writer, unit, source, target)
    writer.copy_until(len(file.data))
    if units and not builder.template.groups:
        there = sorted({language_of(variant) for unit in units for variant in unit.children if variant.name == "tuv"})
        raise DynctxError(f"{at(name)}: no <tuv> with text in {source!r}; there are: {', '.join(there) or 'none'}")
    return builder.template


def source_language(root: Element) -> str:
    header = root.child("header")
    said = header.attributes.get("srclang", "") if header else ""
    return "" if said == "*all*" else said


def language_of(variant: Element) -> str:
    return variant.attributes.get(XML_LANG) or variant.attributes.get("lang", "")  # lang: TMX 1.1


def translate_unit(writer: Writer, unit: Element, source: str, target: str) -> None:
    variants = [child for child in unit.children if child.name == "tuv"]

    def segment(language: str) -> tuple[Element, Element] | None:
        for variant in variants:
            if primary(language_of(variant)) == primary(language) and (seg := variant.child("seg")):
                return variant, seg
        return None

    read, written = segment(source), segment(target)
    if read is None:
        return
    file = writer.file
    writer.builder.place = {"unit": unit.attributes["tuid"]} if "tuid" in unit.attributes else {}
    done = written is not None and xml.is_translation(file.content(written[1]), file.content(read[1]), TAGS)
    passage = writer.passage(read[1], needed=writer.again or not done)
    if (done and not writer.again) or not xml.has_text(file.content(read[1])):
        return
    if written is not None:
        writer.replace(written[1], passage)
        return
    variant, seg = read
    attribute = "lang" if XML_LANG not in variant.attributes else "xml:lang"
    writer.copy_until(variants[-1].end)
    tuv, seg_tag = file.tag_name(variant), file.tag_name(seg)
    inner = file.indentation(seg)
    writer.builder.literal(f'{file.indentation(variant)}<{tuv} {attribute}="{target}">{inner}<{seg_tag}>')
    writer.builder.write(passage)
    after = file.raw(seg.end, variant.inner_end)
    writer.builder.literal(f"</{seg_tag}>{'' if after.strip() else after}</{tuv}>")
