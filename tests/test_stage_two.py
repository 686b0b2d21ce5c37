"""Stage 2 as a run: it starts from a sentence model, keeps neighbours together, validates with context and resumes."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import changed, last_checkpoint, log_of, train_here
from torch import Tensor

from dynctx.batches import Batch
from dynctx.errors import DynctxError
from dynctx.model_folder import fingerprint, load_model
from dynctx.selection.strategies import Previous
from dynctx.training.translation import TranslationRecipe

pytest_plugins = "tiny_fixtures"

CPU = torch.device("cpu")
STOPPED = ["training.updates=8", "training.checkpoint_every=4", "training.average=0"]


def stage_two(kind: str, trained: Path, *more: str) -> list[str]:
    return [f"model.kind={kind}", "model.scope=2", f"training.init={trained}", "training.selector=random subset", *more]


@pytest.mark.parametrize("kind", ["han", "san", "cadec"])
def test_a_run_that_was_stopped_ends_alike(kind: str, tiny_config: Path, trained: Path, tmp_path: Path) -> None:
    """Bit for bit, random drafts and selections included."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train_here(tiny_config, whole, *stage_two(kind, trained, *STOPPED))
    train_here(tiny_config, parts, *stage_two(kind, trained, *STOPPED, "training.updates=4"))
    train_here(tiny_config, parts, *stage_two(kind, trained, *STOPPED))
    ends = [(last_checkpoint(output) / "state.safetensors").read_bytes() for output in (whole, parts)]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("kind", ["concat", "tdnmt", "han", "san", "cadec"])
def test_what_does_not_learn_stays_as_it_was(kind: str, tiny_config: Path, trained: Path, tmp_path: Path) -> None:
    train_here(tiny_config, tmp_path / "run", *stage_two(kind, trained, *STOPPED))
    old, new = (load_model(folder).translator for folder in (trained, tmp_path / "run"))
    base = dict(new.sentence_model().named_parameters())
    moved = {name for name, parameter in old.named_parameters() if not torch.equal(parameter, base[name])}
    frozen = kind in ("tdnmt", "cadec")
    assert moved == (set() if frozen else {name for name, _ in old.named_parameters()})
    dev = [line["validation"] for line in log_of(tmp_path / "run") if "validation" in line]
    assert len(dev) == 1 and dev[0]["loss"] > 0


def recipe(config: Path, output: Path, trained: Path, kind: str, *more: str) -> TranslationRecipe:
    return TranslationRecipe(changed(config, output, *stage_two(kind, trained, *more)), CPU)


def test_random_context_is_drawn_anew_each_epoch(tiny_config: Path, trained: Path, tmp_path: Path) -> None:
    made = recipe(tiny_config, tmp_path, trained, "tdnmt")
    first, second = made.foreseen(0), made.foreseen(1)
    assert first is not None and second is not None and (first != second).any()
    for plan in made.plans(1):
        assert plan.chosen is not None and (plan.chosen == second[plan.sentences]).all()
    # a model that reads from a bank selects when a batch comes, by the epoch that it is of
    made = recipe(tiny_config, tmp_path, trained, "han")
    epochs = [(update[0], made.epoch) for update in islice(made.updates(0, 0), 60)]
    assert all(epoch == known for epoch, known in epochs) and epochs[-1][0] > 0
    asked: list[int] = []
    select = made.selector.select
    made.selector.select = lambda batch, draw=0: (asked.append(draw), select(batch, draw))[1]  # type: ignore[method-assign, func-returns-value]
    for epoch, _, (plan, *_) in islice(made.updates(3, 0), 1):
        made.loss(plan)
        assert asked == [epoch] == [3]


@pytest.mark.parametrize("kind", ["concat", "tdnmt"])
def test_of_what_a_scorer_chooses_from_only_that_is_read(
    kind: str, tiny_config: Path, trained: Path, tmp_path: Path
) -> None:
    """The loss is that of a batch with all candidates in it, of which some are selected."""
    settings = "scorer.enabled=true", "training.selector=size-first 1", "model.dropout=0"
    made = recipe(tiny_config, tmp_path, trained, kind, *settings)
    _, _, (plan, *_) = next(made.updates(0, 0))
    assert plan.chosen is None
    batch = made.gatherer.gather(plan, made.shape)
    chosen = made.selector.select(batch)
    assert chosen.any() and (chosen != batch.present).any()
    states = made.translator.decode(made.translator.encode(batch, chosen), batch)
    expected = made.likelihood(states, batch)

    short, _ = made.chosen_now(plan.sentences)
    assert sorted(short.sentences) == sorted(plan.sentences)
    assert short.lengths[2].sum() < plan.lengths[2].sum()  # of the context
    loss, _ = made.loss(plan)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()


def test_rows_have_room_for_the_longest_context_that_can_be_selected(
    tiny_config: Path, trained: Path, tmp_path: Path
) -> None:
    """None is one EOS; the previous one is known beforehand; what is drawn may come to be all."""
    given = "model.scope=5", "training.row_length=8"  # short rows: their width is that of the longest context
    rooms = {}
    for name in ("none", "previous 1", "full", "random 1", "random subset"):
        made = recipe(tiny_config, tmp_path, trained, "concat", *given, f"training.selector={name}")
        rooms[name] = made.shape.context
        chosen = made.foreseen(0)
        longest = made.gatherer.lengths_of(np.arange(len(made.usable)), chosen)[2].max()
        assert made.shape.context >= longest
        if name in ("none", "previous 1", "full"):
            assert made.shape.context < longest + 8  # a multiple of 8
    assert rooms["none"] < rooms["previous 1"] < rooms["full"] == rooms["random 1"] == rooms["random subset"]


@pytest.mark.parametrize(
    ("settings", "near"),
    [
        ([], 2),
        (["training.validation.selector=previous 1"], 1),
        (["decoding.selector=previous 1"], 1),
        (["decoding.selector=previous 1", "training.validation.selector=none"], 0),
    ],
)
def test_validation_reads_the_context_that_the_config_names(
    settings: list[str], near: int, tiny_config: Path, trained: Path, tmp_path: Path
) -> None:
    """Search and loss on dev, whatever training selects itself; the start of the run tells it."""
    made = recipe(tiny_config, tmp_path, trained, "tdnmt", "training.selector=full", *settings)
    seen: list[dict[int, int]] = []
    encode = made.translator.encode

    def spy(batch: Batch, selection: Tensor, *rest: Any) -> Any:
        assert not selection[:, near:].any()  # the nearest come first
        seen.append(dict(zip(batch.sentences.tolist(), selection.sum(1).tolist())))
        return encode(batch, selection, *rest)

    made.translator.encode = spy  # type: ignore[assignment]
    scores = made.validate()
    # two documents of six sentences, whose first ones have no sentences before them
    expected = {number: min(number % 6, near) for number in range(12)}
    assert seen == [expected, expected]
    assert f"context in validation: {('none', 'previous 1', 'full')[near]}" in made.describe()
    del made.translator.encode
    others = [Previous(n) for n in (0, 1, 2) if n != near]
    for made.dev.selector in others:  # and the loss depends on it
        assert abs(made.dev.loss() - scores["loss"]) > 1e-6


def test_neighbours_stay_together(tiny_config: Path, trained: Path, tmp_path: Path) -> None:
    """Documents of six sentences: with runs of 64 they are whole, in order; alone, sentences come in any order."""

    def follow(kind: str, *more: str) -> float:
        plans = next(recipe(tiny_config, tmp_path, trained, kind, *more).updates(0, 0))[2]
        return float(np.mean(np.concatenate([np.diff(plan.sentences) == 1 for plan in plans])))

    assert follow("san") > 0.8 and follow("han") > 0.8 and follow("cadec") > 0.8
    assert follow("tdnmt") < 0.2 and follow("san", "training.run_length=1") < 0.2
    assert 0.3 < follow("tdnmt", "training.run_length=2") < 0.7


def test_only_models_that_read_words_have_them_in_their_batches(
    tiny_config: Path, trained: Path, tmp_path: Path
) -> None:
    for kind, laid in (("tdnmt", True), ("concat", True), ("han", False), ("san", False), ("cadec", False)):
        made = recipe(tiny_config, tmp_path, trained, kind)
        assert (made.shape.context > 0) == laid == made.dev.gatherer.lay_context
        batch = made.gatherer.gather(next(made.updates(0, 0))[2][0], made.shape)
        assert (batch.context is not None) == laid and batch.present.shape[1] == 2


@pytest.mark.parametrize("kind", ["san", "cadec"])
def test_a_sentence_model_is_asked_for(kind: str, tiny_config: Path, tmp_path: Path) -> None:
    with pytest.raises(DynctxError, match=r"set training\.init"):
        train_here(tiny_config, tmp_path / "run", f"model.kind={kind}")
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize("kind", ["concat", "tdnmt"])
def test_what_will_be_selected_is_known_beforehand(kind: str, tiny_config: Path, trained: Path, tmp_path: Path) -> None:
    """Only that is laid into the batches, anew in each epoch, and the loss is as if all candidates lay there."""
    quiet = ["model.dropout=0", "training.batch_tokens=2000", "training.row_length=240"]
    made = recipe(tiny_config, tmp_path, trained, kind, *quiet)
    full = recipe(tiny_config, tmp_path, trained, kind, *quiet, "training.selector=full")
    assert made.shape.context < full.shape.context
    epochs = [{int(n): tuple(c) for plan in made.plans(e) for n, c in zip(plan.sentences, plan.chosen)} for e in (0, 1)]
    assert epochs[0].keys() == epochs[1].keys() and epochs[0] != epochs[1]
    plan = made.plans(1)[0]
    batch = made.gatherer.gather(plan, made.shape)
    assert np.array_equal(made.selector.select(batch, 1).numpy(), plan.chosen)
    with torch.no_grad():
        compact = made.loss(plan)[0]
        whole = made.gatherer.one_per_row(plan.sentences)  # with all candidates
        memory = made.translator.encode(whole, torch.from_numpy(plan.chosen))
        expected = made.likelihood(made.translator.decode(memory, whole), whole)
    torch.testing.assert_close(compact, expected, rtol=1e-5, atol=0)


def test_a_run_that_goes_on_remembers_what_it_began_with(tiny_config: Path, tmp_path: Path) -> None:
    """Even if that model was made anew in between: whoever compares the two must see it."""
    first, second = tmp_path / "first", tmp_path / "second"
    train_here(tiny_config, first, *STOPPED)
    began = fingerprint(load_model(first).translator)
    assert train_here(tiny_config, second, *stage_two("tdnmt", first, *STOPPED))["init"] == began
    shutil.rmtree(first)
    train_here(tiny_config, first, *STOPPED, "seed=9")
    assert fingerprint(load_model(first).translator) != began
    longer = stage_two("tdnmt", first, *STOPPED, "training.updates=12")
    assert train_here(tiny_config, second, *longer)["init"] == began
