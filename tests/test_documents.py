"""Documents in every format they come in: what is read, what is refused and where the message points."""

from __future__ import annotations

import errno
import gzip
import io
import json
import lzma
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynctx.documents import (
    Document,
    TextFile,
    detect_format,
    read_documents,
    read_parallel,
    write_documents,
    write_jsonl,
)
from dynctx.errors import DynctxError
from dynctx.files import atomic_write, read_lines

CORPORA = Path(__file__).parent.parent.parent / "shared" / "corpora"

# Every test example has its own file, so one tmp_path for all examples of a property does no harm.
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def put(tmp_path: Path):
    """Writes a file and returns its path."""

    def write(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def read(path: str, format: str = "auto", **options: str) -> list[tuple[str, list[str]]]:
    return [(d.id, list(d.sentences)) for d in read_documents(TextFile(path, format, **options))]


def message(call, *arguments, **options) -> str:
    """The text of the DynctxError that a call ends in."""
    with pytest.raises(DynctxError) as caught:
        result = call(*arguments, **options)
        if result is not None:
            list(result)
    text = str(caught.value)
    assert "\n" not in text
    return text


# Plain text with blank lines


def test_blank_lines_separate_documents(put):
    path = put("a.en", "\n\nOne.\nTwo.\n\n\n \t\nThree.\n\n")
    assert read(path) == [("1", ["One.", "Two."]), ("2", ["Three."])]


def test_last_line_may_lack_its_end(put):
    assert read(put("a.en", "One.\n\nTwo.")) == [("1", ["One."]), ("2", ["Two."])]


def test_byte_order_marks_and_windows_line_ends(put):
    path = put("a.en", "\ufeffOne.\r\n\r\n\ufeff Two.\ufeff\r\nThree.\r\n")
    assert read(path) == [("1", ["One."]), ("2", ["Two.", "Three."])]


@pytest.mark.parametrize("break_", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e", "\r"])
def test_only_newline_ends_a_line(put, break_):
    path = put("a.en", f"a{break_}b\nc\n")
    assert read(path) == [("1", [f"a{break_}b", "c"])]


def test_surrounding_space_goes_and_inner_space_stays(put):
    assert read(put("a.zh", "\u3000你 好\xa0 吗\u3000\n")) == [("1", ["你 好\xa0 吗"])]


def test_lines_come_without_their_ends(put):
    assert list(read_lines(put("a", "\ufeff a \r\n\r\n\tb\n c"))) == [" a ", "", "\tb", " c"]


def test_reading_is_lazy(put):
    """The second document is not looked at before the first is handed over."""
    documents = read_documents(put("a.en", b"One.\n" * 200 + b"\n" + b"Two.\n" * 9000 + b"\xff\n"))
    assert len(next(documents).sentences) == 200
    assert "a.en:9202" in message(next, documents)


def test_paths_of_any_kind(put, tmp_path):
    put("a.en", "One.\n")
    assert list(read_documents(tmp_path / "a.en")) == [Document("1", ("One.",))]


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"One.\n\nTwo.\n")))
    assert read("-") == [("1", ["One."]), ("2", ["Two."])]
    assert "<stdin>" in message(read_parallel, "-", "-")


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


# Files that cannot be read


@pytest.mark.parametrize("suffix, pack", [("", bytes), (".xz", lzma.compress), (".gz", gzip.compress)])
def test_broken_utf8_names_line_and_byte(put, suffix, pack):
    said = message(read, put("a.en" + suffix, pack(b"One.\n\n" + "ä".encode() + b"b\xe4c\n")))
    assert f"a.en{suffix}:3:" in said and "0xe4" in said and "offset 3 " in said


@pytest.mark.parametrize("suffix, pack", [(".xz", lzma.compress), (".gz", gzip.compress), (".XZ", lzma.compress)])
def test_archives(put, suffix, pack):
    text = "One.\r\n\nTwo\u2028.\n"
    assert read(put("a.en" + suffix, pack(text.encode()))) == [("1", ["One."]), ("2", ["Two\u2028."])]


@pytest.mark.parametrize("suffix, pack", [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_damaged_archives(put, suffix, pack):
    whole = pack(b"".join(b"%d some sentence\n" % (i * i) for i in range(9999)))
    for broken in (whole[: len(whole) // 2], whole[:2000] + b"\0" * 2000 + whole[4000:], b"no archive\n"):
        said = message(read, put("a.en" + suffix, broken))
        assert f"a.en{suffix}: damaged archive" in said


@pytest.mark.parametrize("content", ["", "\n \n\n", "\ufeff\r\n"])
def test_no_sentence(put, content):
    assert "a.en: holds no sentence" in message(read, put("a.en", content))


def test_missing_file_suggests_the_nearest(put, tmp_path):
    put("train.en.xz", b"")
    said = message(read, str(tmp_path / "train.en"))
    assert f"{tmp_path}/train.en: no such file" in said and "train.en.xz?" in said
    assert "nowhere/a.en: no such file" in message(read, "nowhere/a.en")
    assert "b.ids: no such file" in message(read, put("a.en", "One.\n"), docids="b.ids")


def test_directory(tmp_path):
    assert f"{tmp_path}: is a directory" in message(read, str(tmp_path))


def test_permission(put, monkeypatch):
    path = put("a.en", "One.\n")

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("dynctx.files._open_bytes", refuse)
    assert "a.en: no permission" in message(read, path)


# Two sides


def test_parallel(put):
    source, target = put("a.zh", "一\n二\n\n三\n"), put("a.en", "\n1\n2\n\n\n3\n\n")
    assert list(read_parallel(source, target)) == [
        (Document("1", ("一", "二")), Document("1", ("1", "2"))),
        (Document("2", ("三",)), Document("2", ("3",))),
    ]


def test_parallel_columns_of_one_file_and_mixed_formats(put):
    table = put("a.tsv", "doc\ten\tde\nx\tOne.\tEins.\nx\t\tZwei.\n")
    pairs = list(read_parallel(TextFile(table, column="en"), TextFile(table, column="de")))
    assert pairs == [(Document("x", ("One.", "")), Document("x", ("Eins.", "Zwei.")))]
    plain = put("a.de", "Eins.\nZwei.\n")
    pairs = list(read_parallel(TextFile(table, column="en"), plain))
    assert pairs == [(Document("x", ("One.", "")), Document("1", ("Eins.", "Zwei.")))]


def test_parallel_sentence_counts_differ(put):
    source, target = put("a.zh", "a\n\nb\nc\n\nd\n"), put("a.en", "\na\n\nb\n\nd\n")
    pairs = read_parallel(source, target)
    assert next(pairs)[1].sentences == ("a",)
    said = message(next, pairs)
    assert f"document '2' has 2 sentences at {source}:3 but 1 at {target}:4" in said
    named = put("b.xml", "<doc id='k'>\n<seg>a</seg></doc>\n<doc id='l'><seg>b</seg></doc>\n")
    said = message(read_parallel, put("c.en", "a\nb\n\nc\n"), named)
    assert "document '1' has 2 sentences at " in said and "c.en:1 but document 'k' 1 at " in said
    assert f"{named}:1" in said


def test_parallel_document_counts_differ(put):
    long, short = put("a.zh", "a\n\nb\n\nc\nd\n"), put("a.en", "a\n\nb\n")
    for pair in ((long, short), (short, long)):
        said = message(read_parallel, *pair)
        assert f"document '3' at {long}:5 (2 sentences)" in said and "2 documents" in said
        assert f"{short}:3" in said


def test_parallel_borders_on_one_side_only(put):
    with_borders, without = put("a.zh", "a\n\nb\n\nc\n"), put("a.en", "a\nb\nc\n")
    for pair in ((with_borders, without), (without, with_borders)):
        said = message(read_parallel, *pair)
        assert f"{without}:1 has no document borders (one document of 3 sentences)" in said
        assert f"{with_borders}:1 has" in said


lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=12)
sentences = lines.map(lambda text: f"x{text}y")
documents = st.lists(st.lists(sentences, min_size=1, max_size=5), min_size=1, max_size=5)


@quick
@given(documents, st.data())
def test_a_dropped_line_is_never_silent(tmp_path, texts, data):
    rows = "\n\n".join("\n".join(text) for text in texts).split("\n")
    dropped = data.draw(st.integers(0, len(rows) - 1))
    whole, holed = tmp_path / "whole", tmp_path / "holed"
    whole.write_bytes("\n".join(rows).encode())
    holed.write_bytes("\n".join(rows[:dropped] + rows[dropped + 1 :]).encode())
    for format in ("blank", "auto"):
        sides = TextFile(str(whole), format), TextFile(str(holed), format)
        assert "holed" in message(read_parallel, *sides)
        assert "holed" in message(read_parallel, *reversed(sides))


@quick
@given(documents, st.data())
def test_a_dropped_line_is_never_silent_with_explicit_borders(tmp_path, texts, data):
    rows = [row for text in texts for row in ("<d>", *text)]
    dropped = data.draw(st.integers(0, len(rows) - 1))
    whole, holed = tmp_path / "whole", tmp_path / "holed"
    whole.write_bytes("\n".join(rows).encode())
    holed.write_bytes("\n".join(rows[:dropped] + rows[dropped + 1 :]).encode())
    message(read_parallel, TextFile(str(whole), "d"), TextFile(str(holed), "d"))


# Writing


def test_write_documents_is_plain_text(tmp_path):
    path = tmp_path / "new" / "folder" / "out.en"
    write_documents([Document("x", ("a", "b\r\n c\u2028d ")), Document("y", ("é",))], path)
    assert path.read_bytes() == "a\nb c\u2028d\n\né\n".encode()


def test_write_jsonl_keeps_ids_and_empty_sentences(tmp_path):
    path = tmp_path / "out.jsonl"
    written = [Document("x", ("a", "", "\u2028b\u2028c")), Document("y", ("é",))]
    write_jsonl(written, path)
    lines = path.read_text(encoding="utf-8").split("\n")
    assert json.loads(lines[0]) == {"id": "x", "sentences": ["a", "", "\u2028b\u2028c"]}
    assert "é" in lines[1] and lines[2:] == [""]
    assert list(read_documents(path)) == [Document("x", ("a", "", "b\u2028c")), Document("y", ("é",))]


@pytest.mark.parametrize("empty", ["", " ", "\n", "\ufeff"])
def test_plain_text_has_no_empty_sentences(tmp_path, empty):
    path = tmp_path / "out.en"
    path.write_text("before\n")
    said = message(write_documents, [Document("1", ("a",)), Document("x", ("a", empty))], path)
    assert f"{path}: sentence 2 of document 'x' is empty" in said and "jsonl" in said
    assert path.read_text() == "before\n" and os.listdir(tmp_path) == ["out.en"]


@pytest.mark.parametrize("write", [write_documents, write_jsonl])
def test_empty_documents_are_not_written(tmp_path, write):
    said = message(write, [Document("x", ())], tmp_path / "out")
    assert f"{tmp_path / 'out'}: document 'x' has no sentences" in said
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", ["", ".xz", ".gz"])
@quick
@given(texts=documents)
def test_round_trip_of_plain_text(tmp_path, suffix, texts):
    written = [Document(str(i), tuple(text)) for i, text in enumerate(texts, 1)]
    path = str(tmp_path / f"out{suffix}")
    write_documents(written, path)
    assert list(read_documents(TextFile(path, "blank"))) == written


@quick
@given(st.lists(st.tuples(sentences, st.lists(lines, min_size=1, max_size=4)), min_size=1, max_size=4))
def test_round_trip_of_jsonl(tmp_path, texts):
    def stripped(text: str) -> str:
        while text != text.strip().strip("\ufeff"):
            text = text.strip().strip("\ufeff")
        return text

    path = tmp_path / "out.jsonl"
    write_jsonl([Document(id, tuple(text)) for id, text in texts], path)
    expected = [Document(id, tuple(map(stripped, text))) for id, text in texts]
    assert list(read_documents(path)) == expected


# Atomic writing


def test_atomic_write_of_text_and_bytes(tmp_path):
    path = tmp_path / "folder" / "file"
    with atomic_write(path) as text:
        text.write("ä\r\nb\n")
        text.flush()
        assert not path.exists()
    assert path.read_bytes() == b"\xc3\xa4\r\nb\n"
    with atomic_write(path, "wb") as raw:
        raw.write(b"\xff\n")
    assert path.read_bytes() == b"\xff\n"
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize("mode", ["w", "wb"])
@pytest.mark.parametrize("suffix", ["", ".xz", ".gz"])
@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), FileNotFoundError(2, "no", "other")])
def test_a_failed_block_leaves_the_target_alone(tmp_path, mode, suffix, error):
    path = tmp_path / f"file{suffix}"
    path.write_text("before")
    with pytest.raises(type(error)) as caught, atomic_write(path, mode) as file:
        file.write("half" if mode == "w" else b"half")
        raise error
    assert caught.value is error
    assert path.read_text() == "before" and os.listdir(tmp_path) == [path.name]


def test_a_full_disk_is_told_with_the_path(tmp_path):
    path = tmp_path / "file"
    for text in ("", "x" * 100_000):

        def fill(text: str = text) -> None:
            with atomic_write(path) as file:
                file.write(text)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        said = message(fill)
        assert f"{path}: cannot be written: No space left" in said
        assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device /dev/full")
@pytest.mark.parametrize("mode", ["w", "wb"])
def test_a_device_is_written_to_and_not_replaced(mode):
    def fill() -> None:
        with atomic_write("/dev/full", mode) as file:
            file.write("x" if mode == "w" else b"x")

    assert "/dev/full: cannot be written: No space left" in message(fill)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_targets_that_cannot_be_files(put, tmp_path):
    def write(path: Path) -> None:
        with atomic_write(path):
            pass

    assert f"{tmp_path}: cannot be written: is a directory" in message(write, tmp_path)
    put("plain", "")
    below = tmp_path / "plain" / "deep" / "file"
    assert f"{below}: cannot be written: " in message(write, below)
    assert os.listdir(tmp_path) == ["plain"]


def test_a_link_stays_a_link(put, tmp_path):
    put("real", "before")
    (tmp_path / "link").symlink_to("real")
    with atomic_write(tmp_path / "link") as file:
        file.write("after")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "after"


def test_new_files_follow_the_umask(tmp_path):
    with atomic_write(tmp_path / "file"):
        pass
    (tmp_path / "plain").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_packed_text_is_reproducible(tmp_path, monkeypatch):
    for name, now in (("a.gz", 1e9), ("b.gz", 2e9)):
        monkeypatch.setattr("time.time", lambda now=now: now)
        with atomic_write(tmp_path / name) as file:
            file.write("one\n")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert list(read_lines(tmp_path / "a.gz")) == ["one"]


# Real text


@pytest.mark.skipif(not (CORPORA / "ted_zh-en").is_dir(), reason="needs the TED corpus in ../shared/corpora")
def test_ted_dev_talks():
    pairs = list(read_parallel(CORPORA / "ted_zh-en" / "dev.zh.xz", CORPORA / "ted_zh-en" / "dev.en.xz"))
    assert len(pairs) == 40
    assert sum(len(source.sentences) for source, _ in pairs) == 5449
