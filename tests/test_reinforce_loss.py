"""What one batch teaches in the stage reinforce: which selections are tried, what they earn, and the losses by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stage_runs import SCOPE, recipe_of, reinforced
from tiny_runs import changed

from dynctx.batches import Batch, Gatherer, retargeted
from dynctx.scoring import score, sums
from dynctx.subwords import EOS
from dynctx.training import reinforce
from dynctx.training.reinforce import Outcome, ReinforceRecipe
from dynctx.translators.sampling import Drawn

pytest_plugins = ("tiny_fixtures", "stage_fixtures")


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


def test_a_bonus_for_entropy_is_taken_off_the_loss(tiny_config: Path, stages: Path) -> None:
    losses, entropies = [], []
    for bonus in (0.0, 0.5):
        recipe = recipe_of(tiny_config, stages, f"reinforce.entropy_bonus={bonus}", "reinforce.scorer_only=true")
        torch.manual_seed(3)
        found = recipe.select(np.arange(24))
        losses.append(found.loss.item())
        entropies.append(recipe.policy(np.arange(24))[0].entropy().sum().item())
    assert entropies[0] == entropies[1] > 1
    assert losses[0] - losses[1] == pytest.approx(0.5 * entropies[0], rel=1e-3)


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


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_translators_loss_by_hand(
    smoothing: float, tiny_config: Path, stages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """alpha * NLL(Y) + (1 - alpha) * A * NLL(Y^), each with its sentence's drawn context; Y is smoothed, Y^ is not."""
    recipe = recipe_of(
        tiny_config, stages, "reinforce.alpha=0.75", "reinforce.generated=1", f"training.label_smoothing={smoothing}"
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
        true = table[real].gather(1, wanted[:, None]).sum()
        if ids is not None:
            return -float(true)
        others = (table[real].sum() - true) / (table.shape[-1] - 1)  # which share what is smoothed away
        return -float((1 - smoothing) * true + smoothing * others)

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
    parts: list[list[int]] = []
    one_per_row = Gatherer.one_per_row

    def watched(self: Gatherer, numbers: np.ndarray, *rest: Any, **named: Any) -> Batch:
        parts.append(self.lengths_of(numbers)[1].tolist())  # of the references
        return one_per_row(self, numbers, *rest, **named)

    monkeypatch.setattr(Gatherer, "one_per_row", watched)
    monkeypatch.setattr(reinforce, "MANY", 1)
    monkeypatch.setattr(reinforce, "LONG_ONES", 3)
    apart, lengths_apart = recipe.generate(sentences, chosen)
    assert [len(part) for part in parts] == [5, 2] and max(parts[0]) <= min(parts[1])
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


def sums_of(logs: dict[str, torch.Tensor]) -> dict[str, tuple[float, float]]:
    return {name: (round(total.item(), 4), number.item()) for name, (total, number) in logs.items()}


def test_what_is_told_of_a_batch(tiny_config: Path, stages: Path) -> None:
    """Sums and numbers by hand: five sentences, the last without candidates; two of the selections drawn differ."""
    recipe = recipe_of(tiny_config, stages)
    star = torch.tensor([[True, True], [False, True], [False, False], [False, False], [False, False]])
    present = torch.tensor([[True, True]] * 4 + [[False, False]])
    differ = torch.tensor([True, False, True, False, False])
    advantage, entropy = torch.tensor([0.5, 9.0, -0.25, 9.0, 9.0]), torch.tensor([0.5, 0.25, 0.125, 0.125, 9.0])
    found = sums_of(recipe.logs(np.arange(2, 7), star, present, differ, advantage, entropy))
    del found["as_initial"]
    assert found == {
        "advantage": (0.25, 2),
        "spread": (0.75, 2),
        "differ": (2, 4),
        "non": (2, 4),  # the third and the fourth
        "size": (3, 4),
        "distance": (5, 3),  # 1 + 2 + 2
        "entropy": (1.0, 4),
    }


def test_the_initial_scorer_does_not_learn(tiny_config: Path, stages: Path) -> None:
    recipe = recipe_of(tiny_config, stages)
    assert recipe.scorer is not None
    before = {name: weight.clone() for name, weight in recipe.initial.state_dict().items()}
    with torch.no_grad():
        for parameter in recipe.scorer.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(weight, before[name]) for name, weight in recipe.initial.state_dict().items())
    assert not any(parameter.requires_grad for parameter in recipe.initial.parameters())


def test_rewards_teach_what_is_frozen_in_stage_two(tiny_config: Path, stages: Path) -> None:
    """All of TDNMT learns, unless the config says that its base is to stay."""
    for settings, expected in (([], True), (["training.freeze=base"], False)):
        translator = recipe_of(tiny_config, stages, *settings).translator
        base = {name: p.requires_grad for name, p in translator.sentence_model().named_parameters()}
        assert set(base.values()) == {expected}
        assert all(p.requires_grad for name, p in translator.named_parameters() if name not in base)


def test_the_initial_scorer_reads_as_it_read_then(tiny_config: Path, stages: Path) -> None:
    """What the translator learns changes the embedding, and the selections of now; not those of before."""
    recipe = recipe_of(tiny_config, stages)
    sentences = np.arange(2, 12)
    _, star, present = recipe.policy(sentences)
    nothing, zeros = torch.zeros(10, dtype=torch.bool), torch.zeros(10)

    def as_initial(selection: torch.Tensor) -> tuple[float, float]:
        return sums_of(recipe.logs(sentences, selection, present, nothing, zeros, zeros))["as_initial"]

    some = float(present[:, 0].sum())
    assert as_initial(star) == (some, some) and as_initial(~star) == (0, some)
    with torch.no_grad():
        recipe.translator.source_embedding.weight.normal_(std=5.0)
    assert as_initial(star) == (some, some)
    assert not torch.equal(recipe.policy(sentences)[1], star)


def test_an_end_that_was_not_drawn_is_not_learned_from(
    tiny_config: Path, stages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Translations of 7 7 7 ... are cut off at their limits, the reference and ten more; one that ends is not."""
    recipe = recipe_of(tiny_config, stages)
    sentences, chosen = np.array([8, 10]), np.zeros((2, 2), np.bool_)
    references = [len(recipe.gatherer.store.target_ids(n)) - 1 for n in sentences]

    def endless(model: Any, cache: Any, limits: torch.Tensor, *_: Any, longest: int, **named: Any) -> Drawn:
        tokens = torch.where(torch.arange(longest + 1) < limits[:, None], 7, EOS)
        tokens[limits == 19, 2:] = EOS
        return Drawn(tokens, torch.zeros(0), torch.zeros(0))

    monkeypatch.setattr(reinforce, "draw", endless)
    assert references == [6, 9]
    tokens, lengths = recipe.generate(sentences, chosen)
    assert lengths.tolist() == [16, 3]
    assert [row[:n].tolist()[-1] for row, n in zip(tokens, lengths)] == [7, EOS]


def test_dropout_is_for_learning_alone(tiny_config: Path, stages: Path) -> None:
    """What is generated and rewarded is said as in use; what is learned from it, as in training."""
    recipe = recipe_of(
        tiny_config, stages, "reinforce.alpha=0.5", "reinforce.generated=1", "reinforce.generation=greedy"
    )
    for module in recipe.module.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    sentences, drawn = np.array([8, 9, 10]), np.array([[True, False], [True, True], [False, False]])
    recipe.translator.eval()
    expected, _ = recipe.generate(sentences, drawn)
    recipe.translator.train()
    assert all(torch.equal(recipe.generate(sentences, drawn)[0], expected) for _ in range(3))
    assert recipe.translator.training
    outcome = Outcome(torch.zeros(()), drawn, torch.zeros(3), {})
    recipe.translator.eval()
    assert len({recipe.translate(sentences, outcome)[0].item() for _ in range(4)}) == 4
