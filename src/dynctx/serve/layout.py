"""Text as what stays and what is translated: lines of plain text, and the text between the tags of HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

# possessive (*+): a tag that never ends is found out in one pass, not in one for each of its letters
TAG = re.compile(r"""</?([a-zA-Z][^\s/<>"']*+)(?:[^<>"']|"[^"]*+"|'[^']*+')*+>""")
KEPT_WHOLE = ("code", "pre", "textarea", "kbd", "samp", "var", "svg", "math")
RAW = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style")}  # hold no tags
NO_TRANSLATION = re.compile(r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE)
VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")


@dataclass
class Layout:
    """A text in parts: what stays, and None in the place of each sentence."""

    parts: list[str | None] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    written: Callable[[str], str] = str  # how a translation is put into the text

    def filled(self, translations: Sequence[str]) -> str:
        found = iter(translations)
        return "".join(self.written(next(found)) if part is None else part for part in self.parts)

    def keep(self, text: str) -> None:
        self.parts.append(text)

    def add(self, text: str, sentence: str) -> None:
        """text: a stretch of the original, which `sentence` stands for; the space around it is kept."""
        if not sentence:
            return self.keep(text)
        bare = text.strip()
        start = text.index(bare)
        self.parts += [text[:start], None, text[start + len(bare) :]]
        self.sentences.append(sentence)


def plain_text(text: str) -> Layout:
    """A sentence a line; blank lines are kept and are no sentences."""
    layout = Layout()
    for number, line in enumerate(text.split("\n")):
        if number:
            layout.keep("\n")
        layout.add(line, line.strip())
    return layout


def html_text(text: str) -> Layout:
    """A sentence for each stretch of text between tags that has a letter or a digit in it."""
    layout = Layout(written=lambda translation: html.escape(translation, quote=False))
    end = 0
    for start, after in untranslated(text):
        add_node(layout, text[end:start])
        layout.keep(text[start:after])
        end = after
    add_node(layout, text[end:])
    return layout


def add_node(layout: Layout, node: str) -> None:
    words = " ".join(html.unescape(node).split())
    layout.add(node, words if any(c.isalnum() for c in words) else "")


def untranslated(text: str) -> Iterator[tuple[int, int]]:
    """Where tags, comments and elements that hold no prose begin and end, in order."""
    closing, depth, first = "", 0, 0  # the element that is kept whole, how deep in its like, where it began
    for start, end, name, opens in markup(text):
        if closing:
            if name == closing:
                depth += 1 if opens else -1
            if not depth:
                yield first, end
                closing = ""
        elif opens and name not in VOID and (name in KEPT_WHOLE or NO_TRANSLATION.search(text, start, end)):
            if not text.endswith("/>", start, end):
                closing, depth, first = name, 1, start
            else:
                yield start, end
        else:
            yield start, end
    if closing:
        yield first, len(text)


def markup(text: str) -> Iterator[tuple[int, int, str, bool]]:
    """Tags and comments: begin, end, name in lower case, whether it opens. Reads the text once, whatever it holds."""
    at = 0
    while (at := text.find("<", at)) >= 0:
        name, opens = "", False
        if text.startswith("<!--", at):
            end = past(text, "-->", at + 4)
        elif text.startswith(("<!", "<?"), at):
            end = past(text, ">", at)
        elif tag := TAG.match(text, at):
            end, name, opens = tag.end(), tag[1].lower(), text[at + 1] != "/"
            if opens and name in RAW:
                closing = RAW[name].search(text, end)
                end = closing.start() if closing else len(text)
        else:  # a lone "<" is text
            at += 1
            continue
        yield at, end, name, opens
        at = end


def past(text: str, closing: str, start: int) -> int:
    """Where what ends with `closing` ends; without one it is the rest of the text, as browsers have it."""
    found = text.find(closing, start)
    return found + len(closing) if found >= 0 else len(text)
