"""`dynctx translate` on real files: what is written where, what stays, and how it fails."""

from __future__ import annotations

import gzip
import inspect
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from format_helpers import put, swapped
from tiny_runs import Ended, Run, refused

from dynctx import cli, commands, commands_translate
from dynctx.documents import Document
from dynctx.formats import SCENE_GAP, plain
from dynctx.model_folder import load_model
from dynctx.pipeline import Choice, translate_documents

pytest_plugins = ("tiny_fixtures", "command_line")

SRT = "1\n00:00:01,000 --> 00:00:02,000\n<i>the cat</i>\n\n2\n00:00:20,000 --> 00:00:21,000\nthe dog\n"
PO = 'msgid "the cat"\nmsgstr "tac eht"\n\nmsgid "the dog"\nmsgstr ""\n'


@pytest.fixture
def run(run: Run, trained: Path) -> Run:
    """`dynctx translate` in this process, with the tiny model."""

    def translate(*arguments: str | Path, stdin: bytes = b"", command: str = "translate") -> Ended:
        return run(command, "-m", trained, *arguments, stdin=stdin)

    return translate


@pytest.fixture
def swap(monkeypatch: pytest.MonkeyPatch) -> list[list[Document]]:
    """A translator that swaps upper and lower case; what it was given."""
    given: list[list[Document]] = []

    def translate(
        model: Any, documents: Sequence[Document], *_: Any, **__: Any
    ) -> tuple[list[Document], list[list[Choice]]]:
        given.append(list(documents))
        found = [Document(d.id, tuple(map(swapped, d.sentences))) for d in documents]
        return found, [[Choice((), {}, None)] * len(d.sentences) for d in documents]

    monkeypatch.setattr(commands_translate, "translate_and_explain", translate)
    return given


def held(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


# with the model itself


def test_subtitles_are_translated_in_their_documents(run: Run, trained: Path, tmp_path: Path) -> None:
    put(tmp_path, {"in.srt": SRT})
    ended = run(tmp_path / "in.srt")
    documents = [Document("1", ("the cat",)), Document("2", ("the dog",))]
    cat, dog = (d.sentences[0] for d in translate_documents(load_model(trained), documents))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == SRT.replace("the cat", cat).replace("the dog", dog)
    assert run("-", stdin=SRT.encode()) == ended  # by its content


def test_the_pipe_can_be_told_its_format(run: Run, swap: list[list[Document]]) -> None:
    assert run("-", "--format", "md", stdin=b"# Title\n").out == "# tITLE\n"
    assert run("-", stdin=b"# Title\n").out == "# tITLE\n"  # as text, the sign is a part of the sentence
    assert [documents[0].sentences for documents in swap] == [("Title",), ("# Title",)]


def test_options_reach_the_reader(run: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    put(
        tmp_path,
        {"a.srt": SRT, "a.txt": "One is here. Two\nis there.\n", "a.jsonl": '{"doc": 1, "t": "a", "n": "b"}\n'},
    )
    run(tmp_path / "a.srt", "--scene-gap", "30")
    run(tmp_path / "a.txt", "--split")
    run(tmp_path / "a.jsonl", "--column", "n")
    assert [[d.sentences for d in documents] for documents in swap] == [
        [("the cat", "the dog")],
        [("One is here.", "Two is there.")],
        [("b",)],
    ]
    assert "scene gap must be 0 or more" in refused(run(tmp_path / "a.srt", "--scene-gap", "-1"))


# where it goes


def test_a_folder(run: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    source = put(
        tmp_path / "in",
        {"a.md": "# One\n", "sub/b.srt": SRT, "sub/c.jsonl": '{"id": "x", "sentences": ["two"], "k": 1}\n'}
        | {".hidden.md": "no", "d.png": "no", "out/old.md": "# old\n", "empty.txt": ""},
    )
    ended = run(source, "-o", source / "out", "-q")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == f"dynctx: {source}: 2 files left out, empty or of another format\n"
    assert held(source / "out") == {
        "a.md": "# oNE\n",
        "sub/b.srt": SRT.replace("the cat", "THE CAT").replace("the dog", "THE DOG"),
        "sub/c.jsonl": '{"id": "x", "sentences": ["TWO"], "k": 1}\n',
        "old.md": "# old\n",
    }
    assert len(swap) == 1  # all of it in one go


def test_a_broken_file_in_a_folder_stops_all(run: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    source = put(tmp_path / "in", {"a.md": "# One\n", "b.srt": "no subtitle\n"})
    said = refused(run(source, "-o", tmp_path / "out"))
    assert said.startswith(f"{source / 'b.srt'}:1: holds no subtitle")
    assert not (tmp_path / "out").exists() and swap == []


def test_several_files(run: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    put(tmp_path, {"a.md": "# One\n", "b.srt": SRT, "x/a.md": "# Two\n"})
    a, b, other = tmp_path / "a.md", tmp_path / "b.srt", tmp_path / "x" / "a.md"
    assert run(a, b, "-o", tmp_path / "out").code == 0  # a name without a suffix is a folder's
    assert sorted(held(tmp_path / "out")) == ["a.md", "b.srt"]
    assert "cannot be joined to other files; write them to a folder" in refused(run(a, b))
    assert "would both be written to" in refused(run(a, other, "-o", tmp_path / "out"))
    assert "would be overwritten" in refused(run(a, b, "-o", tmp_path))
    before = a.read_bytes()
    assert "would be overwritten" in refused(run(a, "-o", a)) and a.read_bytes() == before
    assert "has no name in a folder" in refused(run("-", a, "-o", tmp_path / "out"))
    assert "is a folder; say where to write" in refused(run(tmp_path / "x"))
    assert f"{a}: is a file" in refused(run(tmp_path / "x", "-o", a))
    (tmp_path / "empty").mkdir()
    assert "holds no file to translate" in refused(run(tmp_path / "empty", "-o", tmp_path / "out"))


def test_one_file_into_a_folder_that_is_there(run: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    put(tmp_path, {"a.md": "# One\n", "out/b.md": "# Two\n"})
    assert run(tmp_path / "a.md", "-o", tmp_path / "out").code == 0
    assert held(tmp_path / "out") == {"a.md": "# oNE\n", "b.md": "# Two\n"}


def test_a_format_is_not_turned_into_another(run: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    put(tmp_path, {"a.srt": SRT})
    said = refused(run(tmp_path / "a.srt", "-o", tmp_path / "a.vtt"))
    assert said == f"{tmp_path / 'a.vtt'}: {tmp_path / 'a.srt'} is srt; name the output .srt"
    assert "name the output .srt" in refused(run(tmp_path / "a.srt", "-o", tmp_path / "a.txt"))
    assert not (tmp_path / "a.vtt").exists() and swap == []
    # but JSON lines of documents can be had of everything
    assert run(tmp_path / "a.srt", "-o", tmp_path / "a.jsonl").code == 0
    documents = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert documents == [{"id": "1", "sentences": ["THE CAT"]}, {"id": "2", "sentences": ["THE DOG"]}]


def test_packed_output(run: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    (tmp_path / "a.md.gz").write_bytes(gzip.compress(b"# One\r\n"))
    assert run(tmp_path / "a.md.gz", "-o", tmp_path / "b.md.gz").code == 0
    assert gzip.decompress((tmp_path / "b.md.gz").read_bytes()) == b"# oNE\r\n"
    assert run(tmp_path / "a.md.gz").out == "# oNE\r\n"


# what has a translation already


def test_translations_are_kept(run: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    put(tmp_path, {"a.po": PO, "done.po": PO.replace('""', '"god"')})
    assert run(tmp_path / "a.po").out == PO.replace('""', '"THE DOG"')
    assert run(tmp_path / "a.po", "--again").out == PO.replace('""', '"THE DOG"').replace("tac eht", "THE CAT")
    assert len(swap) == 2
    ended = run(tmp_path / "done.po", "-o", tmp_path / "out.po")
    assert ended.code == 0 and "nothing to translate" in ended.err
    assert (tmp_path / "out.po").read_text() == (tmp_path / "done.po").read_text() and len(swap) == 2


def test_a_lost_placeholder_is_told(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def lose(model: Any, documents: list[Document], *_: Any, **__: Any) -> tuple[list[Document], list[list[Choice]]]:
        return [Document("1", ("weg",))], [[Choice((), {}, None)]]

    monkeypatch.setattr(commands_translate, "translate_and_explain", lose)
    put(tmp_path, {"a.po": 'msgid "copy %s"\nmsgstr ""\n'})
    ended = run(tmp_path / "a.po")
    assert (ended.code, ended.out) == (0, 'msgid "copy %s"\nmsgstr "weg %s"\n')
    assert ended.err == (
        f"dynctx: {tmp_path / 'a.po'}:1: the translation has lost '%s', which now stands at its end: 'weg'\n"
    )


@pytest.mark.parametrize(
    ("language", "text", "said"),
    [
        ("zh", "Hello", "a.txt: has no word of zh, which this model translates from; all is kept as it is"),
        ("zh", "Hello 你好", ""),
        ("en", "你好\n好\nHello", "a.txt: looks like Chinese or Japanese, but this model translates from en"),
        ("en", "你好\nHello", ""),
        ("", "你好", ""),
    ],
)
def test_a_file_in_another_language(
    language: str, text: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    commands_translate.check_script(plain.read(text, "a.txt"), language)
    assert capsys.readouterr().err == (f"dynctx: {said}\n" if said else "")


def test_the_default_gap_is_that_of_the_subtitles() -> None:
    for command in (cli.translate, cli.select):
        assert inspect.signature(command).parameters["scene_gap"].default == SCENE_GAP


# explaining


def test_each_sentence_has_its_place(run: Run, swap: list[list[Document]], tmp_path: Path) -> None:
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
    assert run(*(tmp_path / name for name in files), "-o", tmp_path / "out", "--explain", why).code == 0
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


def test_explain_several_files(run: Run, tmp_path: Path) -> None:
    put(tmp_path, {"a.txt": "the cat\nthe dog\n", "b.srt": SRT})
    why = tmp_path / "why.jsonl"
    assert run(tmp_path / "a.txt", tmp_path / "b.srt", "-o", tmp_path / "out", "--explain", why).code == 0
    records = [json.loads(line) for line in why.read_text().splitlines()]
    found = [(Path(r["file"]).name, r["document"], r["sentence"], r["text"]) for r in records]
    assert found == [
        ("a.txt", "1", 1, "the cat"),
        ("a.txt", "1", 2, "the dog"),
        ("b.srt", "1", 1, "the cat"),
        ("b.srt", "2", 1, "the dog"),
    ]
    assert all({"translation", "selected", "candidates"} <= record.keys() for record in records)


def test_select_reads_the_same_files(run: Run, tmp_path: Path) -> None:
    put(tmp_path, {"b.srt": SRT, "a.po": PO})
    records = [json.loads(line) for line in run(tmp_path / "b.srt", command="select").out.splitlines()]
    assert [(r["document"], r["text"]) for r in records] == [("1", "the cat"), ("2", "the dog")]
    assert "file" not in records[0] and "translation" not in records[0]
    assert len(run(tmp_path / "a.po", command="select").out.splitlines()) == 2


# what is said when it is done


def test_a_line_at_the_end(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def translate(model: Any, documents: Sequence[Document], *_: Any, **__: Any) -> Any:
        """The second sentence of a document has context, the third is kept."""
        choices = [Choice((), {}, None), Choice((1,), {}, None), Choice((), {}, None, kept=True)]
        return list(documents), [choices[: len(d.sentences)] for d in documents]

    monkeypatch.setattr(commands_translate, "translate_and_explain", translate)
    ticks = iter(range(10, 1000, 2))
    monkeypatch.setattr(commands_translate.time, "monotonic", lambda: float(next(ticks)))
    put(tmp_path, {"a.txt": "one\ntwo\nthree\n\nfour\n", "b.txt": "five\n", "c.po": PO})
    out = tmp_path / "new" / "out.txt"
    ended = run(tmp_path / "a.txt", "-o", out)
    assert ended == Ended(
        0,
        "",
        "dynctx: 3 sentences of 2 documents translated in 2.0 s, 1 with context, 1 kept as they are; "
        f"written to {out}\n",
    )
    ended = run(tmp_path / "a.txt", tmp_path / "b.txt", "-o", tmp_path / "folder")
    assert "4 sentences of 3 documents" in ended.err and ended.err.endswith(f"; written to {tmp_path}/folder/\n")
    ended = run(tmp_path / "c.po", "-o", tmp_path / "d.po")  # one of the two has its translation
    assert "dynctx: 1 sentence of 1 document translated in 2.0 s, 1 with context; written to" in ended.err
    assert run(tmp_path / "a.txt", "-o", out, "--quiet") == run(tmp_path / "a.txt", "-o", out, "-q") == Ended(0, "", "")
    assert run(tmp_path / "a.txt").err == ""  # a filter says nothing


def test_the_progress_is_that_of_all_files(
    run: Run, swap: list[list[Document]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    totals: list[tuple[int, bool]] = []

    class Bar(commands.bar):
        def __init__(self, total: int, quiet: bool = False) -> None:
            totals.append((total, quiet))
            super().__init__(total, quiet)

    monkeypatch.setattr(commands_translate, "bar", Bar)
    put(tmp_path, {"a.txt": "one\ntwo\n", "b.txt": "three\n"})
    run(tmp_path / "a.txt", tmp_path / "b.txt", "-o", tmp_path / "out")
    run(tmp_path / "a.txt", "-o", tmp_path / "x.txt", "-q")
    assert totals == [(3, False), (2, True)]


def test_a_folder_by_its_name(run: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    """FOLDER/ is a folder, also for one file, and also where it is not there yet."""
    put(tmp_path, {"a.txt": "one\n"})
    assert f"; written to {tmp_path}/x/y/a.txt\n" in run(tmp_path / "a.txt", "-o", f"{tmp_path}/x/y/").err
    assert held(tmp_path / "x") == {"y/a.txt": "ONE\n"}
    run(tmp_path / "a.txt", "-o", tmp_path / "z" / "b.txt", "--explain", tmp_path / "w" / "why.jsonl")
    assert held(tmp_path / "z") == {"b.txt": "ONE\n"} and (tmp_path / "w" / "why.jsonl").exists()


def test_what_cannot_be_written_shows_before_translating(run: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    put(tmp_path, {"a.txt": "one\n", "file": ""})
    for arguments in (["-o", tmp_path / "file" / "b.txt"], ["--explain", tmp_path / "file" / "why.jsonl"]):
        said = refused(run(tmp_path / "a.txt", *arguments))
        assert said == f"{arguments[1]}: cannot be written: {tmp_path / 'file'} is no folder that you may write to"
    assert swap == []
    (tmp_path / "link.txt").symlink_to(tmp_path / "file" / "b.txt")
    assert "cannot be written" in refused(run(tmp_path / "a.txt", "-o", tmp_path / "link.txt"))
    assert run(tmp_path / "a.txt", "-o", "/dev/null", "-q") == Ended(0, "", "")


def test_a_protected_file_is_not_replaced(
    run: Run, swap: list[list[Document]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path, {"a.txt": "one\n", "done.txt": "mine\n"})
    (tmp_path / "done.txt").chmod(0o444)
    # to root everything may be written: as others see it
    may = {os.R_OK: 0o400, os.W_OK: 0o200}
    monkeypatch.setattr(commands_translate.os, "access", lambda path, how: bool(os.stat(path).st_mode & may[how]))
    for option in ("-o", "--explain"):
        said = refused(run(tmp_path / "a.txt", option, tmp_path / "done.txt"))
        assert said.startswith(f"{tmp_path}/done.txt: cannot be written: it is protected")
    assert swap == [] and (tmp_path / "done.txt").read_text() == "mine\n"


def test_a_dash_is_standard_output(
    run: Run, swap: list[list[Document]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(put(tmp_path, {"a.txt": "one\n"}))
    assert run("a.txt", "-o", "-") == run("a.txt") == Ended(0, "ONE\n", "")
    assert run("a.txt", "-o", "-", command="select") == run("a.txt", command="select")
    assert refused(run("a.txt", "--explain", "-")).startswith("--explain needs the name of a file")
    assert held(tmp_path) == {"a.txt": "one\n"}


def test_an_explanation_overwrites_nothing(run: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    files = {"a.txt": "one\n", "b.txt": "two\n"}
    a, b = (put(tmp_path, files) / name for name in files)
    (tmp_path / "link").symlink_to(a)
    for place in (a, tmp_path / "link"):
        assert refused(run(a, "--explain", place)) == f"{a}: would be overwritten; write to another place"
        assert refused(run(a, "-o", place, command="select")) == f"{a}: would be overwritten; write to another place"
    assert f"{b}: would be overwritten" in refused(run(a, b, "-o", tmp_path / "out", "--explain", b))
    said = refused(run(a, "-o", tmp_path / "c.txt", "--explain", tmp_path / "c.txt"))
    assert said == f"{tmp_path}/c.txt: is both the translation and its explanation; name two files"
    (tmp_path / "folder").mkdir()
    for arguments in (["--explain", tmp_path / "folder"], ["-o", tmp_path / "folder"]):
        said = refused(run(a, *arguments, command="select" if "-o" in arguments else "translate"))
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
    run: Run, swap: list[list[Document]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str
) -> None:
    """Also through a translator that swaps upper and lower case; one that forgets them gets them back at the end."""
    (tmp_path / name).write_text(text)
    held = "{name}" if "{" in text else "http://example.org/abc"
    ended = run(tmp_path / name)
    assert (ended.code, ended.err) == (0, "") and held in ended.out and "HE" in ended.out, ended

    def forget(model: Any, documents: Sequence[Document], *_: Any, **__: Any) -> Any:
        found = [Document(d.id, tuple("gone" for _ in d.sentences)) for d in documents]
        return found, [[Choice((), {}, None)] * len(d.sentences) for d in documents]

    monkeypatch.setattr(commands_translate, "translate_and_explain", forget)
    ended = run(tmp_path / name)
    assert ended.code == 0 and f"gone {held}" in ended.out, ended
    assert f"{name}:" in ended.err and held in ended.err
