"""`dynctx reproduce`: runs in their order, rows kept, and a call that was stopped goes on."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from small_tables import FEW, TABLE, write_table
from tiny_runs import changed, train_here

from dynctx import training
from dynctx.commands import test_model as score_model
from dynctx.errors import DynctxError
from dynctx.evaluation.bleu import corpus_bleu
from dynctx.model_folder import load_model, read_about
from dynctx.prepared import read_held_out
from dynctx.reproduce import Reproduction, load_table, reproduce

pytest_plugins = ("tiny_fixtures",)


def test_a_table_from_nothing_and_again(tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write_table(tmp_path, tiny_config)
    assert reproduce(table, tmp_path / "out" / "table", 0, scoring=False)
    page = (tmp_path / "out" / "table.md").read_text()
    assert page.count("\n| ") == 1 and "BLEU" not in page  # a head, and no row yet
    shutil.move(tmp_path / "runs", tmp_path / "elsewhere")  # what is left to do needs translations only
    assert reproduce(table, tmp_path / "out" / "table", 0)
    shutil.move(tmp_path / "elsewhere", tmp_path / "runs")
    content = json.loads((tmp_path / "out" / "table.json").read_text())
    assert list(content["rows"]) == ["SentNmt / 1", "TDNMT full / 1", "TDNMT labels / 1"]
    pairs = read_held_out(changed(tiny_config, tmp_path).data.folder, "news")
    references = [sentence for _, target in pairs for sentence in target.sentences]
    said = json.loads((tmp_path / "out" / "table.translations.json").read_text())["rows"]
    for key, row in content["rows"].items():
        lines = [sentence for document in said[key] for sentence in document]
        assert row["scores"]["BLEU"] == round(corpus_bleu(lines, [references], language="de").value, 2)
    full, labels = content["rows"]["TDNMT full / 1"], content["rows"]["TDNMT labels / 1"]
    assert [a["row"] for a in full["against"]] == ["SentNmt"]
    assert [a["row"] for a in labels["against"]] == ["TDNMT full", "SentNmt"]
    assert content["rows"]["SentNmt / 1"]["against"] == []
    assert labels["selector"] == "probability-first"
    # documents of six sentences, scope 2: 0 + 1 + 2 + 2 + 2 + 2 of 6
    assert full["selected"] == 1.5 and full["empty"] == round(1 / 6, 3)
    assert {row["model"]["run_updates"] for row in content["rows"].values()} == {6}
    page = (tmp_path / "out" / "table.md").read_text()
    assert page.count("\n| ") == 4 and "| 18.67 |" in page and f"dynctx reproduce {table}" in page
    assert load_model(tmp_path / "runs" / "seed1" / "scorer").scorer is not None

    def never(*_: Any) -> None:
        raise AssertionError("nothing was left to do")

    monkeypatch.setattr(training, "run", never)
    before = (tmp_path / "out" / "table.json").read_bytes()
    assert reproduce(table, tmp_path / "out" / "table", 0)
    assert (tmp_path / "out" / "table.json").read_bytes() == before


def test_rows_of_several_seeds_have_means(tiny_config: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path, tiny_config, rows=TABLE["rows"][:1], seeds=[1, 2])
    assert reproduce(table, tmp_path / "table", 0)
    content = json.loads((tmp_path / "table.json").read_text())
    one, two = (content["rows"][f"SentNmt / {seed}"]["scores"]["chrF"] for seed in (1, 2))
    assert content["means"]["SentNmt"]["scores"]["chrF"] == {
        **{"mean": pytest.approx((one + two) / 2, abs=1e-3), "lowest": min(one, two), "highest": max(one, two)}
    }
    assert (tmp_path / "table.md").read_text().count("\n| SentNmt | ") == 3
    (tmp_path / "table.md").unlink()
    assert reproduce(table, tmp_path / "table", 0)  # means are read over, not taken for a row
    assert json.loads((tmp_path / "table.json").read_text()) == content


def test_all_that_a_run_builds_on_has_its_seed(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {"a": {}, "b": {"init": "a"}, "c": {"init": "b", "labels": "a"}}
    table = Reproduction(write_table(tmp_path, tiny_config, runs=runs, rows=[]), tmp_path / "out", 0, "")
    config, place = table.config("c", 3), tmp_path / "runs" / "seed3"
    assert config.seed == 3 and Path(config.training.output) == place / "c"
    assert (Path(config.training.init), Path(config.labels.model)) == (place / "b", place / "a")
    assert Path(config.labels.folder) == place / "c-labels"
    table.table.settings.append("labels.folder=shared")  # one for all
    assert table.config("c", 3).labels.folder == "shared"
    trained: list[str] = []
    monkeypatch.setattr(training, "run", lambda config, deadline: trained.append(config.training.output) or {})
    table.ensure("b", 3)
    assert trained == [str(place / "a"), str(place / "b")]


def test_a_model_brought_from_another_machine_is_used(
    tiny_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "runs" / "seed1" / "sentence"
    train_here(tiny_config, place, *FEW, "seed=1", "model.scope=2")
    for left in (place / "state").iterdir():
        left.unlink() if left.is_file() else shutil.rmtree(left)
    (place / "state").rmdir()
    table = write_table(tmp_path, tiny_config, rows=TABLE["rows"][:1])
    assert reproduce(table, tmp_path / "table", 0)
    assert not (place / "state").exists() and "another config" not in capsys.readouterr().out
    shutil.rmtree(place)
    train_here(tiny_config, place, *FEW, "seed=1", "model.scope=2", "model.dropout=0.3")
    shutil.rmtree(place / "state")
    assert reproduce(table, tmp_path / "other", 0)  # it may have been trained further since, and is told of
    assert "made with another config: model.dropout was 0.3 and is now 0.1" in capsys.readouterr().out


def test_a_model_that_is_there_already_is_scored_and_built_on(tiny_config: Path, tmp_path: Path) -> None:
    """It stays as it is, whatever the table's settings, and is the same for every seed."""
    train_here(tiny_config, tmp_path / "known", *FEW, "model.scope=2", "model.dropout=0.3")
    before = {file.name: file.read_bytes() for file in (tmp_path / "known" / "model").iterdir()}
    shutil.copytree(tmp_path / "known" / "model", tmp_path / "shared")
    runs = {"known": {"model": str(tmp_path / "shared")}, "on": {"init": "known", "settings": ["model.kind=concat"]}}
    rows = [{"name": "as it is", "run": "known"}, {"name": "concat", "run": "on", "control": "as it is"}]
    table = write_table(tmp_path, tiny_config, runs=runs, rows=rows, seeds=[1, 2])
    assert reproduce(table, tmp_path / "table", 0)
    assert {file.name: file.read_bytes() for file in (tmp_path / "shared").iterdir()} == before
    found = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert found["as it is / 1"]["scores"] == found["as it is / 2"]["scores"]
    assert found["as it is / 1"]["run"] == str(tmp_path / "shared") and found["concat / 2"]["run"] == "on"
    assert [run.name for run in (tmp_path / "runs" / "seed2").iterdir()] == ["on"]
    began = read_about(tmp_path / "runs" / "seed2" / "on" / "model")["init"]
    assert began == read_about(tmp_path / "shared")["weights"]
    other = {"model": str(tmp_path / "known" / "model")}
    again = write_table(tmp_path, tiny_config, runs={**runs, "known": other}, rows=rows, seeds=[1, 2])
    with pytest.raises(DynctxError, match=r"row 'as it is', seed 1, was made with run '.*shared'"):
        reproduce(again, tmp_path / "table", 0)


def test_a_part_of_the_rows(tiny_config: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path, tiny_config)
    assert reproduce(table, tmp_path / "table", 0, only=("Sent*",))
    assert list(json.loads((tmp_path / "table.json").read_text())["rows"]) == ["SentNmt / 1"]
    assert [run.name for run in (tmp_path / "runs" / "seed1").iterdir()] == ["sentence"]
    assert reproduce(table, tmp_path / "table", 0, only=("SentNmt", "*full"))
    assert list(json.loads((tmp_path / "table.json").read_text())["rows"]) == ["SentNmt / 1", "TDNMT full / 1"]
    with pytest.raises(DynctxError, match="no row has a name like 'HAN'"):
        reproduce(table, tmp_path / "table", 0, only=("SentNmt", "HAN"))


def test_a_part_of_the_seeds(tiny_config: Path, tmp_path: Path) -> None:
    rows = [TABLE["rows"][0], {**TABLE["rows"][1], "seeds": [1]}]
    table = write_table(tmp_path, tiny_config, rows=rows, seeds=[1, 2])
    assert reproduce(table, tmp_path / "table", 0, seeds=(2,))
    assert list(json.loads((tmp_path / "table.json").read_text())["rows"]) == ["SentNmt / 2"]
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["seed2"]
    with pytest.raises(DynctxError, match=r"table\.yaml: no row has seed 3; there are 1, 2"):
        reproduce(table, tmp_path / "table", 0, seeds=(2, 3))
    assert reproduce(table, tmp_path / "table", 0, only=("SentNmt",), seeds=(1,))
    assert sorted(json.loads((tmp_path / "table.json").read_text())["rows"]) == ["SentNmt / 1", "SentNmt / 2"]


def test_a_control_that_is_not_there_is_asked_for_before_any_training(tiny_config: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path, tiny_config)
    with pytest.raises(DynctxError, match="row 'TDNMT full' is compared with 'SentNmt': add --rows 'SentNmt'"):
        reproduce(table, tmp_path / "table", 0, only=("TDNMT full",))
    assert not (tmp_path / "runs").exists()
    assert reproduce(table, tmp_path / "table", 0, scoring=False, only=("TDNMT full",))
    assert reproduce(table, tmp_path / "table", 0, only=("SentNmt", "TDNMT full"))  # the control in a later call
    found = json.loads((tmp_path / "table.json").read_text())["rows"]["TDNMT full / 1"]
    assert [a["row"] for a in found["against"]] == ["SentNmt"]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"settings": [*TABLE["settings"], "model.dropout=0.5"]}, r"made with another config: model\.dropout was 0\.1"),
        ({"settings": [*TABLE["settings"], "training.updates=7"]}, r"training\.updates was 6 and is now 7"),
        ({"test": "dev"}, "row 'SentNmt', seed 1, was made with test 'news', and the table now says 'dev'"),
        ({"beam": 2}, "was made with beam 4, and the table now says 2"),
        (
            {"settings": [*TABLE["settings"], "decoding.length_penalty=1.0"]},
            "was made with decoding .*'length_penalty': 0",
        ),
        ({"rows": [{"name": "SentNmt", "run": "sentence", "selector": "none"}]}, "was made with asked ''"),
        ({"test": "nowhere"}, r"nowhere\.jsonl: no such prepared split; there are: dev, news"),
    ],
)
def test_a_table_that_has_changed_is_not_taken_for_what_was_done(
    changes: dict[str, Any], message: str, tiny_config: Path, tmp_path: Path
) -> None:
    table = write_table(tmp_path, tiny_config, rows=TABLE["rows"][:1])
    assert reproduce(table, tmp_path / "table", 0)
    before = (tmp_path / "table.json").read_bytes(), (tmp_path / "table.md").read_bytes()
    again = write_table(tmp_path, tiny_config, **{"rows": TABLE["rows"][:1], **changes})
    with pytest.raises(DynctxError, match=message):
        reproduce(again, tmp_path / "table", 0)
    assert ((tmp_path / "table.json").read_bytes(), (tmp_path / "table.md").read_bytes()) == before


def test_other_controls_are_compared_with_anew(tiny_config: Path, tmp_path: Path) -> None:
    first, second = TABLE["rows"][:2]
    table = write_table(tmp_path, tiny_config, rows=[first, {**second, "control": ""}])
    assert reproduce(table, tmp_path / "table", 0)
    assert reproduce(write_table(tmp_path, tiny_config, rows=[first, second]), tmp_path / "table", 0)
    found = json.loads((tmp_path / "table.json").read_text())["rows"]["TDNMT full / 1"]
    assert [a["row"] for a in found["against"]] == ["SentNmt"]


def test_time_is_given_in_minutes(tiny_config: Path, tmp_path: Path) -> None:
    table, began = write_table(tmp_path, tiny_config), time.monotonic()
    assert Reproduction(table, tmp_path / "out", 0, "").deadline is None
    deadline = Reproduction(table, tmp_path / "out", 1.5, "").deadline
    assert deadline is not None and 90 <= deadline - began < 100


def test_time_is_up_and_the_next_call_goes_on(tiny_config: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path, tiny_config, rows=TABLE["rows"][:1])
    assert not reproduce(table, tmp_path / "table", 1e-9)
    assert json.loads((tmp_path / "table.json").read_text())["rows"] == {}
    assert reproduce(table, tmp_path / "table", 0)


def test_time_is_up_where_nothing_is_left_to_train(tiny_config: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path, tiny_config, rows=TABLE["rows"][:1])
    assert reproduce(table, tmp_path / "table", 0)
    for suffix in (".json", ".translations.json"):
        (tmp_path / "table").with_suffix(suffix).unlink()
    assert not reproduce(table, tmp_path / "table", 1e-9)
    assert json.loads((tmp_path / "table.json").read_text())["rows"] == {}


def test_what_is_translated_is_scored_before_anything_is_trained(tiny_config: Path, tmp_path: Path) -> None:
    first, full, _ = TABLE["rows"]
    table = write_table(tmp_path, tiny_config, rows=[first, {"name": "TDNMT labels", "run": "scorer"}, full])
    assert reproduce(table, tmp_path / "table", 0, scoring=False, only=("SentNmt", "TDNMT full"))
    assert not reproduce(table, tmp_path / "table", 1e-9)  # no time for what stands between them
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert {key: "scores" in row for key, row in rows.items()} == {"SentNmt / 1": True, "TDNMT full / 1": True}


def test_a_row_of_the_oracle(tiny_config: Path, tmp_path: Path) -> None:
    """What it selects is what `dynctx test` selects for the same model: the best subsets by reference."""
    rows = [{"name": "oracle", "run": "tdnmt", "selector": "oracle"}]
    assert reproduce(write_table(tmp_path, tiny_config, rows=rows), tmp_path / "table", 0)
    (row,) = json.loads((tmp_path / "table.json").read_text())["rows"].values()
    assert row["selector"] == row["asked"] == "oracle"
    found = score_model(tmp_path / "runs/seed1/tdnmt", "news", None, tmp_path / "h.jsonl", 4, None, "cpu", "oracle")
    assert row["scores"]["BLEU"] == found["scores"]["BLEU"]
    said = json.loads((tmp_path / "table.translations.json").read_text())["rows"]["oracle / 1"]
    assert said == [json.loads(line)["sentences"] for line in (tmp_path / "h.jsonl").read_text().splitlines()]


def test_a_paused_run_ends_as_one_that_was_not(tiny_config: Path, tmp_path: Path) -> None:
    whole = train_here(tiny_config, tmp_path / "whole", *FEW)
    config = changed(tiny_config, tmp_path / "paused", *FEW)
    pauses = 0
    while training.run(config, deadline=time.monotonic()).get("paused"):  # one update each
        pauses += 1
    assert pauses == 6
    ended = training.run(config)
    assert ended["scores"]["loss"] == whole["scores"]["loss"]


def test_a_row_beyond_the_scope_is_refused_before_any_training(tiny_config: Path, tmp_path: Path) -> None:
    rows = [*TABLE["rows"][:1], {"name": "far", "run": "tdnmt", "selector": "previous 3"}]
    table = write_table(tmp_path, tiny_config, rows=rows)
    with pytest.raises(DynctxError, match=r"row 'far': selector 'previous 3' asks for more .* scope of 2"):
        reproduce(table, tmp_path / "table", 0)
    assert not (tmp_path / "runs").exists() and not (tmp_path / "table.json").exists()


def test_labels_of_another_kind_are_told_of_before_any_training(tiny_config: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels"
    table = write_table(tmp_path, tiny_config, settings=[*TABLE["settings"], f"labels.folder={labels}"])
    assert reproduce(table, tmp_path / "table", 0)
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "table.json").unlink()
    settings = [*TABLE["settings"], f"labels.folder={labels}", "labels.sentences=4"]
    table = write_table(tmp_path, tiny_config, settings=settings)
    with pytest.raises(DynctxError, match=r"labels of another kind lie here \(sentences was 0, is 4\)"):
        reproduce(table, tmp_path / "table", 0)
    assert not (tmp_path / "runs").exists() and not (tmp_path / "table.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": [{"name": "a", "run": "nothing"}]}, "row 'a' names no run"),
        ({"rows": [{"name": "a", "run": "tdnmt", "control": "b"}]}, "control 'b' is no row above it"),
        ({"rows": [{"name": "a", "run": "tdnmt", "others": ["b"]}]}, "control 'b' is no row above it"),
        ({"rows": [{"name": "a", "run": "tdnmt"}] * 2}, "two rows have one name"),
        ({"runs": {"a": {"init": "b"}, "b": {}}, "rows": []}, "run 'a' builds on 'b'"),
        ({"rows": [{"name": "a", "ran": "tdnmt"}]}, "unknown key 'ran'"),
        ({"runs": {"a": {"model": "b", "init": "c"}}, "rows": []}, "run 'a' is a model that is there already"),
    ],
)
def test_broken_tables(tiny_config: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DynctxError, match=message):
        load_table(write_table(tmp_path, tiny_config, **changes))


def test_the_config_of_a_table_is_looked_for_here_and_beside_it(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there" / "configs"
    for folder in (here, there):
        folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    table = write_table(there, Path("mine.yaml"))
    with pytest.raises(DynctxError, match=f"its config mine.yaml is neither in {here} nor in {there};"):
        load_table(table)
    shutil.copy(tiny_config, there / "mine.yaml")
    assert Path(load_table(table).config) == there / "mine.yaml"
    shutil.copy(tiny_config, here / "mine.yaml")
    assert Path(load_table(table).config).resolve() == here / "mine.yaml"
