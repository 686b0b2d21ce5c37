"""Documents in every format they come in: what is read, what is refused and where the message points."""

from __future__ import annotations

import json
import lzma

import pytest
from document_helpers import message, quick, read
from hypothesis import given
from hypothesis import strategies as st

from dynctx.documents import detect_format
from dynctx.errors import DynctxError

pytest_plugins = ("document_fixtures",)


# Plain text with document ids


def test_docids_start_documents_and_keep_empty_sentences(put):
    text, ids = put("a.en", "One.\n\nThree.\nFour.\n\n"), put("a.ids", "x\nx\nx\ny\ny\n")
    assert read(text, docids=ids) == [("x", ["One.", "", "Three."]), ("y", ["Four.", ""])]
    assert read(text, "docids", docids=ids) == read(text, docids=ids)


def test_docids_of_another_length(put):
    text, ids = put("a.en", "One.\nTwo.\nThree.\n"), put("a.ids", "x\nx\n")
    said = message(read, text, docids=ids)
    assert "a.en:3" in said and "3 lines" in said and "a.ids:2" in said and "2 document ids" in said
    said = message(read, ids, docids=text)
    assert "a.ids:2" in said and "2 lines" in said and "a.en:3" in said and "3 document ids" in said


def test_docids_must_not_be_empty(put):
    text, ids = put("a.en", "One.\nTwo.\n"), put("a.ids", "x\n\n")
    assert "a.ids:2" in message(read, text, docids=ids)


# Lines <d>


def test_d_lines(put):
    path = put("a.en", "<d>\nOne.\n\nThree.\n<d>\n<d>x\n")
    assert read(path) == [("1", ["One.", "", "Three."]), ("2", ["<d>x"])]


@pytest.mark.parametrize(
    "text, line", [("<d>\nOne.\n<d>\n<d>\nTwo.\n", 3), ("<d>\nOne.\n<d>\n", 3), ("Zero.\n<d>\nOne.\n", 1)]
)
def test_d_lines_that_make_no_documents(put, text, line):
    assert f"a.en:{line}:" in message(read, put("a.en", text))


# Tab-separated columns


def test_tsv_columns_by_name(put):
    path = put("a.tsv", '\ufeffid\tdocid\ten\tde\r\n1\tx\tOne.\tEins.\r\n2\tx\t\tZwei.\r\n3\ty\t"Three\tDrei.\r\n')
    assert read(path, column="en") == [("x", ["One.", ""]), ("y", ['"Three'])]
    assert read(path, column="de") == [("x", ["Eins.", "Zwei."]), ("y", ["Drei."])]
    by_id = [("1", ["Eins."]), ("2", ["Zwei."]), ("3", ["Drei."])]
    assert read(path, column="de", document_column="id") == by_id


def test_tsv_with_one_text_column_needs_no_name(put):
    path = put("a.txt", "doc\ttext\nx\tOne.\nx\tTwo.\n")
    assert read(path) == [("x", ["One.", "Two."])]


@pytest.mark.parametrize(
    "text, options, said",
    [
        ("doc\ten\nx\tOne.\nx\n", {}, ["a.tsv:3:", "1 columns", "has 2"]),
        ("doc\ten\nx\tOne.\tmore\n", {}, ["a.tsv:2:", "3 columns", "has 2"]),
        ("doc\ten\nx\tOne.\n\n", {}, ["a.tsv:3:"]),
        ("doc\ten\nx\tOne.\n\tTwo.\n", {}, ["a.tsv:3:", "document id"]),
        ("doc\tsource\ttarget\nx\ta\tb\n", {"column": "sorce"}, ["a.tsv:1:", "'sorce'", "'source'"]),
        ("doc\tsource\ttarget\nx\ta\tb\n", {}, ["a.tsv:1:", "source or target"]),
        ("talk\ten\nx\ta\n", {"column": "en"}, ["a.tsv:1:", "document_column", "talk, en"]),
        ("doc\ten\n", {}, ["a.tsv", "no sentence"]),
        ("", {}, ["a.tsv", "no sentence"]),
    ],
)
def test_tsv_errors(put, text, options, said):
    text_of_error = message(read, put("a.tsv", text), **options)
    assert all(part in text_of_error for part in said), text_of_error


# JSON lines


def test_jsonl_a_sentence_a_line(put):
    rows = [{"doc": "x", "en": " One. "}, {"doc": "x", "en": ""}, {"doc": 7, "en": "a\nb\u2028c", "de": 1}]
    path = put("a.jsonl", "\ufeff" + "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n")
    assert read(path, column="en") == [("x", ["One.", ""]), ("7", ["a b\u2028c"])]


def test_jsonl_a_document_a_line(put):
    text = '{"id": "x", "sentences": ["a", ""]}\n{"id": "x", "sentences": ["b"]}\n'
    assert read(put("a.jsonl", text)) == [("x", ["a", ""]), ("x", ["b"])]
    assert read(put("b.txt", text)) == [("x", ["a", ""]), ("x", ["b"])]
    assert read(put("c.jsonl", '{"en": ["a"]}\n{"en": ["b"]}\n')) == [("1", ["a"]), ("2", ["b"])]
    named = '{"talk": 3, "id": 9, "en": ["a"]}\n'
    assert read(put("d.jsonl", named), document_column="talk") == [("3", ["a"])]


@pytest.mark.parametrize(
    "text, options, said",
    [
        ('{"doc": 1, "en": "a"}\n{"doc": 1, "en"\n', {}, ["a.jsonl:2:", "JSON"]),
        ('{"doc": 1, "en": "a"}\n["b"]\n', {}, ["a.jsonl:2:", "object", '["b"]']),
        ('{"doc": 1, "text": "a"}\n{"doc": 1, "txet": "b"}\n', {}, ["a.jsonl:2:", "'text'", "'txet'"]),
        ('{"doc": 1, "text": "a"}\n', {"column": "texts"}, ["a.jsonl:1:", "'texts'", "'text'"]),
        ('{"doc": 1, "en": "a"}\n{"en": "b"}\n', {}, ["a.jsonl:2:", "'doc'"]),
        ('{"doc": 1, "en": "a"}\n{"doc": 1, "en": 3.5}\n', {}, ["a.jsonl:2:", "'en'", "3.5", "string"]),
        ('{"en": ["a"]}\n{"en": ["a", null]}\n', {}, ["a.jsonl:2:", "'en'", "null"]),
        ('{"en": ["a"]}\n{"en": []}\n', {}, ["a.jsonl:2:", "no sentences"]),
        ('{"doc": 1, "en": "a"}\n{"doc": null, "en": "a"}\n', {}, ["a.jsonl:2:", "None", "document id"]),
        ('{"doc": true, "en": "a"}\n', {}, ["a.jsonl:1:", "True", "document id"]),
        ('{"id": 1, "en": "a"}\n', {}, ["a.jsonl:1:", "document_column"]),
        ('{"doc": 1, "en": "a", "de": "b"}\n', {}, ["a.jsonl:1:", "en or de"]),
        ('{"doc": 1, "en": "a\\ud83d"}\n', {}, ["a.jsonl:1:", "surrogate"]),
    ],
)
def test_jsonl_errors(put, text, options, said):
    text_of_error = message(read, put("a.jsonl", text), **options)
    assert all(part in text_of_error for part in said), text_of_error


# IWSLT and WMT markup

NEWS = """<srcset setid="newstest" srclang="any">
<doc sysid="ref" docid="bbc.1" genre="news" origlang="en">
<url>http://bbc</url>
<hl>
<seg id="1">Head &amp; shoulders</seg>
</hl>
<p>
<seg id="2">AT&T, R&D &lt;b&gt; &quot;x&quot; it&#39;s &amp;lt; &parade;</seg><seg id="3"> a < b </seg>
<seg id="4">.</seg> <seg id="5">over
  two lines <i>here</i></seg>
<seg id="6"></seg>
</p>
</doc>
<DOC DOCID='bbc.2'><title>not a sentence</title>
<SEG ID=1>last</SEG></DOC>
</srcset>
"""


def test_xml_finds_the_segments_of_untidy_files(put):
    first = [
        "Head & shoulders",
        'AT&T, R&D <b> "x" it\'s &lt; &parade;',
        "a < b",
        ".",
        "over two lines <i>here</i>",
        "",
    ]
    assert read(put("a.sgm", NEWS)) == [("bbc.1", first), ("bbc.2", ["last"])]
    assert read(put("a.en", NEWS)) == read(put("a.sgm.xz", lzma.compress(NEWS.encode())))


def test_xml_without_ids_and_root(put):
    path = put("a.xml", "<doc>\n<seg>a</seg>\n</doc>\n<doc><seg/><seg>b</seg></doc>\n")
    assert read(path) == [("1", ["a"]), ("2", ["", "b"])]


def test_xml_with_all_sides_in_a_document_needs_a_choice(put):
    path = put(
        "wmt.xml",
        '<dataset id="wmt22"><doc id="n1"><src lang="en"><p>\n<seg id="1">one</seg></p></src>\n'
        '<ref lang="de" translator="A"><seg id="1">eins</seg></ref>\n'
        '<ref lang="de" translator="B"><seg id="1">ein</seg></ref></doc></dataset>\n',
    )
    assert read(path, column="src") == [("n1", ["one"])]
    assert read(path, column="ref:B") == [("n1", ["ein"])]
    ragged = put("b.xml", "<doc><src><seg>a</seg></doc>\n<doc><seg>stray</seg><src><seg>b</seg></src></doc>\n")
    assert read(ragged, column="src") == [("1", ["a"]), ("2", ["b"])]
    said = message(read, path)
    assert "wmt.xml:3:" in said and "column: src" in said
    said = message(read, path, column="ref")
    assert "wmt.xml:4:" in said and "column: ref:A or column: ref:B" in said


@pytest.mark.parametrize(
    "text, said",
    [
        ('<doc docid="x">\n<seg>a</seg>\n', ["a.xml:1:", "<doc>", "end of the file"]),
        ('<doc docid="x">\n<seg>a</seg>\n<doc>\n', ["a.xml:1:", "<doc>", "line 3"]),
        ("<doc>\n<seg>a\nb\n</doc>\n", ["a.xml:2:", "<seg>", "line 4"]),
        ("<doc>\n<seg>a\n<seg>b</seg></doc>\n", ["a.xml:2:", "<seg>", "line 3"]),
        ("<doc>\n\n<seg>a\n", ["a.xml:3:", "<seg>", "end of the file"]),
        ("<doc>\n<seg>a</seg>\n</doc>\n<doc docid='y'>\n</doc>\n", ["a.xml:4:", "'y'", "no sentences"]),
        ("\n<seg>a</seg>\n", ["a.xml:2:", "<doc>"]),
        ("<doc>\n<seg>a</seg></seg>\n</doc>\n", ["a.xml:2:", "</seg>"]),
        ("<doc>\n<seg>a</seg>\n</doc>\n</doc>\n", ["a.xml:4:", "</doc>"]),
        ("<srcset>\n</srcset>\n", ["a.xml", "no sentence"]),
    ],
)
def test_xml_errors(put, text, said):
    text_of_error = message(read, put("a.xml", text))
    assert all(part in text_of_error for part in said), text_of_error


TALKS = """<url>http://www.ted.com/talks/one</url>
<keywords>talks, art</keywords>
<speaker>A. B.</speaker>
<talkid>535</talkid>
<title>A. B.: One</title>
<description>TED Talk: one</description>
 One.

<i>Three.
<reviewer href="http://x">R</reviewer>
<translator href="http://x">T</translator>
<url>http://www.ted.com/talks/two</url>
<title>Two</title>
 Four.
"""


def test_tags_of_the_years_without_doc(put):
    path = put("train.tags.en-de.en", TALKS)
    assert read(path) == [("535", ["One.", "", "<i>Three."]), ("2", ["Four."])]


def test_tags_with_doc(put):
    path = put(
        "train.tags.en-de.en",
        '<doc docid="7" genre="lectures">\n<url>u</url>\n<talkid>35</talkid>\nOne.\n</doc>\n\n'
        '<doc docid="8" genre="lectures">\n<url>u</url>\nTwo.\nThree.\n</doc>\n',
    )
    assert read(path) == [("35", ["One."]), ("8", ["Two.", "Three."])]


@pytest.mark.parametrize(
    "text, said",
    [
        ('<doc docid="1">\n<url>u</url>\nOne.\n', ["a.en:1:", "<doc>"]),
        ('<doc docid="1">\nOne.\n<doc docid="2">\nTwo.\n</doc>\n', ["a.en:1:", "line 3"]),
        ("<url>u</url>\n<title>t</title>\n<url>v</url>\nOne.\n", ["a.en:1:", "no sentences"]),
        ("<url>u</url>\nOne.\n<doc id='2'>\n</doc>\n", ["a.en:3:", "'2'", "no sentences"]),
        ("<title>t</title>\nOne.\n<url>u</url>\nTwo.\n", ["a.en:2:", "'One.'", "<url>"]),
        ("<url>u</url>\nOne.\n</doc>\n", ["a.en:3:", "</doc>"]),
    ],
)
def test_tags_errors(put, text, said):
    text_of_error = message(read, put("a.en", text))
    assert all(part in text_of_error for part in said), text_of_error


# Detection


@pytest.mark.parametrize(
    "path, head, format",
    [
        ("a.en", ["One."], "blank"),
        ("a.en", [], "blank"),
        ("a.en", ["", "<d>", "One."], "d"),
        ("a.en", ["<url>u</url>", "One."], "tags"),
        ("a.en", ['<doc docid="1">', "One."], "tags"),
        ("a.en", ['<doc docid="1">', "<url>u</url>", "<seg id='1'>One.</seg>"], "xml"),
        ("a.en", ['<?xml version="1.0"?>'], "xml"),
        ("a.en", ["<Set>", '<SEG id="1">'], "xml"),
        ("a.en", ["Write <seg> here."], "blank"),
        ("a.en", ["<b>bold</b>"], "blank"),
        ("a.en", ['{"sentences": []}'], "jsonl"),
        ("a.en", ["{name} must be set."], "blank"),
        ("a.en", ["docid\ttext"], "tsv"),
        ("a.en", ["doc"], "blank"),
        ("a.en", ["a\tb"], "blank"),
        ("a.TSV", ["a\tb"], "tsv"),
        ("a.jsonl.gz", ["x"], "jsonl"),
        ("a.xml.xz", ["x"], "xml"),
        ("a.sgm", ["x"], "xml"),
    ],
)
def test_detect_format(path, head, format):
    assert detect_format(path, head) == format


def test_a_named_format_is_not_detected(put):
    assert read(put("a.en", "<d>\nOne.\n"), "blank") == [("1", ["<d>", "One."])]


@pytest.mark.parametrize(
    "format, options, said",
    [
        ("jsonlines", {}, ["'jsonlines'", "'jsonl'"]),
        ("docids", {}, ["docids"]),
        ("blank", {"column": "en"}, ["column", "'en'", "'blank'"]),
        ("auto", {"document_column": "doc"}, ["document_column", "'blank'"]),
        ("d", {"docids": "ids"}, ["docids", "'d'"]),
    ],
)
def test_options_that_do_not_fit(put, format, options, said):
    text_of_error = message(read, put("a.en", "One.\n"), format, **options)
    assert "a.en" in text_of_error and all(part in text_of_error for part in said), text_of_error


markup = "<d>\n|<doc id='x'>|</doc>|<seg>|</seg>|<seg/>|<src>|<ref a=>|<url>|<talkid>7</talkid>|&#x0;"
tables = 'doc\ttext\n|x\ty\n|{"doc": 1, "en": "a"}\n|{"en": ["a"]}\n'
pieces = st.sampled_from([*"\n\n\n\t {}[]\"',:&;</>xé", *markup.split("|"), *tables.split("|")])


@pytest.mark.parametrize("format", ["auto", "blank", "d", "tsv", "jsonl", "xml", "tags"])
@quick
@given(parts=st.lists(pieces, max_size=25))
def test_no_text_ends_in_any_other_error(tmp_path, format, parts):
    path = tmp_path / "any"
    path.write_text("".join(parts))
    try:
        documents = read(str(path), format)
    except DynctxError as error:
        assert str(path) in str(error)
    else:
        assert documents and all(id and sentences for id, sentences in documents)
