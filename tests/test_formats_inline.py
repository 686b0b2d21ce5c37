"""Markup inside sentences: what the model reads, and where marks and placeholders go in the translation."""

from __future__ import annotations

import pytest
from format_helpers import unexpected
from hypothesis import given, settings
from hypothesis import strategies as st

from dynctx.formats.inline import Kind, Piece, Sentence, kept, line_break, single, text_piece
from dynctx.formats.placeholders import protected
from dynctx.formats.sentences import split
from dynctx.formats.template import Between, Passage, as_it_is, assemble, gap

quick = settings(max_examples=150, deadline=None)
B, B_END = Piece(Kind.OPEN, "<b>", pair="b"), Piece(Kind.CLOSE, "</b>", pair="b")
EM, EM_END = Piece(Kind.OPEN, "<i>", pair="i"), Piece(Kind.CLOSE, "</i>", pair="i")
X = single("<x/>")


def sentence(*pieces: Piece | str) -> Sentence:
    return Sentence([text_piece(p) if isinstance(p, str) else p for p in pieces], as_it_is, "f:1")


def parts(*pieces: Piece | str, whole: bool = False) -> list[str]:
    """Sentences in angle brackets of their own, literal text as it is."""
    given = [text_piece(p) if isinstance(p, str) else p for p in pieces]
    found = assemble(given, "en", as_it_is, "f:1", whole=whole)
    return [
        f"«{part.raw}»" if isinstance(part, Sentence) else part if isinstance(part, str) else part.raw for part in found
    ]


# what belongs to a sentence


def test_sentences_and_what_is_between() -> None:
    assert parts("  One is here.  Two is there. ") == ["  ", "«One is here.»", "  ", "«Two is there.»", " "]
    assert parts("One. Two.", whole=True) == ["«One. Two.»"]
    assert parts(" \t ") == [" \t "] and parts() == []


def test_marks_around_a_sentence_are_not_in_it() -> None:
    assert parts(B, "One is here.", B_END) == ["<b>", "«One is here.»", "</b>"]
    assert parts(B, " One is here. Two too.", B_END, " ") == [
        "<b> ",
        "«One is here.»",
        " ",
        "«Two too.»",
        "</b> ",
    ]
    assert parts(X, "One.", X) == ["<x/>", "«One.»", "<x/>"]


def test_marks_inside_a_sentence_are_in_it() -> None:
    assert parts("One ", B, "is", B_END, " here.") == ["«One <b>is</b> here.»"]
    # at the edge, but the partner is inside
    assert parts(B, "One", B_END, " is here.") == ["«<b>One</b> is here.»"]
    assert parts("One ", B, "is here.", B_END) == ["«One <b>is here.</b>»"]
    # and what lies between such a mark and the text comes along
    assert parts(B, X, "One", B_END, " is here.") == ["«<b><x/>One</b> is here.»"]
    assert parts(X, B, "One", B_END, " is here.") == ["<x/>", "«<b>One</b> is here.»"]
    # a pair over two sentences
    assert parts("One ", B, "is here. Two", B_END, " too.") == ["«One <b>is here.»", " ", "«Two</b> too.»"]


def test_chinese_sentences_have_nothing_between() -> None:
    assert parts("你好。我", B, "很", B_END, "好！") == ["«你好。»", "", "«我<b>很</b>好！»"]
    assert parts("你好。", B, "我", B_END, "很好！") == ["«你好。»", "", "«<b>我</b>很好！»"]


def test_what_has_no_words_is_left_alone() -> None:
    assert parts("... 42 ?!") == ["... 42 ?!"]
    assert parts(kept("`code`", "code"), " ") == ["`code` "]


def test_no_sentence_ends_in_code() -> None:
    assert parts("Use ", kept("`a. B`", "a. B"), " here. It works.") == ["«Use `a. B` here.»", " ", "«It works.»"]


def test_line_breaks_between_sentences() -> None:
    soft, hard, empty = line_break("\n"), line_break("\\\n", True), line_break("\n\n")
    assert parts("one", soft, "two") == ["«one\ntwo»"]
    assert parts("one", hard, "two") == ["«one»", "\\\n", "«two»"]
    assert parts("one", empty, "two") == ["«one»", "\n\n", "«two»"]


# where the markup goes


@pytest.mark.parametrize(
    ("pieces", "translation", "expected"),
    [
        # in proportion, at the border of a word
        (["one ", B, "two", B_END, " six"], "eins zwei drei", "eins <b>zwei</b> drei"),
        (["one two", X, " six"], "eins zwei drei", "eins zwei<x/> drei"),
        # word for word, wherever it stands, the nearest first
        ([B, "Foo", B_END, " is a thing of its own"], "Ein Ding für sich ist Foo", "Ein Ding für sich ist <b>Foo</b>"),
        (["see ", B, "A", B_END, " and ", EM, "B", EM_END], "B und A sehen", "<i>B</i> und <b>A</b> sehen"),
        # but not as a part of a word
        ([B, "An", B_END, " is here now"], "Anna und An kommen jetzt", "Anna und <b>An</b> kommen jetzt"),
        # pairs that would cross go in order
        ([B, EM, "a", EM_END, " b c", B_END, " d"], "x y z w", "<b><i>x</i> y z</b> w"),
        # half a word stays half a word
        (["un", B, "do", B_END, "ing"], "ABCDEFG", "AB<b>CD</b>EFG"),
        # an empty pair stays one
        (["aaa ", B, X, B_END, " bbb"], "cc dd", "cc<b><x/></b> dd"),
        # Chinese has no spaces
        (["one ", B, "two", B_END, " six"], "一二三", "一<b>二</b>三"),
        # and translated from it, a pair is around words, not around the space beside them
        (["如果不行，", B, "给我们写信", B_END, "。"], "If not, write to us.", "If not, <b>write to us</b>."),
        (["我们", EM, "两天", EM_END, "之内回答"], "We answer in two days", "We <i>answer</i> in two days"),
        # a contraction is one word, and a full stop is no beginning
        (["她很", B, "可爱", B_END, "。"], "She's cute.", "She's <b>cute</b>."),
        (["他们", B, "很可爱", B_END, "。"], "They\u2019re cute.", "<b>They\u2019re cute</b>."),
        (["你来了 ", EM, "太好了", EM_END], "You're here. Great.", "You're here. <i>Great.</i>"),
        (["der ", B, "Mann", B_END, " ist da"], "l'homme est là", "l'<b>homme</b> est là"),
        # nothing is lost where there is no text
        (["one ", B, "two", B_END, X, " six"], "", "<b></b><x/>"),
    ],
)
def test_marks(pieces: list[Piece | str], translation: str, expected: str) -> None:
    assert sentence(*pieces).dressed(translation, unexpected) == expected


def test_an_unchanged_sentence_is_written_as_it_stood() -> None:
    odd = sentence(B, "a", X, " b ", B_END, Piece(Kind.TEXT, "&amp;", "&"), kept("`k`", "k"), line_break("\r\n  > "))
    assert odd.text == "a b &k "
    assert odd.dressed("a b &k ", unexpected) == "<b>a<x/> b </b>&amp;`k`\r\n  > "


def test_kept_pieces_are_found_again() -> None:
    one = sentence("Open ", kept("`a.txt`", "a.txt"), " or ", kept("`b.txt`", "b.txt"), " now")
    assert one.text == "Open a.txt or b.txt now"
    assert one.dressed("Jetzt b.txt oder a.txt auf", unexpected) == "Jetzt `b.txt` oder `a.txt` auf"
    assert one.dressed("A.TXT, b. txt", unexpected) == "`a.txt`, `b.txt`"  # other case, other spacing
    twice = sentence(kept("%s"), " of ", kept("%s"))
    assert twice.dressed("%s von %s", unexpected) == "%s von %s"


@pytest.mark.parametrize(
    ("piece", "translation", "expected"),
    [
        (kept("`a`", "a"), "An a denkt man", "An `a` denkt man"),  # a word of its own
        (kept("`-i`", "-i"), "mit -include und -i", "mit -include und `-i`"),
        (kept("`Worker`", "Worker"), "Alle Workers", "Alle `Worker`s"),  # a part of a word, if there is nothing better
        (kept("`node`", "node"), "node_modules in node", "node_modules in `node`"),
        (kept("%s"), "mit %sx", "mit %sx"),
    ],
)
def test_kept_pieces_and_words(piece: Piece, translation: str, expected: str) -> None:
    assert sentence("Some ", piece, " here").dressed(translation, unexpected) == expected


def test_the_longer_piece_is_found_first() -> None:
    both = sentence(kept("`get`", "get"), " and ", kept("`get.py`", "get.py"))
    assert both.dressed("get.py wie GET", unexpected) == "`get.py` wie `get`"


def test_a_short_piece_is_not_looked_for_in_words() -> None:
    said: list[str] = []
    assert sentence("Use ", kept("`a`", "a"), " here").dressed("Nimm das", said.append) == "Nimm das `a`"
    assert len(said) == 1


def test_marks_around_a_kept_piece_go_with_it() -> None:
    both = sentence(B, "URL", B_END, " or ", EM, kept("`URL`", "URL"), EM_END, " here, please, at last")
    assert both.dressed("Bitte hier am Ende URL oder URL", unexpected) == (
        "Bitte hier am Ende <i>`URL`</i> oder <b>URL</b>"
    )


def test_a_lost_piece_is_put_at_the_end_with_a_warning() -> None:
    said: list[str] = []
    one = sentence("Copy ", kept("%s"), " to ", kept("%(dir)s"), " now")
    assert one.dressed("Jetzt %s kopieren", said.append) == "Jetzt %s kopieren %(dir)s"
    assert said == ["f:1: the translation has lost '%(dir)s', which now stands at its end: 'Jetzt %s kopieren'"]
    said.clear()
    assert sentence(kept("%s"), " of ", kept("%s")).dressed("von %s", said.append) == "von %s %s"
    assert len(said) == 1


def test_a_character_keeps_its_spelling_where_it_is_found() -> None:
    entity = Piece(Kind.TEXT, "&nbsp;", "\xa0")
    assert sentence("a", entity, "b c").dressed("x\xa0y z", unexpected) == "x&nbsp;y z"
    assert sentence("a", entity, "b c").dressed("x y z", unexpected) == "x y z"  # and is no loss


def test_line_breaks_take_the_nearest_space() -> None:
    two = sentence("Where are you", line_break("\n"), "going?")
    assert two.text == "Where are you going?"
    assert two.dressed("Wohin gehst du denn da?", unexpected) == "Wohin gehst du\ndenn da?"
    assert two.dressed("Wohin?", unexpected) == "Wohin?"  # no place for it
    assert two.dressed("你到底要到哪里去呢？", unexpected) == "你到底要到哪\n里去呢？"
    # rather where the speaker pauses, if that is near
    said = sentence("他没说", line_break("\n"), "不过看起来很着急")
    assert (
        said.dressed("He didn't say, but it seemed like a rush.", unexpected)
        == "He didn't say,\nbut it seemed like a rush."
    )
    assert said.dressed("He never said a word to us, but he is", unexpected) == "He never\nsaid a word to us, but he is"
    assert said.dressed("他没有说，但是很急", unexpected) == "他没有说，\n但是很急"
    three = sentence("a", line_break("\n"), "b", line_break("\n"), "c")
    assert three.dressed("x y z", unexpected) == "x\ny\nz"
    assert three.dressed("x y", unexpected) == "x\ny"
    code = sentence("a", line_break("\n"), kept("`x y`", "x y"))
    assert code.dressed("lang x y", unexpected) == "lang\n`x y`"  # not in the code


def test_the_text_is_escaped_and_the_markup_is_not() -> None:
    one = Sentence([text_piece("a "), B, text_piece("b"), B_END], lambda text: text.replace("<", "&lt;"), "f:1")
    assert one.dressed("x<y b", unexpected) == "x&lt;y <b>b</b>"


PIECE = st.one_of(
    st.sampled_from(["one", " ", "two three", "é", "中文", "a b", ". "]).map(text_piece),
    st.sampled_from([B, B_END, EM, EM_END, X, single("{y}")]),
    st.sampled_from(["%s", "`k`"]).map(kept),
    st.just(line_break("\n")),
    st.just(Piece(Kind.TEXT, "&amp;", "&")),
)


@quick
@given(st.lists(PIECE, min_size=1, max_size=12), st.text("ab %s中", max_size=20))
def test_no_mark_is_ever_lost_and_all_of_the_text_is_there(pieces: list[Piece], translation: str) -> None:
    one = Sentence(pieces, as_it_is, "f:1")
    written = one.dressed(translation, lambda message: None)
    for piece in pieces:
        if piece.kind not in (Kind.TEXT, Kind.BREAK):
            assert written.count(piece.raw) >= sum(p.raw == piece.raw for p in pieces)
    plain = "".join(written.split())
    for raw in ("<b>", "</b>", "<i>", "</i>", "<x/>", "{y}", "%s", "`k`", "&amp;", "&"):
        plain = plain.replace(raw, "")
    if translation != one.text:
        assert plain == "".join(translation.split()).replace("%s", "")


@quick
@given(st.lists(PIECE, max_size=12), st.booleans())
def test_the_parts_of_a_passage_are_the_passage(pieces: list[Piece], whole: bool) -> None:
    found = assemble(pieces, "en", as_it_is, "f:1", whole=whole)
    assert "".join(p if isinstance(p, str) else p.raw for p in found) == "".join(p.raw for p in pieces)
    passage = Passage(found)
    assert passage.filled({s: s.text for s in passage.sentences}, unexpected) == "".join(p.raw for p in pieces)


# between sentences


@pytest.mark.parametrize(
    ("raw", "source", "target", "expected"),
    [
        ("", ("好。", "我"), ("Good.", "I"), " "),
        (" ", ("Good.", "I"), ("好。", "我"), ""),
        (" ", ("Good.", "I"), ("Gut.", "Ich"), " "),
        ("", ("好。", "我"), ("好。", "我"), ""),
        (" ", ("好。", "我"), ("好。", "我"), " "),
        ("  ", ("Good.", "I"), ("好。", "我"), "  "),
        ("", ("好。", "我"), ("", "I"), ""),
        ("", ("好。", "Yes"), ("Good.", "Yes"), " "),
        ("", ("Good.", "Yes"), ("Gut.", "Ja"), ""),
        (("</b>", "<i>"), ("好。", "我"), ("Good.", "I"), "</b> <i>"),
        (("</b>", " <i>"), ("好。", "我"), ("Good.", "I"), "</b> <i>"),
        (("</b>", "<i>"), ("好。", "我"), ("好。", "I"), "</b> <i>"),
        (("</b>", "<i>"), ("好。", "Yes"), ("好。", "No"), "</b><i>"),
    ],
)
def test_spaces_between_sentences(
    raw: str | tuple[str, str], source: tuple[str, str], target: tuple[str, str], expected: str
) -> None:
    assert gap(Between(raw) if isinstance(raw, str) else Between(*raw), *source, *target) == expected


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Dr. Who came at 5 p.m. on Monday. He left!", "en", ["Dr. Who came at 5 p.m. on Monday.", "He left!"]),
        ("See www.x.com. Version 2.5.1 is out.", "en", ["See www.x.com.", "Version 2.5.1 is out."]),
        ("Das ist z.B. gut. Ja.", "de", ["Das ist z.B. gut.", "Ja."]),
        ("One.\nTwo", "xx", ["One.", "Two"]),  # a language that pysbd does not know
        ("他说：“走吧！”我们走了。好", "zh", ["他说：“走吧！”", "我们走了。", "好"]),
        ("没有标点\n第二行", "zh", ["没有标点", "第二行"]),
        ("   ", "en", []),
    ],
)
def test_splitting(text: str, language: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in split(text, language)] == expected


def test_a_very_long_paragraph_is_split_too() -> None:
    text = "This is a sentence. " * 500
    assert [text[a:b] for a, b in split(text, "en")] == ["This is a sentence."] * 500


@pytest.mark.parametrize(
    ("text", "placeholders"),
    [
        ("%d of %s, %(name)s and %1$s %5.2f %-3ld %@", ["%d", "%s", "%(name)s", "%1$s", "%5.2f", "%-3ld", "%@"]),
        (
            "{} {0} {name} {x.y!r:>4} ${var} %{n} {{ z }}",
            ["{}", "{0}", "{name}", "{x.y!r:>4}", "${var}", "%{n}", "{{ z }}"],
        ),
        ("100% of it, 5%, 20 %", []),
        ("see https://a.b/c?d=e. Now", ["https://a.b/c?d=e"]),
        ("{ not one }", []),
    ],
)
def test_placeholders(text: str, placeholders: list[str]) -> None:
    found = protected([text_piece(text)])
    assert [piece.raw for piece in found if piece.kind is Kind.KEPT] == placeholders
    assert "".join(piece.text for piece in found) == text
