"""`dynctx translate` on real files: explanations, progress, what is told and what is never overwritten."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from format_helpers import PO, SRT, held, put
from tiny_runs import Ended, Run, refused

from dynctx import commands, commands_translate
from dynctx.documents import Document
from dynctx.pipeline import Choice

pytest_plugins = ("tiny_fixtures", "command_line", "swapping")


def test_each_sentence_has_its_place(translating: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    xliff = (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="f" source-language="x">\n'
        '<body><trans-unit id="t.1"><source>One. Two.</source></trans-unit></body></file></xliff>\n'
    )
    two = (
        '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="x"><file id="f">'
        '<unit id="u7"><segment id="s"><source>one</source></segment></unit></file></xliff>\n'
    )
    vtt = "WEBVTT\n\n00:01.000 --> 00:02.000 align:left\none\n\nintro\n00:03.000 --> 00:04.000\ntwo\n"
    po = 'msgctxt "menu"\nmsgid "one"\nmsgstr ""\n\nmsgid "two"\nmsgstr ""\n'
    files = {
        "a.srt": SRT.replace("the dog", "- one\n- two").replace("\n2\n", "\n7\n"),
        "b.vtt": vtt,
        "c.xlf": xliff,
        "d.xlf": two,
        "e.po": po,
        "f.txt": "one\n\ntwo\n",
        "g.md": "# one\n\ntwo\nand more. Three.\n",
        "h.html": "<p>one</p>\n<p>two</p>\n",
        "i.jsonl": '{"id": "a", "sentences": ["one"]}\n',
    }
    put(tmp_path, files)
    why = tmp_path / "why.jsonl"
    assert translating(*(tmp_path / name for name in files), "-o", tmp_path / "out", "--explain", why).code == 0
    records = [json.loads(line) for line in why.read_text().splitlines()]
    places: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        named = {name: record[name] for name in ("subtitle", "start", "end", "unit", "line") if name in record}
        places.setdefault(Path(record["file"]).name, []).append(named)
    late = {"subtitle": "7", "start": "00:00:20,000", "end": "00:00:21,000"}
    assert places == {
        "a.srt": [
            {"subtitle": "1", "start": "00:00:01,000", "end": "00:00:02,000", "line": 3},
            {**late, "line": 7},
            {**late, "line": 8},
        ],
        "b.vtt": [
            {"subtitle": "1", "start": "00:01.000", "end": "00:02.000", "line": 4},
            {"subtitle": "intro", "start": "00:03.000", "end": "00:04.000", "line": 8},
        ],
        "c.xlf": [{"unit": "t.1", "line": 2}] * 2,
        "d.xlf": [{"unit": "u7", "line": 1}],
        "e.po": [{"unit": "menu", "line": 2}, {"line": 5}],
        "f.txt": [{"line": 1}, {"line": 3}],
        "g.md": [{"line": 1}, {"line": 3}, {"line": 3}],
        "h.html": [{"line": 1}, {"line": 2}],
        "i.jsonl": [{}],
    }


def test_explain_several_files(translating: Run, tmp_path: Path) -> None:
    put(tmp_path, {"a.txt": "the cat\nthe dog\n", "b.srt": SRT})
    why = tmp_path / "why.jsonl"
    assert translating(tmp_path / "a.txt", tmp_path / "b.srt", "-o", tmp_path / "out", "--explain", why).code == 0
    records = [json.loads(line) for line in why.read_text().splitlines()]
    found = [(Path(r["file"]).name, r["document"], r["sentence"], r["text"]) for r in records]
    assert found == [
        ("a.txt", "1", 1, "the cat"),
        ("a.txt", "1", 2, "the dog"),
        ("b.srt", "1", 1, "the cat"),
        ("b.srt", "2", 1, "the dog"),
    ]
    assert all({"translation", "selected", "candidates"} <= record.keys() for record in records)


def test_select_reads_the_same_files(translating: Run, tmp_path: Path) -> None:
    put(tmp_path, {"b.srt": SRT, "a.po": PO})
    records = [json.loads(line) for line in translating(tmp_path / "b.srt", command="select").out.splitlines()]
    assert [(r["document"], r["text"]) for r in records] == [("1", "the cat"), ("2", "the dog")]
    assert "file" not in records[0] and "translation" not in records[0]
    assert len(translating(tmp_path / "a.po", command="select").out.splitlines()) == 2


# what is said when it is done


def test_a_line_at_the_end(translating: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def translate(model: Any, documents: Sequence[Document], *_: Any, **__: Any) -> Any:
        """The second sentence of a document has context, the third is kept."""
        choices = [Choice((), {}, None), Choice((1,), {}, None), Choice((), {}, None, kept=True)]
        return list(documents), [choices[: len(d.sentences)] for d in documents]

    monkeypatch.setattr(commands_translate, "translate_and_explain", translate)
    ticks = iter(range(10, 1000, 2))
    monkeypatch.setattr(commands_translate.time, "monotonic", lambda: float(next(ticks)))
    put(tmp_path, {"a.txt": "one\ntwo\nthree\n\nfour\n", "b.txt": "five\n", "c.po": PO})
    out = tmp_path / "new" / "out.txt"
    ended = translating(tmp_path / "a.txt", "-o", out)
    assert ended == Ended(
        0,
        "",
        "dynctx: 3 sentences of 2 documents translated in 2.0 s, 1 with context, 1 kept as they are; "
        f"written to {out}\n",
    )
    ended = translating(tmp_path / "a.txt", tmp_path / "b.txt", "-o", tmp_path / "folder")
    assert "4 sentences of 3 documents" in ended.err and ended.err.endswith(f"; written to {tmp_path}/folder/\n")
    ended = translating(tmp_path / "c.po", "-o", tmp_path / "d.po")  # one of the two has its translation
    assert "dynctx: 1 sentence of 1 document translated in 2.0 s, 1 with context; written to" in ended.err
    assert (
        translating(tmp_path / "a.txt", "-o", out, "--quiet")
        == translating(tmp_path / "a.txt", "-o", out, "-q")
        == Ended(0, "", "")
    )
    assert translating(tmp_path / "a.txt").err == ""  # a filter says nothing


def test_the_progress_is_that_of_all_files(
    translating: Run, swap: list[list[Document]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    totals: list[tuple[int, bool]] = []

    class Bar(commands.bar):
        def __init__(self, total: int, quiet: bool = False) -> None:
            totals.append((total, quiet))
            super().__init__(total, quiet)

    monkeypatch.setattr(commands_translate, "bar", Bar)
    put(tmp_path, {"a.txt": "one\ntwo\n", "b.txt": "three\n"})
    translating(tmp_path / "a.txt", tmp_path / "b.txt", "-o", tmp_path / "out")
    translating(tmp_path / "a.txt", "-o", tmp_path / "x.txt", "-q")
    assert totals == [(3, False), (2, True)]


def test_a_folder_by_its_name(translating: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    """FOLDER/ is a folder, also for one file, and also where it is not there yet."""
    put(tmp_path, {"a.txt": "one\n"})
    assert f"; written to {tmp_path}/x/y/a.txt\n" in translating(tmp_path / "a.txt", "-o", f"{tmp_path}/x/y/").err
    assert held(tmp_path / "x") == {"y/a.txt": "ONE\n"}
    translating(tmp_path / "a.txt", "-o", tmp_path / "z" / "b.txt", "--explain", tmp_path / "w" / "why.jsonl")
    assert held(tmp_path / "z") == {"b.txt": "ONE\n"} and (tmp_path / "w" / "why.jsonl").exists()


def test_what_cannot_be_written_shows_before_translating(
    translating: Run, swap: list[list[Document]], tmp_path: Path
) -> None:
    put(tmp_path, {"a.txt": "one\n", "file": ""})
    for arguments in (["-o", tmp_path / "file" / "b.txt"], ["--explain", tmp_path / "file" / "why.jsonl"]):
        said = refused(translating(tmp_path / "a.txt", *arguments))
        assert said == f"{arguments[1]}: cannot be written: {tmp_path / 'file'} is no folder that you may write to"
    assert swap == []
    (tmp_path / "link.txt").symlink_to(tmp_path / "file" / "b.txt")
    assert "cannot be written" in refused(translating(tmp_path / "a.txt", "-o", tmp_path / "link.txt"))
    assert translating(tmp_path / "a.txt", "-o", "/dev/null", "-q") == Ended(0, "", "")


def test_a_protected_file_is_not_replaced(
    translating: Run, swap: list[list[Document]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path, {"a.txt": "one\n", "done.txt": "mine\n"})
    (tmp_path / "done.txt").chmod(0o444)
    # to root everything may be written: as others see it
    may = {os.R_OK: 0o400, os.W_OK: 0o200}
    monkeypatch.setattr(os, "access", lambda path, how: bool(os.stat(path).st_mode & may[how]))
    for option in ("-o", "--explain"):
        said = refused(translating(tmp_path / "a.txt", option, tmp_path / "done.txt"))
        assert said.startswith(f"{tmp_path}/done.txt: cannot be written: it is protected")
    assert swap == [] and (tmp_path / "done.txt").read_text() == "mine\n"


def test_a_dash_is_standard_output(
    translating: Run, swap: list[list[Document]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(put(tmp_path, {"a.txt": "one\n"}))
    assert translating("a.txt", "-o", "-") == translating("a.txt") == Ended(0, "ONE\n", "")
    assert translating("a.txt", "-o", "-", command="select") == translating("a.txt", command="select")
    assert refused(translating("a.txt", "--explain", "-")).startswith("--explain needs the name of a file")
    assert held(tmp_path) == {"a.txt": "one\n"}


def test_an_explanation_overwrites_nothing(translating: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    files = {"a.txt": "one\n", "b.txt": "two\n"}
    a, b = (put(tmp_path, files) / name for name in files)
    (tmp_path / "link").symlink_to(a)
    for place in (a, tmp_path / "link"):
        assert refused(translating(a, "--explain", place)) == f"{a}: would be overwritten; write to another place"
        assert (
            refused(translating(a, "-o", place, command="select"))
            == f"{a}: would be overwritten; write to another place"
        )
    assert f"{b}: would be overwritten" in refused(translating(a, b, "-o", tmp_path / "out", "--explain", b))
    said = refused(translating(a, "-o", tmp_path / "c.txt", "--explain", tmp_path / "c.txt"))
    assert said == f"{tmp_path}/c.txt: is both the translation and its explanation; name two files"
    (tmp_path / "folder").mkdir()
    for arguments in (["--explain", tmp_path / "folder"], ["-o", tmp_path / "folder"]):
        said = refused(translating(a, *arguments, command="select" if "-o" in arguments else "translate"))
        assert said == f"{tmp_path}/folder: cannot be written: it is a folder; name a file in it"
    assert swap == [] and held(tmp_path) == {**files, "link": "one\n"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "hello {name}\n"),
        ("a.md", "hello {name}\n"),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nhello {name}\n"),
        ("a.txt", "see http://example.org/abc here\n"),
    ],
)
def test_placeholders_and_addresses_come_through(
    translating: Run, swap: list[list[Document]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str
) -> None:
    """Also through a translator that swaps upper and lower case; one that forgets them gets them back at the end."""
    (tmp_path / name).write_text(text)
    held = "{name}" if "{" in text else "http://example.org/abc"
    ended = translating(tmp_path / name)
    assert (ended.code, ended.err) == (0, "") and held in ended.out and "HE" in ended.out, ended

    def forget(model: Any, documents: Sequence[Document], *_: Any, **__: Any) -> Any:
        found = [Document(d.id, tuple("gone" for _ in d.sentences)) for d in documents]
        return found, [[Choice((), {}, None)] * len(d.sentences) for d in documents]

    monkeypatch.setattr(commands_translate, "translate_and_explain", forget)
    ended = translating(tmp_path / name)
    assert ended.code == 0 and f"gone {held}" in ended.out, ended
    assert f"{name}:" in ended.err and held in ended.err
