"""Several processes translate what one would, each a share of it, and only the first writes and speaks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import PAIRS, prepared_folder, tiny_model
from tiny_runs import Warm, refused, run_two, start_two

from dynctx.model_folder import save_model
from dynctx.processes import ALONE, Processes

pytest_plugins = ("tiny_fixtures",)

TEXT = "we saw a dog\nthe cat sat\nit rains today\n\na small house\na dog ran\n\nthe park\n"


def shares(sizes: list[int], count: int, kinds: list[int] | None = None) -> list[list[int]]:
    given = np.array(sizes, np.int64), None if kinds is None else np.array(kinds, np.int64)
    return [Processes(rank, count).share(*given).tolist() for rank in range(count)]


def test_the_largest_first_each_to_whoever_has_least() -> None:
    # 5 to the first, 4 to the second, 2 to the second (4 < 5), 1 to the first (5 < 6)
    assert shares([5, 1, 4, 2], 2) == [[0, 1], [2, 3]]
    assert shares([5, 1, 4, 2], 1) == [[0, 1, 2, 3]]
    assert shares([3], 3) == [[0], [], []]
    assert shares([], 2) == [[], []]


def test_what_belongs_together_stays_together() -> None:
    # of kinds 7, 9 and 3 there are 6, 4 and 2: 6 to the first, 4 and 2 to the second
    assert shares([5, 1, 4, 2], 2, [7, 7, 9, 3]) == [[0, 1], [2, 3]]
    assert shares([1, 5, 1, 1], 2, [7, 9, 7, 7]) == [[1], [0, 2, 3]]


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 5))
def test_shares_are_everything_once_and_about_as_large(sizes: list[int], count: int) -> None:
    found = shares(sizes, count)
    assert sorted(place for share in found for place in share) == list(range(len(sizes)))
    loads = [sum(sizes[place] for place in share) for share in found]
    assert max(loads) - min(loads) <= max(sizes, default=0)


def test_alone() -> None:
    assert ALONE.leads and not Processes(1, 2).leads
    assert ALONE.gathered("own") == ["own"]


@pytest.mark.parametrize("kind", ["concat", "cadec"])
def test_two_translate_what_one_does(kind: str, warm: Warm, tmp_path: Path) -> None:
    """CADec reads its own translations: a document cannot be torn apart there."""
    save_model(tmp_path / "model", tiny_model(kind, scorer=True, selector="probability-first"))
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    given = ["translate", tmp_path / "text.txt", "--model", tmp_path / "model", "--device", "cpu"]
    one, two = ([*given, "-o", tmp_path / f"{n}.txt", "--explain", tmp_path / f"{n}.jsonl"] for n in ("one", "two"))
    assert warm.run(*one).code == 0
    first, second = run_two(warm, *two)
    assert "6 sentences of 3 documents translated" in first.err and second.err == ""
    for suffix in ("txt", "jsonl"):
        assert (tmp_path / f"two.{suffix}").read_bytes() == (tmp_path / f"one.{suffix}").read_bytes()
    explained = (tmp_path / "one.jsonl").read_text(encoding="utf-8").splitlines()
    assert any(json.loads(line)["selected"] for line in explained)
    assert len(set((tmp_path / "one.txt").read_text(encoding="utf-8").split("\n"))) > 3


def test_two_score_what_one_does(warm: Warm, tmp_path: Path) -> None:
    save_model(tmp_path / "model", tiny_model("han", selector="previous 2"))
    data = prepared_folder(tmp_path / "data")
    given = ["test", tmp_path / "model", "news", "--data", data, "--device", "cpu", "-o"]
    alone = warm.run(*given, tmp_path / "one.jsonl")
    first, second = run_two(warm, *given, tmp_path / "two.jsonl")
    assert alone.code == 0 and first.out == alone.out and second.out == ""
    assert json.loads(first.out)["sentences"] == sum(len(source.sentences) for source, _ in PAIRS)
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()


def test_processes_that_nobody_started(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    lost = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "", "MASTER_PORT": ""}
    ended = warm.start("translate", tmp_path / "text.txt", environment=lost).wait()
    assert "WORLD_SIZE is 2" in refused(ended) and "start them with torchrun" in ended.err


def test_standard_input_is_nobodys_share(warm: Warm, tmp_path: Path) -> None:
    save_model(tmp_path / "model", tiny_model())
    ended = [process.wait() for process in start_two(warm, "translate", "-", "--model", tmp_path / "model")]
    assert [process.code for process in ended] == [2, 2]
    assert "several processes cannot share standard input" in ended[0].err
