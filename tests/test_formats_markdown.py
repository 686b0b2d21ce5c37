"""Markdown: the text of blocks is translated, all else stays, byte for byte."""

from __future__ import annotations

import pytest
from format_helpers import Files, replaced, sentences, shouted, swapped, translated, unchanged
from hypothesis import given, settings
from hypothesis import strategies as st

from dynctx.formats import markdown

pytest_plugins = ("format_fixtures",)
quick = settings(max_examples=300, deadline=None)

PAGE = """---
title: Front matter stays
---
# Getting *started* with `dynctx`

Install it with [pip](https://pip.pypa.io "PyPI"). It needs **Python 3.11** or
later, e.g. from <https://python.org/downloads>. See [the guide][g] for more.

> [!NOTE]
> A quoted line. And
> more of it.

1. First item\\
   after a hard break
2. Second **item
   over lines** done.

   - [ ] a task
   - [x] done ![icon](a.png) here[^1]

| Name | What \\| it is |
|:-----|:--:|
| `x`  | a *thing* |

[g]: guide.md "Guide"
[^1]: A footnote here.

```sh
pip install dynctx  # this stays
```

    indented code stays

<div>
html stays
</div>

Setext &amp; more
=================

***

!!! note
"""
TEXTS = [
    "Getting started with dynctx",
    "Install it with pip.",
    "It needs Python 3.11 or later, e.g. from <https://python.org/downloads>.",
    "See the guide for more.",
    "A quoted line.",
    "And more of it.",
    "First item",
    "after a hard break",
    "Second item over lines done.",
    "a task",
    "done  here",
    "Name",
    "What | it is",
    "a thing",
    "A footnote here.",
    "Setext & more",
]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_markdown(files: Files, end: str, mark: str) -> None:
    content = mark + PAGE.replace("\n", end)
    page = files.open("page.md", content)
    assert sentences(page) == [TEXTS]
    assert unchanged(page) == content
    written = shouted(page)
    assert written.lower() == content.lower()
    for kept in (
        "`dynctx`",
        '](https://pip.pypa.io "PyPI")',
        "<https://python.org/downloads>",
        "][g]",
        "[!NOTE]",
        "![icon](a.png)",
        "[^1]",
        "`x`",
        'g]: guide.md "Guide"',
        "pip install dynctx  # this stays",
        "indented code stays",
        "html stays",
        "&amp;",
        "!!! note",
        "title: Front matter stays",
    ):
        assert kept in written
    assert "sETEXT &amp; MORE" in written


@pytest.mark.parametrize(
    ("source", "table", "expected"),
    [
        # emphasis and links follow their text
        (
            "The **cat** sees [a dog](d.md).",
            {"The cat sees a dog.": "Die Katze sieht einen Hund."},
            "Die **Katze** sieht [einen Hund](d.md).",
        ),
        # code goes where it is found
        (
            "Run `make demo` now.",
            {"Run make demo now.": "Führen Sie jetzt make demo aus."},
            "Führen Sie jetzt `make demo` aus.",
        ),
        # a link by its text keeps its target when the text changes
        ("[a b] c\n\n[a b]: x", {"a b c": "ä b c"}, "[ä b][a b] c\n\n[a b]: x"),
        ("[Foo][] c\n\n[foo]: x", {"Foo c": "Foo d"}, "[Foo][] d\n\n[foo]: x"),
        # brackets that are text
        ("[not a link] c", {"[not a link] c": "[kein Link] c"}, "[kein Link] c"),
        ("2 * 3 and snake_case_name", {"2 * 3 and snake_case_name": "2 * 3 und snake_case_name"}, None),
        # a paragraph does not turn into a list, a heading or HTML
        ("January 1 is near.", {"January 1 is near.": "1. Januar naht."}, "1\\. Januar naht."),
        ("Plus it.", {"Plus it.": "+ it."}, "\\+ it."),
        ("A tag.", {"A tag.": "Ein <b> hier."}, "Ein &lt;b> hier."),
        ("| a |\n|---|\n| One |", {"a": "b", "One": "x | y"}, "| b |\n|---|\n| x \\| y |"),
        # spaces between sentences come and go with the language
        ("Good. Yes.", {"Good.": "好。", "Yes.": "是。"}, "好。是。"),
        ("好。是。", {"好。": "Good.", "是。": "Yes."}, "Good. Yes."),
        ("好\n是", {"好": "Good", "是": "Yes"}, "Good\nYes"),
        # escapes and HTML
        ("a \\* b <kbd>Ctrl</kbd><br>", {"a * b Ctrl": "x * y Ctrl"}, "x \\* y <kbd>Ctrl</kbd><br>"),
        ("Das ![Bild](b.png)", {"Das": "The"}, "The ![Bild](b.png)"),
    ],
)
def test_translations(files: Files, source: str, table: dict[str, str], expected: str | None) -> None:
    if expected is None:
        expected = next(iter(table.values()))
    assert replaced(files.open("a.md", source), table) == expected


def test_lost_code_is_named(files: Files) -> None:
    said: list[str] = []
    page = files.open("a.md", "Text.\n\nRun `make` now.\n")
    written = replaced(page, {"Text.": "Text.", "Run make now.": "Jetzt los."}, said.append)
    assert written == "Text.\n\nJetzt los. `make`\n"
    assert len(said) == 1 and "a.md:3: the translation has lost '`make`'" in said[0]


@pytest.mark.parametrize("content", ["", "\n\n", "```\ncode\n```\n", "![a](b.png)\n", "---\na: b\n---"])
def test_files_without_text(files: Files, content: str) -> None:
    page = files.open("a.md", content)
    assert sentences(page) == [] and unchanged(page) == content


FRAGMENTS = [
    *["word ", "The cat. ", "*", "**", "_", "~~", "`", "``", "[", "]", "(", ")", "](u)", "![", "\n", "\n\n", "  \n"],
    *["\\", "\\*", "\\\n", "> ", "- ", "1. ", "# ", "|", "\n|-|-|\n", "&amp;", "&nbsp;", "<b>", "</b>", "<br>"],
    *["<!-- c -->", "http://a.b/c ", "<http://x.y>", "    ", "\t", "```\n", "---\n", "===\n", ":::", "!!! note\n"],
    *["{{ x }}", "[^1]", "[^1]: ", "中文。", "好\n", "Mr. A. ", "?", "\r\n", "é", "\r", "\ufeff", "$$x$$", "<div>"],
    *["\u2028", "\x0c"],
]


@quick
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=20).map("".join))
def test_any_markdown_comes_back_as_it_was(text: str) -> None:
    page = markdown.read(text, "a.md", "en")
    assert unchanged(page) == text
    assert translated(page, swapped).lower() == text.lower()


def test_footnotes_without_spaces_are_no_link_definitions(files: Files) -> None:
    source = "正文[^1]\n\n[^1]: 脚注的内容。\n[^注]: 另一个。\n\n[甲]: https://a.example\n"
    table = {"正文": "Text", "脚注的内容。": "What it says.", "另一个。": "One more."}
    expected = "Text[^1]\n\n[^1]: What it says.\n[^注]: One more.\n\n[甲]: https://a.example\n"
    assert replaced(files.open("a.md", source, source_language="zh"), table) == expected
