"""Plain text, JSON lines and TSV; which format a file is taken for; encodings."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from format_helpers import Files, replaced, sentences, shouted, swapped, translated, unchanged, unexpected
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dynctx.documents import Document, read_documents
from dynctx.errors import DynctxError
from dynctx.formats import FORMATS, placeholders, plain

pytest_plugins = ("format_fixtures",)
quick = settings(max_examples=150, deadline=None)

LETTER = (
    "\ufeffDear Dr. Smith, hello.\r\n\r\n"
    "  this is a paragraph. It goes\r\n  over lines, and ends here.\r\n\t\r\n42\r\n\r\nBye!"
)


def test_one_sentence_a_line(files: Files) -> None:
    letter = files.open("letter.txt", LETTER)
    assert sentences(letter) == [
        ["Dear Dr. Smith, hello."],
        ["this is a paragraph. It goes", "over lines, and ends here."],
        ["42"],
        ["Bye!"],
    ]
    assert unchanged(letter) == LETTER
    assert shouted(letter) == swapped(LETTER)


def test_paragraphs(files: Files) -> None:
    letter = files.open("letter.txt", LETTER, split=True)
    texts = ["Dear Dr. Smith, hello.", "this is a paragraph.", "It goes over lines, and ends here.", "Bye!"]
    assert sentences(letter) == [texts]  # one document; a number needs no translation
    assert unchanged(letter) == LETTER
    assert shouted(letter) == swapped(LETTER)
    table = dict(zip(texts, ["Lieber Dr. Schmidt.", "ein Absatz.", "Er geht über Zeilen und endet.", "Tschüs!"]))
    assert replaced(letter, table) == (
        "\ufeffLieber Dr. Schmidt.\r\n\r\n  ein Absatz. Er geht\r\n  über Zeilen und endet.\r\n\t\r\n42\r\n\r\nTschüs!"
    )


def test_chinese_paragraphs(files: Files) -> None:
    text = "你好。你怎么样？\n没有标点\n\n好！"
    story = files.open("story.txt", text, split=True)
    assert sentences(story) == [["你好。", "你怎么样？", "没有标点", "好！"]]
    table = {"你好。": "Hello.", "你怎么样？": "How are you?", "没有标点": "No stop", "好！": "Good!"}
    assert replaced(story, table) == "Hello. How are you?\nNo stop\n\nGood!"


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("content", ["", "\n \n", "\ufeff"])
def test_no_text(files: Files, content: str, split: bool) -> None:
    said = files.refused("a.txt", content, split=split)
    assert said == "a.txt: holds no sentence; check that it is the file you mean"


@quick
@given(st.text(st.sampled_from("ab .!?中。\n\r\t \u2028\x0c\ufeff"), max_size=40), st.booleans())
def test_any_text_comes_back_as_it_was(text: str, split: bool) -> None:
    assume(text.strip("\ufeff \n\r\t\u2028\x0c"))
    letter = plain.read(text, "a.txt", "en", split)
    assert unchanged(letter) == text
    assert translated(letter, swapped).lower() == text.lower()


# JSON lines and TSV

LINES = """{"id": "a",  "sentences":["One\\u0020here.", "", " Two "] , "x": {"sentences": "no"}}\r
\r
{"sentences": [], "sentences": ["Th\\"ree"], "id": 7, "é": null}"""


def test_json_lines_keep_their_shape(files: Files) -> None:
    corpus = files.open("a.jsonl", LINES, output_suffix=".jsonl")
    assert [(d.id, d.sentences) for d in corpus.documents] == [("a", ("One here.", "", "Two")), ("7", ('Th"ree',))]
    assert unchanged(corpus) == LINES
    written = replaced(corpus, {"One here.": 'Eins "é"', "": "", "Two": "Two", 'Th"ree': "Drei"})
    assert written == LINES.replace('"One\\u0020here."', '"Eins \\"é\\""').replace('"Th\\"ree"', '"Drei"')


def test_json_lines_of_sentences(files: Files) -> None:
    rows = [("a", "One", 1), ("a", "Two", 2), ("b", "Three", 3)]
    lines = "".join(f'{{"doc": "{doc}", "text": "{text}", "n": {n}}}\n' for doc, text, n in rows)
    corpus = files.open("a.jsonl", lines, output_suffix=".jsonl", column="text")
    assert sentences(corpus) == [["One", "Two"], ["Three"]]
    assert [json.loads(line)["text"] for line in shouted(corpus).splitlines()] == ["oNE", "tWO", "tHREE"]
    assert shouted(corpus).lower() == lines.lower()
    # to anything else they are written as text
    assert unchanged(files.open("a.jsonl", lines, column="text")) == "One\nTwo\n\nThree\n"
    assert files.refused("a.jsonl", lines) == (
        "a.jsonl:1: which column is the text? text or n? Name it: --column, or in a config column"
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"text": "One"}\n\n{"text": "Two"}\n'),
        ("a.jsonl", '{"id": 1, "text": "One"}\n{"id": 2, "text": "Two"}\n'),
        ("a.tsv", "id\ttext\n1\tOne\n2\tTwo\n"),
    ],
)
def test_lines_without_document_ids_are_one_document(files: Files, name: str, content: str) -> None:
    """As a text without blank lines is one; of a corpus to learn from they are refused."""
    found = files.open(name, content, output_suffix=Path(name).suffix)
    assert [(d.id, d.sentences) for d in found.documents] == [("1", ("One", "Two"))]
    assert shouted(found) == content.replace("One", "oNE").replace("Two", "tWO")
    with pytest.raises(DynctxError, match="nothing tells the documents apart"):
        list(read_documents(files.folder / name))


def test_tsv_keeps_its_shape(files: Files) -> None:
    table = "doc\tn\ttext\r\na\t1\t One \r\na\t2\t\r\nb\t3\tThree\r\n"
    corpus = files.open("a.tsv", table, output_suffix=".tsv", column="text")
    assert sentences(corpus) == [["One", ""], ["Three"]]
    assert unchanged(corpus) == table
    written = replaced(corpus, {"One": "Ei\tns", "": "", "Three": "Drei"})
    assert written == table.replace("One", "Ei ns").replace("Three", "Drei")


VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.lists(VALUES, min_size=1, max_size=3),
            st.dictionaries(VALUES.filter(lambda k: k not in ("id", "doc", "docid", "document", "doc_id")), VALUES),
            st.booleans(),
            st.sampled_from([None, 1]),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_any_json_lines_come_back_as_they_were(files: Files, lines: list[Any]) -> None:
    objects = [({**other, "sentences": texts}, ascii, indent) for texts, other, ascii, indent in lines]
    separators = {None: (", ", ": "), 1: (" ,", "  :\t")}
    written = [json.dumps(o, ensure_ascii=ascii, separators=separators[i]) for o, ascii, i in objects]
    content = "\n\n".join(written) + "\n"
    corpus = files.open("a.jsonl", content, output_suffix=".jsonl")
    assert unchanged(corpus) == content
    found = [json.loads(line) for line in translated(corpus, lambda text: f"<{text}>").split("\n") if line]
    for line, document, (before, _, _) in zip(found, corpus.documents, objects):
        assert line["sentences"] == [f"<{text}>" for text in document.sentences]
        assert line.keys() == before.keys()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"id": "a", "sentences": ["x"]}\n{"id": ', "a.jsonl:2: not JSON"),
        ('{"id": "a", "sentences": [1]}\n', "a.jsonl:1: 'sentences' holds '1'; it must be a string"),
        ('{"id": "a"}\n', "a.jsonl:1: no column can be the text (there are: id)"),
        ("{}\n", "a.jsonl:1: no column can be the text (there are none)"),
        ("", "a.jsonl: holds no sentence"),
    ],
)
def test_broken_json_lines(files: Files, content: str, said: str) -> None:
    assert files.refused("a.jsonl", content, output_suffix=".jsonl").startswith(said)


# which format


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.MD", "# x", "md"),
        ("a", "WEBVTT\n\n00:01.000 --> 00:02.000\nHi\n", "vtt"),
        ("a", "\ufeff1\r\n00:00:01,000 --> 00:00:02,000\r\nHi\r\n", "srt"),
        ("a.xml", '<?xml version="1.0"?>\n<!-- c -->\n<xliff version="1.2"><file/></xliff>', "xliff"),
        ("a", "<tmx><tu><tuv xml:lang='en'><seg>a</seg></tuv></tu></tmx>", "tmx"),
        ("a", '# c\nmsgid ""\n"x"\nmsgstr ""\n', "po"),
        ("a", "Hello\n", "txt"),
        ("a.txt", "WEBVTT\n", "txt"),
        ("a.en", "<d>\nHello\n", "txt"),  # a corpus, written as text
        ("a.sgm", '<doc docid="a">\n<seg id="1">Hello</seg>\n</doc>\n', "txt"),
    ],
)
def test_the_format_is_found(files: Files, name: str, content: str, format: str) -> None:
    assert files.open(name, content).format == format


def test_the_format_can_be_named(files: Files) -> None:
    assert sentences(files.open("a.txt", "# Title\n", format="md")) == [["Title"]]
    said = files.refused("a.txt", "x", format="sr")
    assert said == "unknown format 'sr'; did you mean 'srt'?"
    assert "md" in FORMATS


def test_formats_that_are_not_read(files: Files) -> None:
    said = "a.rst: .rst files cannot be read; export its text as .txt (or give --format). These can: .txt .md"
    assert files.refused("a.rst", "x").startswith(said)
    assert sentences(files.open("b.rst", "x\n", format="txt")) == [["x"]]


def test_packed_files(files: Files) -> None:
    assert sentences(files.open("a.md.gz", gzip.compress(b"# Title\n"))) == [["Title"]]
    assert "damaged archive" in files.refused("b.md.gz", gzip.compress(b"# Title\n")[:-9])


def test_files_that_are_not_there(files: Files) -> None:
    (files.folder / "film.srt").mkdir()
    with pytest.raises(Exception, match=r"film\.srt: is a directory"):
        files.open_path("film.srt")
    with pytest.raises(Exception, match=r"flim\.srt: no such file; did you mean .*film\.srt"):
        files.open_path("flim.srt")


@pytest.mark.parametrize(
    ("line", "sentence", "written"),
    [
        ("http://a.b/c see this", "see this", "http://a.b/c X"),
        ("see this  http://a.b/c", "see this", "X  http://a.b/c"),
        ("http://a.b www.c.d see http://e.f", "see", "http://a.b www.c.d X http://e.f"),
        ("see http://a.b/c now", "see http://a.b/c now", "X http://a.b/c"),
        ("http://a.b/c看这个", "看这个", "http://a.b/c X"),  # no space ends the address
        ("看这个http://a.b/c", "看这个", "X http://a.b/c"),
        ("给help.me@example.co.uk写信", "给help.me@example.co.uk写信", "X help.me@example.co.uk"),
        ("写信给 a-b+c@d.org。", "写信给 a-b+c@d.org。", "X a-b+c@d.org"),
        ("see a@b.org", "see", "X a@b.org"),
        ("meet @ home, @all", "meet @ home, @all", "X"),  # no address
        ("%s sees", "%s sees", "X %s"),  # what a placeholder stands for belongs to the sentence
    ],
)
def test_an_address_at_the_edge_is_not_for_the_model(files: Files, line: str, sentence: str, written: str) -> None:
    text = files.open("a.txt", f"{line}\n")
    assert sentences(text) == [[sentence]]
    assert unchanged(text) == f"{line}\n"
    assert replaced(text, {sentence: "X"}, files.warnings.append) == f"{written}\n"
    assert sentences(files.open("b.txt", "http://a.b/c\n")) == [["http://a.b/c"]]  # a line is a sentence all the same


def test_another_encoding(files: Files) -> None:
    """It is read as it is said to be, and written as UTF-8, which has the letters of every translation."""
    text = files.open("a.txt", "你好\n".encode("gb18030"), encoding="gb18030")
    assert sentences(text) == [["你好"]]
    assert text.filled([Document("1", ("Grüße",))], unexpected) == "Grüße\n".encode()
    said = files.refused("a.txt", "你好\n".encode("gb18030"))
    assert said.startswith("a.txt:1: not UTF-8: byte 0xc4 at")
    assert "say what it is, for instance --encoding gb18030" in said
    assert files.refused("a.txt", b"\xff\xff\n", encoding="gb18030") == (
        "a.txt:1: not gb18030, as it was said: illegal multibyte sequence"
    )
    said = "a.txt:1: unknown encoding 'undefined'; save the file as UTF-8"
    assert files.refused("a.txt", "x\n", encoding="undefined") == said
    assert files.refused("a.txt", "x\n", encoding="nope") == "a.txt:1: unknown encoding 'nope'; save the file as UTF-8"
    assert files.refused("a.jsonl", '{"id": "a", "sentences": ["x"]}\n', encoding="big5") == (
        "a.jsonl: jsonl is read as UTF-8 alone; convert it and leave out --encoding"
    )
    wide = files.open("a.txt", "\ufeff你好\n".encode("utf-16-le"), encoding="gb18030")  # it says itself what it is
    assert wide.filled(wide.documents, unexpected) == "\ufeff你好\n".encode("utf-16-le")


def test_an_encoding_that_is_not_the_files(files: Files) -> None:
    files.open("a.txt", "你好\n".encode("gb18030"), encoding="gb18030")
    files.open("a.txt", "hello\n", encoding="gb18030")
    files.open("a.txt", "\ufeff你好\n".encode("utf-16-le"), encoding="gb18030")
    assert files.warnings == []
    files.open("a.txt", "你好\n", encoding="gb18030")
    (said,) = files.warnings
    assert said.endswith("a.txt: looks like UTF-8, but is read as gb18030; leave out --encoding if this is wrong")


def test_what_is_no_text(files: Files) -> None:
    """A picture is not told to be in another encoding; UTF-16 that does not say so can be."""
    said = files.refused("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    assert said.startswith("a.png:3: no text: it holds a NUL byte, as pictures and programs do")
    assert "--encoding utf-16-le" in files.refused("a.txt", "One\n".encode("utf-16-le"))
    assert sentences(files.open("a.txt", "One\n".encode("utf-16-le"), encoding="utf-16-le")) == [["One"]]


@pytest.mark.parametrize(
    "name, content, way_out",
    [
        ("film.ttml", "<tt/>", "save it as .srt or .vtt"),
        ("song.lrc", "[00:12.00]你好\n", "save it as .srt or .vtt"),
        ("a.docx", b"PK\x03\x04\x14\0\0\0\xff", "save it as .html or .txt"),  # not the NUL byte is to be told
        ("table.csv", "id,text\n1,你好\n", "save it as .tsv"),
        ("zh.properties", "hello=你好\n", "export it as .xlf or .po"),
    ],
)
def test_formats_of_others_are_refused_with_a_way_out(
    files: Files, name: str, content: str | bytes, way_out: str
) -> None:
    suffix = name[name.index(".") :]
    assert files.refused(name, content).startswith(f"{name}: {suffix} files cannot be read; {way_out} (or give")


def test_running_text_that_is_not_split_is_told(files: Files) -> None:
    paragraph = "他昨天来了。她没有来！你觉得怎么样？\n"
    files.open("a.txt", f"不！不！不！\n{paragraph}No. No. No. No.\nHe came. She did.\n")
    files.open("b.txt", paragraph * 2 + "He came. She did not. Did you?\n", split=True)
    assert [said.replace(f"{files.folder}/", "") for said in files.warnings] == [
        "a.txt: 1 line has several sentences, of which some may be lost; --split translates one by one"
    ]


@pytest.mark.parametrize(
    ("line", "several"),
    [
        ("他病了。睡着了。你好吗？", True),  # a Chinese letter counts two
        ("不！不！不！", False),
        ("No! No! No!", False),
        ("He came. She did not. Did you?", True),
        ("!" * 300_000 + "他", False),  # and that at once: each mark is looked at once
    ],
)
def test_what_is_a_paragraph(line: str, several: bool) -> None:
    assert plain.is_paragraph(line) == several


def test_a_number_without_end_is_no_placeholder() -> None:
    """And that is seen at once."""
    assert placeholders.PLACEHOLDER.search("%" + "0" * 300_000) is None
    assert [match[0] for match in placeholders.PLACEHOLDER.finditer("%05d %-+5.2f %0s")] == ["%05d", "%-+5.2f", "%0s"]
