"""The stages scorer and reinforce, on runs of a few updates: what they change, what they leave, log and refuse."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import changed, learned, log_of, train_here
from torch import Tensor

from dynctx.batches import Batch, Gatherer, retargeted
from dynctx.commands import label_corpus
from dynctx.errors import DynctxError
from dynctx.model_folder import load_model, load_weights
from dynctx.selection.instances import gather_instances
from dynctx.selection.scoring import score, sums
from dynctx.training import reinforce
from dynctx.training.loop import Training
from dynctx.training.reinforce import Outcome, ReinforceRecipe
from dynctx.training.scorer import ScorerRecipe
from dynctx.training.translation import TranslationRecipe

pytest_plugins = ("tiny_fixtures",)

SCOPE = 2
# what the log of the stage must tell
KEYS = {
    *("loss", "reward_star", "reward_drawn", "advantage", "spread", "differ", "non", "size", "distance"),
    *("as_initial", "entropy"),
}
SHORT = [
    "model.kind=tdnmt",
    f"model.scope={SCOPE}",
    "training.updates=4",
    "training.update_batches=1",
    "training.schedule.peak=0.01",
    "training.schedule.warmup=1",
    "training.validate_every=4",
    "training.validation.beam=1",
    "training.average=0",
    "training.checkpoint_every=3",
    "training.log_every=2",
    "scorer.pair_layers=1",
    "scorer.set_layers=1",
]


@pytest.fixture(scope="module")
def stages(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a translator, labels by it, and a scorer that learned from these."""
    folder = tmp_path_factory.mktemp("stages")
    train_here(tiny_config, folder / "translator", *SHORT, "training.selector=random 1 or none", "training.updates=10")
    labels = [f"labels.model={folder / 'translator'}", f"labels.folder={folder / 'labels'}"]
    label_corpus(changed(tiny_config, folder / "unused", *SHORT, *labels))
    init = f"training.init={folder / 'translator'}"
    train_here(tiny_config, folder / "scorer", *SHORT, *labels, init, "training.stage=scorer")
    return folder


def reinforced(config: Path, stages: Path, *overrides: str) -> list[str]:
    return [*SHORT, "training.stage=reinforce", f"training.init={stages / 'scorer'}", *overrides]


def test_some_sentences_stand_for_all(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    """Half of a batch is tried, with twice the weight; the others get a selection too, and no advantage."""
    settings = reinforced(tiny_config, stages, "reinforce.tried=0.5", "scorer.enabled=true", "model.dropout=0")
    recipe = ReinforceRecipe(changed(tiny_config, tmp_path, *settings), torch.device("cpu"))
    sentences, asked = np.arange(2, 12), []
    attempt = recipe.attempt

    def watched(some: np.ndarray) -> Outcome:
        asked.append(attempt(some))
        numbers.append(some.tolist())
        return asked[-1]

    recipe.attempt = watched  # type: ignore[method-assign]
    numbers: list[list[int]] = []
    torch.manual_seed(1)
    found = [recipe.select(sentences) for _ in range(20)]
    assert all(len(some) == 5 for some in numbers)
    assert {n for some in numbers for n in some} == set(sentences.tolist())  # everyone's turn comes
    for whole, part, some in zip(found, asked, numbers):
        places = [int(np.flatnonzero(sentences == n)[0]) for n in some]
        assert whole.loss.item() == pytest.approx(2 * part.loss.item()) and whole.logs is part.logs
        assert (whole.drawn[places] == part.drawn).all()
        assert torch.allclose(whole.advantage[places], 2 * part.advantage)
        rest = [n for n in range(10) if n not in places]
        assert not whole.advantage[rest].any()
    others = np.concatenate([whole.drawn for whole in found])
    assert others.any() and others.shape == (200, SCOPE)
    alone = reinforced(tiny_config, stages, "reinforce.scorer_only=true", "scorer.enabled=true")
    recipe = ReinforceRecipe(changed(tiny_config, tmp_path, *alone), torch.device("cpu"))
    assert recipe.tried(600).all()  # nothing else is learned from the others
    recipe = ReinforceRecipe(
        changed(tiny_config, tmp_path, *reinforced(tiny_config, stages, *alone[-1:])), torch.device("cpu")
    )
    assert recipe.tried(511).all() and recipe.tried(600).sum() == 300  # as a rule


def test_the_price_is_for_the_scorer_alone(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    """The translator's advantage is of rewards as they are, the scorer's and the log's with prices taken off."""
    found = []
    for price in (0.0, 0.5):
        settings = reinforced(tiny_config, stages, f"reinforce.price={price}", "scorer.enabled=true", "model.dropout=0")
        recipe = ReinforceRecipe(changed(tiny_config, tmp_path, *settings), torch.device("cpu"))
        torch.manual_seed(3)
        found.append(recipe.select(np.arange(24)))
    plain, priced = found
    assert (plain.drawn == priced.drawn).all() and plain.advantage.abs().max() > 0
    assert torch.allclose(plain.advantage, priced.advantage, atol=1e-6)
    assert not torch.allclose(plain.logs["advantage"], priced.logs["advantage"], atol=1e-3)


def test_reserved_documents_are_for_the_scorer_alone(tiny_config: Path, stages: Path, tmp_path: Path) -> None:
    """What translators learn from and what rewards are asked about share no sentence."""
    reserve = "training.reserve=0.4"
    alone = ["reinforce.scorer_only=true", "scorer.enabled=true"]
    cpu = torch.device("cpu")
    plain = TranslationRecipe(changed(tiny_config, tmp_path, *SHORT, "training.selector=full", reserve), cpu)
    with pytest.raises(DynctxError, match=r"trained with training\.reserve 0, and the config has 0\.4"):
        ReinforceRecipe(changed(tiny_config, tmp_path, *reinforced(tiny_config, stages, reserve, *alone)), cpu)
    config = stages / "scorer" / "model" / "config.yaml"
    before = config.read_text()
    config.write_text(before.replace("reserve: 0.0", "reserve: 0.4"))  # as if it had been trained so
    scorer = ReinforceRecipe(changed(tiny_config, tmp_path, *reinforced(tiny_config, stages, reserve, *alone)), cpu)
    config.write_text(before)
    assert "documents kept from translators: 40% of the sentences" in scorer.describe()
    usable = np.asarray(plain.gatherer.store.usable)
    assert (plain.usable ^ scorer.usable == usable).all() and plain.usable.any() and scorer.usable.any()
    assert 0.3 < scorer.usable.sum() / usable.sum() <= 0.4
    used = {number for plan in scorer.plans(0) for number in plan.sentences.tolist()}
    assert used == set(np.flatnonzero(scorer.usable).tolist())
    with pytest.raises(DynctxError, match=r"needs reinforce\.scorer_only"):
        changed(tiny_config, tmp_path, *reinforced(tiny_config, stages, reserve))


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
        assert 0 < line["entropy"] <= math.log(SCOPE + 1) + 1e-6
    assert setting == "reinforce.sampling=match_size" or all(line["differ"] for line in lines)
    for before, after in zip(weights(stages / "scorer"), weights(tmp_path)):
        assert before.keys() == after.keys()
        assert not same(before, after) or not any(line["differ"] for line in lines)
    assert all(bool(value.isfinite().all()) for part in weights(tmp_path) for value in part.values())
    assert load_model(tmp_path).config.training.selector == load_model(tmp_path).config.reinforce.strategy


@pytest.mark.parametrize("sampling", ["include_non", "match_size"])
def test_exact_leaves_no_weight_without_a_number(
    sampling: str, tiny_config: Path, stages: Path, tmp_path: Path
) -> None:
    """First sentences of documents have nothing to draw from; with match_size not even NON."""
    overrides = ["reinforce.estimator=exact", f"reinforce.sampling={sampling}", "reinforce.scorer_only=true"]
    recipe = ReinforceRecipe(
        changed(tiny_config, tmp_path, *reinforced(tiny_config, stages, *overrides, "scorer.enabled=true")),
        torch.device("cpu"),
    )
    loss, _ = recipe.loss(next(recipe.updates(0, 0))[2][0])
    loss.backward()
    assert recipe.scorer is not None
    gradients = [parameter.grad for parameter in recipe.scorer.parameters() if parameter.grad is not None]
    assert gradients and all(bool(gradient.isfinite().all()) for gradient in gradients)


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


def recipe_of(config: Path, stages: Path, *overrides: str) -> ReinforceRecipe:
    settings = reinforced(config, stages, "scorer.enabled=true", "model.dropout=0", *overrides)
    return ReinforceRecipe(changed(config, stages / "unused", *settings), torch.device("cpu"))


def test_rewards_are_worked_out_once_and_priced(
    tiny_config: Path, stages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(tiny_config, stages, "reinforce.price=0.25")
    sentences = np.array([9, 10, 6])  # the last is the first of its document
    nothing, both = torch.zeros(3, SCOPE, dtype=torch.bool), torch.ones(3, SCOPE, dtype=torch.bool)
    both[2] = False
    counts: list[int] = []

    def counted(*arguments: Any, **settings: Any) -> torch.Tensor:
        found = sums(*arguments, **settings)
        counts.append(found.shape[1])
        return found

    monkeypatch.setattr("dynctx.training.reinforce.sums", counted)
    first, second, third = recipe.rewards(sentences, nothing, both, nothing)
    assert counts == [5]  # two sentences twice, one once
    found = [
        score(recipe.translator, recipe.gatherer, sentences, chosen.numpy(), rewards=True).reward
        for chosen in (nothing, both)
    ]
    plain = [torch.from_numpy(reward).float() for reward in found if reward is not None]
    torch.testing.assert_close(first, plain[0], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(second, plain[1] - 0.25 * torch.tensor([2.0, 2.0, 0.0]), rtol=1e-4, atol=1e-6)
    assert torch.equal(first, third)


def test_the_translators_loss_by_hand(tiny_config: Path, stages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """alpha * NLL(Y) + (1 - alpha) * A * NLL(Y^), each with its sentence's drawn context; Y is smoothed, Y^ is not."""
    recipe = recipe_of(
        tiny_config, stages, "reinforce.alpha=0.75", "reinforce.generated=1", "training.label_smoothing=0"
    )
    sentences = np.array([8, 9, 10])
    drawn = np.array([[True, False], [True, True], [False, False]])
    advantage = torch.tensor([0.5, 0.0, -0.25])
    texts = {8: [9, 8, 2], 10: [7, 2, 2]}  # of the two whose advantage is not 0
    asked: list[list[int]] = []

    def generate(numbers: np.ndarray, chosen: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
        asked.append(sorted(numbers.tolist()))
        assert dict(zip(numbers.tolist(), chosen.tolist())) == {8: [True, False], 10: [False, False]}
        return torch.tensor([texts[n] for n in numbers.tolist()]), np.array(
            [{8: 3, 10: 2}[n] for n in numbers.tolist()]
        )

    monkeypatch.setattr(recipe, "generate", generate)
    loss, logs = recipe.translate(sentences, Outcome(torch.zeros(()), drawn, advantage, {}))
    assert asked == [[8, 10]] and logs["generated"].tolist() == [2.0, 3.0]

    @torch.no_grad()
    def nll(sentence: int, chosen: np.ndarray, ids: list[int] | None) -> float:
        batch = recipe.gatherer.one_per_row(np.array([sentence]))
        if ids is not None:
            batch = retargeted(batch, np.array([0]), torch.tensor([ids]), np.array([len(ids)]))
        states = recipe.translator.decode(recipe.translator.encode(batch, torch.from_numpy(chosen[None])), batch)
        table = recipe.translator.output(states).log_softmax(-1)
        real = batch.target.sentence >= 0
        wanted = batch.target.ids[real]
        assert wanted.tolist() == (recipe.gatherer.store.target_ids(sentence) if ids is None else ids)
        return -float(table[real].gather(1, wanted[:, None]).sum())

    expected = 0.75 * sum(nll(sentence, chosen, None) for sentence, chosen in zip(sentences.tolist(), drawn))
    expected += 0.25 * (0.5 * nll(8, drawn[0], [9, 8, 2]) - 0.25 * nll(10, drawn[2], [7, 2]))
    assert loss.item() == pytest.approx(expected, rel=1e-4)


def test_long_sentences_are_drawn_by_themselves_and_say_the_same(
    tiny_config: Path, stages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(tiny_config, stages, "reinforce.generation=greedy")
    sentences = np.array([12, 8, 10, 9, 3, 5, 7])
    chosen = np.array(
        [[True, True], [True, False], [False, False], [True, True], [True, False], [False, True], [True, True]]
    )
    together, lengths = recipe.generate(sentences, chosen)
    sizes: list[int] = []
    one_per_row = Gatherer.one_per_row

    def watched(self: Gatherer, numbers: np.ndarray, *rest: Any, **named: Any) -> Batch:
        sizes.append(len(numbers))
        return one_per_row(self, numbers, *rest, **named)

    monkeypatch.setattr(Gatherer, "one_per_row", watched)
    monkeypatch.setattr(reinforce, "MANY", 1)
    monkeypatch.setattr(reinforce, "LONG_ONES", 3)
    apart, lengths_apart = recipe.generate(sentences, chosen)
    assert sizes == [5, 2]
    assert torch.equal(apart, together) and lengths_apart.tolist() == lengths.tolist()
    references = [len(recipe.gatherer.store.target_ids(n)) for n in sentences.tolist()]
    assert all(n <= m + 10 for n, m in zip(lengths, references))


def test_fewer_translations_weigh_more(tiny_config: Path, stages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a quarter of the batches with four times the weight: what is expected stays the same."""
    sentences, drawn = np.array([8, 9]), np.array([[True, False], [True, True]])
    outcome = Outcome(torch.zeros(()), drawn, torch.tensor([0.5, -0.25]), {})
    losses: dict[float, list[float]] = {}
    for share in (0.25, 1.0):
        settings = ("reinforce.alpha=0.5", f"reinforce.generated={share}", "model.dropout=0")
        recipe = recipe_of(tiny_config, stages, *settings)
        monkeypatch.setattr(recipe, "generate", lambda *_: (torch.tensor([[9, 8, 2], [7, 2, 2]]), np.array([3, 2])))
        torch.manual_seed(1)
        losses[share] = [recipe.translate(sentences, outcome)[0].item() for _ in range(200)]
    (always,) = set(losses[1.0])
    never, rare = sorted(set(losses[0.25]))  # alpha * MLE alone is less or more, as A has it
    plain = never if losses[0.25].count(never) > 100 else rare
    often = max(never, rare, key=lambda value: abs(value - plain))
    assert often - plain == pytest.approx(4 * (always - plain), rel=1e-4)
    assert 30 < losses[0.25].count(often) < 70


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
