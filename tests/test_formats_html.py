"""HTML files: what is translated, what stays, and where tags inside a sentence go."""

from __future__ import annotations

import pytest
from format_helpers import Files, replaced, sentences, shouted, unchanged

pytest_plugins = ("format_fixtures",)

PAGE = """\
<!doctype html>
<html><head><title>The cat</title>
<style>p { color: red }</style></head>
<body class=x>
<h1 id="a">A <em>big</em> house</h1>
<p>The cat <b>is
   here</b>. It sees <a href="dog.html">the dog</a> &amp; runs.<br>Run <code>make demo</code> now.</p>
<ul><li>one</li><li>42</li></ul>
<pre>kept as it is</pre>
<p translate="no">kept</p>
</body></html>
"""


def test_a_page(files: Files) -> None:
    page = files.open("a.html", PAGE)
    assert sentences(page) == [
        ["The cat", "A big house", "The cat is here.", "It sees the dog & runs.", "Run make demo now.", "one"]
    ]
    assert unchanged(page) == PAGE
    assert shouted(page) == (
        PAGE.replace("<title>The cat", "<title>tHE CAT")
        .replace("A <em>big</em> house", "a <em>BIG</em> HOUSE")
        .replace("The cat <b>is\n   here</b>. It sees", "tHE CAT <b>IS\n   HERE</b>. iT SEES")
        .replace("the dog</a> &amp; runs.", "THE DOG</a> &amp; RUNS.")
        .replace("Run <code>make demo</code> now.", "rUN <code>make demo</code> NOW.")
        .replace("<li>one", "<li>ONE")
    )


def test_code_that_a_translation_has_lost(files: Files) -> None:
    page = files.open("a.htm", "<p>\n\nRun <code>make</code> &lt;now></p>\n<p>x</p>")
    said: list[str] = []
    assert replaced(page, {"Run make <now>": "Los <a>!", "x": "y"}, said.append) == (
        "<p>\n\nLos &lt;a&gt;! <code>make</code></p>\n<p>y</p>"
    )
    assert [message.replace(f"{files.folder}/", "") for message in said] == [
        "a.htm:3: the translation has lost '<code>make</code>', which now stands at its end: 'Los <a>!'"
    ]


@pytest.mark.parametrize("end", ["</rt>", ""])
def test_how_words_are_pronounced_is_no_text(files: Files, end: str) -> None:
    text = f"<p>The <ruby>cat<rp>(</rp><rt>kæt{end}<rp>)</rp></ruby> sat.</p>"
    page = files.open("a.html", text)
    assert sentences(page) == [["The cat sat."]]
    assert unchanged(page) == text
    assert shouted(page) == text.replace("The", "tHE").replace(">cat", ">CAT").replace("sat", "SAT")


def test_nothing_there(files: Files) -> None:
    assert files.refused("a.html", " \n") == "a.html: holds no text; check that it is the file you mean"
