"""`dynctx reproduce` beside other calls of it, over what was made before, and what it refuses before any work."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from small_tables import TABLE, write_table
from tiny_runs import Warm, changed, until

from dynctx import commands, training
from dynctx.claims import claimed
from dynctx.config import Config
from dynctx.errors import DynctxError
from dynctx.evaluation.bleu import corpus_bleu
from dynctx.model_folder import read_about, read_config
from dynctx.prepared import read_held_out
from dynctx.reproduce import reproduce

pytest_plugins = ("tiny_fixtures",)


def test_calls_at_the_same_time_share_the_work(tiny_config: Path, warm: Warm, tmp_path: Path) -> None:
    rows = [*TABLE["rows"], {"name": "TDNMT none", "run": "tdnmt", "selector": "none", "control": "TDNMT full"}]
    table = write_table(tmp_path, tiny_config, rows=rows, seeds=[1, 2])
    calls = [warm.start("reproduce", table, "--output", tmp_path / "table") for _ in range(3)]
    said = ""
    for call in calls:
        ended = call.wait()
        assert ended.code == 0, ended.err
        said += ended.out
    for seed in (1, 2):
        for run in TABLE["runs"]:  # each was trained once, by whichever call
            assert said.count(f"== {run}, seed {seed}") == 1
        for row in rows:
            assert said.count(f"{row['name']}, seed {seed}: translated") == 1
    found = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert found.keys() == {f"{row['name']} / {seed}" for row in rows for seed in (1, 2)}
    assert all("BLEU" in record["scores"] for record in found.values())
    alone = tmp_path / "alone"
    alone.mkdir()
    one = write_table(alone, tiny_config, rows=rows, seeds=[1, 2])
    assert reproduce(one, alone / "table", 0)
    expected = json.loads((alone / "table.json").read_text())["rows"]
    assert {key: record["scores"] for key, record in found.items()} == {
        key: record["scores"] for key, record in expected.items()
    }
    assert not list(tmp_path.rglob(".claim"))


def test_a_call_waits_for_a_run_that_another_process_is_at(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_table(tmp_path, tiny_config, rows=TABLE["rows"][:1])
    place = tmp_path / "runs" / "seed1" / "sentence"
    elsewhere = claimed(place)
    elsewhere.__enter__()
    looks: list[float] = []

    def meanwhile(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            elsewhere.__exit__(None, None, None)

    monkeypatch.setattr(time, "sleep", meanwhile)
    assert reproduce(table, tmp_path / "table", 0)
    out = capsys.readouterr().out
    assert len(looks) == 3 and out.count("waiting for them") == 1
    assert out.index("waiting for them") < out.index("== sentence, seed 1")


def test_a_run_that_was_killed_before_its_first_checkpoint_is_not_finished(
    tiny_config: Path, warm: Warm, tmp_path: Path
) -> None:
    """It has a model, of its first validation, and no state that would say more."""
    place = tmp_path / "runs" / "seed1" / "sentence"
    long = ["training.updates=100000", "training.validate_every=5", "training.checkpoint_every=100000"]
    started = warm.start("train", tiny_config, f"training.output={place}", "seed=1", *long, "training.average=0")
    until((place / "model" / "about.json").exists)
    started.kill()
    started.wait()
    assert not list((place / "state").iterdir())
    table = write_table(tmp_path, tiny_config, rows=TABLE["rows"][:1])
    assert reproduce(table, tmp_path / "table", 0)
    assert json.loads((place / "state" / "finished.json").read_text())["updates"] == 6


def test_a_row_that_is_made_again_is_compared_again(tiny_config: Path, tmp_path: Path) -> None:
    """As the message about a changed config advises: the run is removed, and its row."""
    table = write_table(tmp_path, tiny_config, rows=TABLE["rows"][:2])
    place, out = tmp_path / "runs" / "seed1", tmp_path / "table"
    assert reproduce(table, out, 0)
    before = json.loads((tmp_path / "table.json").read_text())
    shutil.rmtree(place / "sentence")
    del before["rows"]["SentNmt / 1"]
    (tmp_path / "table.json").write_text(json.dumps(before))
    longer = {"sentence": {"settings": ["training.updates=60", "training.validate_every=60"]}}
    table = write_table(tmp_path, tiny_config, rows=TABLE["rows"][:2], runs={**TABLE["runs"], **longer})
    with pytest.raises(DynctxError, match=r"tdnmt: this run began with other weights than .*sentence now has"):
        assert reproduce(table, out, 0) and reproduce(table, out, 0)  # the first makes the sentence model anew
    after = json.loads((tmp_path / "table.json").read_text())["rows"]
    said = json.loads((tmp_path / "table.translations.json").read_text())["rows"]
    pairs = read_held_out(changed(tiny_config, tmp_path).data.folder, "news")
    references = [sentence for _, target in pairs for sentence in target.sentences]
    for key, record in after.items():  # what is told is of what lies beside it
        lines = [sentence for document in said[key] for sentence in document]
        assert record["scores"]["BLEU"] == round(corpus_bleu(lines, [references], language="de").value, 2)
    one, other = (after[key]["scores"]["BLEU"] for key in ("TDNMT full / 1", "SentNmt / 1"))
    assert after["TDNMT full / 1"]["against"][0]["delta"] == pytest.approx(one - other, abs=0.011)
    assert after["SentNmt / 1"]["scores"] != before["rows"]["TDNMT full / 1"]["scores"]


def test_labelling_is_told_how_long_it_may_take(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[float | None] = []

    def too_long(config: Config, deadline: float | None = None) -> bool:
        given.append(deadline)
        return False

    monkeypatch.setattr(commands, "label_corpus", too_long)
    table = write_table(tmp_path, tiny_config)
    before = time.monotonic()
    assert not reproduce(table, tmp_path / "table", 10)
    assert len(given) == 1 and given[0] is not None and before + 600 <= given[0] <= time.monotonic() + 600
    assert "the time is up" in capsys.readouterr().out
    assert not (tmp_path / "runs" / "seed1" / "scorer").exists()


def test_a_control_of_fewer_seeds_is_refused(tiny_config: Path, tmp_path: Path) -> None:
    rows = [TABLE["rows"][0], {**TABLE["rows"][1], "seeds": [1, 2]}]
    with pytest.raises(DynctxError, match="row 'TDNMT full' has seed 2, and its control 'SentNmt' has not"):
        reproduce(write_table(tmp_path, tiny_config, rows=rows), tmp_path / "table", 0)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"rows": [{**TABLE["rows"][0], "selector": "fulll"}]}, "row 'SentNmt': selector 'fulll': expected one of"),
        (
            {"rows": [*TABLE["rows"][:1], {**TABLE["rows"][1], "selector": "probability-first"}]},
            "row 'TDNMT full': selector 'probability-first': this model has no context scorer",
        ),
        ({"seeds": []}, "seeds is empty; name at least one"),
        ({"settings": ["training.updats=6"]}, r"table\.yaml: settings: unknown key 'updats' \(did you mean 'updates'"),
        (
            {"runs": {**TABLE["runs"], "sentence": {"settings": ["model.kind=sentense"]}}},
            r"table\.yaml: run 'sentence': model\.kind is 'sentense'",
        ),
    ],
)
def test_what_is_wrong_shows_before_any_training(
    changes: dict[str, Any], message: str, tiny_config: Path, tmp_path: Path
) -> None:
    with pytest.raises(DynctxError, match=message):
        reproduce(write_table(tmp_path, tiny_config, **changes), tmp_path / "table", 0)
    assert not (tmp_path / "runs").exists()
    with pytest.raises(DynctxError, match="--minutes -1: must not be negative"):
        reproduce(write_table(tmp_path, tiny_config), tmp_path / "table", -1)


def test_the_beam_is_the_configs_unless_the_table_has_one(tiny_config: Path, tmp_path: Path) -> None:
    found = []
    for number, changes in enumerate(({}, {"settings": [*TABLE["settings"], "decoding.beam=2"]}, {"beam": 3})):
        table = write_table(tmp_path, tiny_config, rows=TABLE["rows"][:1], **changes)
        assert reproduce(table, tmp_path / str(number), 0)
        found.append(json.loads((tmp_path / f"{number}.json").read_text())["rows"]["SentNmt / 1"]["beam"])
        assert f"beam {found[-1]}." in (tmp_path / f"{number}.md").read_text()
    assert found == [4, 2, 3]


def test_other_text_of_the_test_set_is_refused(tiny_config: Path, tmp_path: Path) -> None:
    """Prepared again: translations of the earlier text would be compared with those of the new one."""
    data = tmp_path / "data"
    shutil.copytree(changed(tiny_config, tmp_path).data.folder, data)
    settings = [*TABLE["settings"], f"data.folder={data}"]
    table = write_table(tmp_path, tiny_config, rows=TABLE["rows"][:1], settings=settings)
    assert reproduce(table, tmp_path / "table", 0)
    lines = (data / "news.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (data / "news.jsonl").write_text("".join(lines[1:]), encoding="utf-8")
    more = [TABLE["rows"][0], {"name": "once more", "run": "sentence", "control": "SentNmt"}]
    table = write_table(tmp_path, tiny_config, rows=more, settings=settings)
    with pytest.raises(
        DynctxError, match=r"'SentNmt', seed 1, was made with text '.*', and the test set 'news' is now"
    ):
        reproduce(table, tmp_path / "table", 0)
    (data / "news.jsonl").write_text("".join(lines), encoding="utf-8")
    assert reproduce(table, tmp_path / "table", 0)


def test_a_row_without_a_selector_has_what_the_table_says_now(tiny_config: Path, tmp_path: Path) -> None:
    """Not what it said when the run was trained: decoding.selector changes nothing of a run."""
    rows = [{"name": "full", "run": "tdnmt"}, {"name": "none", "run": "tdnmt"}]
    tdnmt = TABLE["runs"]["tdnmt"]
    for row, selector in zip(rows, ("full", "none")):
        runs = {**TABLE["runs"], "tdnmt": {**tdnmt, "settings": [*tdnmt["settings"], f"decoding.selector={selector}"]}}
        table = write_table(tmp_path, tiny_config, runs=runs, rows=[row])
        assert reproduce(table, tmp_path / "table", 0)
    found = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert [found[f"{name} / 1"]["selector"] for name in ("full", "none")] == ["full", "none"]
    assert found["full / 1"]["selected"] > found["none / 1"]["selected"] == 0


def test_a_run_that_was_lengthened_half_way_is_what_the_table_says(tiny_config: Path, tmp_path: Path) -> None:
    """Though its best model is from before that."""
    still = ["training.validate_every=2", "training.schedule={peak: 1.0e-12, warmup: 1}"]  # the first stays the best
    place, only = tmp_path / "runs" / "seed1" / "sentence", TABLE["rows"][:1]
    settings = [*TABLE["settings"], *still]
    training.run(changed(tiny_config, place, "seed=1", *settings, "training.updates=4"))
    (place / "state" / "finished.json").unlink()  # as if it had been paused there
    table = write_table(tmp_path, tiny_config, rows=only, settings=[*settings, "training.updates=8"])
    assert reproduce(table, tmp_path / "table", 0)
    assert read_config(place).training.updates == 4 and read_about(place / "model")["run_updates"] == 8
    assert reproduce(table, tmp_path / "table", 0)
