"""The stages scorer and reinforce, on runs of a few updates: what they change, what they leave, log and refuse."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from stage_runs import SCOPE, SHORT, reinforced
from tiny_runs import changed, learned, log_of, train_here
from torch import Tensor

from dynctx.commands import label_corpus
from dynctx.errors import DynctxError
from dynctx.model_folder import load_model, load_weights
from dynctx.selection.instances import gather_instances
from dynctx.training.loop import Training
from dynctx.training.reinforce import ReinforceRecipe
from dynctx.training.scorer import ScorerRecipe
from dynctx.training.translation import TranslationRecipe

pytest_plugins = ("tiny_fixtures", "stage_fixtures")

# what the log of the stage must tell
KEYS = {
    *("loss", "reward_star", "reward_drawn", "advantage", "spread", "differ", "non", "size", "distance"),
    *("as_initial", "entropy"),
}


def weights(output: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Of the translator, and of the scorer."""
    every = load_weights(output / "model" if (output / "model").exists() else output)
    mine = {name: value for name, value in every.items() if name.startswith("scorer.")}
    return {name: value for name, value in every.items() if name not in mine}, mine


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_the_stage_scorer_leaves_the_translator_as_it_was(stages: Path) -> None:
    before, none = weights(stages / "translator")
    after, scorer = weights(stages / "scorer")
    assert not none and scorer
    assert same(before, after)
    assert load_model(stages / "scorer").scorer is not None


@pytest.mark.parametrize("together", [False, True])
@torch.no_grad()
def test_labels_are_learned_one_by_one_or_as_in_use(
    together: bool, tiny_config: Path, stages: Path, tmp_path: Path
) -> None:
    """By itself a candidate's score cannot depend on another candidate; together it is the score of use."""
    overrides = [f"labels.folder={stages / 'labels'}", f"labels.together={str(together).lower()}"]
    settings = [*SHORT, *overrides, f"training.init={stages / 'scorer'}", "scorer.enabled=true"]
    recipe = ScorerRecipe(changed(tiny_config, tmp_path, *settings), torch.device("cpu"))
    sentences = np.array([8, 9, 10])
    recipe.scorer.eval()
    embedding = recipe.translator.source_embedding
    found, _, _ = recipe.train.score(recipe.scorer, embedding, sentences)
    instances = gather_instances(recipe.train.gatherer, sentences)
    alone, in_use = (recipe.scorer(instances, embedding, independent=way) for way in (True, False))
    assert torch.equal(found, in_use if together else alone)
    assert not torch.allclose(alone, in_use, atol=1e-6)


def test_reserved_documents_are_for_the_scorer_alone(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    """What translators learn from and what rewards are asked about share no sentence."""
    reserve = "training.reserve=0.4"
    alone = ["reinforce.scorer_only=true", "scorer.enabled=true"]
    cpu = torch.device("cpu")
    plain = TranslationRecipe(changed(tiny_config, tmp_path, *SHORT, "training.selector=full", reserve), cpu)
    with pytest.raises(DynctxError, match=r"trained with training\.reserve 0, and the config has 0\.4"):
        ReinforceRecipe(changed(tiny_config, tmp_path, *reinforced(tiny_config, stages, reserve, *alone)), cpu)
    kept = Path(shutil.copytree(stages / "scorer" / "model", tmp_path / "kept"))
    before = (kept / "config.yaml").read_text()
    (kept / "config.yaml").write_text(before.replace("reserve: 0.0", "reserve: 0.4"))  # as if it had been trained so
    settings = reinforced(tiny_config, stages, reserve, *alone, f"training.init={kept}")
    scorer = ReinforceRecipe(changed(tiny_config, tmp_path, *settings), cpu)
    assert "documents kept from translators: 40% of the sentences" in scorer.describe()
    usable = np.asarray(plain.gatherer.store.usable)
    assert (plain.usable ^ scorer.usable == usable).all() and plain.usable.any() and scorer.usable.any()
    assert 0.3 < scorer.usable.sum() / usable.sum() <= 0.4
    used = {number for plan in scorer.plans(0) for number in plan.sentences.tolist()}
    assert used == set(np.flatnonzero(scorer.usable).tolist())
    with pytest.raises(DynctxError, match=r"needs reinforce\.scorer_only"):
        changed(tiny_config, tmp_path, *reinforced(tiny_config, stages, reserve))


@pytest.mark.parametrize(
    "setting",
    [
        "reinforce.estimator=self-critical",
        "reinforce.estimator=rloo",
        "reinforce.estimator=exact",
        "reinforce.law=independent",
        "reinforce.sampling=match_size",
        "reinforce.strategy=size-first 1",
        "reinforce.generation=greedy",
    ],
)
def test_every_way_of_it_runs_and_tells(setting: str, tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    train_here(tiny_config, tmp_path, *reinforced(tiny_config, stages, setting))
    lines = [line for line in log_of(tmp_path) if "loss" in line]
    assert [line["update"] for line in lines] == [2, 4]
    for line in lines:
        assert KEYS | {"generated"} <= line.keys()
        assert all(math.isfinite(line[key]) for key in KEYS)
        if line["differ"]:  # where Z^ is always Z*, as it may be with match_size, no reward is worked out
            assert 0 < line["reward_star"] <= 1 and 0 < line["reward_drawn"] <= 1
        assert line["advantage"] == pytest.approx(line["reward_drawn"] - line["reward_star"], abs=1e-5)
        assert line["spread"] >= abs(line["advantage"])
        assert 0 <= line["non"] <= 1 and 0 <= line["size"] <= SCOPE
        most = SCOPE * math.log(2) if setting == "reinforce.law=independent" else math.log(SCOPE + 1)
        assert 0 < line["entropy"] <= most + 1e-6
    assert setting == "reinforce.sampling=match_size" or all(line["differ"] for line in lines)
    for before, after in zip(weights(stages / "scorer"), weights(tmp_path)):
        assert before.keys() == after.keys()
        assert not same(before, after) or not any(line["differ"] for line in lines)
    assert all(bool(value.isfinite().all()) for part in weights(tmp_path) for value in part.values())
    assert load_model(tmp_path).config.training.selector == load_model(tmp_path).config.reinforce.strategy


@pytest.mark.parametrize("kind", ["concat", "han", "san", "cadec"])
@pytest.mark.parametrize("labels", ["likelihood", "bleu"])
def test_every_model_goes_through_all_stages(
    kind: str, labels: str, tiny_config: Path, trained: Path, tmp_path: Path
) -> None:
    own = [*SHORT, f"model.kind={kind}", "training.updates=2", "training.selector=random subset"]
    train_here(tiny_config, tmp_path / "translator", *own, f"training.init={trained}")
    keys = f"model={tmp_path / 'translator'}", f"folder={tmp_path / 'l'}", f"kind={labels}"
    judge = [f"labels.{key}" for key in keys]
    label_corpus(changed(tiny_config, tmp_path / "unused", *own, *judge))
    learning = [*own, *judge, "training.stage=scorer", "training.selector=probability-first"]
    train_here(tiny_config, tmp_path / "scorer", *learning, f"training.init={tmp_path / 'translator'}")
    last = [*own, "training.stage=reinforce", "reinforce.generated=1", f"training.init={tmp_path / 'scorer'}"]
    train_here(tiny_config, tmp_path / "end", *last)
    values = np.load(tmp_path / "l" / "train.npy")
    assert values.shape[1] == SCOPE + 1 and np.isfinite(values[:, -1]).any()
    assert labels == "bleu" or np.nanstd(values[:, 0] - values[:, -1]) > 0  # context matters
    (translator, scorer), (told, learned_scorer) = weights(tmp_path / "scorer"), weights(tmp_path / "end")
    assert same(translator, weights(tmp_path / "translator")[0])
    assert not same(translator, told) and not same(scorer, learned_scorer)
    assert all(bool(value.isfinite().all()) for part in (told, learned_scorer) for value in part.values())
    frozen = ("second_decoder", "second_norm", "output") if kind == "cadec" else tuple(translator)
    changed_ones = {name for name, value in translator.items() if not torch.equal(value, told[name])}
    assert changed_ones and all(name.startswith(frozen) for name in changed_ones)  # of CADec the sentence model stays


def test_scorer_only_leaves_the_translator_as_it_was(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    train_here(tiny_config, tmp_path, *reinforced(tiny_config, stages, "reinforce.scorer_only=true"))
    (before, old), (after, new) = weights(stages / "scorer"), weights(tmp_path)
    assert same(before, after) and not same(old, new)
    assert all("generated" not in line for line in log_of(tmp_path))


def test_alpha_one_generates_nothing(
    tiny_config: Path, stages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    generate = ReinforceRecipe.generate

    def counted(self: ReinforceRecipe, sentences: np.ndarray, chosen: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
        calls.append(len(sentences))
        return generate(self, sentences, chosen)

    monkeypatch.setattr(ReinforceRecipe, "generate", counted)
    train_here(tiny_config, tmp_path / "one", *reinforced(tiny_config, stages, "reinforce.alpha=1"))
    assert not calls
    assert [line["generated"] for line in log_of(tmp_path / "one") if "loss" in line] == [0, 0]
    often = ("reinforce.alpha=0.5", "reinforce.generated=1")
    train_here(tiny_config, tmp_path / "less", *reinforced(tiny_config, stages, *often))
    assert calls and all(calls)


def test_a_run_that_is_stopped_ends_bit_for_bit_as_if_not(
    tiny_config: Path, stages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = reinforced(tiny_config, stages, "training.updates=5")
    train_here(tiny_config, tmp_path / "whole", *overrides)
    step = Training.step

    def stop(self: Training, plans: list) -> None:
        if self.update == 4:  # one update after the checkpoint
            raise KeyboardInterrupt
        step(self, plans)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Training, "step", stop)
        train_here(tiny_config, tmp_path / "stopped", *overrides)
    train_here(tiny_config, tmp_path / "stopped", *overrides)
    whole, again = learned(tmp_path / "whole"), learned(tmp_path / "stopped")
    assert again["model"] == whole["model"] and again["tensors"] == whole["tensors"]
    assert again["validations"] == whole["validations"]


@pytest.mark.parametrize("stage", ["scorer", "reinforce"])
def test_a_stage_needs_something_to_start_from(stage: str, tiny_config: Path, tmp_path: Path) -> None:
    with pytest.raises(DynctxError, match=r"training\.init is missing"):
        train_here(tiny_config, tmp_path, *SHORT, f"training.stage={stage}")


def test_a_strategy_that_does_not_judge_is_refused(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    with pytest.raises(DynctxError, match=r"reinforce\.strategy is 'full': expected probability-first or size-first N"):
        train_here(tiny_config, tmp_path, *reinforced(tiny_config, stages, "reinforce.strategy=full"))
