"""What is plainly not in a model's source language: known by its script, left as it is, and no one's context."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import client_of, post, refused
from starlette.testclient import TestClient
from tiny_models import prepared_folder, saved, tiny_model
from tiny_runs import Run

import dynctx
from dynctx.commands import test_model as score_model
from dynctx.documents import Document
from dynctx.languages import is_foreign
from dynctx.model_folder import Model
from dynctx.pipeline import Choice, first_candidates, select_documents, translate_and_explain
from dynctx.serve.batching import BatchSizes

pytest_plugins = ("command_line",)

LINES = ("狗 ran", "the cat sat", "42 :)", "it 下雨 again", "", "we saw 公园")
KEPT = (False, True, True, False, False, False)


@pytest.mark.parametrize(
    ("language", "own", "foreign"),
    [
        (
            "zh",
            ["你好", "OK 好", "㐀", "豈"],
            ["Hello", "42", "...", "😀", "https://a.b/c", "Привет", "ＯＫ", "かな", ""],
        ),
        ("zh_TW", ["你"], ["you"]),
        ("ja", ["かな", "ｶﾅ", "漢", "ラーメン"], ["kana", "-1", "한"]),
        ("ko", ["안녕", "韓國"], ["annyeong", "かな"]),
        ("ru", ["да", "ОК"], ["da", "OK", "好"]),
        ("ar", ["نعم"], ["naam", "כן"]),
        ("el", ["ναι"], ["nai", "5 µm"]),
        ("en", ["Hello", "你好", "42", ""], []),  # Latin script: nothing can be said
        ("", ["Hello", "你好", "42"], []),
        ("und", ["你好"], []),
    ],
)
def test_scripts(language: str, own: list[str], foreign: list[str]) -> None:
    assert [text for text in own if is_foreign(text, language)] == []
    assert [text for text in foreign if not is_foreign(text, language)] == []


@pytest.fixture(scope="module")
def chinese() -> Model:
    """It knows no Chinese, but it is told that this is what it reads."""
    model = tiny_model("tdnmt", scorer=True)
    data = dataclasses.replace(model.config.data, source_language="zh")
    return dataclasses.replace(model, config=dataclasses.replace(model.config, data=data))


@pytest.fixture(scope="module")
def folder(chinese: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("chinese") / "model", chinese)


def translated(model: Model, lines: tuple[str, ...], **more: bool) -> tuple[tuple[str, ...], list[Choice]]:
    (document,), (choices,) = translate_and_explain(model, [Document("x", lines)], **more)  # type: ignore[arg-type]
    return document.sentences, choices


def test_lines_of_another_script_are_kept(chinese: Model) -> None:
    texts, choices = translated(chinese, LINES, for_people=True)
    assert [choice.kept for choice in choices] == list(KEPT)
    assert [text == line for text, line in zip(texts, LINES)] == [False, True, True, False, True, False]
    assert choices[1] == choices[2] == Choice((), {}, None, kept=True)
    # of those before line 4 two are not for the model, nor are the empty line before line 6 and one more
    assert choices[3].candidates == (3,) and choices[5].candidates == (2, 5)
    assert choices[3].selected == (3,) and choices[5].selected == (2, 5)


def test_what_is_kept_is_nobodys_context(chinese: Model) -> None:
    """Whatever it says, the lines after it are translated the same."""
    lines = ("the cat sat", "we saw 公园")
    others = ("a dog ran in the park", "we saw 公园")
    assert translated(chinese, lines, for_people=True)[0][1] == translated(chinese, others, for_people=True)[0][1]
    assert translated(chinese, lines)[0][1] != translated(chinese, others)[0][1]  # it would be heard
    (choices,) = select_documents(chinese, [Document("x", lines)], for_people=True)
    assert choices == [Choice((), {}, None, kept=True), Choice((), {}, None)]


OWN = ("狗 ran", "it 下雨", "we saw 公园", "the 猫", "a 狗 sat", "猫 ran in 公园")
BELOW = tuple(line for own in OWN for line in (own, "the cat sat"))  # as in subtitles of two languages


def in_two_languages(distances: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(2 * distance for distance in distances)


def test_what_is_kept_takes_no_place_among_the_candidates(chinese: Model) -> None:
    """A line below each line, in another script: all the others are translated as if it were not there."""
    texts, choices = translated(chinese, OWN, for_people=True)
    both, told = translated(chinese, BELOW, for_people=True)
    assert both[::2] == texts and set(both[1::2]) == {"the cat sat"}
    assert [choice.selected for choice in told[::2]] == [in_two_languages(choice.selected) for choice in choices]
    assert choices[5].candidates == (1, 2, 3) and told[10].candidates == (2, 4, 6)
    assert [c.probabilities for c in told[::2]] == [{2 * d: p for d, p in c.probabilities.items()} for c in choices]


def test_first_candidates() -> None:
    assert first_candidates(BELOW[:9], 3, "zh") == [0, 0, 0, 0, 0, 0, 0, 2, 2]
    assert first_candidates(BELOW[:3], 3, "en") == [0, 0, 0]
    assert first_candidates(OWN[:3], 0, "zh") == [0, 1, 2]
    assert first_candidates(["one", "狗", "", " ", "猫", "狗"], 1, "zh") == [0, 1, 1, 1, 1, 4]


def test_empty_lines_take_no_place_among_the_candidates(chinese: Model) -> None:
    """All others are translated as if they were not there, and they come back empty; in a corpus they have a place."""
    spaced = tuple(line for own in OWN for line in (own, "", "\u3000"))
    texts, choices = translated(chinese, OWN, for_people=True)
    found, told = translated(chinese, spaced, for_people=True)
    assert found == tuple(line for text in texts for line in (text, "", ""))
    assert [c.selected for c in told[::3]] == [tuple(3 * d for d in c.selected) for c in choices]
    assert told[1::3] == told[2::3] == [Choice((), {}, None)] * len(OWN)
    assert translated(chinese, spaced)[1][3].candidates == (1, 2, 3)


def test_a_long_line_is_kept_without_a_word(chinese: Model) -> None:
    said: list[str] = []
    long = "the cat sat on the mat " * 100
    found, _ = translate_and_explain(chinese, [Document("x", (long,))], warn=said.append, for_people=True)
    assert (found[0].sentences, said) == ((long,), [])


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Well,well, no", "Well, well, no"),
        ("1,000 and A,B and x,1", "1,000 and A,B and x,1"),
        ("naïve,éclair", "naïve, éclair"),
    ],
)
def test_a_space_that_the_model_forgot(
    chinese: Model, monkeypatch: pytest.MonkeyPatch, written: str, read: str
) -> None:
    monkeypatch.setattr(type(chinese.target), "decode", lambda self, ids: [written] * len(ids))
    assert translated(chinese, ("狗",), for_people=True)[0] == (read,)
    assert translated(chinese, ("狗",))[0] == (written,)


def test_models_are_scored_on_all_lines(folder: Path, tmp_path: Path) -> None:
    """A test set may have lines in other scripts too, and scores must stay comparable."""
    pairs = [(Document("one", ("the cat sat", "狗")), Document("one", ("a dog", "the dog")))]
    score_model(folder, "news", prepared_folder(tmp_path / "data", pairs), tmp_path / "out.jsonl", None, None, "cpu")
    (first, _) = json.loads((tmp_path / "out.jsonl").read_text())["sentences"]
    assert first != "the cat sat"


def test_the_api_keeps_them(folder: Path) -> None:
    model = dynctx.load(folder, device="cpu")
    found = model.translate(list(LINES), explain=True)
    assert [translation.kept for translation in found] == list(KEPT)
    assert model.translate(list(LINES))[1:3] == list(LINES[1:3])
    assert [choice.kept for choice in model.select(list(LINES))] == list(KEPT)


@pytest.fixture(scope="module")
def client(chinese: Model) -> Iterator[TestClient]:
    with client_of(chinese) as client:
        yield client


def test_the_service_keeps_them(client: TestClient, chinese: Model) -> None:
    answer = post(client, "/v1/documents", sentences=list(LINES)).json()
    texts, choices = translated(chinese, LINES, for_people=True)
    assert [sentence["kept"] for sentence in answer["sentences"]] == list(KEPT)
    assert [sentence["translation"] for sentence in answer["sentences"]] == list(texts)
    assert [tuple(sentence["selected"]) for sentence in answer["sentences"]] == [c.selected for c in choices]
    text = post(client, q="\n".join(LINES), source="zh", target="en").json()["translatedText"]
    assert text.split("\n")[1:3] == list(LINES[1:3])


def test_the_service_reaches_over_them(chinese: Model) -> None:
    """However many sentences it does at a time."""
    texts, choices = translated(chinese, BELOW, for_people=True)
    with client_of(chinese, sizes=BatchSizes(2)) as client:
        found = post(client, "/v1/documents", sentences=list(BELOW)).json()["sentences"]
        assert [sentence["translation"] for sentence in found] == list(texts)
        assert [tuple(sentence["selected"]) for sentence in found] == [choice.selected for choice in choices]
        by_hand = {"sentences": list(BELOW), "numbers": [11], "selection": {"11": [2, 6]}}
        assert post(client, "/v1/documents", **by_hand).json()["sentences"][0]["selected"] == [2, 6]
        by_hand["selection"] = {"11": [7]}
        said = refused(post(client, "/v1/documents", **by_hand), 400)
        assert said == "selection of sentence 11: distance 7; it can have 1 to 6"


def test_files_keep_them(folder: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(line for line in LINES if line), encoding="utf-8")
    ended = run("translate", tmp_path / "in.txt", "-m", folder, "--explain", tmp_path / "why.jsonl")
    assert (ended.code, ended.out.split("\n")[1:3]) == (0, list(LINES[1:3]))
    records = [json.loads(line) for line in (tmp_path / "why.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [record.get("kept", False) for record in records] == [False, True, True, False, False]
    chosen = run("select", tmp_path / "in.txt", "-m", folder)
    assert ['"kept": true' in line for line in chosen.out.splitlines()] == [False, True, True, False, False]
