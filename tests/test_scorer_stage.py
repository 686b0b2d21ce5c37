"""The stage scorer, learning from labels: loss, accuracy, AUC and validation, by hand."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from stage_runs import SHORT
from tiny_runs import changed
from torch import Tensor

from dynctx.batches import Gatherer
from dynctx.config import Config
from dynctx.corpus import TokenStore
from dynctx.errors import DynctxError
from dynctx.planning import Plan
from dynctx.selection.instances import instance_tokens
from dynctx.training.scorer import ScorerRecipe, ScorerStage, auc

pytest_plugins = ("tiny_fixtures", "stage_fixtures")


def recipe_of(config: Path, stages: Path, output: Path, *more: str) -> ScorerRecipe:
    settings = [*SHORT, f"labels.folder={stages / 'labels'}", f"training.init={stages / 'scorer'}"]
    return ScorerRecipe(changed(config, output, *settings, "scorer.enabled=true", *more), torch.device("cpu"))


def plan_of(*sentences: int) -> Plan:
    nothing = np.zeros((3, len(sentences)), np.int64)
    return Plan(np.array(sentences), nothing[0], nothing, nothing)


def test_auc_by_hand() -> None:
    """Of four pairs three are in order and one is tied."""
    scores, labels = torch.tensor([0.4, 0.9, 0.1, 0.4]), torch.tensor([True, True, False, False])
    assert auc(scores, labels) == 3.5 / 4
    assert auc(-scores, labels) == 0.5 / 4
    assert auc(scores, torch.ones(4, dtype=torch.bool)) == auc(scores, torch.zeros(4, dtype=torch.bool)) == 0.5


@pytest.mark.parametrize("squash", [True, False])
def test_loss_and_accuracy_by_hand(squash: bool, tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    """Ties and what is absent count for nothing, however they are scored."""
    recipe = recipe_of(tiny_config, stages, tmp_path, f"scorer.squash={str(squash).lower()}")
    # two sentences with two candidates, NON last; a logit of ln 3/2 is a probability of 3/5
    value = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    counts = torch.tensor([[True, True, False], [True, False, True]])
    scores = torch.tensor([[1.0, -1.0, 9.0], [1.0, -9.0, 1.0]]) * math.log(3 / 2)
    given = (scores.sigmoid() if squash else scores, value, counts)
    recipe.train.score = lambda *_: given  # type: ignore[method-assign]
    loss, logs = recipe.loss(plan_of(0, 1))
    # right three times with 3/5, wrong once with 2/5
    assert loss.item() == pytest.approx(-3 * math.log(3 / 5) - math.log(2 / 5))
    assert logs["accuracy"].tolist() == [3, 4]


def test_a_label_of_a_half_pulls_to_the_middle(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    recipe = recipe_of(tiny_config, stages, tmp_path)
    score = torch.tensor([[0.9, 0.2, 0.8]], requires_grad=True)
    given = score, torch.tensor([[1.0, 0.0, 0.5]]), torch.ones(1, 3, dtype=torch.bool)
    recipe.train.score = lambda *_: given  # type: ignore[method-assign]
    loss, logs = recipe.loss(plan_of(0))
    loss.backward()
    assert logs["accuracy"].tolist() == [2, 2]  # it has no right side
    assert score.grad is not None
    # d/ds of -(ln s + ln(1 - s)) / 2 at 0.8: (1 / 0.2 - 1 / 0.8) / 2
    assert score.grad[0].tolist() == pytest.approx([-1 / 0.9, 1 / 0.8, 1.875])


def test_the_loss_is_that_of_a_label(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    recipe = recipe_of(tiny_config, stages, tmp_path)
    plans, counts = [plan_of(1, 2), plan_of(3)], recipe.train.labels.counts
    assert recipe.normaliser(plans) == counts[1:4].sum() > 3  # more labels than sentences


def test_the_margin_of_labels(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    """With a margin that no gain reaches all candidates are ties, and NON alone has labels."""
    assert recipe_of(tiny_config, stages, tmp_path).train.labels.counts[:, :-1].any()
    labels = recipe_of(tiny_config, stages, tmp_path, "labels.margin=1000").train.labels
    assert not labels.counts[:, :-1].any() and labels.counts[:, -1].any()


def test_validation_by_hand(tiny_config: Path, stages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of(tiny_config, stages, tmp_path)
    modes: list[bool] = []
    recipe.scorer.register_forward_hook(lambda module, *_: modes.append(module.training))
    # sentence 0 has no candidate
    scores = torch.tensor([[0.0, 0.0, 0.8], [0.7, 0.6, 0.2], [0.6, 0.9, 0.9]])
    value = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    counts = torch.tensor([[False, False, True], [True, True, True], [True, True, True]])
    chosen = torch.tensor([[False, False], [True, True], [False, False]])

    def selected(probabilities: Tensor) -> Tensor:
        assert probabilities.shape == (3, 3)
        return chosen

    recipe.parts = lambda split: [np.arange(3)]  # type: ignore[method-assign]
    recipe.dev.score = lambda *_: (scores, value, counts)  # type: ignore[method-assign]
    monkeypatch.setattr("dynctx.training.scorer.probability_first", selected)
    recipe.module.train()  # as an update leaves it
    found = recipe.validate()
    assert modes == [False]
    # candidates .7 .6 (1) and .6 .9 (0): of four pairs one is in order, one tied; NONs .2 (1) and .8 .9 (0): none is
    assert found["score"] == found["auc"] == 1.5 / 4 and found["auc_non"] == 0.0
    # of seven, the two candidates that are 1 are on the right side of 1/2; four are 0
    assert found["accuracy"] == pytest.approx(2 / 7) and found["majority"] == pytest.approx(4 / 7)
    # of the two with candidates one has none selected and one has two
    assert found["non"] == 0.5 and found["size"] == 1.0
    # of the two selected one helps, of the two that help one is selected
    assert found["precision"] == 0.5 and found["recall"] == 0.5
    value[1, 2] = 0.5  # no side, so neither right nor wrong, and no need of none
    found = recipe.validate()
    assert found["accuracy"] == pytest.approx(2 / 6) and found["majority"] == pytest.approx(4 / 6)
    assert found["auc_non"] == 0.5


def test_what_is_not_learned_from_does_not_make_batches_larger() -> None:
    """A line of 4,000 pieces, unfit for training, the last of its document."""
    document = [([7] * 10, [7] * 10)] * 10
    usable = np.array([True] * 59 + [False])
    store = TokenStore.from_ids([*[document] * 5, [*document[:-1], ([9] * 4000, [9] * 4000)]], usable.tolist())
    split = SimpleNamespace(tokens=instance_tokens(Gatherer(store, 6), np.arange(60)), usable=usable)
    stage = SimpleNamespace(config=Config())
    stage.config.training.batch_tokens = 1024
    plans = ScorerStage.batches(stage, split, 0, 0)  # type: ignore[arg-type]
    for _ in range(3):
        assert split.tokens[next(plans)[2][0].sentences].sum() <= 1024


def test_dev_without_a_label_is_told_of_at_once(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    shutil.copytree(stages / "labels", tmp_path / "labels")
    values = np.load(tmp_path / "labels" / "dev.npy")
    values[:, :-1] = np.nan
    np.save(tmp_path / "labels" / "dev.npy", values)
    with pytest.raises(DynctxError, match="no label of dev; there is nothing to be judged by"):
        recipe_of(tiny_config, stages, tmp_path / "run", f"labels.folder={tmp_path / 'labels'}")
