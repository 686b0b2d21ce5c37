"""From documents to documents: what goes in comes out in its place."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tiny_models import tiny_model

from dynctx import pipeline
from dynctx.batches import Gatherer
from dynctx.beam_search import Hypothesis
from dynctx.config import Config, DataConfig, DecodingConfig, ModelConfig
from dynctx.devices import pick_device
from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.model_folder import Model
from dynctx.pipeline import Line, Recorder, Units, select_documents, translate_and_explain, translate_documents
from dynctx.selection.strategies import Fixed, Selector, parse_selector
from dynctx.subwords import train_subwords
from dynctx.translators import build_translator

TEXT = ["the cat sat on the mat", "a dog ran in the park", "it rains today again and again", "we saw a small house"]
DOCUMENTS = [
    Document("first", ("the cat sat", "", "it rains", "a dog")),
    Document("second", ("we saw the park again and again",)),
    Document("third", ("a dog", "the cat sat")),
]


@pytest.fixture(scope="module")
def model() -> Model:
    subwords = train_subwords(TEXT, 60, kind="unigram", byte_fallback=False, threads=1)
    torch.manual_seed(1)
    sizes = ModelConfig(
        kind="sentence",
        width=16,
        feed_forward=32,
        heads=2,
        encoder_layers=1,
        decoder_layers=1,
        tie_embeddings="none",
    )
    translator = build_translator(sizes, len(subwords), len(subwords))
    with torch.no_grad():
        for parameter in translator.parameters():
            parameter.mul_(3.0)  # far from uniform: each sentence gets a translation of its own
    config = Config(data=DataConfig(target_language="de"), model=sizes, decoding=DecodingConfig(beam=2, max_extra=4))
    return Model(config, translator, subwords, subwords)


def alone(model: Model, sentence: str) -> str:
    (document,) = translate_documents(model, [Document("x", (sentence,))])
    return document.sentences[0]


def test_documents_ids_and_order_are_kept(model: Model) -> None:
    found = translate_documents(model, DOCUMENTS)
    assert [document.id for document in found] == ["first", "second", "third"]
    assert found[0].sentences[1] == ""
    distinct = {sentence for document in found for sentence in document.sentences}
    assert len(distinct) > 2  # the model tells some of them apart
    for before, after in zip(DOCUMENTS, found):
        assert after.sentences == tuple(alone(model, sentence) for sentence in before.sentences)


class Echo:
    """In the place of `translate`: every unit comes back as it is, and what was asked for is remembered."""

    def __init__(self) -> None:
        self.config: DecodingConfig | None = None
        self.selector: Selector | None = None
        self.documents: list[int] = []

    def __call__(
        self, translator: object, gatherer: Gatherer, sentences: NDArray[np.int64], *rest: Any
    ) -> list[Hypothesis]:
        self.config, self.selector = rest[:2]
        self.documents = gatherer.store.documents.tolist()
        return [Hypothesis(gatherer.store.source_ids(k)[:-1], 0.0) for k in sentences.tolist()]


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Echo:
    echo = Echo()
    monkeypatch.setattr(pipeline, "translate", echo)
    return echo


def test_an_echo_brings_every_document_back(model: Model, echo: Echo) -> None:
    documents = [Document("0", ("", "")), *DOCUMENTS, Document("4", ()), Document("5", ("", "a dog", ""))]
    assert translate_documents(model, documents) == documents
    assert echo.documents == [
        0,
        2,
        6,
        7,
        9,
        12,
    ]  # borders; empty lines keep their place, documents without lines have none


def test_an_echo_of_a_long_line_has_a_space_between_its_parts(
    model: Model, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "LONGEST", 2)
    ids = model.source.encode(["the cat"])[0]
    pairs = model.target.decode([ids[i : i + 2] for i in range(0, len(ids), 2)])
    assert len(pairs) > 1
    documents = [Document("x", ("a", "the cat", "")), Document("y", ("a",))]
    assert translate_documents(model, documents) == [Document("x", ("a", " ".join(pairs), "")), Document("y", ("a",))]


def test_translations_are_text_of_the_target(model: Model) -> None:
    found = translate_documents(model, DOCUMENTS)
    letters = set("".join(TEXT))
    assert all(set(sentence) <= letters for document in found for sentence in document.sentences)


def test_the_settings_of_the_model_are_used_unless_others_are_given(model: Model, echo: Echo) -> None:
    translate_documents(model, DOCUMENTS)
    assert echo.config is model.config.decoding
    assert echo.selector is not None and echo.selector.name == "none"
    others, full = DecodingConfig(beam=1), parse_selector("full", 1)
    translate_documents(model, DOCUMENTS, others, full)
    assert echo.config is others
    assert echo.selector.name == "full"


def test_empty_sentences_stay_empty(model: Model) -> None:
    documents = [
        Document("a", ("", "   ", "the cat", "\u3000")),
        Document("b", ("", "")),
        Document("c", ()),
        Document("d", ("a dog",)),
    ]
    found = translate_documents(model, documents)
    cat, dog = alone(model, "the cat"), alone(model, "a dog")
    assert cat and dog
    assert found == [
        Document("a", ("", "", cat, "")),
        Document("b", ("", "")),
        Document("c", ()),
        Document("d", (dog,)),
    ]


def test_nothing_but_empty_sentences(model: Model) -> None:
    assert translate_documents(model, [Document("a", ("", ""))]) == [Document("a", ("", ""))]


def test_no_documents(model: Model) -> None:
    assert translate_documents(model, []) == []


@pytest.mark.parametrize(("language", "joiner"), [("de", " "), ("zh", ""), ("ja", "")])
def test_a_line_too_long_is_translated_in_parts(
    language: str, joiner: str, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "LONGEST", 4)
    monkeypatch.setattr(model.config.data, "target_language", language)
    line = "the cat sat on the mat"
    ids = model.source.encode([line])[0]
    assert 8 < len(ids) <= 16
    parts = [ids[i : i + 4] for i in range(0, len(ids), 4)]
    warnings: list[str] = []
    found = translate_documents(model, [Document("x", ("a", line)), Document("y", ("a",))], warn=warnings.append)
    assert warnings == [f"document x, sentence 2: {len(ids)} pieces long, translated in {len(parts)} parts"]
    assert found[0].sentences[0] == found[1].sentences[0] == alone(model, "a")

    class Ids:
        """The parts as sentences of their own."""

        def encode(self, sentences: object) -> list[list[int]]:
            return parts

    single = Model(model.config, model.translator, Ids(), model.target)  # type: ignore[arg-type]
    (separate,) = translate_documents(single, [Document("x", ("",) * len(parts))])
    assert found[0].sentences[1] == joiner.join(separate.sentences)
    assert len(set(separate.sentences)) > 1


def test_of_several_units_of_a_line_the_most_probable_speaks_for_it() -> None:
    """Units 0 and 1 are one line, unit 2 is the next; its candidates are unit 1, then unit 0, and NON."""
    lines = [Line(0, 0, range(0, 2)), Line(0, 1, range(2, 3))]
    gatherer = SimpleNamespace(firsts=np.zeros(3, np.int64))
    units = SimpleNamespace(lines=lines, line_of=np.array([0, 0, 1]), gatherer=gatherer)
    recorder = Recorder(parse_selector("none", 1), units)  # type: ignore[arg-type]
    recorder.found[2] = ([True, False], [0.5, 0.2, 0.3])
    choice = recorder.choices()[1]
    assert (choice.selected, choice.probabilities, choice.non) == ((1,), {1: 0.5}, 0.3)


def test_a_line_of_the_longest_length_is_translated_whole(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "the cat sat on the mat"
    whole = alone(model, line)
    monkeypatch.setattr(pipeline, "LONGEST", len(model.source.encode([line])[0]))
    warnings: list[str] = []
    (found,) = translate_documents(model, [Document("x", (line,))], warn=warnings.append)
    assert not warnings
    assert found.sentences == (whole,)


def test_a_really_long_line(model: Model) -> None:
    """Without a listener for warnings, and at the true limit."""
    line = " ".join(TEXT * 8)
    pieces = len(model.source.encode([line])[0])
    assert pieces > pipeline.LONGEST
    warnings: list[str] = []
    decoding = DecodingConfig(beam=1, max_extra=0)
    (found,) = translate_documents(model, [Document("x", (line,))], decoding, warn=warnings.append)
    assert len(warnings) == 1
    assert found == translate_documents(model, [Document("x", (line,))], decoding)[0]


def test_a_selection_by_lines_is_one_of_all_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of 1, 2, 3 and 1 parts; what is given goes by lines, and a scope of 3 by parts."""
    monkeypatch.setattr(pipeline, "LONGEST", 4)
    model = tiny_model("tdnmt")
    lines = ("the", "a dog ran", "the cat sat on", "we")
    units = Units(model, [Document("x", ("a",)), Document("y", lines)])
    assert [len(line.units) for line in units.lines] == [1, 1, 2, 3, 1]
    # units 1 | 2 3 | 4 5 6 | 7; a line before the document's first is nobody's
    given = {2: {1, 2}, 3: {2}, 4: {1}}
    assert units.in_units(given) == {2: {1}, 3: {2}, 4: {3}, 5: {4}, 6: {5}, 7: {1, 2, 3}}
    fixed = Fixed(parse_selector("none", 1), given, "mine")
    choices = select_documents(model, [Document("x", ("a",)), Document("y", lines)], fixed)
    assert [choice.selected for choice in choices[1]] == [(), (1,), (2,), (1,)]
    found, told = translate_and_explain(model, [Document("x", ("a",)), Document("y", lines)], selector=fixed)
    assert told == choices and len(found[1].sentences) == 4


def test_a_file_of_selections_has_a_line_for_each_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "LONGEST", 4)
    model, documents = tiny_model("tdnmt"), [Document("y", ("the", "the cat sat on", "we"))]
    (tmp_path / "s.jsonl").write_text('{"selected": []}\n{"selected": [1]}\n{"selected": [1, 2]}\n')
    chosen = parse_selector(f"fixed {tmp_path / 's.jsonl'}", 1)
    (told,) = select_documents(model, documents, chosen)
    assert [choice.selected for choice in told] == [
        (),
        (1,),
        (1,),
    ]  # the scope of 3 ends with the three parts of line 2
    with pytest.raises(DynctxError, match=r"s\.jsonl: 3 lines for 2 sentences"):
        translate_documents(model, [Document("y", ("the", "we"))], selector=chosen)


def test_a_file_of_selections_is_for_the_text_it_was_made_of(tmp_path: Path) -> None:
    """Where its lines say what they are about, as those of `dynctx select` do; another text may be as long."""
    model, file = tiny_model("tdnmt"), tmp_path / "s.jsonl"
    file.write_text('{"text": "the", "selected": []}\n{"selected": [1]}\n{"text": "we", "selected": [2]}\n')
    chosen = parse_selector(f"fixed {file}", 1)
    (told,) = select_documents(model, [Document("y", ("the", "a cat", "we"))], chosen)
    assert [choice.selected for choice in told] == [(), (1,), (2,)]
    with pytest.raises(DynctxError, match=r"s\.jsonl:3: is about 'we', and here that sentence is 'the'"):
        translate_documents(model, [Document("y", ("the", "we", "the"))], selector=chosen)


def test_progress_counts_every_unit(model: Model) -> None:
    counts: list[int] = []
    translate_documents(model, DOCUMENTS, progress=counts.append)
    assert sum(counts) == 6  # of seven sentences one is empty


def test_devices_by_name() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    with pytest.raises(DynctxError, match="device 'gpu': expected auto, cpu or cuda"):
        pick_device("gpu")


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == torch.device("cpu")
    with pytest.raises(DynctxError, match="torch sees no GPU"):
        pick_device("cuda")
