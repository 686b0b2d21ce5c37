"""A run that is stopped in any way and started again ends as if nothing had happened, bit for bit."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import Warm, curve, last_checkpoint, learned, reached, train_here, until, write_config, write_corpus

from dynctx.config import load_config
from dynctx.errors import DynctxError
from dynctx.prepare import prepare
from dynctx.training import loop
from dynctx.training.loop import Training

pytest_plugins = ("tiny_fixtures",)

Damage = Callable[[Path], object]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def interrupt(config: Path, output: Path) -> None:
    """A run that is stopped in update 34 of 60, with checkpoints at 21 and 28."""
    step = Training.step

    def stop(self: Training, plans: list) -> None:
        if self.update == 33:
            raise KeyboardInterrupt
        step(self, plans)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Training, "step", stop)
        train_here(config, output)


@pytest.fixture(scope="module")
def interrupted(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such a run; tests work on copies."""
    output = tmp_path_factory.mktemp("interrupted") / "run"
    interrupt(tiny_config, output)
    return output


@pytest.fixture
def stopped(interrupted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


# stopped and started


def wait_for(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    while process.poll() is None and not happened():
        time.sleep(0.001)
    assert process.poll() is None, process.communicate()


def test_a_real_process_is_killed_and_interrupted(tiny_config: Path, trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    command = [sys.executable, "-m", "dynctx", "train", str(tiny_config), f"training.output={output}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)

    process = start()
    # in the middle of a write, where the eye is quick enough
    wait_for(process, lambda: any((output / "state").glob("partial-*")) or reached(output) >= 14)
    process.kill()
    assert process.communicate()[1] == ""
    process = start()
    wait_for(process, lambda: reached(output) >= 28)
    process.send_signal(signal.SIGINT)  # Ctrl-C
    assert process.communicate()[1] == "dynctx: stopped\n"
    assert process.returncode == 130
    process = start()
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert "going on from update" in out
    assert learned(output) == learned(trained)


def test_crashes_at_any_change_of_the_disk(tiny_config: Path, warm: Warm, tmp_path: Path) -> None:
    """Many in one run: just before a file is opened for writing, before a folder is made, renamed or removed."""
    settings: list[str | Path] = [
        tiny_config,
        "training.updates=80",
        "training.validate_every=10",
        "training.average=3",
    ]
    assert warm.run("train", *settings, f"training.output={tmp_path / 'whole'}").code == 0
    settings.append(f"training.output={tmp_path / 'broken'}")
    rng = random.Random(11)
    crashes = 0
    # from one checkpoint to the next it takes some 50 changes, more where a crash has left something to tidy up
    while (ended := warm.run("train", *settings, crash=rng.randint(1, 45 if rng.random() < 0.85 else 120))).code:
        assert (ended.code, ended.err) == (-signal.SIGKILL, "")
        crashes += 1
    assert crashes > 10
    assert learned(tmp_path / "broken") == learned(tmp_path / "whole")


# damage


def flip(file: str, place: int) -> Damage:
    def damage(checkpoint: Path) -> None:
        content = bytearray((checkpoint / file).read_bytes())
        content[place] ^= 1
        (checkpoint / file).write_bytes(content)

    return damage


def change_counter(checkpoint: Path) -> None:
    progress = json.loads((checkpoint / "progress.json").read_text())
    progress["index"] += 1
    (checkpoint / "progress.json").write_text(json.dumps(progress))


def empty(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


DAMAGES: dict[str, Damage] = {
    "a bit of the last tensor": flip("state.safetensors", -1),
    "a bit of the header": flip("state.safetensors", 20),
    "a counter": change_counter,
    "truncated": lambda c: os.truncate(c / "state.safetensors", 1000),
    "empty tensors": lambda c: os.truncate(c / "state.safetensors", 0),
    "empty progress": lambda c: os.truncate(c / "progress.json", 0),
    "no progress": lambda c: (c / "progress.json").unlink(),
    "progress of another kind": lambda c: (c / "progress.json").write_text("[1]"),
    "an empty folder": empty,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    name: str, tiny_config: Path, stopped: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = last_checkpoint(stopped)
    assert damaged.name == "update-00000028"
    DAMAGES[name](damaged)
    train_here(tiny_config, stopped)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{damaged}: damaged checkpoint (")
    assert lines[1] == "going on from update 21"
    assert learned(stopped) == learned(trained)


def test_all_checkpoints_damaged(tiny_config: Path, stopped: Path, warm: Warm) -> None:
    for checkpoint in (stopped / "state").glob("update-*"):
        os.truncate(checkpoint / "state.safetensors", 100)
    before = contents(stopped)
    ended = warm.run("train", tiny_config, f"training.output={stopped}")
    assert ended.code == 2
    assert ended.err == f"dynctx: {stopped}/state: every checkpoint is damaged; remove this folder to start again\n"
    assert contents(stopped) == before


def test_what_was_half_written_is_removed(tiny_config: Path, stopped: Path, trained: Path) -> None:
    (stopped / "state" / "partial-00000033").mkdir()
    (stopped / "state" / "partial-00000033" / "state.safetensors").write_bytes(b"half")
    (stopped / "state" / "finished.partial").write_bytes(b"half")
    (stopped / "model.partial").mkdir()
    with open(stopped / "log.jsonl", "a") as log:
        log.write('{"update": 35, "los')
    train_here(tiny_config, stopped)
    assert learned(stopped) == learned(trained)


def test_a_damaged_snapshot_is_named(tiny_config: Path, stopped: Path) -> None:
    snapshot = stopped / "state" / "weights-00000015.safetensors"
    os.truncate(snapshot, 100)
    with pytest.raises(DynctxError, match=r"weights-00000015.safetensors: damaged \(.*remove it"):
        train_here(tiny_config, stopped, "training.updates=29")


@pytest.mark.parametrize("room", ["for the model", "for nothing"])
def test_a_full_disk(room: str, tiny_config: Path, stopped: Path, trained: Path, warm: Warm) -> None:
    """A limit on the size of files makes writing fail as a full disk does: halfway."""
    before = contents(stopped)
    size = (last_checkpoint(stopped) / "state.safetensors").stat().st_size
    limit = size - 1000 if room == "for the model" else size // 10
    ended = warm.run("train", tiny_config, f"training.output={stopped}", limit=limit)
    assert ended.code == 2
    if room == "for the model":
        assert f"dynctx: {stopped}/state/update-00000035: the checkpoint could not be written: " in ended.err
    else:  # update 30 comes before: its weights, and the model if it is the best
        assert re.match(rf"dynctx: {stopped}/(model|state/weights-00000030.safetensors): .*could not be ", ended.err)
    assert "File too large" in ended.err and ended.err.count("\n") == 1
    after = contents(stopped)
    kept = [name for name in before if name.startswith("state/update")]
    if room == "for nothing":
        kept += [name for name in before if name.startswith("model")]
    assert kept and all(before[name] == after[name] for name in kept)
    assert not [name for name in after if "partial" in name or "00000035" in name]
    assert warm.run("train", tiny_config, f"training.output={stopped}").code == 0
    assert learned(stopped) == learned(trained)


# going on with other settings

OTHER = {
    "model.width=64": "model.width was 32 and is now 64",
    "model.dropout=0.2": "model.dropout was 0.1 and is now 0.2",
    "seed=6": "seed was 5 and is now 6",
    "training.batch_tokens=512": "training.batch_tokens was 256 and is now 512",
    "training.update_batches=1": "training.update_batches was 2 and is now 1",
    "training.schedule.peak=0.01": "training.schedule.peak was 0.02 and is now 0.01",
    "training.label_smoothing=0": "training.label_smoothing was 0.1 and is now 0.0",
    "data.max_length=64": "data.max_length was 128 and is now 64",
}


@pytest.mark.parametrize("override", OTHER)
def test_another_config_is_refused(override: str, tiny_config: Path, interrupted: Path) -> None:
    before = contents(interrupted)
    with pytest.raises(DynctxError) as error:
        train_here(tiny_config, interrupted, override)
    assert str(error.value) == (
        f"{interrupted}: this run was begun with another config: {OTHER[override]}. "
        "Set it back, or give the new run another training.output"
    )
    assert contents(interrupted) == before


def test_other_text_is_refused(tmp_path: Path) -> None:
    """The config is the same, the files that it names are not."""
    write_corpus(tmp_path)
    config, output = write_config(tmp_path), tmp_path / "run"
    prepare(load_config(config).data, say=lambda text: None, threads=1)
    few = ("training.updates=2", "training.average=0")
    train_here(config, output, *few)
    before = contents(output)
    target = tmp_path / "train.tgt"
    same = target.read_text()
    target.write_text("\n\n".join(reversed(same.strip().split("\n\n"))) + "\n")  # as long, and as many of each word
    prepare(load_config(config).data, say=lambda text: None, threads=1)
    with pytest.raises(DynctxError) as error:
        train_here(config, output, "training.updates=4", "training.average=0")
    assert str(error.value) == (
        f"{output}: this run was begun with other text than there is now (train; see {tmp_path / 'data'}). "
        "Make the earlier anew, or give the new run another training.output"
    )
    assert contents(output) == before
    target.write_text(same)
    prepare(load_config(config).data, say=lambda text: None, threads=1)
    assert train_here(config, output, "training.updates=4", "training.average=0")["updates"] == 4


def test_all_that_differs_is_named(tiny_config: Path, interrupted: Path) -> None:
    with pytest.raises(DynctxError, match=r"model.heads was 2 and is now 4; seed was 5 and is now 9\. Set"):
        train_here(tiny_config, interrupted, "seed=9", "model.heads=4")


def test_what_does_not_change_learning_may_change(tiny_config: Path, stopped: Path, trained: Path) -> None:
    free = ["log_every=10", "validate_every=4", "validation.beam=1", "patience=100", "average=0", "minutes=9"]
    free += ["checkpoint_every=9", "dev_documents=1"]
    train_here(tiny_config, stopped, *(f"training.{f}" for f in free), "decoding.beam=1", "data.test={}")
    assert learned(stopped)["tensors"] == learned(trained)["tensors"]


def test_an_ended_run_does_not_train_further(
    tiny_config: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(trained)
    record = train_here(tiny_config, trained)
    said = capsys.readouterr().out
    assert f"this run has ended: update 60 of 60; the model is in {trained / 'model'}\n" in said
    assert record["updates"] == 60
    assert contents(trained) == before


def test_a_lengthened_run_is_the_same_as_a_long_one(tiny_config: Path, trained: Path, tmp_path: Path) -> None:
    short = tmp_path / "run"
    train_here(tiny_config, short, "training.updates=20")
    assert curve(short)[-1][0] == 14
    train_here(tiny_config, short)
    assert learned(short)["tensors"] == learned(trained)["tensors"]
    # checkpoint 20 lies between two lines of the log: the line at 21 then is of update 21 alone
    assert [line for line in curve(short) if line[0] != 21] == [line for line in curve(trained) if line[0] != 21]


def test_what_is_told_is_of_the_model_that_is_there(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A better one was saved after the last checkpoint, and the run that goes on ends before it comes to it again."""
    scores = {15: 1.0, 30: 2.0, 29: 0.5}
    monkeypatch.setattr(Training, "evaluate", lambda self: {"score": scores[self.update], "loss": 1.0})
    interrupt(tiny_config, tmp_path)
    assert reached(tmp_path) == 28
    record = train_here(tiny_config, tmp_path, "training.updates=29", "training.average=0")
    about = json.loads((tmp_path / "model" / "about.json").read_text())
    assert record["scores"] == about["scores"] == {"update": 30, "score": 2.0, "loss": 1.0}
    assert (record["best_update"], about["run_updates"]) == (30, 29)


# stopped gently


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_asked_to_stop_keeps_all_it_has_learned(
    number: int, code: int, tiny_config: Path, warm: Warm, tmp_path: Path
) -> None:
    """There is no checkpoint before, and none is due."""
    settings = [tiny_config, f"training.output={tmp_path / 'run'}", "training.checkpoint_every=100000"]
    started = warm.start("train", *settings, "training.updates=100000", "training.validate_every=5")
    until((tmp_path / "run" / "model" / "about.json").exists)
    assert not reached(tmp_path / "run")
    started.kill(number)
    ended = started.wait()
    assert ended.code == code
    update = reached(tmp_path / "run")
    assert update >= 5 and f"stopped at update {update}; the same command goes on from here" in ended.out
    again = warm.run("train", *settings, f"training.updates={update + 1}", "training.validate_every=5")
    assert again.code == 0 and f"going on from update {update}\n" in again.out
    assert "start at random" in ended.out and "start at random" not in again.out


def test_long_work_is_saved_whatever_the_config_says(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes is the most that a crash may cost; here, none."""
    saved: list[int] = []
    checkpoint = Training.checkpoint

    def noted(self: Training) -> None:
        saved.append(self.update)
        checkpoint(self)

    monkeypatch.setattr(Training, "checkpoint", noted)
    monkeypatch.setattr(loop, "LONGEST_UNSAVED", 0.0)
    train_here(tiny_config, tmp_path, "training.updates=3", "training.checkpoint_every=100000", "training.average=0")
    assert saved[:3] == [1, 2, 3]


def test_a_finished_model_without_its_state_is_not_written_over(
    tiny_config: Path, trained: Path, tmp_path: Path
) -> None:
    place = Path(shutil.copytree(trained, tmp_path / "run"))
    shutil.rmtree(place / "state")
    before = contents(place)
    with pytest.raises(DynctxError, match="a finished model lies here, and nothing that a run could go on from"):
        train_here(tiny_config, place)
    assert contents(place) == before


def test_scores_on_other_sentences_do_not_count(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A high score on one document is not the best of a run that is validated on two from then on."""
    scores = {15: 9.0, 30: 1.0, 45: 2.0, 60: 1.5}
    monkeypatch.setattr(Training, "evaluate", lambda self: {"score": scores[self.update], "loss": 1.0})
    few = ["training.dev_documents=1", "training.average=0"]
    train_here(tiny_config, tmp_path, *few, "training.updates=15")
    record = train_here(tiny_config, tmp_path, "training.average=0")
    assert record["best_update"] == 45
    assert "training.dev_documents changed: earlier scores do not count" in capsys.readouterr().out
