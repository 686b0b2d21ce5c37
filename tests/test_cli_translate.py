"""`dynctx translate` from the command line, with the tiny model: lines kept, options, what is refused."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import Ended, Run, refused

from dynctx import commands_translate
from dynctx.documents import Document
from dynctx.files import atomic_write
from dynctx.model_folder import load_model
from dynctx.pipeline import Choice, translate_documents

pytest_plugins = ("tiny_fixtures", "command_line")

TWO = "the cat sees the dog\n\nthe dog sees\nbig red house\n"  # two documents


# translate


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "in.txt"
    file.write_text(TWO)
    return file


def test_translate_keeps_lines(run: Run, trained: Path, text: Path, tmp_path: Path) -> None:
    ended = run("translate", text, "-m", trained)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.split("\n")
    assert len(lines) == 5 and [bool(line) for line in lines] == [True, False, True, True, False]
    model = load_model(trained)
    documents = [Document("1", ("the cat sees the dog",)), Document("2", ("the dog sees", "big red house"))]
    expected = [sentence for d in translate_documents(model, documents) for sentence in d.sentences]
    assert [line for line in lines if line] == expected
    assert run("translate", "-", "-m", trained, stdin=TWO.encode()) == ended
    output = tmp_path / "deep" / "out.txt"
    assert run("translate", text, "-m", trained, "-q", "-o", output) == Ended(0, "", "")
    assert output.read_text() == ended.out


def test_translate_keeps_every_blank_line(run: Run, trained: Path) -> None:
    ended = run("translate", "-", "-m", trained, stdin=b"\n\nthe cat sees the dog\r\n \t\n\nbig red house\n\n")
    lines = ended.out.split("\n")
    assert [bool(line.strip()) for line in lines] == [False, False, True, False, False, True, False, False]
    assert lines[2].endswith("\r") and lines[3] == " \t"  # nothing but the text changes


def test_translate_several_files(run: Run, trained: Path, text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("the big dog sees the cat")  # no line end
    both = run("translate", text, other, "-m", trained).out
    alone = [run("translate", file, "-m", trained).out for file in (text, other)]
    assert both == alone[0] + "\n" + alone[1]


def test_translate_to_jsonl_and_from_it(run: Run, trained: Path, text: Path, tmp_path: Path) -> None:
    plain = run("translate", text, "-m", trained).out
    kept = tmp_path / "out.jsonl"
    assert run("translate", text, "-m", trained, "-o", kept).code == 0
    documents = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [d["id"] for d in documents] == ["1", "2"]
    assert "\n\n".join("\n".join(d["sentences"]) for d in documents) + "\n" == plain
    source = b'{"id": "a", "sentences": ["the cat sees the dog"]}\n'
    source += b'{"id": "b", "sentences": ["the dog sees", "big red house"]}\n'
    assert run("translate", "-", "-m", trained, stdin=source).out == plain


def test_empty_translations_keep_their_line(
    run: Run, trained: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(model: Any, documents: list[Document], *_: Any, **__: Any) -> tuple[list[Document], list[list[Choice]]]:
        found = [["A\n B ", ""], ["C"]] if len(documents[0].sentences) == 2 else [["A"], ["", "C"]]
        translated = [Document(d.id, tuple(sentences)) for d, sentences in zip(documents, found)]
        return translated, [[Choice((), {}, None)] * len(d.sentences) for d in documents]

    monkeypatch.setattr(commands_translate, "translate_and_explain", nothing)
    ended = run("translate", text, "-m", trained)
    assert (ended.code, ended.out) == (0, "A\n\n\nC\n")
    assert ended.err.startswith("dynctx: 1 translations are empty lines") and ".jsonl" in ended.err
    source = b'{"id": "a", "sentences": ["x", ""]}\n{"id": "b", "sentences": ["y"]}\n'
    assert run("translate", "-", "-m", trained, stdin=source).out == "A B\n\n\nC\n"
    kept = tmp_path / "out.jsonl"
    assert run("translate", text, "-m", trained, "-q", "-o", kept) == Ended(0, "", "")
    assert json.loads(kept.read_text().splitlines()[1])["sentences"] == ["", "C"]


def test_an_empty_sentence_stays_empty(run: Run, trained: Path) -> None:
    ended = run("translate", "-", "-m", trained, stdin=b"<d>\nthe cat sees the dog\n\nbig red house\n<d>\nred\n")
    assert [bool(line) for line in ended.out.split("\n")[:4]] == [True, False, True, False]


def test_translate_refuses_what_it_cannot_read(run: Run, trained: Path, text: Path, tmp_path: Path) -> None:
    broken, output = tmp_path / "broken.txt", tmp_path / "out.txt"
    broken.write_bytes(b"good\nb\xe4d\n")
    said = refused(run("translate", text, broken, "-m", trained, "-o", output))
    assert said.startswith(f"{broken}:2: not UTF-8: byte 0xe4")
    assert not output.exists()
    assert "no such file" in refused(run("translate", tmp_path / "none.txt", "-m", trained))
    assert "holds no sentence" in refused(run("translate", "-", "-m", trained, stdin=b""))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--beam", "0"], "beam must be at least 1, not 0"),
        (["--batch", "-1"], "batch_sentences must be at least 1, not -1"),
        (["--sample", "--temperature", "0"], "temperature must be at least 0.001, not 0"),
        (["--sample", "--temperature", "nan"], "temperature must be at least 0.001, not nan"),
        (["--sample", "--seed", str(2**64)], f"the seed must lie in 0 to {2**63 - 1}, not {2**64}"),
        (["--device", "tpu"], "device 'tpu': expected auto, cpu or cuda"),
    ],
)
def test_translate_refuses_wrong_options(options: list[str], said: str, run: Run, trained: Path, text: Path) -> None:
    assert refused(run("translate", text, "-m", trained, *options)) == said


@pytest.mark.parametrize("file", ["model.safetensors", "spm.model", "config.yaml"])
def test_a_damaged_model(file: str, run: Run, trained: Path, text: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(trained / "model", tmp_path / "model"))
    (folder / file).write_bytes((folder / file).read_bytes()[:-7] + b"\xff")
    output = tmp_path / "out.txt"
    said = refused(run("translate", text, "-m", folder, "-o", output))
    assert str(folder / file) in said
    assert not output.exists()


def test_an_output_that_cannot_be_written(run: Run, trained: Path, text: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("before\n")
    with pytest.MonkeyPatch.context() as patch:

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(os, "fsync", full)
        said = refused(run("translate", text, "-m", trained, "-o", kept))
    assert said.startswith(f"{kept}: cannot be written: No space left on device")
    assert kept.read_text() == "before\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.txt", "kept.txt"]
    with atomic_write(kept) as file:  # and the way is free again
        file.write("after\n")


def test_translate_options_reach_the_decoder(run: Run, trained: Path, text: Path) -> None:
    samples = [run("translate", text, "-m", trained, "--sample", "--seed", seed).out for seed in ("1", "1", "2")]
    assert samples[0] == samples[1] != samples[2]
    greedy = run("translate", text, "-m", trained, "--beam", "1", "--batch", "1")
    assert greedy.code == 0 and greedy.out == run("translate", text, "-m", trained, "--beam", "1").out
    assert run("translate", text, "-m", trained, "--int8").out.count("\n") == 4


# evaluate, test, info, bench
