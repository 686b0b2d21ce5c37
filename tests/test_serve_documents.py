"""POST /v1/documents: documents explained, selections by hand, streams, and models that know less."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from serving import SENTENCES, client_of, direct, lines, post, refused, sentences_of
from starlette.testclient import TestClient

from dynctx import pipeline
from dynctx.errors import DynctxError
from dynctx.model_folder import Model
from dynctx.serve import batching
from dynctx.serve.service import Service
from dynctx.translators import build_translator

pytest_plugins = ("serve_fixtures",)


def test_a_document_is_explained(client: TestClient, model: Model) -> None:
    found = direct(model, SENTENCES)
    answer = post(client, "/v1/documents", sentences=SENTENCES).json()
    assert answer == {"selector": "probability-first", "sentences": sentences_of(found)}
    assert len({choice.selected for _, choice in found}) > 2  # it does choose
    assert set(answer["sentences"][-1]["probabilities"]) == {"1", "2", "3"}
    assert sum(answer["sentences"][-1]["probabilities"].values()) + answer["sentences"][-1]["non"] == pytest.approx(1)


@pytest.mark.parametrize("selector", ["none", "full", "previous 2", "size-first 1"])
def test_another_selector(client: TestClient, model: Model, selector: str) -> None:
    answer = post(client, "/v1/documents", sentences=SENTENCES, selector=f"  {selector} ").json()
    assert answer == {"selector": selector, "sentences": sentences_of(direct(model, SENTENCES, selector))}


def test_some_sentences_only(client: TestClient, model: Model) -> None:
    answer = post(client, "/v1/documents", sentences=SENTENCES, numbers=[7, 2, 7]).json()
    assert answer["sentences"] == sentences_of(direct(model, SENTENCES), [2, 7])
    assert post(client, "/v1/documents", sentences=SENTENCES, numbers=[]).json()["sentences"] == []


@pytest.mark.parametrize("more", [{}, {"selector": "previous 2"}, {"numbers": [7, 2]}, {"selection": {"7": [2]}}])
def test_context_without_translations(
    client: TestClient, model: Model, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same but for the translations, and the translator is not asked."""
    whole = post(client, "/v1/documents", sentences=SENTENCES, **more).json()
    monkeypatch.setattr(batching, "translate_and_explain", None)
    found = post(client, "/v1/documents", sentences=SENTENCES, translate=False, **more).json()
    assert found == {**whole, "sentences": [{**s, "translation": None} for s in whole["sentences"]]}


def test_a_selection_by_hand(client: TestClient, model: Model) -> None:
    """All by hand is `full`, none by hand is `none`; the scorer still says what it thinks."""
    learned, full, none = (direct(model, SENTENCES, name) for name in ("probability-first", "full", "none"))
    answer = post(client, "/v1/documents", sentences=SENTENCES, selection={"5": [], "7": [3, 1, 2]}).json()
    found = answer["sentences"]
    assert found[6]["selected"] == [1, 2, 3]
    assert [found[4]["selected"], found[4]["translation"]] == [[], none[4][0]]
    assert found[6]["translation"] == full[6][0]
    assert learned[4][1].selected and learned[6][1].selected != (1, 2, 3)  # else nothing was tried
    expected = sentences_of(learned)
    for k in range(7):
        assert found[k]["probabilities"] == expected[k]["probabilities"]
        if k not in (4, 6):
            assert found[k] == expected[k]


def test_one_of_three_by_hand(client: TestClient, model: Model) -> None:
    """Distance 2 alone is what a document without the sentences at 1 and 3 would give, where these are the scope."""
    answer = post(client, "/v1/documents", sentences=SENTENCES, selection={"7": [2]}, numbers=[7]).json()
    alone = direct(model, [SENTENCES[4], SENTENCES[6]], "full")
    assert answer["sentences"][0]["translation"] == alone[1][0]


def test_a_document_with_empty_sentences(client: TestClient, model: Model) -> None:
    sentences = ["the cat sat", "", "  ", "a dog ran"]
    answer = post(client, "/v1/documents", sentences=sentences).json()["sentences"]
    assert [s["translation"] for s in answer] == lines(direct(model, sentences))
    empty = {"translation": "", "selected": [], "probabilities": {}, "non": None, "kept": False}
    assert answer[1] == {"sentence": 2, **empty}


def test_a_stream_has_a_line_for_each_sentence(client: TestClient, model: Model) -> None:
    answer = post(client, "/v1/documents", sentences=SENTENCES, stream=True)
    assert answer.headers["content-type"] == "application/x-ndjson"
    records = [json.loads(line) for line in answer.text.splitlines()]
    assert records.pop() == {"done": True}
    assert records == sentences_of(direct(model, SENTENCES))


def test_an_empty_stream(client: TestClient) -> None:
    answer = post(client, "/v1/documents", sentences=["the cat"], numbers=[], stream=True)
    assert answer.text == '{"done": true}\n'


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "sentences: Field required"),
        ({"sentences": []}, "sentences: List should have at least 1 item"),
        ({"sentences": "the cat"}, "sentences: Input should be a valid list"),
        ({"sentences": ["a"], "slector": "none"}, "slector: Extra inputs are not permitted"),
        ({"sentences": ["a"], "selector": "best"}, "selector 'best': expected one of"),
        ({"sentences": ["a"], "selector": "random 2"}, "does not choose at random"),
        ({"sentences": ["a"], "selector": "random subset"}, "does not choose at random"),
        ({"sentences": ["a"], "selector": "random 1 or none"}, "does not choose at random"),
        ({"sentences": ["a"], "selector": "fixed /etc/passwd"}, "selector 'fixed /etc/passwd': expected one of: none"),
        ({"sentences": ["a"], "selector": " fixed\t/nowhere"}, "expected one of: none"),
        ({"sentences": ["a"], "selector": ""}, "expected one of: none"),
        ({"sentences": ["a"], "selector": "previous " + "9" * 5000}, "no selector has so long a name"),
        ({"sentences": ["a"], "selector": "size-first 99999999999999999999"}, "the model's scope of 3"),
        ({"sentences": ["a"], "selector": "previous 4"}, "selector 'previous 4' asks for more sentences than"),
        ({"sentences": ["a"], "numbers": [2]}, "sentence 2: the document has sentences 1 to 1"),
        ({"sentences": ["a"], "numbers": [0]}, "sentence 0: the document has sentences 1 to 1"),
        ({"sentences": ["a"], "selection": {"2": []}}, "sentence 2: the document has sentences 1 to 1"),
        ({"sentences": ["a"], "selection": {"1": [1]}}, "selection of sentence 1: distance 1; it can have none"),
        ({"sentences": ["a"] * 9, "selection": {"9": [4]}}, "sentence 9: distance 4; it can have 1 to 3"),
        ({"sentences": ["a"] * 9, "selection": {"3": [3]}}, "sentence 3: distance 3; it can have 1 to 2"),
        ({"sentences": ["a"] * 9, "selection": {"9": [0]}}, "sentence 9: distance 0"),
        ({"sentences": ["a"], "selection": {"x": [1]}}, "selection.x"),
        ({"sentences": ["a", "\ud800"]}, "the body is not valid Unicode"),
    ],
)
def test_wrong_documents(client: TestClient, fields: dict[str, Any], reason: str) -> None:
    body = json.dumps(fields)
    assert reason in refused(client.post("/v1/documents", content=body), 400)


def test_a_long_sentence_in_parts_keeps_the_selection_by_hand(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model gets a long line as several units; distances go on counting lines."""
    monkeypatch.setattr(pipeline, "LONGEST", 4)
    sentences = ["the cat", "we saw", "it"]
    pieces = [len(ids) for ids in model.source.encode(sentences)]
    assert 4 < pieces[1] <= 8 and pieces[2] <= 4  # two units and one
    with client_of(model) as client:
        answer = post(client, "/v1/documents", sentences=sentences, selection={"3": [1]}, numbers=[3]).json()
        assert answer["sentences"][0]["selected"] == [1]
        with_both = post(client, "/v1/documents", sentences=sentences, selection={"3": [1, 2]}, numbers=[3]).json()
    found = [answer["sentences"][0]["translation"], with_both["sentences"][0]["translation"]]
    assert found == [direct(model, sentences, selector)[2][0] for selector in ("previous 2", "full")]
    assert with_both["sentences"][0]["selected"] == [1, 2]
    assert found[0] != found[1]


def test_nothing_is_sampled(model: Model) -> None:
    """Whatever the model's config says: the same request has the same answer."""
    config = replace(model.config, decoding=replace(model.config.decoding, sampling=True))
    assert not Service(replace(model, config=config)).batcher.decoding.sampling


def test_a_random_selector_cannot_be_the_default(model: Model) -> None:
    with pytest.raises(DynctxError, match="does not choose at random"):
        Service(model, selector="random subset")
    assert Service(model, selector="previous 1").selector == "previous 1"


def test_a_model_without_context_and_without_languages(model: Model) -> None:
    sizes = replace(model.config.model, kind="sentence")
    data = replace(model.config.data, source_language="", target_language="")
    config = replace(model.config, model=sizes, data=data, decoding=replace(model.config.decoding, selector="none"))
    translator = build_translator(sizes, len(model.source), len(model.target))
    alone = Model(config, translator, model.source, model.target)
    with client_of(alone) as client:
        assert post(client, q="the cat", source="fr", target="it").status_code == 200
        assert client.get("/languages").json()[0] == {"code": "und", "name": "und", "targets": ["und"]}
        found = post(client, "/v1/documents", sentences=SENTENCES, selection={"3": []}).json()["sentences"]
        assert [(s["translation"], s["selected"]) for s in found] == [
            (t, []) for t in lines(direct(alone, SENTENCES, "none"))
        ]
        answer = post(client, "/v1/documents", sentences=SENTENCES, selection={"3": [1]})
        assert "distance 1; it can have none" in refused(answer, 400)
        answer = post(client, "/v1/documents", sentences=SENTENCES, selector="probability-first")
        assert refused(answer, 400) == "selector 'probability-first': this model has no context scorer"
        answer = post(client, "/v1/documents", sentences=SENTENCES, selector="previous 99999999999999999999")
        assert "more than 1000 sentences" in refused(answer, 400)
        assert client.get("/v1/model").json()["scope"] == 0


SRT = "1\n00:00:01,000 --> 00:00:02,000\n<i>the cat</i> sat [it rains]\n\n2\n00:00:20,000 --> 00:00:21,000\n- a dog\n"


def test_files_are_read_and_written(client: TestClient) -> None:
    read = post(client, "/v1/files/read", name="film.srt", text=SRT).json()
    assert read == {"format": "srt", "sentences": ["the cat sat", "it rains", "a dog"]}
    same = post(client, "/v1/files/write", name="film.srt", text=SRT, translations=read["sentences"])
    assert same.json() == {"text": SRT}
    new = post(client, "/v1/files/write", name="film.SRT", text=SRT, translations=["A B", "C", "D"]).json()["text"]
    assert new == SRT.replace("<i>the cat</i> sat [it rains]", "<i>A</i> B [C]").replace("a dog", "D")
    page = post(client, "/v1/files/read", name="a.html", text="<p>the <b>cat</b></p>").json()
    assert page == {"format": "html", "sentences": ["the cat"]}
    many = "".join(f"{n}\n00:00:01,000 --> 00:00:02,000\nthe cat\n\n" for n in range(1500))  # as a film has
    assert len(post(client, "/v1/files/read", name="a.srt", text=many).json()["sentences"]) == 1500


@pytest.mark.parametrize(
    ("name", "text", "status", "reason"),
    [
        ("a.docx", "x", 400, "a.docx: files of srt, vtt, ass, html are read here, by their names"),
        ("/etc/passwd", "x", 400, "/etc/passwd: files of"),
        ("a.srt", "x", 400, "a.srt:1: holds no subtitle"),
        ("a.vtt", "x", 400, "a.vtt:1: a WebVTT file begins with WEBVTT"),
        ("a.srt", "[" * 100_001, 413, "more than 100,000 lines, tags and brackets"),
        ("a.html", "x" * 3000, 413, "a sentence has more than 2000 characters"),
    ],
)
def test_files_that_are_refused(client: TestClient, name: str, text: str, status: int, reason: str) -> None:
    assert reason in refused(post(client, "/v1/files/read", name=name, text=text), status)


def test_translations_that_do_not_fit(client: TestClient) -> None:
    answer = post(client, "/v1/files/write", name="film.srt", text=SRT, translations=["A"])
    assert refused(answer, 400) == "1 translations for 3 sentences"


def test_files_ask_for_the_key(model: Model) -> None:
    with client_of(model, api_key="k") as client:
        refused(post(client, "/v1/files/read", name="film.srt", text=SRT), 401)
        refused(post(client, "/v1/files/write", name="film.srt", text=SRT, translations=[]), 401)
