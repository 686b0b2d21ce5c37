"""XML with places: elements as they lie in the file, so that the rest of it can be kept byte for byte.

expat checks the file and tells where each element begins. A document type with declarations of its own is refused,
nothing outside the file is ever read, and no entity is expanded beyond XML's own five.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from dynctx.errors import DynctxError, at
from dynctx.files import BOM
from dynctx.formats.inline import Kind, Piece, kept, line_break, single, text_piece
from dynctx.formats.placeholders import protected

XML_LANG = "http://www.w3.org/XML/1998/namespace lang"
START_TAG = re.compile(rb"""<[^\s/>]+(?:\s+[^\s=/>]+\s*=\s*(?:"[^"]*"|'[^']*'))*\s*(/?)>""")
TOKEN = re.compile(
    r"""
      (?P<comment><!--.*?-->|<\?.*?\?>)
    | <!\[CDATA\[(?P<cdata>.*?)\]\]>
    | </(?P<end>[^\s>]+)\s*>
    | <(?P<start>[^\s/>]+)(?P<attributes>(?:\s+[^\s=/>]+\s*=\s*(?:"[^"]*"|'[^']*'))*)\s*(?P<empty>/?)>
    | (?P<escaped>&lt;/?[a-zA-Z][\w\-]*(?:\s(?:[^&<>]|&(?!lt;|gt;))*+)?/?&gt;)  # a tag of HTML, as text
    | (?P<entity>&[^;\s]+;)
    | (?P<space>(?<![ \t\r])[ \t\r]*+\n\s*+)
    """,
    re.VERBOSE | re.DOTALL,
)
PROTECTED = re.compile(r"\s(?:translate\s*=\s*[\"']no[\"']|mtype\s*=\s*[\"']protected[\"'])")
ID = re.compile(r"""\sid\s*=\s*["']([^"']*)["']""")
START_REFERENCE = re.compile(r"""\sstartRef\s*=\s*["']([^"']*)["']""")
HTML_TAG = re.compile(r"(</?[a-zA-Z][\w\-]*(?:\s[^<>]*)?/?>)")
VOID = ("br", "img", "hr", "input", "wbr")  # tags of HTML that nothing closes
OWN_ENTITIES = re.compile(r"&(?:amp|lt|gt|quot|apos|#[0-9]+|#x[0-9a-fA-F]+);")


@dataclass
class Element:
    """An element by its place in the bytes of the file: <name ...> at start:inner, </name> at inner_end:end."""

    space: str  # the namespace
    name: str
    attributes: dict[str, str]
    line: int
    start: int
    inner: int
    inner_end: int = 0
    end: int = 0
    empty: bool = False  # written <name/>
    children: list[Element] = field(default_factory=list)

    def child(self, name: str) -> Element | None:
        return next((child for child in self.children if child.name == name and child.space == self.space), None)

    def walk(self) -> Iterator[Element]:
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting += reversed(element.children)


@dataclass
class XmlFile:
    root: Element
    data: bytes  # UTF-8, without a byte order mark

    def raw(self, start: int, end: int) -> str:
        return self.data[start:end].decode()

    def tag_name(self, element: Element) -> str:
        """As written, with its prefix."""
        return re.split(r"[\s/>]", self.raw(element.start + 1, element.inner), maxsplit=1)[0]

    def content(self, element: Element) -> str:
        return self.raw(element.inner, element.inner_end)

    def indentation(self, element: Element) -> str:
        """The white space before an element."""
        before = self.data[max(element.start - 200, 0) : element.start]
        return before[len(before.rstrip()) :].decode()


def parse(text: str, name: str) -> XmlFile:
    # the text was decoded by what its declaration says; from here on it is UTF-8
    data = text.removeprefix(BOM).encode()
    parser = expat.ParserCreate("utf-8", " ")
    top = Element("", "", {}, 0, 0, 0)
    opened = [top]

    def doctype(*declared: object) -> None:
        if declared[-1]:
            where = at(name, parser.CurrentLineNumber)
            raise DynctxError(f"{where}: the document type declares entities or elements; remove the part in [ ]")

    def start(tag: str, attributes: dict[str, str]) -> None:
        match = START_TAG.match(data, parser.CurrentByteIndex)
        assert match is not None
        space, _, local = tag.rpartition(" ")
        place = match.span()
        element = Element(space, local, attributes, parser.CurrentLineNumber, *place, empty=bool(match[1]))
        opened[-1].children.append(element)
        opened.append(element)

    def end(tag: str) -> None:
        element = opened.pop()
        element.inner_end = element.inner if element.empty else parser.CurrentByteIndex
        element.end = element.inner if element.empty else data.index(b">", parser.CurrentByteIndex) + 1

    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = expat.errors.messages[error.code]
        raise DynctxError(
            f"{at(name, error.lineno)}: not well-formed XML, at column {error.offset + 1}: {reason}"
        ) from None
    return XmlFile(top.children[0], data)


@dataclass(frozen=True)
class Tags:
    """The inline elements of a format."""

    paired: Collection[str]  # around text that is translated
    opens: Collection[str]  # native code: nothing inside is translated
    closes: Collection[str]


def pieces_of(content: str, tags: Tags) -> list[Piece]:
    """The content of a segment. An element that is not for pairing is one mark, with all that is in it."""
    pieces: list[Piece] = []
    stack: list[str] = []  # opened pairs, by the place of their start
    position = 0
    while position < len(content):
        match = TOKEN.search(content, position)
        if match is None:
            break
        pieces += spelled(content[position : match.start()])
        position = match.end()
        if match["start"]:
            name = match["start"].rpartition(":")[2]
            if match["empty"] and (end := protected_end(content, match)):
                raw, inner = content[match.start() : end], shown(content[match.end() : end])
                pieces.append(kept(raw, inner) if inner else single(raw))
                position = end
            elif match["empty"]:
                pieces.append(one_tag(match[0], name, tags))
            elif PROTECTED.search(match["attributes"]):
                position = element_end(content, match)
                inner = shown(content[match.end() : content.rindex("</", 0, position)])
                raw = content[match.start() : position]
                pieces.append(kept(raw, inner) if inner else single(raw))
            elif name in tags.paired:
                stack.append(f"{name} {match.start()}")
                pieces.append(Piece(Kind.OPEN, match[0], pair=stack[-1]))
            else:
                position = element_end(content, match)
                pieces.append(one_tag(content[match.start() : position], name, tags))
        elif match["end"]:
            pieces.append(Piece(Kind.CLOSE, match[0], pair=stack.pop()))
        elif match["comment"]:
            pieces.append(single(match[0]))
        elif match["cdata"] is not None:
            for number, part in enumerate(HTML_TAG.split(match["cdata"])):
                pieces += [html_tag(escape(part), part)] if number % 2 else spelled(part)
        elif match["escaped"]:
            pieces.append(html_tag(match[0], html.unescape(match[0])))
        elif match["entity"]:
            own = OWN_ENTITIES.fullmatch(match[0])
            pieces.append(Piece(Kind.TEXT, match[0], html.unescape(match[0])) if own else kept(match[0]))
        else:
            pieces.append(line_break(match[0]))
    return protected(pieces + spelled(content[position:]))


def html_tag(raw: str, tag: str) -> Piece:
    """A tag of HTML that is text for XML: `&lt;b&gt;`, or in a CDATA section."""
    name = tag.strip("</>").split()[0].lower()
    if name == "br":
        return line_break(raw, ends_sentence=True)
    if tag.endswith("/>") or name in VOID:
        return single(raw)
    return Piece(Kind.CLOSE if tag.startswith("</") else Kind.OPEN, raw, pair=f"<{name}")


LINE_BREAK = re.compile(r"""^<[^<>]*\s(?:ctype\s*=\s*["']lb["']|subType\s*=\s*["']xlf:lb["'])""")


def one_tag(raw: str, name: str, tags: Tags) -> Piece:
    if LINE_BREAK.match(raw):
        return line_break(raw, ends_sentence=True)
    kind = Kind.OPEN if name in tags.opens else Kind.CLOSE if name in tags.closes else Kind.SINGLE
    return Piece(kind, raw)


def element_end(content: str, start: re.Match[str]) -> int:
    """Where the element ends whose start tag this is."""
    depth, position = 1, start.end()
    while depth:
        match = TOKEN.search(content, position)
        assert match is not None  # the file is well-formed
        depth += bool(match["start"] and not match["empty"]) - bool(match["end"])
        position = match.end()
    return position


def protected_end(content: str, start: re.Match[str]) -> int:
    """Where the <em/> ends that belongs to <sm id="..." translate="no"/>; 0 where this is none, or elements begin
    inside and end outside."""
    identity = ID.search(start["attributes"])
    if start["start"].rpartition(":")[2] != "sm" or not PROTECTED.search(start["attributes"]) or not identity:
        return 0
    depth = 0
    for match in TOKEN.finditer(content, start.end()):
        depth += bool(match["start"] and not match["empty"]) - bool(match["end"])
        if match["empty"] and match["start"].rpartition(":")[2] == "em":
            reference = START_REFERENCE.search(match["attributes"])
            if reference and reference[1] == identity[1]:
                return match.end() if not depth else 0
        if depth < 0:
            return 0
    return 0


def shown(content: str) -> str:
    """The text of a content without its tags."""
    return " ".join(
        html.unescape(TOKEN.sub(lambda m: m[0] if m["entity"] else " " if m["space"] else "", content)).split()
    )


def spelled(text: str) -> list[Piece]:
    """Text, with line ends and what cannot stand so in XML as pieces of their own."""
    pieces = []
    for part in re.split(r"([&<]|(?<![ \t\r])[ \t\r]*+\n\s*+)", text):
        if part in ("&", "<"):
            pieces.append(Piece(Kind.TEXT, escape(part), part))
        elif part:
            pieces.append(line_break(part) if "\n" in part else text_piece(part))
    return pieces


def escape(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;")
    return re.sub(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", " ", text)  # no XML may hold these


def is_translation(target: str, source: str, tags: Tags) -> bool:
    """Whether a target is filled. Tags alone, which some tools put there, translate nothing but tags alone."""

    def says(content: str) -> bool:
        return any(piece.text.strip() for piece in pieces_of(content, tags))

    return has_text(target) and (says(target) or not says(source))


def has_text(content: str) -> bool:
    """Whether a segment holds anything besides spaces and comments."""
    return bool(re.sub(r"<!--.*?-->|\s", "", content, flags=re.DOTALL))
