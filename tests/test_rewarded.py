"""A table of rewards, and the scorer that learns from it: the same as asking the translator, only cheaper."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import changed, log_of, train_here

from dynctx.batches import Gatherer
from dynctx.commands import label_corpus
from dynctx.corpus import TokenStore
from dynctx.errors import DynctxError
from dynctx.labels.reward_tables import describe, reward_values, some_subsets, statistics, subset_bits
from dynctx.model_folder import load_model, load_weights
from dynctx.scoring import score
from dynctx.training.reinforce import ReinforceRecipe
from dynctx.training.rewarded import RewardedRecipe, expected
from dynctx.training.scorer import ScorerRecipe

pytest_plugins = ("tiny_fixtures",)

SCOPE = 2
CPU = torch.device("cpu")
SHORT = [
    "model.kind=tdnmt",
    f"model.scope={SCOPE}",
    "model.dropout=0",
    "training.updates=6",
    "training.update_batches=1",
    "training.schedule.peak=0.01",
    "training.schedule.warmup=1",
    "training.validate_every=3",
    "training.average=0",
    "training.checkpoint_every=100",
    "training.log_every=2",
    "scorer.pair_layers=1",
    "scorer.set_layers=1",
    "scorer.dropout=0",
]


@pytest.fixture(scope="module")
def stages(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a translator, the table of its rewards, and a scorer that learned from it."""
    folder = tmp_path_factory.mktemp("rewards")
    train_here(tiny_config, folder / "translator", *SHORT, "training.selector=random subset", "training.updates=10")
    label_corpus(changed(tiny_config, folder / "unused", *rewarded(folder)))
    train_here(tiny_config, folder / "scorer", *rewarded(folder))
    return folder


def rewarded(folder: Path, *more: str) -> list[str]:
    settings = [f"labels.model={folder / 'translator'}", f"labels.folder={folder / 'labels'}", "labels.kind=reward"]
    return [*SHORT, *settings, f"training.init={folder / 'translator'}", "training.stage=scorer", *more]


def test_subsets_by_their_bits() -> None:
    assert subset_bits(2).tolist() == [[False, False], [True, False], [False, True], [True, True]]
    with pytest.raises(DynctxError, match="a scope of 11"):
        subset_bits(11)


def test_the_table_is_what_the_translator_says(tiny_config: Path, stages: Path) -> None:
    model = load_model(stages / "translator")
    store = TokenStore.open(Path(model.config.data.folder) / "train")
    gatherer = Gatherer(store, SCOPE)
    found = reward_values(model, gatherer, np.array([0, 1, 4]), 0)
    alone, first, both = [0, 0], [1, 0], [1, 1]  # in a document sentence 0 has no candidate, 1 has one, 4 has two
    asked = [(0, alone), (1, alone), (1, first), (4, alone), (4, first), (4, [0, 1]), (4, both)]
    sentences, selection = np.array([a for a, _ in asked]), np.array([b for _, b in asked], np.bool_)
    reward = score(model.translator, gatherer, sentences, selection, rewards=True).reward
    assert reward is not None
    expected = [[reward[0]] * 4, [*reward[1:3], *reward[1:3]], reward[3:]]  # what is not there changes nothing
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-5)
    whole = np.load(stages / "labels" / "train.npy")
    assert whole.shape == (len(store), 4)
    np.testing.assert_allclose(whole[[0, 1, 4]], found, rtol=1e-4)


def test_some_subsets_by_hand() -> None:
    """Sentence 0 has no candidate, 1 has one, 2 and 3 have three: none, all, and others drawn."""
    sentences, exists = np.array([0, 1, 2, 3]), np.array([0b000, 0b001, 0b111, 0b111])
    found = some_subsets(sentences, exists, scope=3, count=4)
    assert found[0].tolist() == [True] + [False] * 7
    assert found[1].tolist() == [True, True] + [False] * 6
    assert found[2:, 0].all() and found[2:, 7].all() and found[2:].sum(axis=1).tolist() == [4, 4]
    # whatever it is drawn together with, a sentence has the same subsets; more of them include these
    assert (some_subsets(sentences[3:], exists[3:], 3, 4)[0] == found[3]).all()
    assert (found <= some_subsets(sentences, exists, 3, 6)).all()
    assert some_subsets(sentences, exists, 3, 100).sum(axis=1).tolist() == [1, 2, 8, 8]
    many = some_subsets(np.arange(4000), np.full(4000, 0b111), 3, 4)[:, 1:7].mean(axis=0)
    assert np.abs(many - 1 / 3).max() < 0.04  # each of the others as often as any other


def test_a_table_with_gaps_is_the_same_where_it_has_none(stages: Path) -> None:
    model = load_model(stages / "translator")
    gatherer = Gatherer(TokenStore.open(Path(model.config.data.folder) / "train"), SCOPE)
    sentences = np.arange(8)
    whole, some = reward_values(model, gatherer, sentences, 0), reward_values(model, gatherer, sentences, 0, count=3)
    known = ~np.isnan(some)
    assert known[:2].all() and known[2:4].sum(axis=1).tolist() == [3, 3]  # of four subsets; 0 and 1 have one and two
    np.testing.assert_allclose(some[known], whole[known], rtol=1e-5)


def test_labelling_some_subsets(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    settings = rewarded(stages, f"labels.folder={tmp_path / 'some'}", "labels.subsets=3", "scorer.enabled=true")
    settings += ["reinforce.law=independent"]
    label_corpus(changed(tiny_config, tmp_path, *settings))
    train, dev = (np.load(tmp_path / "some" / f"{split}.npy") for split in ("train", "dev"))
    assert np.isnan(train).any() and not np.isnan(train[:, [0, 3]]).any() and not np.isnan(dev).any()
    recipe = RewardedRecipe(changed(tiny_config, tmp_path, *settings), CPU)
    loss, logs = recipe.loss(next(recipe.updates(0, 0))[2][0])
    loss.backward()
    assert all(math.isfinite(float(x)) for x in (loss.detach(), *logs["worth"]))
    assert all(torch.isfinite(p.grad).all() for p in recipe.scorer.parameters() if p.grad is not None)
    with pytest.raises(DynctxError, match=r"sets without a value need reinforce\.law: independent"):
        RewardedRecipe(changed(tiny_config, tmp_path, *settings, "reinforce.law=sequential"), CPU)
    with pytest.raises(DynctxError, match="subsets was 3, is 0"):
        label_corpus(changed(tiny_config, tmp_path, *rewarded(stages, f"labels.folder={tmp_path / 'some'}")))
    dev[5, 1] = np.nan
    np.save(tmp_path / "some" / "dev.npy", dev)
    with pytest.raises(DynctxError, match="of dev the value of every set is needed"):
        RewardedRecipe(changed(tiny_config, tmp_path, *settings), CPU)
    np.save(tmp_path / "some" / "dev.npy", np.full_like(dev, np.nan))
    with pytest.raises(DynctxError, match="no value of dev; there is nothing to be judged by"):
        RewardedRecipe(changed(tiny_config, tmp_path, *settings), CPU)


def test_labelling_some_of_dev(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    settings = rewarded(stages, f"labels.folder={tmp_path / 'some'}", "labels.dev_sentences=1", "scorer.enabled=true")
    label_corpus(changed(tiny_config, tmp_path, *settings))
    recipe = RewardedRecipe(changed(tiny_config, tmp_path, *settings), CPU)
    judged, borders = recipe.dev.usable, np.asarray(recipe.dev.gatherer.store.documents)
    first, last = np.flatnonzero(judged)[[0, -1]]
    assert (first, last + 1) in itertools.pairwise(borders.tolist()) and len(borders) > 2  # one document of several
    values = np.load(tmp_path / "some" / "dev.npy")
    assert not np.isnan(values[judged]).any() and np.isnan(values[~judged]).all() and judged[first : last + 1].all()
    assert recipe.validate()["none"] == pytest.approx(values[judged, 0].mean())
    with pytest.raises(DynctxError, match="dev_sentences was 1, is 0"):
        label_corpus(changed(tiny_config, tmp_path, *rewarded(stages, f"labels.folder={tmp_path / 'some'}")))


def test_expectation_by_hand() -> None:
    """Over all: 0.1 * 1 + 0.2 * 2 + 0.3 * 3 + 0.4 * 6 = 3.8, and the mean is 3. Without the third: (0.1 * 1 + 0.2 * 2 +
    0.4 * 6) / 0.7 = 29/7, and the mean is 3."""
    probability = torch.tensor([[0.1, 0.2, 0.3, 0.4]] * 2, dtype=torch.float64, requires_grad=True)
    worth = torch.tensor([[1.0, 2.0, 3.0, 6.0], [1.0, 2.0, math.nan, 6.0]], dtype=torch.float64)
    found = expected(probability, worth)
    assert found.tolist() == pytest.approx([0.8, 29 / 7 - 3])
    found.sum().backward()
    # d/dp_i of sum p w / sum p = (w_i - expectation) / sum p
    assert probability.grad is not None
    assert probability.grad[1].tolist() == pytest.approx(
        [(1 - 29 / 7) / 0.7, (2 - 29 / 7) / 0.7, 0, (6 - 29 / 7) / 0.7]
    )


def test_what_is_told_of_a_table() -> None:
    table = np.array([[0.5, 0.4, 0.6, 0.3], [0.5, 0.2, 0.1, 0.5], [np.nan] * 4], np.float32)
    found = statistics(table)
    assert found["sentences"] == 2 and found["empty_is_best"] == 1
    assert found["previous"] == pytest.approx([0.5, 0.3, 0.4]) and found["oracle"] == pytest.approx(0.55)
    assert describe("dev", found).splitlines() == [
        "dev: 2 sentences judged, mean rewards:",
        "  none         0.5000",
        "  previous 1   0.3000",
        "  full         0.4000",
        "  oracle       0.5500",
        "  none is best for 50.0%",
    ]
    assert statistics(table[2:])["sentences"] == 0
    gaps = np.array([[0.5, 0.4, np.nan, 0.3], [0.5, np.nan, 0.7, 0.5]], np.float32)
    found = statistics(gaps)
    assert found["previous"] == pytest.approx([0.5, 0.4, 0.4]) and found["oracle"] == pytest.approx(0.6)
    assert found["empty_is_best"] == 1
    assert describe("train", found).splitlines()[-2] == "  of 75.0% of the subsets: the oracle knows these alone"
    below = statistics(table - 10)  # another translator's values may be logarithms
    assert below["oracle"] == pytest.approx(0.55 - 10) and below["empty_is_best"] == 1


@pytest.mark.parametrize("law", ["independent", "sequential"])
def test_it_is_the_exact_estimator_without_the_translator(
    law: str, tiny_config: Path, stages: Path, tmp_path: Path
) -> None:
    """Loss and gradient of a batch are those of the stage reinforce, which asks the translator each time."""
    settings = [f"reinforce.law={law}", "reinforce.price=0.01", "scorer.enabled=true", "scorer.temperature=0.02"]
    ours = RewardedRecipe(changed(tiny_config, tmp_path, *rewarded(stages, *settings)), CPU)
    init = f"training.init={stages / 'scorer'}"
    stage = ["training.stage=reinforce", "reinforce.estimator=exact", "reinforce.scorer_only=true", init]
    theirs = ReinforceRecipe(changed(tiny_config, tmp_path, *SHORT, *settings, *stage), CPU)
    ours.scorer.load_state_dict(theirs.scorer.state_dict())
    plan = next(ours.updates(0, 0))[2][0]
    assert len(plan.sentences) > 3
    found, _ = ours.loss(plan)
    outcome = theirs.select(plan.sentences)
    assert found.item() == pytest.approx(outcome.loss.item(), rel=1e-3)
    found.backward()
    outcome.loss.backward()
    pairs = list(zip(ours.scorer.parameters(), theirs.scorer.parameters()))
    largest = max(float(p.grad.abs().max()) for _, p in pairs if p.grad is not None)
    for mine, other in pairs:
        assert mine.grad is not None and other.grad is not None
        assert torch.allclose(mine.grad, other.grad, atol=2e-3 * largest)
    assert largest > 0


def test_a_bonus_for_entropy_is_taken_off_the_loss(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    losses = []
    for bonus in (0.0, 0.5):
        settings = rewarded(stages, "scorer.enabled=true", f"reinforce.entropy_bonus={bonus}")
        recipe = RewardedRecipe(changed(tiny_config, tmp_path, *settings), CPU)
        loss, logs = recipe.loss(next(recipe.updates(0, 0))[2][0])
        losses.append(loss.item())
    total = logs["entropy"][0].item()  # summed over the batch
    assert total > 1
    assert losses[0] - losses[1] == pytest.approx(0.5 * total, rel=1e-3)


def test_validation_by_hand(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    recipe = RewardedRecipe(
        changed(
            tiny_config,
            tmp_path,
            *rewarded(stages, "scorer.enabled=true", "reinforce.price=0.1", "training.batch_tokens=4096"),
        ),
        CPU,
    )
    recipe.dev.values[:] = [0.1, 0.2, 0.4, 0.8]
    chosen = torch.zeros(12, SCOPE, dtype=torch.bool)
    chosen[2, 0] = chosen[3] = True  # one candidate for one sentence, two for another, none for ten
    recipe.strategy.choose = lambda probabilities, present: chosen  # type: ignore[method-assign]
    found = recipe.validate()
    assert found["reward"] == pytest.approx((10 * 0.1 + 0.2 + 0.8) / 12)
    assert found["worth"] == pytest.approx((10 * 0.1 + (0.2 - 0.1) + (0.8 - 0.2)) / 12)
    assert found["score"] == found["worth"]  # so that the line of a validation has what `best` is the best of
    assert found["none"] == pytest.approx(0.1) and found["full"] == pytest.approx(0.8)
    assert found["oracle"] == pytest.approx(0.8)
    assert found["non"] == pytest.approx(10 / 12) and found["size"] == pytest.approx(3 / 12)


def test_validation_is_without_dropout(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    settings = rewarded(stages, "scorer.enabled=true", "scorer.dropout=0.5")
    recipe = RewardedRecipe(changed(tiny_config, tmp_path, *settings), CPU)
    modes: list[bool] = []
    recipe.scorer.register_forward_hook(lambda module, *_: modes.append(module.training))
    recipe.module.train()  # as an update leaves it
    recipe.validate()
    assert modes and not any(modes)


def test_a_clear_table_is_learned(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    """Where the nearest pays and the next one costs, the nearest is selected; where reading never pays, nothing is."""
    folder = tmp_path / "labels"
    folder.mkdir()
    (folder / "about.json").write_text((stages / "labels" / "about.json").read_text())
    for pays, size in ((0.3, 1.0), (0.0, 0.0)):
        for split in ("train", "dev"):
            values = np.load(stages / "labels" / f"{split}.npy")
            values[:] = np.array([0.3, 0.3 + pays, 0.3 - pays, 0.3], np.float32)
            np.save(folder / f"{split}.npy", values)
        place = tmp_path / f"run{size:g}"
        more = [f"labels.folder={folder}", "training.updates=100", "training.validate_every=50", "scorer.squash=false"]
        law = [
            "reinforce.law=independent",
            "reinforce.price=0.05",
            "training.schedule.kind=constant",
            "training.schedule.peak=0.003",
        ]
        train_here(tiny_config, place, *rewarded(stages, *more, *law))
        last = [line["validation"] for line in log_of(place) if "validation" in line][-1]
        # in each document of six the first has no candidate
        assert last["size"] == pytest.approx(size * 5 / 6) and last["reward"] == pytest.approx(0.3 + pays * 5 / 6)
        before, after = load_weights(stages / "translator" / "model"), load_weights(place / "model")
        assert all(torch.equal(after[name], value) for name, value in before.items())


def test_labels_of_another_kind_are_refused(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    config = changed(tiny_config, tmp_path, *rewarded(stages, "labels.kind=likelihood", "scorer.enabled=true"))
    with pytest.raises(DynctxError, match=r"labels of kind 'reward', but labels\.kind is 'likelihood'"):
        ScorerRecipe(config, CPU)


def test_labels_of_other_text_are_refused(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    labels = Path(shutil.copytree(stages / "labels", tmp_path / "labels"))
    config = changed(tiny_config, tmp_path, *rewarded(stages, "scorer.enabled=true", f"labels.folder={labels}"))
    RewardedRecipe(config, CPU)
    about = json.loads((labels / "about.json").read_text())
    about["text"]["train"] = about["text"]["dev"]
    (labels / "about.json").write_text(json.dumps(about))
    with pytest.raises(DynctxError, match=r"labels of other text than the prepared data now holds \(train\)"):
        RewardedRecipe(config, CPU)


def test_rewards_of_another_translator_are_refused(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    train_here(tiny_config, other, *SHORT, "training.selector=random subset", "training.updates=2", "seed=9")
    settings = rewarded(stages, "scorer.enabled=true", f"training.init={other}")
    with pytest.raises(DynctxError, match="rewards of another translator than"):
        RewardedRecipe(changed(tiny_config, tmp_path, *settings), CPU)


def test_a_model_with_a_scorer_selects_with_it(stages: Path) -> None:
    """Nobody said so: training.selector is none by default."""
    assert load_model(stages / "scorer").selector.name == "probability-first"


def test_a_strategy_that_asks_no_scorer_is_refused(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    settings = rewarded(stages, "scorer.enabled=true", "reinforce.strategy=full")
    with pytest.raises(DynctxError, match="expected probability-first or size-first N"):
        RewardedRecipe(changed(tiny_config, tmp_path, *settings), CPU)


def test_the_run_is_told_of(stages: Path) -> None:
    lines = log_of(stages / "scorer")
    assert {"loss", "worth", "non", "size", "entropy"} <= {key for line in lines for key in line}
    told = [line["validation"] for line in lines if "validation" in line]
    assert told and all({"worth", "reward", "none", "full", "oracle", "non", "size"} <= line.keys() for line in told)
    assert all(math.isfinite(value) for line in lines for value in line.values() if isinstance(value, float))


def test_a_judge_that_does_not_fit_is_refused(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    """Another scope would be ignored, and other subwords would be other words."""
    judge = [f"labels.model={stages / 'translator'}", f"labels.folder={tmp_path / 'labels'}"]
    with pytest.raises(DynctxError, match=r"has a scope of 2, the config of 3 \(model\.scope\)"):
        label_corpus(changed(tiny_config, tmp_path, *SHORT, *judge, "model.scope=3"))
    other = tmp_path / "other"
    shutil.copytree(stages / "translator" / "model", other)
    shipped = Path(__file__).parents[1] / "models" / "tvsub-zh-en" / "spm.model"
    shutil.copy(shipped, other / "spm.model")
    with pytest.raises(DynctxError):  # the first thing that does not fit is named
        label_corpus(changed(tiny_config, tmp_path, *SHORT, *judge, f"labels.model={other}"))
    assert not (tmp_path / "labels").exists()
