"""A model on disk: there and back again, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from saved_models import DOCUMENTS, TEXT, make, message, same_weights

from dynctx import model_folder
from dynctx.errors import DynctxError
from dynctx.model_folder import (
    check_selector,
    find_model,
    fingerprint,
    load_model,
    load_weights,
    save_model,
    weights_of,
)
from dynctx.pipeline import translate_documents
from dynctx.subwords import Subwords, train_subwords

pytest_plugins = ("saved_fixtures",)


def test_random_selectors_draw_with_the_seed_of_the_model(subwords: Subwords) -> None:
    for seed in (1, 5):
        for name in ("random 2", "random subset", "random 1 or none"):
            assert make(subwords, seed=seed).choose(name).seed == seed  # type: ignore[attr-defined]


def test_a_selector_beyond_the_scope_is_refused(subwords: Subwords) -> None:
    model = make(subwords)
    model.config.model.kind, model.config.model.scope = "tdnmt", 2
    assert model.choose("previous 2").name == "previous 2"
    assert "asks for more sentences than the model's scope of 2" in message(lambda: model.choose("previous 3"))


# there and back again


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_a_saved_model_comes_back_as_it_was(tie: str, tmp_path: Path, subwords: Subwords) -> None:
    model = make(subwords, tie=tie, updates=300, scores={"BLEU": 12.5, "signature": "nrefs:1"})
    save_model(tmp_path / "model", model)
    again = load_model(tmp_path / "model")
    assert same_weights(model, again)
    assert again.config == model.config
    assert again.about == {**model.about, "weights": fingerprint(model.network)}
    assert again.source is again.target
    assert again.source.model == subwords.model
    assert not again.translator.training
    assert translate_documents(again, DOCUMENTS) == translate_documents(model, DOCUMENTS)


def test_the_folder_holds_what_it_says(saved: Path) -> None:
    assert sorted(file.name for file in saved.iterdir()) == [
        "README.md",
        "about.json",
        "config.yaml",
        "model.safetensors",
        "spm.model",
    ]
    assert sorted(file.name for file in saved.parent.iterdir()) == ["model"]
    weights = fingerprint(load_model(saved).network)
    assert json.loads((saved / "about.json").read_text()) == {"updates": 7, "weights": weights}
    card = (saved / "README.md").read_text()
    assert card.startswith("# sentence model, en to de\n")
    assert "Updates: 7." in card


def test_two_vocabularies(tmp_path: Path, subwords: Subwords) -> None:
    other = train_subwords(TEXT, 50, kind="unigram", byte_fallback=False, threads=1)
    model = make(subwords, other, tie="target")
    save_model(tmp_path / "model", model)
    assert not (tmp_path / "model" / "spm.model").exists()
    again = load_model(tmp_path / "model")
    assert (again.source.model, again.target.model) == (subwords.model, other.model)
    assert same_weights(model, again)
    assert translate_documents(again, DOCUMENTS) == translate_documents(model, DOCUMENTS)


@pytest.mark.parametrize(("tie", "copies"), [("all", 1), ("target", 2), ("none", 3)])
def test_tied_weights_are_stored_once(tie: str, copies: int, tmp_path: Path, subwords: Subwords) -> None:
    save_model(tmp_path / "model", make(subwords, tie=tie))
    weights = load_file(tmp_path / "model" / "model.safetensors")
    assert sum(weight.shape == (len(subwords), 16) for weight in weights.values()) == copies
    translator = load_model(tmp_path / "model").translator
    assert (translator.output.weight is translator.target_embedding.weight) == (tie != "none")
    assert (translator.source_embedding.weight is translator.target_embedding.weight) == (tie == "all")


def test_shards(tmp_path: Path, subwords: Subwords) -> None:
    model = make(subwords)
    save_model(tmp_path / "model", model, shard_bytes=4000)
    files = sorted(file.name for file in (tmp_path / "model").glob("*.safetensors"))
    assert len(files) > 2
    assert files == [f"model-{k:05d}-of-{len(files):05d}.safetensors" for k in range(1, len(files) + 1)]
    shards = [load_file(tmp_path / "model" / name) for name in files]
    sizes = [sum(tensor.nbytes for tensor in shard.values()) for shard in shards]
    assert all(size <= 4000 or len(shard) == 1 for size, shard in zip(sizes, shards))  # one tensor is never split
    assert sum(len(shard) for shard in shards) == len(weights_of(model.translator))
    assert same_weights(model, load_model(tmp_path / "model"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype, tmp_path: Path, subwords: Subwords) -> None:
    model = make(subwords)
    before = {name: weight.clone() for name, weight in weights_of(model.translator).items()}
    save_model(tmp_path / "model", model, dtype=dtype)
    assert {weight.dtype for weight in load_weights(tmp_path / "model").values()} == {dtype}
    again = weights_of(load_model(tmp_path / "model").translator)
    for name, weight in weights_of(model.translator).items():
        assert torch.equal(weight, before[name])  # the model in memory is not rounded
        assert torch.equal(again[name], weight.to(dtype).float())


def test_the_model_of_a_run_is_found(tmp_path: Path, subwords: Subwords) -> None:
    save_model(tmp_path / "run" / "model", make(subwords))
    assert find_model(tmp_path / "run") == find_model(tmp_path / "run" / "model") == tmp_path / "run" / "model"
    assert load_model(str(tmp_path / "run")).config.seed == 0


# whole or not at all


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_model_replaces_another(saved: Path, subwords: Subwords) -> None:
    (saved / "stale.txt").write_text("of the old model")
    newer = make(subwords, seed=5)
    save_model(saved, newer, shard_bytes=4000)
    assert same_weights(load_model(saved), newer)
    assert not (saved / "stale.txt").exists()
    assert [file.name for file in saved.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("place", ["save_subwords", "card", "save_weights"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), TypeError("a bug")])
def test_a_failure_in_the_middle_leaves_the_old_model(
    place: str, error: BaseException, saved: Path, subwords: Subwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(model_folder, place, fail)
    expected = DynctxError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected) as caught:
        save_model(saved, make(subwords, seed=5))
    if isinstance(error, OSError):
        assert str(caught.value) == f"{saved}: the model could not be saved: No space left on device"
    assert [file.name for file in saved.parent.iterdir()] == ["model"]
    assert same_weights(load_model(saved), make(subwords))


def test_weights_that_cannot_be_written_leave_the_old_model(
    saved: Path, subwords: Subwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library of the weights has errors of its own."""

    def into_nowhere(folder: Path, *_: Any) -> None:
        save_file({"a": torch.zeros(1)}, folder / "missing" / "model.safetensors")

    monkeypatch.setattr(model_folder, "save_weights", into_nowhere)
    assert message(lambda: save_model(saved, make(subwords, seed=5))).startswith(
        f"{saved}: the model could not be saved: "
    )
    assert [file.name for file in saved.parent.iterdir()] == ["model"]


def test_a_text_that_cannot_be_written_leaves_no_half_model(tmp_path: Path, subwords: Subwords) -> None:
    model = make(subwords, scores={"BLEU": object()})  # no JSON
    with pytest.raises(TypeError):
        save_model(tmp_path / "model", model)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_rename_brings_the_old_model_back(
    saved: Path, subwords: Subwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def fail_for_the_new(self: Path, target: Path) -> Path:
        return full_disk() if self.name == "model.partial" else rename(self, target)  # type: ignore[return-value, func-returns-value]

    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    assert "No space left" in message(lambda: save_model(saved, make(subwords, seed=5)))
    assert [file.name for file in saved.parent.iterdir()] == ["model"]
    assert same_weights(load_model(saved), make(subwords))


def test_leftovers_of_a_killed_process_are_no_obstacle(saved: Path, subwords: Subwords) -> None:
    for name in ("model.partial", "model.old"):
        (saved.parent / name).mkdir()
        (saved.parent / name / "config.yaml").write_text("seed: 99")
    save_model(saved, make(subwords, seed=5))
    assert load_model(saved).config.seed == 5
    assert [file.name for file in saved.parent.iterdir()] == ["model"]


# damage


def test_others_may_read_the_weights_where_they_may_read_files(saved: Path) -> None:
    modes = {file.name: file.stat().st_mode & 0o777 for file in saved.iterdir()}
    assert set(modes.values()) == {modes["config.yaml"]}


def test_selectors_are_checked_without_the_model(subwords: Subwords) -> None:
    config = make(subwords).config
    config.model.kind, config.model.scope = "tdnmt", 2
    check_selector("previous 2", config)
    for name, said in (
        ("previous 3", "more sentences than the model's scope of 2"),
        ("fulll", "expected one of: none, full"),
        ("probability-first", "this model has no context scorer"),
    ):
        with pytest.raises(DynctxError, match=said):
            check_selector(name, config)
    config.scorer.enabled = True
    check_selector("probability-first", config)
