"""How a run ends, which model it keeps, and the average of its last snapshots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from scripted import play, script
from tiny_runs import last_checkpoint

from dynctx.training import checkpoints
from dynctx.training.loop import Training, better


def test_patience_ends_a_run_and_the_best_model_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, record = play(tmp_path, script, patience=3)
    assert recipe.validated == [1, 2, 3, 4, 5]
    assert [update for update, _ in recipe.saved] == [1, 2]
    assert (record["updates"], record["best_update"], record["scores"]["score"]) == (5, 2, 5.0)
    assert [entry["score"] for entry in record["history"]] == [1.0, 5.0, 2.0, 4.0, 5.0]
    assert json.loads((tmp_path / "model" / "about.json").read_text()) == {"updates": 2, "run_updates": 5}
    assert float((tmp_path / "model" / "weight").read_text()) == pytest.approx(8.0, abs=1e-3)
    assert recipe.weight == pytest.approx(5.0, abs=1e-3)
    assert "the end: no better score in 3 validations (training.patience)\n" in capsys.readouterr().out


def test_patience_is_remembered_over_a_stop(tmp_path: Path) -> None:
    def interrupted(update: int, weight: float) -> float:
        if update == 5:
            raise KeyboardInterrupt
        return script(update, weight)

    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, interrupted, patience=3, checkpoint_every=4)
    recipe, record = play(tmp_path, script, patience=3)  # goes on at 4, having waited for 2
    assert recipe.validated == [5]
    assert (record["updates"], record["best_update"], recipe.saved) == (5, 2, [])


def test_a_run_ended_by_patience_stays_ended_until_it_gets_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(tmp_path, script, patience=3)
    recipe, record = play(tmp_path, script, patience=3)
    assert "this run has ended: no better score in 3 validations" in capsys.readouterr().out
    assert (recipe.validated, recipe.saved, record["updates"]) == ([], [], 5)
    recipe, record = play(tmp_path, script, patience=4, updates=8)
    assert recipe.validated == [6]
    recipe, record = play(tmp_path, script, patience=6, updates=7)
    assert (recipe.validated, record["best_update"], record["scores"]["score"]) == ([7], 7, 9.0)


def test_epochs_are_counted_from_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(tmp_path, script, updates=1, log_every=1)
    assert "update 1  epoch 1  loss " in capsys.readouterr().out


def test_no_updates(tmp_path: Path) -> None:
    recipe, record = play(tmp_path, script, updates=0)
    assert (recipe.validated, recipe.saved, record["updates"]) == ([0], [(0, 10.0)], 0)
    recipe, record = play(tmp_path, script, updates=0)
    assert (recipe.validated, recipe.saved, record["updates"]) == ([], [], 0)
    recipe, record = play(tmp_path, script, updates=2)
    assert (recipe.validated, record["best_update"]) == ([1, 2], 2)


def test_the_last_update_is_validated_and_saved(tmp_path: Path) -> None:
    recipe, _ = play(tmp_path, script, updates=5, validate_every=3, checkpoint_every=4)
    assert recipe.validated == [3, 5]
    assert [p.name for p in sorted((tmp_path / "state").glob("update-*"))] == ["update-00000004", "update-00000005"]


def test_the_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Training, "elapsed", lambda self: self.update * 10.0)  # ten seconds an update
        recipe, record = play(tmp_path, script, minutes=0.75, validate_every=4, checkpoint_every=3)
    assert (record["updates"], recipe.validated) == (5, [4, 5])
    assert "the end: the time is up (training.minutes: 0.75)\n" in capsys.readouterr().out
    assert last_checkpoint(tmp_path).name == "update-00000005"
    recipe, record = play(tmp_path, script, minutes=0.75)  # the time of the first start counts
    assert (record["updates"], recipe.validated) == (5, [])
    recipe, record = play(tmp_path, script, updates=6)
    assert (record["updates"], recipe.validated) == (6, [6])


# averaging


def test_the_average_is_the_mean_of_the_snapshots(tmp_path: Path) -> None:
    files = []
    for number, values in enumerate([[1.0, 2.0], [2.0, 6.0], [6.0, 1.0]]):
        files.append(tmp_path / f"{number}.safetensors")
        checkpoints.save_tensors(files[-1], {"a": torch.tensor(values), "b": torch.tensor([[3.0 * number]])})
    mean = checkpoints.average(files)
    assert (mean["a"].tolist(), mean["b"].tolist(), mean["a"].dtype) == ([3.0, 3.0], [[3.0]], torch.float32)


def test_the_order_of_snapshots_cannot_matter(tmp_path: Path) -> None:
    """In float32 the 1 would be lost beside 1e8, unless it came last."""
    files = []
    for value in (1e8, 1.0, -1e8):
        files.append(tmp_path / f"{value}.safetensors")
        checkpoints.save_tensors(files[-1], {"a": torch.tensor([value])})
    for order in (files, files[::-1], [files[0], files[2], files[1]]):
        assert checkpoints.average(order)["a"].item() == pytest.approx(1 / 3)


def test_the_last_snapshots_are_averaged(tmp_path: Path) -> None:
    """One more is kept for the checkpoint before the last: it has no part in it."""
    weights: list[float] = []

    def remember(update: int, weight: float) -> float:
        weights.append(weight)
        return 1.0

    play(tmp_path, remember, updates=6, average=2, checkpoint_every=1)
    assert len(snapshots_of(tmp_path)) == 3 and len(set(weights)) == 7
    assert weights[6] == pytest.approx((weights[4] + weights[5]) / 2)


def snapshots_of(output: Path) -> list[Path]:
    return checkpoints.Checkpoints(output / "state", print).snapshots()


def by_weight(update: int, weight: float) -> float:
    """Best where the weight is 6: a run from 10 down to 5 comes nearest with its average of 7, 6 and 5."""
    return -abs(weight - 6.0) if abs(weight - 6.0) < 1e-2 and update == 5 else -10.0 + update


def test_a_better_average_becomes_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, record = play(tmp_path, by_weight, updates=5, average=3)
    weights = [float(checkpoints.load_tensors(f)["weight"]) for f in snapshots_of(tmp_path)[-3:]]
    assert weights == pytest.approx([7.0, 6.0, 5.0], abs=1e-2)
    assert recipe.saved[-1][1] == pytest.approx(sum(weights) / 3, abs=1e-6)
    assert [update for update, _ in recipe.saved] == [1, 2, 3, 4, 5, 5]
    assert record["average"]["used"] and record["average"]["snapshots"] == 3
    assert record["scores"]["score"] == pytest.approx(0.0, abs=1e-2)
    assert recipe.weight == pytest.approx(5.0, abs=1e-2)  # training itself does not go on from the average
    assert "average of 3 snapshots: loss 1.500 (best single -5.0000): now the model\n" in capsys.readouterr().out


def test_an_average_that_is_no_better_is_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, record = play(tmp_path, lambda update, weight: float(update), updates=5, average=3)
    assert recipe.validated == [1, 2, 3, 4, 5, 5]  # the last is the average's: as good as the best, not better
    assert [update for update, _ in recipe.saved] == [1, 2, 3, 4, 5]
    assert not record["average"]["used"]
    assert "(best single 5.0000): not better, not used\n" in capsys.readouterr().out


@pytest.mark.parametrize("average", [0, 1])
def test_without_averaging(average: int, tmp_path: Path) -> None:
    recipe, record = play(tmp_path, by_weight, updates=5, average=average)
    assert recipe.validated == [1, 2, 3, 4, 5]
    assert "average" not in record and not snapshots_of(tmp_path)


def test_a_lengthened_run_must_be_better_than_the_average(tmp_path: Path) -> None:
    play(tmp_path, by_weight, updates=5, average=3)
    recipe, record = play(tmp_path, by_weight, updates=8, average=0)
    assert (recipe.validated, recipe.saved) == ([6, 7, 8], [])  # -4, -3, -2: not as good as 0
    assert record["scores"]["score"] == pytest.approx(0.0, abs=1e-2)


def test_a_stop_before_the_average_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: Any, record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoints.Checkpoints, "finish", stop)
        play(tmp_path, by_weight, updates=5, average=3)
    first = (tmp_path / "model" / "weight").read_text()
    (tmp_path / "model" / "weight").write_text("half")
    recipe, record = play(tmp_path, by_weight, updates=5, average=3)
    assert len(recipe.saved) == 1 and record["average"]["used"]
    assert (tmp_path / "model" / "weight").read_text() == first


def test_snapshots_of_both_checkpoints_are_kept(tmp_path: Path) -> None:
    play(tmp_path, script, updates=12, average=2, checkpoint_every=4)
    # checkpoints 8 and 12 are there; a run that goes on from 8 needs 7 and 8
    assert [int(file.stem[-2:]) for file in snapshots_of(tmp_path)] == [7, 8, 9, 10, 11, 12]


def test_snapshots_after_the_last_checkpoint_are_forgotten(tmp_path: Path) -> None:
    """They would be averaged with those of a run that goes on in another way."""

    def interrupted(update: int, weight: float) -> float:
        if update == 6:
            raise KeyboardInterrupt
        return script(update, weight)

    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, interrupted, average=9, checkpoint_every=4)
    assert [int(file.stem[-2:]) for file in snapshots_of(tmp_path)] == [1, 2, 3, 4, 5]
    play(tmp_path, script, average=9, updates=6, validate_every=2)
    assert [int(file.stem[-2:]) for file in snapshots_of(tmp_path)] == [1, 2, 3, 4, 6]


def test_checkpoints_from_before_a_damage_give_way(tmp_path: Path) -> None:
    """A damaged one must not count among the last two once newer ones are written."""
    state = checkpoints.Checkpoints(tmp_path, lambda text: None)
    for update in (2, 9):
        state.save(update, {"a": torch.ones(3)}, {}, 0)
    (tmp_path / "update-00000009" / "progress.json").write_text("")
    found = state.latest()
    assert found is not None and found[1] == {"update": 2}
    for update in (3, 4):
        assert (tmp_path / "update-00000009").exists() == (update == 3)
        state.save(update, {"a": torch.ones(3)}, {}, 0)
    assert sorted(place.name for place in tmp_path.iterdir()) == ["update-00000003", "update-00000004"]


def test_of_models_with_the_same_score_the_one_with_the_lower_loss_is_kept() -> None:
    best = {"score": 0.0, "loss": 3.0}
    assert better(best, {}) and better({"score": 0.1, "loss": 9.0}, best) and better({"score": 0.0, "loss": 2.9}, best)
    assert not better(best, best) and not better({"score": -0.1, "loss": 1.0}, best)
    assert not better({"score": 1.0}, {"score": 1.0})  # where no loss is told
