"""The loop: rates, gradients, validation, early stopping, averaging, the end of a run, and what it tells."""

from __future__ import annotations

import json
import math
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scripted import OneProcess, Scripted, play, script, scripted_config
from tiny_runs import changed, curve, last_checkpoint, learned, log_of, train_here
from torch import Tensor, nn

from dynctx import pipeline
from dynctx.batches import Batch
from dynctx.commands_info import describe, for_users
from dynctx.config import Config, ScheduleConfig, TrainingConfig, load_config
from dynctx.errors import DynctxError
from dynctx.evaluation.bleu import corpus_bleu
from dynctx.losses import token_losses
from dynctx.model_folder import load_model, load_weights, read_about, write_down
from dynctx.pipeline import translate_documents
from dynctx.plain_data import to_dict
from dynctx.planning import Plan
from dynctx.prepared import read_held_out
from dynctx.subwords import EOS, UNK
from dynctx.training import checkpoints, translation
from dynctx.training.fabric import make_fabric
from dynctx.training.loop import Training, learning_rate, train
from dynctx.training.reporting import Reporter, count_parameters, peak_memory
from dynctx.training.same_run import FREE, flat
from dynctx.translators.concat import Concat

pytest_plugins = ("tiny_fixtures",)


# the learning rate


def test_inverse_square_root_rises_to_the_peak_and_falls() -> None:
    schedule = ScheduleConfig("inverse_sqrt", peak=0.8, warmup=100)
    rates = {1: 0.008, 50: 0.4, 100: 0.8, 400: 0.4, 10000: 0.08}
    assert {update: learning_rate(schedule, update) for update in rates} == pytest.approx(rates)
    without = ScheduleConfig("inverse_sqrt", peak=0.8, warmup=0)
    assert [learning_rate(without, update) for update in (1, 4, 16)] == pytest.approx([0.8, 0.4, 0.2])


def test_constant_rate_with_and_without_warmup() -> None:
    schedule = ScheduleConfig("constant", peak=0.8, warmup=4)
    assert [learning_rate(schedule, update) for update in (1, 2, 4, 5, 999)] == [0.2, 0.4, 0.8, 0.8, 0.8]
    without = ScheduleConfig("constant", peak=0.8, warmup=0)
    assert [learning_rate(without, update) for update in (1, 2, 999)] == [0.8, 0.8, 0.8]


# one update


def test_the_loss_is_normalised_by_all_tokens_of_an_update(tmp_path: Path) -> None:
    """Batches of 1, 2 and 5 tokens: the gradient is (1 + 4 + 25) / 8, and not the mean of 1 / 1, 4 / 2 and 25 / 5."""
    training = Training(scripted_config(tmp_path), Scripted(script), OneProcess())
    gradients: list[float] = []
    training.optimizer.register_step_pre_hook(
        lambda *_: gradients.append(float(training.recipe.module.weight.grad))  # type: ignore[arg-type]
    )
    training.step([1, 2, 5])  # type: ignore[list-item]
    assert gradients == [3.75]
    assert training.report.collect() == ({"loss": 37.5, "twice": 75.0}, 8)


def test_small_batches_have_the_gradient_of_one_large_batch(tiny_config: Path, tmp_path: Path) -> None:
    """Batches of one and of many sentences, against a plain sum over sentences that knows no packing."""
    config = changed(tiny_config, tmp_path, "model.dropout=0")
    recipe = translation.TranslationRecipe(config, torch.device("cpu"))
    training = Training(config, recipe, make_fabric(config))
    plans = next(recipe.updates(0, 0))[2]
    first = plans[0]
    plans[0] = Plan(first.sentences[:1], first.row[:1], first.offsets[:, :1], first.lengths[:, :1])
    assert plans[0].target_tokens * 5 < plans[1].target_tokens

    def loss(sentences: np.ndarray) -> Tensor:
        batch = recipe.gatherer.one_per_row(sentences)
        logits = recipe.module.output(recipe.module.decode(recipe.module.encode(batch), batch))
        return (token_losses(logits, batch.target.ids, 0.1) * (batch.target.sentence >= 0)).sum()

    every = np.concatenate([plan.sentences for plan in plans])
    tokens = sum(plan.target_tokens for plan in plans)
    parameters = list(recipe.module.parameters())
    mean = loss(every) / tokens
    expected = torch.autograd.grad(mean, parameters)
    mean_of_means = sum(loss(plan.sentences) / plan.target_tokens for plan in plans) / len(plans)
    wrong = torch.autograd.grad(mean_of_means, parameters)  # type: ignore[arg-type]
    found: list[list[Tensor]] = []
    training.optimizer.register_step_pre_hook(lambda *_: found.append([p.grad.clone() for p in parameters]))  # type: ignore[union-attr]
    training.step(plans)
    for got, right in zip(found[0], expected):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-6)
    assert max(float((got - other).abs().max()) for got, other in zip(found[0], wrong)) > 1e-2
    values, counted = training.report.collect()
    assert counted == tokens and values["loss"] == pytest.approx(mean.item())


def test_clipping(tmp_path: Path) -> None:
    training = Training(scripted_config(tmp_path, clip=0.25), Scripted(script), OneProcess())
    gradients: list[float] = []
    training.optimizer.register_step_pre_hook(
        lambda *_: gradients.append(float(training.recipe.module.weight.grad))  # type: ignore[arg-type]
    )
    training.step([1, 2])  # type: ignore[list-item]
    assert gradients == pytest.approx([0.25], abs=1e-5)


def test_a_parameter_that_no_batch_uses_keeps_its_value(tmp_path: Path) -> None:
    recipe = Scripted(script)
    recipe.module.register_parameter("idle", nn.Parameter(torch.tensor([3.0])))
    train(scripted_config(tmp_path, updates=3), recipe, OneProcess())
    assert recipe.module.idle.tolist() == [3.0]  # type: ignore[operator]
    state = checkpoints.load_tensors(last_checkpoint(tmp_path) / "state.safetensors")
    assert {"parameter.idle", "exp_avg.idle", "exp_avg_sq.idle"} <= state.keys()


def test_a_diverged_run_says_so(tmp_path: Path) -> None:
    recipe = Scripted(script)
    nn.init.constant_(recipe.module.weight, math.nan)
    with pytest.raises(DynctxError, match="update 2: the loss is nan, so the run has diverged"):
        train(scripted_config(tmp_path, log_every=2, validate_every=5), recipe, OneProcess())
    with pytest.raises(DynctxError, match="update 1: the loss is inf, so the run has diverged"):
        play(tmp_path / "other", lambda update, weight: math.inf)


def test_nothing_to_train(tmp_path: Path) -> None:
    recipe = Scripted(script)
    recipe.module.requires_grad_(False)
    with pytest.raises(DynctxError, match="nothing to train: every parameter is frozen"):
        train(scripted_config(tmp_path), recipe, OneProcess())


def test_every_batch_draws_its_own_random_numbers(tmp_path: Path) -> None:
    drawn: list[float] = []

    class Drawing(Scripted):
        def loss(self, plan: Any) -> tuple[Tensor, dict[str, Tensor]]:
            drawn.append(torch.rand(()).item())
            return super().loss(plan)

    for seed in (0, 0, 1):
        config = scripted_config(tmp_path / str(len(drawn)), updates=3)
        config.seed = seed
        train(config, Drawing(script), OneProcess())
    first, again, other = drawn[:6], drawn[6:12], drawn[12:]
    assert first == again
    assert len({*first, *other}) == 12  # two batches in each of three updates, two seeds


def test_validation_and_logging_do_not_touch_training(tiny_config: Path, trained: Path, tmp_path: Path) -> None:
    """Even where validation draws random numbers, every batch has its own."""
    settings = ["validate_every=4", "log_every=11", "validation.sampling=true", "validation.beam=1", "average=0"]
    train_here(tiny_config, tmp_path, *(f"training.{setting}" for setting in settings))
    assert learned(tmp_path)["tensors"] == learned(trained)["tensors"]
    train_here(tiny_config, tmp_path / "other", "training.updates=7", "seed=6")
    assert curve(tmp_path / "other")[0] != curve(trained)[0]


def test_validation_between_two_lines_of_the_log_does_not_change_them(tiny_config: Path, tmp_path: Path) -> None:
    for every in (3, 100):
        train_here(
            tiny_config,
            tmp_path / str(every),
            "training.updates=8",
            "training.log_every=4",
            f"training.validate_every={every}",
        )
    assert curve(tmp_path / "3") == curve(tmp_path / "100")


# what a run tells and leaves behind


def test_the_start_report_counts_trainable_and_frozen(
    tiny_config: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    init = [f"training.init={trained}", "training.freeze=nothing", "training.updates=0"]
    train_here(tiny_config, tmp_path, *init)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.endswith("frozen")]
    pieces, width, inner = len(load_model(trained).target), 32, 32
    attention, feed_forward, norm = 4 * (width * width + width), 2 * width * inner + inner + width, 2 * width
    counts = {
        "target_embedding": pieces * width,
        "encoder": attention + feed_forward + 2 * norm,
        "decoder": 2 * attention + feed_forward + 3 * norm,
        "encoder_norm": norm,
        "decoder_norm": norm,
    }
    counts["total"] = sum(counts.values())
    assert lines == [[name, f"{count:,}", "trainable", "0", "frozen"] for name, count in counts.items()]


@pytest.mark.parametrize(
    "schedule, said",
    [
        ("{peak: 7e-5, warmup: 4000}", "learning rate rising to 7e-05 over 4,000, then falling as 1/sqrt"),
        ("{peak: 0.01, warmup: 0}", "learning rate 0.01, falling as 1/sqrt"),
        ("{kind: constant, peak: 1e-4, warmup: 30}", "learning rate rising to 0.0001 over 30, then constant"),
        ("{kind: constant, peak: 1e-4, warmup: 0}", "learning rate 0.0001, constant"),
    ],
)
def test_the_start_report_tells_the_schedule(
    schedule: str, said: str, tiny_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_here(tiny_config, tmp_path, "training.updates=0", f"training.schedule={schedule}")
    assert f"schedule: 0 updates, {said}" in capsys.readouterr().out.splitlines()


def test_parameters_are_counted_by_part() -> None:
    module = nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.Linear(3, 3, bias=False)})
    module["c"] = nn.Linear(3, 3)
    module["c"].weight = module["b"].weight  # tied: counts once
    module["a"].bias.requires_grad_(False)
    assert count_parameters(module) == {"a": (6, 3), "b": (9, 0), "c": (3, 0), "total": (18, 3)}


def test_the_log(trained: Path) -> None:
    lines = log_of(trained)
    training = [line for line in lines if "loss" in line]
    assert [line["update"] for line in training] == [7, 14, 21, 28, 35, 42, 49, 56]
    for line in training:
        assert line["tokens_per_second"] > 0
        assert 0.05 < line["peak_gib"] < 64  # PyTorch alone takes 100 MiB; in other units it would be far off
        assert line["rate"] == learning_rate(ScheduleConfig(peak=0.02, warmup=20), line["update"])
        assert 0 < line["loss"] < 6
    assert training[-1]["loss"] < training[0]["loss"] - 0.5
    assert [line["update"] for line in lines if "validation" in line] == [15, 30, 45, 60]
    assert [line["update"] for line in lines if "finished" in line] == [60] and "finished" in lines[-1]


def test_memory_is_that_of_this_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several runs of one process, as in a table: each begins to count anew."""
    gpu, taken = torch.device("cuda"), {"bytes": 7 * 2**30}
    monkeypatch.setattr("torch.cuda.reset_peak_memory_stats", lambda device: taken.update(bytes=2 * 2**30))
    monkeypatch.setattr("torch.cuda.max_memory_allocated", lambda device: taken["bytes"])
    fabric = SimpleNamespace(global_rank=0, world_size=1, device=gpu)
    assert peak_memory(gpu) == 7 * 2**30
    with Reporter(tmp_path, TrainingConfig(), fabric).progress(0):
        assert peak_memory(gpu) == 2 * 2**30


def test_the_speed_leaves_out_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    class Slow(Scripted):
        def loss(self, plan: Any) -> tuple[Tensor, dict[str, Tensor]]:
            clock[0] += 1.0
            return super().loss(plan)

        def validate(self) -> dict[str, float]:
            clock[0] += 1000.0
            return super().validate()

    train(scripted_config(tmp_path, updates=4, log_every=4, validate_every=2), Slow(script), OneProcess())
    assert [line["tokens_per_second"] for line in log_of(tmp_path) if "loss" in line] == [12 / 8]


def test_tensorboard_draws_each_update_once(tiny_config: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train_here(tiny_config, tmp_path, "training.updates=14")
    second = int(time.time())
    while int(time.time()) == second:  # files are named after the second, and read in the order of their names
        time.sleep(0.01)
    train_here(tiny_config, tmp_path, "training.updates=21")
    assert len(list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))) == 2
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [7, 14, 21]
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(
        [loss for _, loss in curve(tmp_path)]
    )
    assert [event.step for event in events.Scalars("dev/bleu")] == [14, 15, 21]


def test_validation_translates_as_users_will(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the settings of validation, and long lines in parts."""
    monkeypatch.setattr(pipeline, "LONGEST", 9)
    scored: list[list[str]] = []

    def spy(texts: list[str], *rest: Any, **named: Any) -> Any:
        scored.append(texts)
        return corpus_bleu(texts, *rest, **named)

    monkeypatch.setattr(translation, "corpus_bleu", spy)
    train_here(tiny_config, tmp_path, "training.updates=40", "training.validate_every=40", "training.average=0")
    model = load_model(tmp_path)
    sources = [source for source, _ in read_held_out(model.config.data.folder, "dev")]
    assert any(len(ids) > 9 for source in sources for ids in model.source.encode(source.sentences))
    found = translate_documents(model, sources, model.config.training.validation)
    assert scored == [[sentence for document in found for sentence in document.sentences]]
    whole = [alone for source in sources for alone in source.sentences]
    monkeypatch.setattr(pipeline, "LONGEST", 256)
    other = translate_documents(model, sources, model.config.training.validation)
    assert len(whole) == 12 and other != found  # whole lines come out in another way


def test_the_model_is_stored_with_its_config(tiny_config: Path, tmp_path: Path) -> None:
    overrides = ["seed=7", "training.updates=3", "decoding.beam=3", "model.dropout=0.25"]
    record = train_here(tiny_config, tmp_path, *overrides)
    stored = load_config(tmp_path / "model" / "config.yaml")
    assert to_dict(stored) == to_dict(changed(tiny_config, tmp_path, *overrides))
    assert (stored.seed, stored.model.dropout, stored.decoding.beam) == (7, 0.25, 3)
    about = json.loads((tmp_path / "model" / "about.json").read_text())
    assert (about["updates"], about["scores"], about["best_update"]) == (3, record["history"][0], 3)


@pytest.mark.parametrize("empty", ['""', '"  "'])
def test_a_run_needs_a_folder(empty: str, tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # which an empty name would come to mean
    with pytest.raises(DynctxError, match=r"training\.output is empty: name the folder"):
        train_here(tiny_config, tmp_path, f"training.output={empty}")
    assert not list(tmp_path.iterdir())


def test_the_kept_model_is_that_of_the_best_validation(tiny_config: Path, tmp_path: Path) -> None:
    settings = ["updates=12", "validate_every=3", "average=9", "checkpoint_every=100"]
    record = train_here(tiny_config, tmp_path, *(f"training.{setting}" for setting in settings))
    scores = [entry["score"] for entry in record["history"]]
    if not record["average"]["used"]:
        best = record["history"][int(np.argmax(scores))]["update"]
        snapshot = checkpoints.load_tensors(tmp_path / "state" / f"weights-{best:08d}.safetensors")
    else:
        snapshot = checkpoints.average(sorted((tmp_path / "state").glob("weights-*")))
    weights = load_weights(tmp_path / "model")
    assert weights.keys() == snapshot.keys()
    assert all(torch.equal(weights[name], snapshot[name]) for name in weights)


def test_the_settings_that_may_change_exist() -> None:
    keys = {name.split("[")[0] for name in flat(to_dict(Config()))}
    assert all(any(f"{key}.".startswith(f"{name}.") for key in keys) for name in FREE if name != "data.test")


def test_words_are_dropped_in_training_and_nowhere_else(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most words unknown: what is learned differs, validation reads them all, and context is never touched."""
    read: list[tuple[bool, float, float]] = []
    encode = Concat.encode

    def watched(self: Concat, batch: Batch, *rest: Any) -> Any:
        words = (batch.source.sentence >= 0) & (batch.source.ids != EOS)
        context = batch.context.ids if batch.context is not None else torch.zeros(0)
        unknown = float((batch.source.ids[words] == UNK).double().mean())
        read.append((self.training, unknown, int((context == UNK).sum())))
        return encode(self, batch, *rest)

    monkeypatch.setattr(Concat, "encode", watched)
    few = ["training.updates=4", "training.validate_every=4", "training.average=0", "training.selector=full"]
    settings = ["model.kind=concat", "model.scope=2", "training.word_dropout=0.7", *few]
    train_here(tiny_config, tmp_path, *settings)
    assert {0.5 < unknown < 0.9 for training, unknown, _ in read if training} == {True}
    assert {unknown for training, unknown, _ in read if not training} == {0.0}
    assert not any(context for *_, context in read)


def test_the_licence_of_a_model_goes_with_what_comes_of_it(tiny_config: Path, trained: Path, tmp_path: Path) -> None:
    first = Path(shutil.copytree(trained / "model", tmp_path / "first"))
    write_down(first, licence="for research", trained_on="talks")
    settings = ["training.freeze=nothing", "training.updates=0"]
    for init, output in ((first, tmp_path / "second"), (tmp_path / "second", tmp_path / "third")):
        train_here(tiny_config, output, *settings, f"training.init={init}")
    model = tmp_path / "third" / "model"
    assert read_about(model)["origin"] == {"licence": "for research", "trained_on": "talks"}
    said = "a model trained on: talks, with the licence: for research"
    assert f"Training began with {said}.\n" in (model / "README.md").read_text()
    assert f"  begun from  {said}" in for_users(describe(model))
