"""`dynctx translate` on real files: what is written where, what stays, and how it fails."""

from __future__ import annotations

import gzip
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from format_helpers import PO, SRT, held, put
from tiny_runs import Run, refused

from dynctx import cli, commands_translate
from dynctx.documents import Document
from dynctx.formats import SCENE_GAP, plain
from dynctx.model_folder import load_model
from dynctx.pipeline import Choice, translate_documents

pytest_plugins = ("tiny_fixtures", "command_line", "swapping")

# with the model itself


def test_subtitles_are_translated_in_their_documents(translating: Run, trained: Path, tmp_path: Path) -> None:
    put(tmp_path, {"in.srt": SRT})
    ended = translating(tmp_path / "in.srt")
    documents = [Document("1", ("the cat",)), Document("2", ("the dog",))]
    cat, dog = (d.sentences[0] for d in translate_documents(load_model(trained), documents))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == SRT.replace("the cat", cat).replace("the dog", dog)
    assert translating("-", stdin=SRT.encode()) == ended  # by its content


def test_the_pipe_can_be_told_its_format(translating: Run, swap: list[list[Document]]) -> None:
    assert translating("-", "--format", "md", stdin=b"# Title\n").out == "# tITLE\n"
    assert translating("-", stdin=b"# Title\n").out == "# tITLE\n"  # as text, the sign is a part of the sentence
    assert [documents[0].sentences for documents in swap] == [("Title",), ("# Title",)]


def test_options_reach_the_reader(translating: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    put(
        tmp_path,
        {"a.srt": SRT, "a.txt": "One is here. Two\nis there.\n", "a.jsonl": '{"doc": 1, "t": "a", "n": "b"}\n'},
    )
    translating(tmp_path / "a.srt", "--scene-gap", "30")
    translating(tmp_path / "a.txt", "--split")
    translating(tmp_path / "a.jsonl", "--column", "n")
    assert [[d.sentences for d in documents] for documents in swap] == [
        [("the cat", "the dog")],
        [("One is here.", "Two is there.")],
        [("b",)],
    ]
    assert "scene gap must be 0 or more" in refused(translating(tmp_path / "a.srt", "--scene-gap", "-1"))


# where it goes


def test_a_folder(translating: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    source = put(
        tmp_path / "in",
        {"a.md": "# One\n", "sub/b.srt": SRT, "sub/c.jsonl": '{"id": "x", "sentences": ["two"], "k": 1}\n'}
        | {".hidden.md": "no", "d.png": "no", "out/old.md": "# old\n", "empty.txt": ""},
    )
    ended = translating(source, "-o", source / "out", "-q")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == f"dynctx: {source}: 2 files left out, empty or of another format\n"
    assert held(source / "out") == {
        "a.md": "# oNE\n",
        "sub/b.srt": SRT.replace("the cat", "THE CAT").replace("the dog", "THE DOG"),
        "sub/c.jsonl": '{"id": "x", "sentences": ["TWO"], "k": 1}\n',
        "old.md": "# old\n",
    }
    assert len(swap) == 1  # all of it in one go


def test_a_broken_file_in_a_folder_stops_all(translating: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    source = put(tmp_path / "in", {"a.md": "# One\n", "b.srt": "no subtitle\n"})
    said = refused(translating(source, "-o", tmp_path / "out"))
    assert said.startswith(f"{source / 'b.srt'}:1: holds no subtitle")
    assert not (tmp_path / "out").exists() and swap == []


def test_several_files(translating: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    put(tmp_path, {"a.md": "# One\n", "b.srt": SRT, "x/a.md": "# Two\n"})
    a, b, other = tmp_path / "a.md", tmp_path / "b.srt", tmp_path / "x" / "a.md"
    assert translating(a, b, "-o", tmp_path / "out").code == 0  # a name without a suffix is a folder's
    assert sorted(held(tmp_path / "out")) == ["a.md", "b.srt"]
    assert "cannot be joined to other files; write them to a folder" in refused(translating(a, b))
    assert "would both be written to" in refused(translating(a, other, "-o", tmp_path / "out"))
    assert "would be overwritten" in refused(translating(a, b, "-o", tmp_path))
    before = a.read_bytes()
    assert "would be overwritten" in refused(translating(a, "-o", a)) and a.read_bytes() == before
    assert "has no name in a folder" in refused(translating("-", a, "-o", tmp_path / "out"))
    assert "is a folder; say where to write" in refused(translating(tmp_path / "x"))
    assert f"{a}: is a file" in refused(translating(tmp_path / "x", "-o", a))
    (tmp_path / "empty").mkdir()
    assert "holds no file to translate" in refused(translating(tmp_path / "empty", "-o", tmp_path / "out"))


def test_one_file_into_a_folder_that_is_there(translating: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    put(tmp_path, {"a.md": "# One\n", "out/b.md": "# Two\n"})
    assert translating(tmp_path / "a.md", "-o", tmp_path / "out").code == 0
    assert held(tmp_path / "out") == {"a.md": "# oNE\n", "b.md": "# Two\n"}


def test_a_format_is_not_turned_into_another(translating: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    put(tmp_path, {"a.srt": SRT})
    said = refused(translating(tmp_path / "a.srt", "-o", tmp_path / "a.vtt"))
    assert said == f"{tmp_path / 'a.vtt'}: {tmp_path / 'a.srt'} is srt; name the output .srt"
    assert "name the output .srt" in refused(translating(tmp_path / "a.srt", "-o", tmp_path / "a.txt"))
    assert not (tmp_path / "a.vtt").exists() and swap == []
    # but JSON lines of documents can be had of everything
    assert translating(tmp_path / "a.srt", "-o", tmp_path / "a.jsonl").code == 0
    documents = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert documents == [{"id": "1", "sentences": ["THE CAT"]}, {"id": "2", "sentences": ["THE DOG"]}]


def test_packed_output(translating: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    (tmp_path / "a.md.gz").write_bytes(gzip.compress(b"# One\r\n"))
    assert translating(tmp_path / "a.md.gz", "-o", tmp_path / "b.md.gz").code == 0
    assert gzip.decompress((tmp_path / "b.md.gz").read_bytes()) == b"# oNE\r\n"
    assert translating(tmp_path / "a.md.gz").out == "# oNE\r\n"


# what has a translation already


def test_translations_are_kept(translating: Run, swap: list[list[Document]], tmp_path: Path) -> None:
    put(tmp_path, {"a.po": PO, "done.po": PO.replace('""', '"god"')})
    assert translating(tmp_path / "a.po").out == PO.replace('""', '"THE DOG"')
    assert translating(tmp_path / "a.po", "--again").out == PO.replace('""', '"THE DOG"').replace("tac eht", "THE CAT")
    assert len(swap) == 2
    ended = translating(tmp_path / "done.po", "-o", tmp_path / "out.po")
    assert ended.code == 0 and "nothing to translate" in ended.err
    assert (tmp_path / "out.po").read_text() == (tmp_path / "done.po").read_text() and len(swap) == 2


def test_a_lost_placeholder_is_told(translating: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def lose(model: Any, documents: list[Document], *_: Any, **__: Any) -> tuple[list[Document], list[list[Choice]]]:
        return [Document("1", ("weg",))], [[Choice((), {}, None)]]

    monkeypatch.setattr(commands_translate, "translate_and_explain", lose)
    put(tmp_path, {"a.po": 'msgid "copy %s"\nmsgstr ""\n'})
    ended = translating(tmp_path / "a.po")
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
