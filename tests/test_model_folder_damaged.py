"""A damaged model folder: every damage is named, and nothing in it is run."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from saved_models import TEXT, make, message, same_weights

from dynctx.model_folder import (
    load_model,
    save_model,
)
from dynctx.subwords import Subwords, train_subwords

pytest_plugins = ("saved_fixtures",)


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
