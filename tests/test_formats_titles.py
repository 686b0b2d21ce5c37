"""Headings, cells and labels: their translations get no full stop that the source does not have."""

from __future__ import annotations

import pytest
from format_helpers import Files, translated

pytest_plugins = ("format_fixtures",)

XLIFF = """<xliff version="1.2"><file source-language="zh" target-language="en"><body>
<trans-unit id="1"><source>打开</source></trans-unit></body></file></xliff>"""


def stopped(sentence: str) -> str:
    """A translator that ends everything with a full stop."""
    return f"{sentence.rstrip('.。')} x."


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("a.md", "# One *two*\n\nThree\n", "# One *two* x\n\nThree x.\n"),
        ("a.md", "# One. Two\n", "# One x. Two x\n"),  # the last sentence of a heading decides
        ("a.md", "# One.\n", "# One x.\n"),
        ("a.md", "One\n===\n\nTwo\n", "One x\n===\n\nTwo x.\n"),
        ("a.md", "| a | b. |\n|---|---|\n| c | d |\n", "| a x | b x. |\n|---|---|\n| c x | d x |\n"),
        ("a.html", "<h2>One</h2><p>Two</p><td>Three</td>", "<h2>One x</h2><p>Two x.</p><td>Three x</td>"),
        ("a.html", "<td><p>One</p></td><h1></h1>Two", "<td><p>One x.</p></td><h1></h1>Two x."),
        ("a.po", 'msgid "Open"\nmsgstr ""\n', 'msgid "Open"\nmsgstr "Open x"\n'),
        ("a.po", 'msgid "It opens."\nmsgstr ""\n', 'msgid "It opens."\nmsgstr "It opens x."\n'),
        ("a.txt", "One\n", "One x.\n"),
    ],
)
def test_titles(name: str, text: str, expected: str, files: Files) -> None:
    assert translated(files.open(name, text), stopped) == expected


def test_segments(files: Files) -> None:
    assert "<target>打开 x</target>" in translated(files.open("a.xlf", XLIFF), stopped)


def test_other_ends_stay(files: Files) -> None:
    said = {"One": "Wait...", "Two": "Who?", "Three": "U.S.", "Four": "."}
    text = "# One\n\n# Two\n\n# Three\n\n# Four\n"
    found = translated(files.open("a.md", text), said.__getitem__)
    assert found == "# Wait...\n\n# Who?\n\n# U.S.\n\n# .\n"
