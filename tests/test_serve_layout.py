"""What of a text is translated and what stays."""

from __future__ import annotations

import html
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynctx.serve.languages import confidence, same_language
from dynctx.serve.layout import Layout, html_text, plain_text


def marked(layout: Layout) -> str:
    return layout.filled([f"[{sentence}]" for sentence in layout.sentences])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a", "[a]"),
        ("a b\nc", "[a b]\n[c]"),
        ("\n a \r\n\n\tb", "\n [a] \r\n\n\t[b]"),
        ("a\u2028b\x0bc", "[a\u2028b\x0bc]"),  # no line ends here, as in the project's files
        ("\u3000我们\u3000", "\u3000[我们]\u3000"),
    ],
)
def test_plain_text(text: str, expected: str) -> None:
    assert marked(plain_text(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the cat", "[the cat]"),
        ("<p>the\n  cat</p>", "<p>[the cat]</p>"),
        ("<p> the <b>big</b> cat.</p>", "<p> [the] <b>[big]</b> [cat.]</p>"),
        ("a<br/>b<IMG src=x alt='a > b'>c", "[a]<br/>[b]<IMG src=x alt='a > b'>[c]"),
        ("<p>&nbsp;</p> | - <i>…</i>", "<p>&nbsp;</p> | - <i>…</i>"),  # nothing to translate
        ("<!doctype html><?xml?><!-- <p>a</p> -->b", "<!doctype html><?xml?><!-- <p>a</p> -->[b]"),
        ("<!-->a-->b", "<!-->a-->[b]"),
        ("a<!-- b", "[a]<!-- b"),
        ("<!-- b", "<!-- b"),
        ("a<!b", "[a]<!b"),
        ("<script>if (a < b) x('<p>c</p>')</script>d", "<script>if (a < b) x('<p>c</p>')</script>[d]"),
        ("<STYLE>a</style >b", "<STYLE>a</style >[b]"),
        ("<script>a", "<script>a"),
        ("<code>a <code>b</code> c</code>d", "<code>a <code>b</code> c</code>[d]"),
        ("<pre>a\n b</pre>c", "<pre>a\n b</pre>[c]"),
        ("<p translate='no'>a <p>b</p> c</p>d", "<p translate='no'>a <p>b</p> c</p>[d]"),
        ('<p class="x notranslate">a</p>d', '<p class="x notranslate">a</p>[d]'),
        ("<br translate=no>a", "<br translate=no>[a]"),
        ("<code/>a", "<code/>[a]"),
        ("<code>a", "<code>a"),
        ("</code>a", "</code>[a]"),
        ('<a href="x', '[&lt;a href="x]'),  # no tag: it never ends
    ],
)
def test_html(text: str, expected: str) -> None:
    assert marked(html_text(text)) == expected


def test_characters_that_html_writes_otherwise() -> None:
    layout = html_text("<p>a &lt; b &amp;&nbsp;c &eacute; 3 < 4</p>")
    assert layout.sentences == ["a < b & c é 3 < 4"]
    assert layout.filled(['x < "y" & z']) == '<p>x &lt; "y" &amp; z</p>'


@given(st.text(alphabet="<>/!-ab \n\"'=&;", max_size=60))
@settings(max_examples=150, deadline=None)
def test_markup_of_any_kind_comes_back(text: str) -> None:
    """With every sentence put back as it was, nothing is lost or moved but how spaces are written."""
    layout = html_text(text)
    layout.written = str
    restored = layout.filled(layout.sentences)
    assert "".join(html.unescape(restored).split()) == "".join(html.unescape(text).split())


@pytest.mark.parametrize(
    "piece", ["<a", "<a ", "<!--", "<!", "<a '", "<a \"'", "<script>", "<code>", "<", "<p>", "<a class='", "<p>a"]
)
def test_hostile_markup_takes_no_long_time(piece: str) -> None:
    start = time.process_time()
    html_text(piece * (10**6 // len(piece)))
    assert time.process_time() - start < 10  # in the square of the length it would be an hour


def test_languages() -> None:
    assert same_language("zh-Hans", "zh") and same_language("ZH_tw", "zh") and not same_language("z", "zh")
    assert same_language("anything", "und")
    assert confidence("我们 saw", "zh") == 40.0
    assert confidence("ハロー 世界", "ja") == 100.0
    assert confidence("Ελλάδα", "el") == 100.0
    assert confidence("", "en") == 0.0
