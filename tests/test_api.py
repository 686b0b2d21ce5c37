"""The Python API: three lines, every shape of input, and nothing heavy before it is asked for."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import nn

import dynctx
from dynctx import api
from dynctx.config import Config, DataConfig, DecodingConfig, ModelConfig, ScorerConfig
from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.model_folder import Model, build_scorer, load_model, save_model
from dynctx.pipeline import Choice, translate_and_explain
from dynctx.subwords import train_subwords
from dynctx.translators import build_translator

pytest_plugins = ("tiny_fixtures",)

FIRST = ["the cat sees the dog", "", "the dog sees", "big red house"]
SECOND = ["red tree"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A document-level model with a scorer, untrained: what it says is nonsense, but differs from line to line."""
    import torch

    torch.manual_seed(2)
    sizes = ModelConfig(kind="concat", width=16, feed_forward=32, heads=2, encoder_layers=1, decoder_layers=1, scope=3)
    subwords = train_subwords(["the cat sees the dog", "big red house tree"] * 3, 40, byte_fallback=False, threads=1)
    config = Config(
        data=DataConfig(source_language="en", target_language="de"),
        model=sizes,
        scorer=ScorerConfig(enabled=True),
        decoding=DecodingConfig(beam=2, max_extra=4, selector="previous 1"),
    )
    translator = build_translator(sizes, len(subwords), len(subwords))
    model = Model(config, translator, subwords, subwords, scorer=build_scorer(config))
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.mul_(2.5)
    place = tmp_path_factory.mktemp("api") / "model"
    save_model(place, model)
    return place


@pytest.fixture(scope="module")
def model(folder: Path) -> dynctx.DocumentTranslator:
    return dynctx.load(folder, device="cpu")


def test_importing_dynctx_imports_no_torch() -> None:
    code = (
        "import sys, dynctx\n"
        "assert dynctx.__version__ and 'torch' not in sys.modules\n"
        "try: dynctx.lod\n"
        "except AttributeError as error: assert str(error) == \"module 'dynctx' has no attribute 'lod'\"\n"
        "else: raise AssertionError\n"
        "assert callable(dynctx.load) and 'torch' in sys.modules\n"
        "from dynctx import Choice, DocumentTranslator, Translation\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_document(model: dynctx.DocumentTranslator, folder: Path) -> None:
    expected, _ = translate_and_explain(load_model(folder), [Document("1", tuple(FIRST))])
    assert model.translate(FIRST) == list(expected[0].sentences)
    assert model.translate(tuple(FIRST)) == list(expected[0].sentences)
    assert model.translate(FIRST)[1] == ""


def test_several_documents(model: dynctx.DocumentTranslator) -> None:
    both = model.translate([FIRST, SECOND])
    assert both == [model.translate(FIRST), model.translate(SECOND)]
    assert model.translate([tuple(FIRST)]) == [model.translate(FIRST)]


def test_nothing(model: dynctx.DocumentTranslator) -> None:
    assert model.translate([]) == [] and model.select([]) == []
    assert model.translate([[]]) == [[]] and model.translate([[], SECOND])[0] == []
    assert model.translate([""]) == [""]


def test_explained(model: dynctx.DocumentTranslator) -> None:
    found = model.translate(FIRST, explain=True)
    assert [translation.text for translation in found] == model.translate(FIRST)
    assert [translation.selected for translation in found] == [(), (), (2,), (1,)]  # past the empty line
    assert [translation.probabilities for translation in found] == [{}] * 4
    judged = model.translate([FIRST, SECOND], explain=True, selector="probability-first")
    assert [len(document) for document in judged] == [4, 1]
    last = judged[0][3]
    assert sorted(last.probabilities) == [1, 3] and last.non is not None
    assert sum(last.probabilities.values()) + last.non == pytest.approx(1, abs=1e-5)
    assert set(last.selected) <= {1, 3}


def test_selecting(model: dynctx.DocumentTranslator) -> None:
    found = model.select(FIRST)
    assert found == [Choice((), {}, None), Choice((), {}, None), Choice((2,), {}, None), Choice((1,), {}, None)]
    assert [choice.candidates for choice in found] == [(), (), (2,), (1, 3)]  # whoever selects
    assert model.select([FIRST, SECOND]) == [found, [Choice((), {}, None)]]
    assert [choice.selected for choice in model.select(FIRST, selector="full")] == [(), (), (2,), (1, 3)]
    scored = model.select(FIRST, selector="size-first 1")
    judged = model.translate(FIRST, explain=True, selector="size-first 1")
    assert [c.selected for c in scored] == [t.selected for t in judged]
    assert scored[3].probabilities == pytest.approx(judged[3].probabilities, abs=1e-5)


def test_options(model: dynctx.DocumentTranslator, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[DecodingConfig] = []

    def remember(
        model: Model, documents: list[Document], decoding: DecodingConfig, *rest: object, **more: object
    ) -> object:
        asked.append(decoding)
        return translate_and_explain(model, documents, decoding, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(api, "translate_and_explain", remember)
    model.translate(SECOND, beam=1, batch=7)
    model.translate(SECOND)
    assert [(d.beam, d.batch_sentences) for d in asked] == [(1, 7), (2, 64)]


def test_nothing_is_sampled(folder: Path) -> None:
    """Whatever the model's config says: the same sentences have the same translations."""
    model = dynctx.load(folder, device="cpu")
    expected = model.translate(FIRST)
    model.model.config.decoding.sampling = True
    assert [model.translate(FIRST) for _ in range(3)] == [expected] * 3


def test_what_it_is(model: dynctx.DocumentTranslator) -> None:
    assert (model.languages, model.scope) == (("en", "de"), 3)


def test_int8(folder: Path) -> None:
    small = dynctx.load(folder, device="cpu", int8=True)
    assert any(
        "Int8" in type(m).__name__ or "quantized" in type(m).__module__ for m in small.model.translator.modules()
    )
    assert len(small.translate(FIRST)) == 4


def test_int8_is_refused_on_a_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = SimpleNamespace(translator=nn.Linear(2, 2, device="meta"))  # as good as a GPU: not the CPU
    monkeypatch.setattr(api, "load_model", lambda *_: elsewhere)
    with pytest.raises(DynctxError, match="int8 is for the CPU"):
        dynctx.load(folder, device="cpu", int8=True)


@pytest.mark.parametrize(
    "wrong", ["one string", [1, 2], [["a", 1]], ["a", ["b"]], [["a"], "b"], [None], None, 3, {"a", "b"}, {"a": 1}]
)
def test_wrong_input(model: dynctx.DocumentTranslator, wrong: list[str]) -> None:
    for method in (model.translate, model.select):
        with pytest.raises(TypeError, match="expected a list of"):
            method(wrong)


def test_wrong_options(model: dynctx.DocumentTranslator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DynctxError, match="beam must be at least 1, not 0"):
        model.translate(FIRST, beam=0)
    with pytest.raises(DynctxError, match="beam must be at most 1000, not 1000000"):
        model.translate(FIRST, beam=10**6)
    with pytest.raises(TypeError, match=r"beam must be a whole number, not 2\.5"):
        model.translate(FIRST, beam=2.5)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="beam must be a whole number, not True"):
        model.translate(FIRST, beam=True)
    with pytest.raises(DynctxError, match="selector 'nearest': expected one of"):
        model.select(FIRST, selector="nearest")
    with pytest.raises(TypeError, match="expected the name of a selector, such as 'previous 2', not 3"):
        model.select(FIRST, selector=3)  # type: ignore[call-overload]
    with pytest.raises(DynctxError, match=r"sentence 2 is not valid Unicode .* 'a.ud800'"):
        model.translate(["fine", "a\ud800"])
    with pytest.raises(DynctxError, match="no model here"):
        dynctx.load(tmp_path)
    with pytest.raises(DynctxError, match="device 'tpu'"):
        dynctx.load(tmp_path, device="tpu")
    monkeypatch.setattr(api, "default_model", lambda: tmp_path / "shipped")
    with pytest.raises(DynctxError, match="shipped: no model here"):
        dynctx.load()


def test_a_model_that_chooses_nothing(model: dynctx.DocumentTranslator, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that learned from random context has no choice of its own, and what is drawn is not passed off as one."""
    bare = dynctx.DocumentTranslator(replace(model.model, scorer=None))
    monkeypatch.setattr(bare.model.config.decoding, "selector", "random subset")
    with pytest.raises(DynctxError, match=r"no context scorer, .* drawn at random \(random subset\)"):
        bare.select(FIRST)
    assert len(bare.select(FIRST, selector="random 1")) == 4


def test_a_trained_run(trained: Path) -> None:
    """The folder of a run will do too; a sentence model selects nothing."""
    found = dynctx.load(trained, device="cpu").translate(FIRST, explain=True)
    assert [translation.selected for translation in found] == [()] * 4
