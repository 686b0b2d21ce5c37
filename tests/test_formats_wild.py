"""Files as tools, browsers and people leave them: what is text is translated, and what is not comes back as it was."""

from __future__ import annotations

import random
import re

import pytest
from format_helpers import Files, replaced, sentences, shouted, translated, unchanged
from markdown_it import MarkdownIt

from dynctx.formats.markdown import pieces_of

pytest_plugins = ("format_fixtures",)


def xliff(unit: str) -> str:
    file = '<file original="a" source-language="en" target-language="de">'
    return f'<xliff version="1.2">{file}<body>{unit}</body></file></xliff>'


def cue(text: str) -> str:
    return f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n"


def test_po_flags_of_an_obsolete_message(files: Files) -> None:
    content = '#, fuzzy\n#~ msgid "old"\n#~ msgstr "alt"\n\nmsgid "good"\nmsgstr "gut"\n'
    assert shouted(files.open("a.po", content)) == content


def test_po_a_translated_plural_form_is_kept(files: Files) -> None:
    content = 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d Datei"\nmsgstr[1] ""\n'
    assert shouted(files.open("a.po", content)) == content.replace('[1] ""', '[1] "%d FILES"')


@pytest.mark.parametrize("target", ['<mrk mtype="seg" mid="0"/>', '<mrk mtype="seg" mid="0"></mrk>'])
def test_xliff_a_target_of_tags_alone(files: Files, target: str) -> None:
    seg = '<source>Hello you.</source><seg-source><mrk mtype="seg" mid="0">Hello you.</mrk></seg-source>'
    out = shouted(files.open("a.xlf", xliff(f'<trans-unit id="1">{seg}<target>{target}</target></trans-unit>')))
    assert '<target><mrk mtype="seg" mid="0">hELLO YOU.</mrk></target>' in out


def test_xliff_segments_of_the_source(files: Files) -> None:
    divided = '<mrk mtype="seg" mid="0">One.</mrk> <mrk mtype="seg" mid="1">Two.</mrk>'
    unit = f'<trans-unit id="1"><source>One. Two.</source><seg-source>{divided}</seg-source></trans-unit>'
    expected = '<target><mrk mtype="seg" mid="0">oNE.</mrk> <mrk mtype="seg" mid="1">tWO.</mrk></target>'
    assert expected in shouted(files.open("a.xlf", xliff(unit)))


def test_xliff_some_segments_have_a_translation(files: Files) -> None:
    divided = (
        '<mrk mtype="seg" mid="0">One.</mrk> <mrk mtype="seg" mid="1">Two.</mrk> <mrk mtype="seg" mid="2">3 a</mrk>'
    )
    target = '<mrk mtype="seg" mid="0">Eins.</mrk> <mrk mtype="seg" mid="1"/> <mrk mtype="seg" mid="2"></mrk>'
    unit = f"<source>One. Two. 3 a</source><seg-source>{divided}</seg-source><target>{target}</target>"
    app = files.open("a.xlf", xliff(f'<trans-unit id="1">{unit}</trans-unit>'))
    assert sentences(app) == [["One.", "Two.", "3 a"]]
    expected = target.replace('"1"/>', '"1">tWO.</mrk>').replace('"2"><', '"2">3 A<')
    assert f"<target>{expected}</target>" in shouted(app)


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            'say <sm id="m" translate="no"/>the <pc id="1">WORD</pc><em startRef="m"/> now',
            'SAY <sm id="m" translate="no"/>the <pc id="1">WORD</pc><em startRef="m"/> NOW',
        ),
        ('say <sm id="m"/>a<em startRef="m"/>', 'SAY <sm id="m"/>A<em startRef="m"/>'),
        # which begins in one element and ends in another: its end cannot be found in a translation
        (
            '<pc id="1">a <sm id="m" translate="no"/>b</pc> c<em startRef="m"/>',
            '<pc id="1">A <sm id="m" translate="no"/>B</pc> C<em startRef="m"/>',
        ),
        ('a <sm id="m" translate="no"/>b', 'A <sm id="m" translate="no"/>B'),
    ],
)
def test_xliff_2_a_part_that_is_not_to_be_translated(files: Files, text: str, expected: str) -> None:
    head = '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de"><file id="f">'
    content = f'{head}<unit id="u"><segment><source>{text}</source></segment></unit></file></xliff>'
    assert f"<target>{expected}</target>" in shouted(files.open("a.xlf", content))


def test_tmx_a_variant_of_tags_alone(files: Files) -> None:
    english = '<tuv xml:lang="en"><seg>Hi <ph x="1"/></seg></tuv>'
    german = '<tuv xml:lang="de"><seg><ph x="1"/></seg></tuv>'
    content = f'<tmx version="1.4"><header srclang="en"/><body><tu>{english}{german}</tu></body></tmx>'
    assert '<seg>hI <ph x="1"/></seg>' in shouted(files.open("a.tmx", content))


@pytest.mark.parametrize("br", ["<br>", "<br/>", "<br />"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "Line one{}line two"),
        ("a.md", "| a |\n|---|\n| Line one{}line two |"),
        ("a.po", 'msgid "Line one{}line two"\nmsgstr ""\n'),
    ],
)
def test_br(files: Files, br: str, name: str, text: str) -> None:
    template = files.open(name, text.format(br))
    assert sentences(template)[0][-2:] == ["Line one", "line two"]
    assert br in shouted(template) and "lINE ONE" + br + "LINE TWO" in shouted(template)


@pytest.mark.parametrize(
    "br", ['<x id="LINE_BREAK" ctype="lb" equiv-text="&lt;br/&gt;"/>', "&lt;br/&gt;", "<![CDATA[<br>]]>"]
)
def test_br_in_xliff(files: Files, br: str) -> None:
    template = files.open("a.xlf", xliff(f'<trans-unit id="1"><source>Line one{br}line two</source></trans-unit>'))
    assert sentences(template) == [["Line one", "line two"]]


@pytest.mark.parametrize(
    ("name", "head"),
    [("a.srt", "1\n00:00:01,000 --> 00:00:02,000\n"), ("a.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\n")],
)
def test_br_in_subtitles(files: Files, name: str, head: str) -> None:
    template = files.open(name, head + "Hello<br>world\n")
    assert sentences(template) == [["Hello world"]]
    assert shouted(template) == head + "hELLO<br>WORLD\n"


def test_md_the_end_of_a_container(files: Files) -> None:
    template = files.open("a.md", ":::tip\nSave it\nfirst\n:::\n")
    assert sentences(template) == [["Save it first"]]
    assert replaced(template, {"Save it first": "Zuerst"}) == ":::tip\nZuerst\n:::\n"


@pytest.mark.parametrize(
    ("source", "table", "expected"),
    [
        (
            "The best of all editors,\nsee issue 5, is here.",
            {"The best of all editors, see issue 5, is here.": "Der beste Editor von allen # siehe Nr. 5 ist hier."},
            "Der beste Editor von allen\n\\# siehe Nr. 5 ist hier.",
        ),
        (
            "> First one.\n> Second one.",
            {"First one.": "Erster.", "Second one.": "- Zweiter."},
            "> Erster.\n> \\- Zweiter.",
        ),
        ("First one.\nSecond one.", {"First one.": "Erster.", "Second one.": "1. Januar."}, "Erster.\n1\\. Januar."),
    ],
)
def test_md_no_new_block_in_the_middle(files: Files, source: str, table: dict[str, str], expected: str) -> None:
    assert replaced(files.open("a.md", source), table) == expected


@pytest.mark.parametrize("text", ["- foo bar\n\tbaz here\n", "1.\tfoo bar\n\tbaz here\n"])
def test_md_tabs(files: Files, text: str) -> None:
    template = files.open("a.md", text)
    assert sentences(template) == [["foo bar baz here"]]
    assert unchanged(template) == text and shouted(template) == text.upper()


@pytest.mark.parametrize(
    "source, expected",
    [
        # what a term is, by itself and below its own mark
        ("term\n: it is this\n  and that\n: or else\n", "TERM\n: IT IS THIS\n  AND THAT\n: OR ELSE\n"),
        ("term\n\n:   it is\n\n    and more\n\n        code\n", "TERM\n\n:   IT IS\n\n    AND MORE\n\n        code\n"),
        # a second paragraph, and a list
        (
            "[^n]: the note\n\n    its end\n\n    - one\n\ntext\n",
            "[^n]: THE NOTE\n\n    ITS END\n\n    - ONE\n\nTEXT\n",
        ),
        ("!!! note\n    - one\n    - two\n\n    text\n", "!!! note\n    - ONE\n    - TWO\n\n    TEXT\n"),
        ('??? tip "a title"\n\n    text\n\ntext\n', '??? tip "A TITLE"\n\n    TEXT\n\nTEXT\n'),
        # one in the other, with tabs
        ('=== "tab"\n\n\t!!! note ""\n\n\t\ttext\n', '=== "TAB"\n\n\t!!! note ""\n\n\t\tTEXT\n'),
        (
            "[^a]: a note\n\n    two\n[^b]: the other\n\n    ```\n    code\n    ```\n\ntext\n",
            "[^a]: A NOTE\n\n    TWO\n[^b]: THE OTHER\n\n    ```\n    code\n    ```\n\nTEXT\n",
        ),
        # no head of anything: code stays code
        ("text\n\n    code\n", "TEXT\n\n    code\n"),
        ("```\n[^n]: note\n```\n\n    code\n", "```\n[^n]: note\n```\n\n    code\n"),
        ("````md\n```\n[^n]: note\n\n    ````\n````\ntext\n", "````md\n```\n[^n]: note\n\n    ````\n````\nTEXT\n"),
        ("title\n===\n\n    code\n", "TITLE\n===\n\n    code\n"),
        ("| a | b |\n|---|---|\n| : c | d |\n", "| A | B |\n|---|---|\n| : C | D |\n"),
    ],
)
def test_md_what_is_indented_below(files: Files, source: str, expected: str) -> None:
    assert shouted(files.open("a.md", source)) == expected
    assert unchanged(files.open("a.md", source)) == source


def test_md_as_deep_as_one_likes(files: Files) -> None:
    content = "".join(f"{'    ' * depth}!!! note\n" for depth in range(1200)) + "    " * 1200 + "text\n"
    assert shouted(files.open("a.md", content)) == content.replace("text", "TEXT")


def test_md_a_definition_is_a_sentence_of_its_own(files: Files) -> None:
    assert sentences(files.open("a.md", "The term\n: It is this\n")) == [["The term", "It is this"]]


def test_md_a_title_keeps_its_quotes(files: Files) -> None:
    table = {"A title": 'Ein "Titel"'}
    assert replaced(files.open("a.md", '!!! note "A title"\n'), table) == "!!! note \"Ein 'Titel'\"\n"


@pytest.mark.parametrize("name", ["a.html", "a.md"])
def test_a_letter_that_the_encoding_lacks(files: Files, name: str) -> None:
    content = '<?xml version="1.0" encoding="iso-8859-1"?>\n\n<p>\n\nHello'
    assert translated(files.open(name, content), lambda s: "Hallo –").endswith("Hallo &#8211;")


def test_declared_and_given(files: Files) -> None:
    content = '<?xml version="1.0" encoding="gb18030"?>' + xliff(
        '<trans-unit id="1"><source>你</source></trans-unit>'
    ).replace('"en"', '"zh"')
    template = files.open("a.xlf", content.encode("gb18030"), source_language="zh", encoding="gb18030")
    assert template.encoding == "gb18030"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.html", '<meta charset="gb2312"><p>你好</p>'),
        ("a.html", '<meta http-equiv="Content-Type" content="text/html; charset=gb2312"><p>你好</p>'),
        ("a.po", 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=gb2312\\n"\n\nmsgid "你好"\nmsgstr ""\n'),
    ],
)
def test_what_is_written_says_that_it_is_utf_8(files: Files, name: str, content: str) -> None:
    template = files.open(
        name, content.encode("gb2312"), source_language="zh", target_language="en", encoding="gb18030"
    )
    assert "charset=utf-8" in translated(template, lambda s: "Hi").replace('"utf-8"', "utf-8")


def test_vtt_entities(files: Files) -> None:
    template = files.open("a.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nIt&apos;s a caf&eacute;&hellip;\n")
    assert sentences(template) == [["It's a café…"]]
    assert shouted(template).endswith("iT&apos;S A CAF&eacute;&hellip;\n")


def test_html_entities_without_a_semicolon(files: Files) -> None:
    template = files.open("a.html", "<p>&copy 2020 one&nbsptwo AT&T</p>")
    assert sentences(template) == [["© 2020 one\xa0two AT&T"]]
    assert shouted(template) == "<p>&copy 2020 ONE&nbspTWO at&amp;t</p>"


@pytest.mark.parametrize("tag", ['<a href="x"">', "<a href=x'>", '<a title="5" wide" href=y>'])
def test_html_broken_tags(files: Files, tag: str) -> None:
    template = files.open("a.html", f'<p>See {tag}the page</a> now.</p><p>It\'s "so".</p>')
    assert sentences(template)[0][0] == "See the page now." and tag in shouted(template)


def test_html_no_translation(files: Files) -> None:
    template = files.open("a.html", "<p class=notranslate>Keep</p><p class='x notranslate-y'>Go</p>")
    assert sentences(template) == [["Go"]]


@pytest.mark.parametrize("name", ["a.md", "a.txt"])
def test_addresses_with_brackets(files: Files, name: str) -> None:
    address = "https://en.wikipedia.org/wiki/Rust_(programming_language)"
    assert shouted(files.open(name, f"See {address} for more")) == f"sEE {address} FOR MORE"


def test_md_front_matter_of_pandoc(files: Files) -> None:
    assert sentences(files.open("a.md", "---\ntitle: My Title\n...\n\n# Hello\n")) == [["Hello"]]


@pytest.mark.parametrize(
    ("flag", "text"), [("qt", "Page %1 of %L2, %n"), ("c", "a %*d b %p c %-*s d %.*f"), ("c", "%1$s x %2$d")]
)
def test_po_lost_formats_are_named(files: Files, flag: str, text: str) -> None:
    template = files.open("a.po", f'#, {flag}-format\nmsgid "{text}"\nmsgstr ""\n')
    said = []
    translated(template, lambda s: "Hallo", said.append)
    assert len(said) == text.count("%")


def test_po_a_new_percent_sign(files: Files) -> None:
    template = files.open("a.po", '#, c-format\nmsgid "5 percent of %d"\nmsgstr ""\n')
    assert replaced(template, {"5 percent of %d": "5 % von %d"}).endswith('msgstr "5 %% von %d"\n')


def test_po_long_lines_are_not_wrapped(files: Files) -> None:
    long = "word " * 40 + "end"
    assert shouted(files.open("a.po", f'msgid "{long}"\nmsgstr ""\n')).endswith(f'msgstr "{long.upper()}"\n')


def test_srt_two_arrows(files: Files) -> None:
    template = files.open("a.srt", "1\n00:00:01,000 --> 00:00:02,000 --> 00:00:03,000\nHi\n")
    assert sentences(template) == [["Hi"]]


def test_srt_a_translation_is_no_timing(files: Files) -> None:
    template = files.open("a.srt", cue("Go there"))
    assert replaced(template, {"Go there": "A --> B"}) == cue("A -> B")


def test_vtt_no_blank_line_after_the_header(files: Files) -> None:
    assert sentences(files.open("a.vtt", "WEBVTT\n00:01.000 --> 00:02.000\nHi\n\n00:03.000 --> 00:04.000\nHo\n")) == [
        ["Hi", "Ho"]
    ]


def test_vtt_of_one_line(files: Files) -> None:
    assert "holds no subtitle" in files.refused("a.vtt", "WEBVTT\r\r00:01.000 --> 00:02.000\rHi\r")


def test_no_break_at_a_no_break_space(files: Files) -> None:
    template = files.open("a.srt", cue("Where are you\ngoing?"))
    assert replaced(template, {"Where are you going?": "Où allez-vous\u00a0?"}) == cue("Où\nallez-vous\u00a0?")


def test_md_a_link_over_two_lines(files: Files) -> None:
    template = files.open("a.md", "> a [b\r\n> c] d\r\n\r\n[b c]: x\r\n")
    assert shouted(template) == "> A [B\r\n> C][b c] D\r\n\r\n[b c]: x\r\n"


def test_md_code_in_tags(files: Files) -> None:
    assert (
        shouted(files.open("a.md", "Run <code>make all</code> and <kbd>Ctrl</kbd>."))
        == "rUN <code>make all</code> AND <kbd>Ctrl</kbd>."
    )


def test_an_abbreviation_in_brackets(files: Files) -> None:
    template = files.open("a.srt", cue("他住在（美国）"), source_language="zh", target_language="en")
    assert replaced(template, {"他住在": "He lives in", "美国": "the U.S."}) == cue("He lives in (the U.S.)")


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ('<ul><li class="notranslate">Acme<li>Second<li>Third</ul><p>After</p>', ["Second", "Third", "After"]),
        ("<ul><li translate=no>Acme</ul><p>After</p>", ["After"]),
        ("<ul><li translate=no>A<ul><li>b<li>c</ul>d<li>Go</ul>", ["Go"]),
        ("<p translate=no>Keep <b>it<p>Go", []),
        ("<p translate=no>Keep <b>it</b><p>Go", ["Go"]),
        ("<div translate=no><p>a<p>b</div>Go", ["Go"]),
        ("<p translate=no>a <span>b</span><br>c</p>Go", ["Go"]),
    ],
)
def test_html_an_end_tag_left_out(files: Files, page: str, texts: list[str]) -> None:
    template = files.open("a.html", page)
    assert unchanged(template) == page and [s for d in sentences(template) for s in d] == texts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Some **bold *it*** here", "sOME **BOLD *IT*** HERE"),
        ("Some *it **bold*** here", "sOME *IT **BOLD*** HERE"),
        ("Some ***both** one* here", "sOME ***BOTH** ONE* HERE"),
        ("Some ***both* two** here", "sOME ***BOTH* TWO** HERE"),
        ("Some ***both*** here", "sOME ***BOTH*** HERE"),
    ],
)
def test_md_emphasis_in_emphasis(files: Files, text: str, expected: str) -> None:
    template = files.open("a.md", text)
    assert sentences(template) == [[text.replace("*", "")]]
    assert shouted(template) == expected and unchanged(template) == text


@pytest.mark.parametrize("seed", range(20))
def test_md_emphasis_is_what_markdown_says(seed: int) -> None:
    """Whatever asterisks stand where, those are marks that a renderer takes for marks."""
    rng = random.Random(seed)
    for _ in range(50):
        parts = [rng.choice(["a", "b", " ", "x ", "*", "**", "***"]) for _ in range(rng.randint(3, 12))]
        text = f"w{''.join(parts)}z"
        if "****" not in text:
            rendered = re.sub("</?(em|strong)>", "", MarkdownIt("commonmark").renderInline(text))
            assert "".join(piece.text for piece in pieces_of(text, set())) == rendered, text
            assert "".join(piece.raw for piece in pieces_of(text, set())) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Take $x_i$ and $\\alpha + 1$ here", "tAKE $x_i$ AND $\\alpha + 1$ HERE"),
        ("It costs $5 and not $6.", "iT COSTS $5 AND NOT $6."),
        ("Here ![the logo] is\n\n[the logo]: x.png\n", "hERE ![the logo] IS\n\n[the logo]: x.png\n"),
        ("Here ![no image] is", "hERE ![NO IMAGE] IS"),
        ("Here ![a [b] c](x.png) is", "hERE ![a [b] c](x.png) IS"),
    ],
)
def test_md_formulas_and_images(files: Files, text: str, expected: str) -> None:
    template = files.open("a.md", text)
    assert shouted(template) == expected and unchanged(template) == text
