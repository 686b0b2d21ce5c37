"""examples/two_conversations.py: two documents laid into each other, and which lines are whose."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dynctx.documents import Document, read_parallel, write_documents

SCRIPT = Path(__file__).parent.parent / "examples" / "two_conversations.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("two_conversations", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_own_lines_by_hand(script: ModuleType) -> None:
    # A B A A B: the first of each has none; the third line has the first, two back, and so on
    assert script.own_lines([0, 1, 0, 0, 1]) == [[], [], [2], [1, 3], [3]]
    assert script.own_lines([0, 1, 0, 0, 1], scope=2) == [[], [], [2], [1], []]


def test_values_by_hand(script: ModuleType) -> None:
    found = script.values([0, 1, 0, 0], scope=2)
    assert found == [{"none": 0}, {"none": 0, "1": -1}, {"none": 0, "1": -1, "2": 1}, {"none": 0, "1": 1, "2": -1}]


def test_every_order_is_as_likely(script: ModuleType) -> None:
    rng, counts = random.Random(1), dict[str, int]()
    for _ in range(6000):
        drawn = "".join(map(str, script.turns((2, 2), rng)))
        counts[drawn] = counts.get(drawn, 0) + 1
    assert len(counts) == 6 and all(abs(count - 1000) < 120 for count in counts.values())


def test_files(tmp_path: Path) -> None:
    """Both sides are mixed alike, each document keeps its order, and the first half is paired with the second."""
    for side in ("zh", "en"):
        documents = [Document(str(d), tuple(f"{side} {d} {s}" for s in range(5 + d))) for d in range(5)]
        write_documents(documents, tmp_path / f"a.{side}")
    command = [sys.executable, SCRIPT, tmp_path / "a.zh", tmp_path / "a.en", "-o", tmp_path / "out" / "mixed"]
    ended = subprocess.run([*command, "--documents", "4"], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("26 lines in 2 documents; ")
    pairs = list(read_parallel(tmp_path / "out" / "mixed.source", tmp_path / "out" / "mixed.target"))
    own = [json.loads(line)["selected"] for line in (tmp_path / "out" / "mixed.own.jsonl").read_text().splitlines()]
    assert [{line.split()[1] for line in source.sentences} for source, _ in pairs] == [{"0", "2"}, {"1", "3"}]
    numbers = iter(own)
    for source, target in pairs:
        lines = [line.split()[1:] for line in source.sentences]
        assert [line.split()[1:] for line in target.sentences] == lines
        for document in {d for d, _ in lines}:
            assert [int(s) for d, s in lines if d == document] == list(range(5 + int(document)))
        for place, (document, _) in enumerate(lines):
            distances = [k for k in range(1, min(6, place) + 1) if lines[place - k][0] == document]
            assert next(numbers) == distances


def test_quoting_another_corpus(tmp_path: Path) -> None:
    """Every document keeps its lines and its order, with the next lines of the other corpus among them: so many that
    they have their share. What runs out is told of, and nothing is written."""
    for side in ("zh", "en"):
        documents = [Document(str(d), tuple(f"{side} {d} {s}" for s in range(6))) for d in range(3)]
        write_documents(documents, tmp_path / f"a.{side}")
        talks = [Document(str(d), tuple(f"{side} talk {s}" for s in range(4 * d, 4 * d + 4))) for d in range(2)]
        write_documents(talks, tmp_path / f"b.{side}")
    command = [sys.executable, SCRIPT, tmp_path / "a.zh", tmp_path / "a.en", "-o", tmp_path / "out" / "quoting"]
    command += ["--quoting", tmp_path / "b.zh", tmp_path / "b.en"]
    ended = subprocess.run([*command, "--documents", "2"], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("16 lines in 2 documents; ")  # 6 and 2 quoted, twice
    pairs = list(read_parallel(tmp_path / "out" / "quoting.source", tmp_path / "out" / "quoting.target"))
    whose = [text.splitlines() for text in (tmp_path / "out" / "quoting.whose").read_text().split("\n\n")]
    for number, (source, target) in enumerate(pairs):
        lines = [line.split()[1:] for line in source.sentences]
        assert [line.split()[1:] for line in target.sentences] == lines
        assert [int(s) for d, s in lines if d == "talk"] == [2 * number, 2 * number + 1]
        assert [int(s) for d, s in lines if d != "talk"] == list(range(6))
        assert whose[number] == ["1" if d == "talk" else "0" for d, _ in lines]
    # three documents with half of the stream quoted want 18 lines, and there are 8
    command[5] = tmp_path / "other" / "quoting"
    failed = subprocess.run([*command, "--share", "0.5"], capture_output=True, text=True)
    assert failed.returncode == 1 and not (tmp_path / "other").exists()
    assert failed.stderr == (
        "two_conversations: the other corpus has too few lines: they are used up after 1 documents\n"
    )


def test_the_lines_of_one_conversation(tmp_path: Path) -> None:
    (tmp_path / "test.whose").write_text("0\n1\n0\n\n1\n0\n")
    (tmp_path / "test.target").write_text("a\nb\nc\n\nd\ne\n")
    rows = {"full 6 / 1": [["A", "B", ""], ["D", "E"]], "mine, seed 2 / 1": [["1", "2", "3"], ["4", "5"]]}
    (tmp_path / "table.translations.json").write_text(json.dumps({"rows": rows}))
    command = [sys.executable, SCRIPT.with_name("one_conversation.py"), tmp_path / "table.translations.json"]
    subprocess.run([*command, tmp_path / "test", "0", "-o", tmp_path / "out"], check=True)
    found = {
        place.stem: [json.loads(line)["sentences"] for line in place.read_text().splitlines()]
        for place in (tmp_path / "out").iterdir()
    }
    expected = [["a", "c"], ["e"]]
    assert found == {"full-6": [["A", ""], ["E"]], "mine-seed-2": [["1", "3"], ["5"]], "reference": expected}


@pytest.mark.parametrize(
    "which, expected", [("2", [["c", "d"]]), ("0,2", [["a"], ["c", "d"]]), ("1", [["b"]]), ("0,1", [["a", "b"]])]
)
def test_documents_without_a_line_of_it_are_left_out(tmp_path: Path, which: str, expected: list[list[str]]) -> None:
    (tmp_path / "test.whose").write_text("0\n1\n\n2\n2\n")
    (tmp_path / "test.target").write_text("a\nb\n\nc\nd\n")
    (tmp_path / "table.translations.json").write_text(json.dumps({"rows": {}}))
    command = [sys.executable, SCRIPT.with_name("one_conversation.py"), tmp_path / "table.translations.json"]
    subprocess.run([*command, tmp_path / "test", which, "-o", tmp_path / "out"], check=True)
    lines = (tmp_path / "out" / "reference.jsonl").read_text().splitlines()
    assert [json.loads(line)["sentences"] for line in lines] == expected
