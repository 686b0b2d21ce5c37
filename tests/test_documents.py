"""Documents of plain text: how they are read, paired with their translations, and written."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from document_helpers import message, quick, read
from hypothesis import given
from hypothesis import strategies as st

from dynctx.documents import Document, TextFile, read_documents, read_parallel, write_documents, write_jsonl

pytest_plugins = ("document_fixtures",)

CORPORA = Path(__file__).parent.parent.parent / "shared" / "corpora"


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


@pytest.mark.parametrize("name", ["a.srt", "a.vtt.gz", "a.md", "a.html", "a.xlf", "a.tmx", "a.po"])
def test_files_with_markup_are_no_corpus(put, name):
    """Scores of subtitles would be those of their timings."""
    path = put(name, "1\n00:00:01,000 --> 00:00:02,000\nOne.\n" if name == "a.srt" else "One.\n")
    suffix = "." + name.split(".")[1]
    assert f"are not read from {suffix}, whose markup would be taken for text" in message(read, path)
    if not name.endswith(".gz"):
        assert read(path, "blank")[0][1][-1] == "One."  # if that is what is meant


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


# Real text


@pytest.mark.skipif(not (CORPORA / "ted_zh-en").is_dir(), reason="needs the TED corpus in ../shared/corpora")
def test_ted_dev_talks():
    pairs = list(read_parallel(CORPORA / "ted_zh-en" / "dev.zh.xz", CORPORA / "ted_zh-en" / "dev.en.xz"))
    assert len(pairs) == 40
    assert sum(len(source.sentences) for source, _ in pairs) == 5449
