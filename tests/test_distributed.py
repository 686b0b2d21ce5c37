"""Two processes on the CPU learn what one does: the same batches, shared out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from scripted import OneProcess, Scripted, script, scripted_config
from tiny_runs import (
    TIME_LIMIT,
    Warm,
    curve,
    free_port,
    last_checkpoint,
    learned,
    log_of,
    reached,
    run_two,
    start_two,
    train_here,
)

from dynctx.errors import DynctxError
from dynctx.training.checkpoints import load_tensors
from dynctx.training.loop import Training

pytest_plugins = ("tiny_fixtures",)

UPDATES = "training.updates=30"


def assert_alike(two: Path, one: Path) -> None:
    """Sums in another order differ in the last digits; nothing else may."""
    assert [update for update, _ in curve(two)] == [update for update, _ in curve(one)]
    assert [loss for _, loss in curve(two)] == pytest.approx([loss for _, loss in curve(one)], rel=1e-5)
    states = [load_tensors(last_checkpoint(output) / "state.safetensors") for output in (two, one)]
    assert last_checkpoint(two).name == last_checkpoint(one).name
    compared = 0
    for name in [name.removeprefix("exp_avg_sq.") for name in states[1] if name.startswith("exp_avg_sq.")]:
        # the bias of a key changes no attention: its gradient is rounding, of which Adam makes steps of full size
        real = states[1][f"exp_avg_sq.{name}"] > 1e-14
        for kind, rtol, atol in (("parameter", 0, 1e-4), ("exp_avg", 1e-2, 1e-5), ("exp_avg_sq", 1e-2, 1e-8)):
            # the moments, too: Adam makes the same steps of twice the gradient
            left, right = (state[f"{kind}.{name}"][real] for state in states)
            torch.testing.assert_close(left, right, rtol=rtol, atol=atol)
        compared += len(left)
    assert compared > 0.99 * sum(t.numel() for name, t in states[1].items() if name.startswith("parameter."))


def test_torchrun_with_an_odd_number_of_batches(tiny_config: Path, tmp_path: Path) -> None:
    """Three batches an update: the first process has two of them, and its share of the loss must not count for all.

    Few updates: a unit of relu that is at 0 but for rounding makes of the last digit of a sum a step of Adam's.
    """
    settings = ["training.updates=6", "training.log_every=1", "training.batch_tokens=600", "training.update_batches=3"]
    train_here(tiny_config, tmp_path / "one", *settings)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]
    command += [str(free_port()), "-m", "dynctx", "train", str(tiny_config), f"training.output={tmp_path / 'two'}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([*command, *settings], capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("update 4  epoch") == 1  # only one of them tells
    assert [line["epoch"] for line in log_of(tmp_path / "one") if "loss" in line][-1] == 2  # three epochs
    assert_alike(tmp_path / "two", tmp_path / "one")


@pytest.fixture(scope="module")
def one(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("one") / "run"
    train_here(tiny_config, output, UPDATES)
    return output


@pytest.fixture(scope="module")
def two(tiny_config: Path, warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("two") / "run"
    first, second = run_two(warm, "train", tiny_config, f"training.output={output}", UPDATES)
    assert "update 7 " in first.out
    assert second.out == ""
    return output


def test_two_batches_an_update(one: Path, two: Path) -> None:
    """Each process has one; the last update of an epoch may leave the second without any."""
    assert_alike(two, one)
    assert [line["update"] for line in log_of(two) if "validation" in line] == [15, 30]


def test_both_killed_and_started_again(tiny_config: Path, two: Path, warm: Warm, tmp_path: Path) -> None:
    output = tmp_path / "run"
    processes = start_two(warm, "train", tiny_config, f"training.output={output}", UPDATES)
    deadline = time.monotonic() + TIME_LIMIT
    while reached(output) < 14 and time.monotonic() < deadline:
        time.sleep(0.001)
    for process in processes:
        process.kill()
    assert [process.wait().code for process in processes] == [-signal.SIGKILL] * 2
    run_two(warm, "train", tiny_config, f"training.output={output}", UPDATES)
    assert learned(output) == learned(two)


def test_all_stop_early_together(tiny_config: Path, warm: Warm, tmp_path: Path) -> None:
    """Nothing is learned at this rate, so no score is better than the first. With one batch an update, one idles."""
    settings = ["schedule.peak=1e-30", "validate_every=2", "patience=3", "update_batches=1", "log_every=1"]
    first, _ = run_two(
        warm, "train", tiny_config, f"training.output={tmp_path}", *(f"training.{setting}" for setting in settings)
    )
    assert "2 processes share 1 batches an update" in first.out
    assert "the end: no better score in 3 validations (training.patience)" in first.out
    assert [update for update, _ in curve(tmp_path)] == list(range(1, 9))
    assert last_checkpoint(tmp_path).name == "update-00000008"


def test_the_time_limit_is_the_same_for_all(tiny_config: Path, warm: Warm, tmp_path: Path) -> None:
    settings = ["minutes=0.005", "updates=100000", "log_every=1"]
    first, _ = run_two(
        warm, "train", tiny_config, f"training.output={tmp_path}", *(f"training.{setting}" for setting in settings)
    )
    assert "the end: the time is up" in first.out
    assert 0 < curve(tmp_path)[-1][0] < 1000


class Follower(OneProcess):
    """The second of two processes; the first says what the test wants it to say."""

    global_rank, world_size = 1, 2

    def __init__(self, says: Any) -> None:
        self.says = says

    def broadcast(self, value: Any, src: int) -> Any:
        assert src == 0
        return self.says


def test_a_follower_does_what_the_leader_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own clock and its own scores do not count, and it touches no file."""
    monkeypatch.setattr(Training, "elapsed", lambda self: 1000.0)
    leftover = tmp_path / "state" / "partial-00000001"
    leftover.mkdir(parents=True)
    recipe = Scripted(script)
    training = Training(scripted_config(tmp_path, minutes=1.0, average=3), recipe, Follower(0))
    training.resume()
    assert leftover.exists()
    training.fabric.says = False
    assert training.over() == ""
    training.fabric.says = True
    assert training.over() == "the time is up (training.minutes: 1)"
    for score, waited in ((7.0, 0), (8.0, 0), (8.0, 1), (3.0, 2)):
        training.fabric.says = {"score": score}
        training.validate()
        assert training.waited == waited
    assert training.best["score"] == 8.0 and recipe.validated == [] and recipe.saved == []
    training.checkpoint()
    assert list(tmp_path.rglob("*")) == [tmp_path / "state", leftover]


def test_processes_need_a_shared_folder(tmp_path: Path) -> None:
    """Process 0 has gone on from a checkpoint that this one does not see."""
    training = Training(scripted_config(tmp_path), Scripted(script), Follower(40))
    with pytest.raises(DynctxError, match="they need a shared file system"):
        training.resume()
