"""`dynctx prepare` over what an earlier call made, and what it warns of."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from preparing import message, prepare

from dynctx import prepare as preparing
from dynctx.config import DataConfig, ParallelFiles
from dynctx.documents import TextFile
from dynctx.errors import DynctxError
from dynctx.prepared import load_subwords, prepared_otherwise


def blank_pair(folder: Path, source: str, target: str) -> ParallelFiles:
    (folder / "bad.src").write_text(source)
    (folder / "bad.tgt").write_text(target)
    return ParallelFiles(TextFile(str(folder / "bad.src")), TextFile(str(folder / "bad.tgt")))


@pytest.mark.parametrize("split", ["train", "dev", "news"])
def test_sides_that_do_not_match(prepared: DataConfig, tmp_path: Path, split: str) -> None:
    """The message names both places, on one line, and what was prepared before stays as it was."""
    before = {path: path.read_bytes() for path in Path(prepared.folder).rglob("*") if path.is_file()}
    bad = blank_pair(tmp_path, "ab\n\na\nb\n", "xy\n\nx\n")
    changed = {"train": {"train": [bad]}, "dev": {"dev": bad}, "news": {"test": {"news": bad}}}
    text = message(dataclasses.replace(prepared, **changed[split]))  # type: ignore[arg-type]
    assert "\n" not in text
    assert f"document '2' has 2 sentences at {bad.source.path}:3 but 1 at {bad.target.path}:3" in text
    assert "SentencePiece" not in text and "vocabulary" not in text
    assert {path: path.read_bytes() for path in Path(prepared.folder).rglob("*") if path.is_file()} == before


def test_splits_of_an_earlier_call_are_gone(prepared: DataConfig) -> None:
    """They have the ids of another vocabulary. What somebody else put there stays."""
    folder = Path(prepared.folder)
    (folder / "mine.jsonl").write_text("{}\n")
    card = prepare(dataclasses.replace(prepared, dev=None, vocabulary=15))
    assert list(card["splits"]) == ["train", "news"]
    assert sorted(path.name for path in folder.iterdir()) == [
        *("card.json", "mine.jsonl", "news", "news.jsonl", "spm.model", "train")
    ]


def test_what_is_probably_not_meant(tmp_path: Path) -> None:
    """One long document, the same file twice, the wrong script, a vocabulary that cannot be had."""
    lines = [f"{a}{b}{c}" for a in "abcdef" for b in "abcdef" for c in "abcdef"]
    (tmp_path / "long").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "single").write_text("".join(f"{line}\n\n" for line in lines[:20]))
    long, single = (ParallelFiles(TextFile(str(tmp_path / n)), TextFile(str(tmp_path / n))) for n in ("long", "single"))
    said: list[str] = []
    config = DataConfig(
        folder=str(tmp_path / "data"), source_language="zh", target_language="en", train=[long], dev=single,
        vocabulary=500, byte_fallback=False, subwords="unigram", max_length=1,
    )  # fmt: skip
    preparing.prepare(config, say=said.append, threads=1)
    found = [text.removeprefix("warning: ") for text in said if text.startswith("warning: ")]
    size = len(load_subwords(config.folder)[0])
    assert "train is one document of 216 sentences; is a blank line missing between documents?" in found
    assert "every document of dev has one sentence: there is no context in it" in found
    assert "216 of 216 pairs are not trained on" in found
    assert size < 500 and f"the training data makes a vocabulary of {size} pieces, not of 500" in found
    assert {f"{tmp_path / name} is both source and target" for name in ("long", "single")} < set(found)
    assert "most lines of dev are in train as well: its scores will mean little" in found
    assert "most sources of dev have no letter of Chinese" in found
    assert not any("targets of dev" in text for text in found)


def test_what_is_read_is_not_written_over(prepared: DataConfig, tmp_path: Path) -> None:
    """A corpus in data.folder that has the name of what is written there."""
    for name in ("dev.jsonl", "spm.model"):
        corpus = tmp_path / "corpus"
        corpus.mkdir(exist_ok=True)
        own = corpus / name
        own.write_text('{"doc": 1, "a": "x", "b": "y"}\n')
        files = ParallelFiles(TextFile(str(own), column="a"), TextFile(str(own), column="b"))
        said = message(dataclasses.replace(prepared, folder=str(corpus), test={"news": files}))
        assert said == f"data.folder: {own} is read, and would be written over; choose another folder"
        assert own.read_text() == '{"doc": 1, "a": "x", "b": "y"}\n'


@pytest.mark.parametrize("name", ["card.json", "dev.jsonl", "spm.model", "train/notes.txt"])
def test_what_somebody_else_put_there_is_refused(name: str, prepared: DataConfig, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs" / name
    theirs.parent.mkdir(parents=True)
    theirs.write_text("{}")
    said = message(dataclasses.replace(prepared, folder=str(tmp_path / "theirs")))
    place = theirs.parent if "/" in name else theirs
    assert said == f"data.folder: {place} is there and was not made by 'prepare'; choose another folder"
    assert theirs.read_text() == "{}"


def test_a_folder_in_the_way_of_a_new_split_leaves_what_was_prepared(prepared: DataConfig) -> None:
    folder = Path(prepared.folder)
    (folder / "raw").mkdir()
    (folder / "raw" / "notes").write_text("x")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert prepared.dev is not None
    assert "raw is there and was not made" in message(dataclasses.replace(prepared, test={"raw": prepared.dev}))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_what_a_killed_call_left_is_no_obstacle(prepared: DataConfig) -> None:
    """Killed while putting things in place: no card, and a part of the rest."""
    folder = Path(prepared.folder)
    (folder / "card.json").rename(folder / ".unfinished")
    (folder / ".unfinished").unlink()
    (folder / ".unfinished").mkdir()
    shutil.rmtree(folder / "dev")
    shutil.rmtree(folder / "news")
    (folder / "dev.jsonl").unlink()
    (folder / "news.jsonl").unlink()
    assert list(prepare(prepared)["splits"]) == ["train", "dev", "news"]


def test_settings_that_have_changed_since_are_told(prepared: DataConfig) -> None:
    assert prepared_otherwise(prepared) == []
    now = dataclasses.replace(prepared, max_length=5, dev=None)
    assert prepared_otherwise(now) == [
        "data.dev has changed",
        f"data.max_length has changed ({prepared.max_length}, now 5)",
    ]
    (Path(prepared.folder) / "card.json").write_text("[")
    with pytest.raises(DynctxError, match=r"card\.json: damaged; run 'dynctx prepare' again"):
        prepared_otherwise(prepared)
