"""What of a text is translated and what stays."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynctx.documents import Document
from dynctx.formats import html
from dynctx.formats.template import Template
from dynctx.languages import confidence, same_language
from dynctx.serve.layout import file_text, html_text, plain_text, templates_of
from dynctx.serve.limits import Limits, Refused

LIMITS = Limits()


def sentences(template: Template) -> list[str]:
    return [sentence for document in template.documents for sentence in document.sentences]


def filled(template: Template, translate: Callable[[str], str]) -> str:
    documents = [Document(d.id, tuple(map(translate, d.sentences))) for d in template.documents]
    return template.text(documents, lambda _: None)


def marked(template: Template) -> str:
    return filled(template, "[{}]".format)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a", "[a]"),
        ("a b\nc", "[a b]\n[c]"),
        ("\n a \r\n\n\tb", "\n [a] \r\n\n\t[b]"),
        ("a\u2028b\x0bc", "[a\u2028b\x0bc]"),  # no line ends here, as in the project's files
        ("\u3000我们\u3000", "\u3000[我们]\u3000"),
        ("【a】b (c)", "【[a]】[b] ([c])"),  # notes, as programs for subtitles send them
        ("a (b) c", "[a (b) c]"),
        ("他来了。她走了！", "[他来了。她走了！]"),
        (
            "他昨天来了。她没有来！你觉得怎么样？\n好",
            "[他昨天来了。] [她没有来！] [你觉得怎么样？]\n[好]",
        ),  # a paragraph
    ],
)
def test_plain_text(text: str, expected: str) -> None:
    assert marked(plain_text(text, LIMITS)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the cat", "[the cat]"),
        ("<p>the\n  cat</p>", "<p>[the\n  cat]</p>"),
        ("<p> the <b>big</b> cat.</p>", "<p> [the <b>big</b> cat.]</p>"),
        ("<p><b>The cat.</b> <i>It ran</i></p>", "<p><b>[The cat.]</b> <i>[It ran]</i></p>"),
        ("<li>a</li><li>b</li>", "<li>[a]</li><li>[b]</li>"),
        ("<my-tag>a</my-tag>b", "<my-tag>[a]</my-tag>[b]"),
        ("a<br/>b <IMG src=x alt='a > b'> c", "[a]<br/>[b <IMG src=x alt='a > b'> c]"),
        ("see <!-- x --> it", "[see <!-- x --> it]"),
        ("run <code>a b</code> now", "[run <code>a b</code> now]"),
        ("<code>a b</code>", "<code>a b</code>"),
        ("ask <b translate=no>Ann</b> now", "[ask <b translate=no>Ann</b> now]"),
        ("a <svg><text>x</text></svg> b", "[a <svg><text>x</text></svg> b]"),
        ("<p>&nbsp;</p> | - <i>…</i>", "<p>&nbsp;</p> | - <i>…</i>"),  # nothing to translate
        ("<!doctype html><?xml?><!-- <p>a</p> -->b", "<!doctype html><?xml?><!-- <p>a</p> -->[b]"),
        ("<!-->a-->b", "<!-->a-->[b]"),
        ("a<!-- b", "[a]<!-- b"),
        ("<!-- b", "<!-- b"),
        ("a<!b", "[a]<!b"),
        ("<script>if (a < b) x('<p>c</p>')</script>d", "<script>if (a < b) x('<p>c</p>')</script>[d]"),
        ("<STYLE>a</style >b", "<STYLE>a</style >[b]"),
        ("<script>a", "<script>a"),
        ("<pre>a <pre>b</pre> c</pre>d", "<pre>a <pre>b</pre> c</pre>[d]"),
        ("<pre>a\n b</pre>c", "<pre>a\n b</pre>[c]"),
        ("<div translate='no'>a <div>b</div> c</div>d", "<div translate='no'>a <div>b</div> c</div>[d]"),
        ("<p translate='no'>a <p>b</p>", "<p translate='no'>a <p>[b]</p>"),  # a paragraph ends where the next begins
        ('<p class="x notranslate">a</p>d', '<p class="x notranslate">a</p>[d]'),
        ("<br translate=no>a", "<br translate=no>[a]"),
        ("<pre/>a", "<pre/>[a]"),
        ("<code/>a", "<code/>[a]"),
        ("<code>a", "<code>a"),
        ("</pre>a", "</pre>[a]"),
        ('<a href="x', '[&lt;a href="x]'),  # no tag: it never ends
    ],
)
def test_html(text: str, expected: str) -> None:
    assert marked(html_text(text, "en", LIMITS)) == expected


def test_characters_that_html_writes_otherwise() -> None:
    layout = html_text("<p>a &lt; b &amp;&nbsp;c &eacute; 3 < 4</p>", "en", LIMITS)
    assert sentences(layout) == ["a < b &\xa0c é 3 < 4"]
    assert filled(layout, lambda _: 'x < "y" & z') == '<p>x &lt; "y" &amp; z</p>'


def test_a_sentence_is_one_whatever_tags_are_in_it() -> None:
    page = "<p>他<b>昨天</b>去了<a href='/b'>北京</a>。天气<i>很好</i>。</p><p>谢谢</p>"
    layout = html_text(page, "zh", LIMITS)
    assert sentences(layout) == ["他昨天去了北京。", "天气很好。", "谢谢"]
    english = {
        "他昨天去了北京。": "He went to Beijing yesterday.",
        "天气很好。": "The weather is fine.",
        "谢谢": "Thanks.",
    }
    assert filled(layout, english.__getitem__) == (
        "<p>He <b>went to</b> Beijing <a href='/b'>yesterday</a>. The <i>weather is</i> fine.</p><p>Thanks.</p>"
    )


def test_a_space_that_only_the_new_language_writes() -> None:
    layout = html_text("<p><b>你好。</b>再见。<i>走吧！</i></p>", "zh", LIMITS)
    english = {"你好。": "Hi.", "再见。": "Bye.", "走吧！": "Go!"}
    assert filled(layout, english.__getitem__) == "<p><b>Hi.</b> Bye. <i>Go!</i></p>"


def test_a_name_keeps_its_tag() -> None:
    layout = html_text("<p><a href=x>Ann</a> 和 <b>Bob</b> 来了</p>", "zh", LIMITS)
    assert filled(layout, lambda _: "Here come Bob and Ann") == "<p>Here come <b>Bob</b> and <a href=x>Ann</a></p>"


TAGS = st.sampled_from(["<b>", "</b>", "<a href=x>", "</a>", "<p>", "</p>", "<br>", "<code>", "</code>", "<!-- c -->"])


@given(
    st.lists(TAGS | st.sampled_from(["the cat", " ", "It ran. ", "&amp;", "他来了。", "{name}", "\n\n"]), max_size=12)
)
@settings(max_examples=150, deadline=None)
def test_no_tag_is_lost_or_moved_past_another(parts: list[str]) -> None:
    """What is not in a sentence's own pairs stays in order, so what was balanced stays balanced."""
    text = "".join(parts)
    layout = html_text(text, "zh", LIMITS)
    assert filled(layout, str) == text
    shouted = filled(layout, lambda sentence: sentence.swapcase().replace(" ", "  ") + "!")
    before, after = ([text[s:e] for s, e, *_ in html.markup(text)] for text in (text, shouted))
    assert before == after


@given(st.text(alphabet="<>/!-ab \n\"'=&;", max_size=60))
@settings(max_examples=150, deadline=None)
def test_markup_of_any_kind_comes_back(text: str) -> None:
    assert filled(html_text(text, "en", LIMITS), str) == text


@pytest.mark.parametrize(
    "piece",
    [
        "<a",
        "<a ",
        "<!--",
        "<!",
        "<a '",
        "<a \"'",
        "<script>",
        "<code>",
        "<",
        "<p>",
        "<a class='",
        "<p>a",
        "<b>",
        "<b>a",
        "a. ",
        "a ",
        "<b>a. ",
        "<p>a. b",
    ],
)
def test_hostile_markup_takes_no_long_time(piece: str) -> None:
    start = time.process_time()
    with suppress(Refused):
        html_text(piece * (10**6 // len(piece)), "en", LIMITS)
    assert time.process_time() - start < 10  # in the square of the length it would be an hour


@pytest.mark.parametrize(
    "inner", ["<b></b>" * 10**5, "<b>" * 10**5 + "</i>" * 10**5, "<b>" * 10**5 + "a" + "</b>" * 10**5 + " a" * 900]
)
def test_hostile_markup_in_one_sentence(inner: str) -> None:
    start = time.process_time()
    page = f"<p>the {inner} cat</p>"
    found = filled(html_text(page, "en", LIMITS), lambda sentence: sentence.upper())
    assert [found[s:e] for s, e, *_ in html.markup(found)] == [page[s:e] for s, e, *_ in html.markup(page)]
    assert time.process_time() - start < 10


@pytest.mark.parametrize("piece", ["[a]", "♪[a] ", "<i>(a)", "(", "[[", "a\n", "♪"])
def test_hostile_subtitles_take_no_long_time(piece: str) -> None:
    start = time.process_time()
    text = "1\n00:00:01,000 --> 00:00:02,000\n" + piece * (10**6 // len(piece))
    with suppress(Refused):
        file_text("a.srt", text[:250_000], ("zh", "en"), LIMITS)
    with suppress(Refused):
        plain_text(piece * (10**6 // len(piece)), LIMITS)
    assert time.process_time() - start < 10


@pytest.mark.parametrize("text", ["a\n" * 4, "<p>a</p>" * 4, "A b. " * 4, "A b. " * 100])
def test_more_sentences_than_allowed(text: str) -> None:
    few = Limits(sentences=3)
    with pytest.raises(Refused, match="sentences or more; one request may have 3") as caught:
        templates_of([text], not text.startswith("a"), "en", few)
    assert caught.value.status == 413
    with pytest.raises(Refused, match="4 sentences or more; one request may have 3"):
        templates_of(["a\nb", "c\nd"], False, "en", few)
    assert len(templates_of(["a\nb", "c"], False, "en", few)) == 2


def test_a_sentence_that_is_too_long_is_not_even_split() -> None:
    with pytest.raises(Refused, match="a sentence has more than 10 characters"):
        html_text("<p>one two three</p>", "en", Limits(characters=10))


def test_lines_keep_their_placeholders() -> None:
    layout = plain_text("open {name} now\n", LIMITS)
    assert filled(layout, lambda _: "gone") == "gone {name}\n"


def test_languages() -> None:
    assert same_language("zh-Hans", "zh") and same_language("ZH_tw", "zh") and not same_language("z", "zh")
    assert same_language("anything", "und")
    assert confidence("我们 saw", "zh") == 40.0
    assert confidence("ハロー 世界", "ja") == 100.0
    assert confidence("Ελλάδα", "el") == 100.0
    assert confidence("", "en") == 0.0


def test_a_long_paragraph_is_refused_before_it_is_split() -> None:
    few = Limits(sentences=10, characters=20)
    for text, reason in [("one two. " * 50, "sentences or more"), ("one two. " * 3 + "a" * 200, "more than 20 char")]:
        with pytest.raises(Refused, match=reason):
            plain_text(text, few)
