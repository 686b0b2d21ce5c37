"""A model on disk: there and back again, whole or not at all, and every damage named."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from dynctx import model_folder
from dynctx.config import Config, DataConfig, DecodingConfig, ModelConfig
from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.model_folder import (
    Model,
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
from dynctx.translators import build_translator

TEXT = ["the cat sat on the mat", "a dog ran in the park", "it rains today again and again", "we saw a small house"]
DOCUMENTS = [Document("a", ("the cat sat", "", "a dog ran again")), Document("b", ("we saw the park today",))]


@pytest.fixture(scope="module")
def subwords() -> Subwords:
    return train_subwords(TEXT, 60, kind="bpe", byte_fallback=False, threads=1)


def make(source: Subwords, target: Subwords | None = None, seed: int = 0, tie: str = "all", **about: Any) -> Model:
    target = target or source
    torch.manual_seed(seed)
    sizes = ModelConfig(kind="sentence", width=16, feed_forward=32, heads=2, encoder_layers=1, decoder_layers=1)
    sizes.tie_embeddings = tie  # type: ignore[assignment]
    data = DataConfig(source_language="en", target_language="de", joint=target is source)
    config = Config(seed=seed, data=data, model=sizes, decoding=DecodingConfig(beam=2, max_extra=3))
    return Model(config, build_translator(sizes, len(source), len(target)).eval(), source, target, about)


@pytest.fixture
def saved(tmp_path: Path, subwords: Subwords) -> Path:
    save_model(tmp_path / "model", make(subwords, updates=7))
    return tmp_path / "model"


def message(action: Callable[[], Any]) -> str:
    with pytest.raises(DynctxError) as caught:
        action()
    return str(caught.value)


def same_weights(first: Model, second: Model) -> bool:
    a, b = weights_of(first.translator), weights_of(second.translator)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


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


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    assert message(lambda: load_model(tmp_path)).startswith(f"{tmp_path}: no model here")
    assert message(lambda: load_model(tmp_path / "nowhere")).startswith(f"{tmp_path / 'nowhere'}: no model here")


@pytest.mark.parametrize("name", ["model.safetensors", "config.yaml", "spm.model"])
def test_a_missing_file(name: str, saved: Path) -> None:
    (saved / name).unlink()
    found = message(lambda: load_model(saved))
    assert found.startswith(str(saved))
    assert name in found


def test_a_missing_card_is_no_loss(saved: Path, subwords: Subwords) -> None:
    (saved / "README.md").unlink()
    (saved / "about.json").unlink()
    again = load_model(saved)
    assert again.about == {}
    assert same_weights(again, make(subwords))


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_truncated_weights(kept: int, saved: Path) -> None:
    file = saved / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    assert message(lambda: load_model(saved)).startswith(f"{file}: damaged weights (")


def test_a_damaged_header(saved: Path) -> None:
    file = saved / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[8:16] = b"notjson!"
    file.write_bytes(content)
    assert message(lambda: load_model(saved)).startswith(f"{file}: damaged weights (")


class Bomb:
    """Unpickling it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("writer", ["pickle", "torch"])
@pytest.mark.parametrize("name", ["model.safetensors", "about.json", "config.yaml", "spm.model"])
def test_nothing_is_unpickled(writer: str, name: str, saved: Path, tmp_path: Path) -> None:
    trace = tmp_path / "unpickled"
    content: Any = {"weights": Bomb(trace)}
    if writer == "pickle":
        (saved / name).write_bytes(pickle.dumps(content))
    else:
        torch.save(content, saved / name)
    assert str(saved / name) in message(lambda: load_model(saved))
    assert not trace.exists()


def test_a_missing_shard(tmp_path: Path, subwords: Subwords) -> None:
    folder = tmp_path / "model"
    save_model(folder, make(subwords), shard_bytes=4000)
    files = sorted(folder.glob("*.safetensors"))
    for lost in (files[0], files[-1]):
        shutil.move(lost, tmp_path / "aside")
        expected = f"{folder}: {len(files) - 1} weight files of {len(files)}; the folder is incomplete"
        assert message(lambda: load_model(folder)) == expected
        shutil.move(tmp_path / "aside", lost)
    load_model(folder)


def test_weights_of_an_odd_name(saved: Path) -> None:
    (saved / "model.safetensors").rename(saved / "model-one-of-two.safetensors")
    load_model(saved)
    shutil.copy(saved / "model-one-of-two.safetensors", saved / "model-two-of-two.safetensors")
    assert message(lambda: load_model(saved)) == f"{saved}: 2 weight files of 1; the folder is incomplete"


def rewrite(saved: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    with safe_open(saved / "model.safetensors", "pt") as file:
        weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a mapping)
    change(weights)
    save_file(weights, saved / "model.safetensors")


def test_a_wrong_shape(saved: Path) -> None:
    rewrite(saved, lambda weights: weights.update({"encoder.0.feed_forward.inner.bias": torch.zeros(31)}))
    assert message(lambda: load_model(saved)) == (
        f"{saved}: encoder.0.feed_forward.inner.bias has shape (31,), expected (32,)"
    )


@pytest.mark.parametrize("kind", [torch.int32, torch.bool, torch.complex64])
def test_weights_of_another_kind(saved: Path, kind: torch.dtype) -> None:
    weights = load_file(saved / "model.safetensors")
    name = sorted(weights)[0]
    save_file(weights | {name: weights[name].to(kind)}, saved / "model.safetensors")
    said = f"{saved}: {name} is {kind}, and weights are floating-point numbers"
    assert message(lambda: load_model(saved)) == said


def test_weights_that_are_no_numbers(saved: Path) -> None:
    name = "encoder.0.feed_forward.inner.bias"
    rewrite(saved, lambda weights: weights[name][3].fill_(float("nan")))
    assert message(lambda: load_model(saved)).startswith(f"{saved}: {name} holds weights that are no numbers")


def test_a_missing_tensor(saved: Path) -> None:
    rewrite(saved, lambda weights: weights.pop("encoder.0.feed_forward.inner.bias"))
    found = message(lambda: load_model(saved))
    assert found.startswith(f"{saved}: the weights lack 1 tensors (encoder.0.feed_forward.inner.bias")


def test_an_unknown_tensor(saved: Path) -> None:
    rewrite(saved, lambda weights: weights.update({"decoder.9.extra": torch.zeros(1)}))
    assert message(lambda: load_model(saved)).startswith(
        f"{saved}: the weights have unknown 1 tensors (decoder.9.extra"
    )


def test_an_unknown_key_in_the_config(saved: Path) -> None:
    config = saved / "config.yaml"
    config.write_text(config.read_text().replace("  heads: 2", "  haeds: 2"))
    found = message(lambda: load_model(saved))
    assert found.startswith(f"{config}: unknown key 'haeds' (did you mean 'heads'?)")


def test_a_config_that_is_not_yaml(saved: Path) -> None:
    (saved / "config.yaml").write_text("seed: 1\nmodel: {width: 16\n")
    assert message(lambda: load_model(saved)).startswith(f"{saved / 'config.yaml'}:")


@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe", b"[1, 2]", b"3", b"[" * 100_000], ids=range(6))
def test_a_damaged_record(content: bytes, saved: Path) -> None:
    (saved / "about.json").write_bytes(content)
    assert message(lambda: load_model(saved)).startswith(f"{saved / 'about.json'}: damaged")


def test_a_record_that_cannot_be_read(saved: Path) -> None:
    (saved / "about.json").unlink()
    (saved / "about.json").mkdir()
    assert message(lambda: load_model(saved)) == f"{saved / 'about.json'}: cannot be read: Is a directory"


def test_a_damaged_subword_model(saved: Path) -> None:
    (saved / "spm.model").write_bytes((saved / "spm.model").read_bytes()[:50])
    assert message(lambda: load_model(saved)).startswith(f"{saved / 'spm.model'}: ")


def test_weights_of_another_vocabulary(saved: Path) -> None:
    train_subwords(TEXT, 50, kind="bpe", byte_fallback=False, threads=1).save(saved / "spm.model")
    found = message(lambda: load_model(saved))
    assert found == f"{saved}: target_embedding.weight has shape (60, 16), expected (50, 16)"


def test_others_may_read_the_weights_where_they_may_read_files(saved: Path) -> None:
    modes = {file.name: file.stat().st_mode & 0o777 for file in saved.iterdir()}
    assert set(modes.values()) == {modes["config.yaml"]}


def test_selectors_are_checked_without_the_model(subwords: Subwords) -> None:
    config = make(subwords).config
    config.model.kind, config.model.scope = "tdnmt", 2
    check_selector("previous 2", config)
    for name, message in (
        ("previous 3", "more sentences than the model's scope of 2"),
        ("fulll", "expected one of: none, full"),
        ("probability-first", "this model has no context scorer"),
    ):
        with pytest.raises(DynctxError, match=message):
            check_selector(name, config)
    config.scorer.enabled = True
    check_selector("probability-first", config)
