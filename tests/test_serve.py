"""The HTTP service: answers, errors, limits, and that batching changes no answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from serving import SENTENCES, client_of, tiny_model
from starlette.testclient import TestClient

from dynctx import pipeline
from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.model_folder import Model
from dynctx.pipeline import Choice, translate_and_explain
from dynctx.serve import batching
from dynctx.serve.batching import Answer, Batcher, BatchSizes, Task, runs
from dynctx.serve.limits import Clients, Limits, Refused
from dynctx.serve.metrics import Metrics
from dynctx.serve.service import Service
from dynctx.translators import build_translator

Translated = list[tuple[str, Choice]]


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model()


@pytest.fixture(scope="module")
def client(model: Model) -> Iterator[TestClient]:
    with client_of(model) as client:
        yield client


def direct(model: Model, sentences: list[str], selector: str = "probability-first") -> Translated:
    """What the library says without any service."""
    (document,), (choices,) = translate_and_explain(
        model, [Document("x", tuple(sentences))], selector=model.choose(selector)
    )
    return list(zip(document.sentences, choices))


def lines(found: Translated) -> list[str]:
    return [translation for translation, _ in found]


def post(client: TestClient, path: str = "/translate", **fields: Any) -> Any:
    return client.post(path, json=fields)


def refused(answer: Any, status: int) -> str:
    """The reason of an error of this status; an error is one reason and nothing else."""
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    assert "Traceback" not in answer.text and ".py" not in answer.text
    return answer.json()["error"]


# POST /translate, as LibreTranslate has it


def test_a_string(client: TestClient, model: Model) -> None:
    answer = post(client, q="the cat sat", source="en", target="de")
    assert answer.status_code == 200
    assert answer.json() == {"translatedText": lines(direct(model, ["the cat sat"]))[0]}


def test_a_list_is_one_document(client: TestClient, model: Model) -> None:
    answer = post(client, q=SENTENCES, source="en", target="de")
    assert answer.json() == {"translatedText": lines(direct(model, SENTENCES))}
    assert lines(direct(model, SENTENCES)) != [lines(direct(model, [s]))[0] for s in SENTENCES]  # context mattered


def test_the_lines_of_a_string_are_a_document_and_keep_their_layout(client: TestClient, model: Model) -> None:
    first, second, third = lines(direct(model, SENTENCES[:3]))
    answer = post(client, q="  the cat sat\r\n\na dog ran\n\tit rains today \n", source="en", target="de")
    assert answer.json()["translatedText"] == f"  {first}\r\n\n{second}\n\t{third} \n"


@pytest.mark.parametrize("text", ["", " ", "\n\n", " \t\n"])
def test_nothing_to_translate(client: TestClient, text: str) -> None:
    assert post(client, q=text, source="en", target="de").json() == {"translatedText": text}
    assert post(client, q=[text], source="en", target="de").json() == {"translatedText": [text]}
    assert post(client, q=[], source="en", target="de").json() == {"translatedText": []}


def test_html_keeps_its_tags(client: TestClient, model: Model) -> None:
    page = (
        '<p class="x">the cat sat</p>\n<!-- a dog --><script>a < b</script><br> a dog ran &amp; <b>it rains today</b>'
    )
    first, second, third = lines(direct(model, ["the cat sat", "a dog ran &", "it rains today"]))
    answer = post(client, q=page, source="en", target="de", format="html")
    assert answer.json()["translatedText"] == (
        f'<p class="x">{first}</p>\n<!-- a dog --><script>a < b</script><br> {second} <b>{third}</b>'
    )


def test_the_source_language_may_be_left_to_the_service(client: TestClient) -> None:
    answer = post(client, q="the cat", source="auto", target="de").json()
    assert answer["detectedLanguage"] == {"confidence": 100.0, "language": "en"}
    answer = post(client, q=["the cat", "собака", "ab!?дог"], source="auto", target="de").json()
    assert answer["detectedLanguage"] == [{"confidence": c, "language": "en"} for c in (100.0, 0.0, 40.0)]
    assert "detectedLanguage" not in post(client, q="the cat", source="en", target="de").json()


def test_languages_with_a_region(client: TestClient) -> None:
    assert post(client, q="the cat", source="en-GB", target="DE_AT").status_code == 200


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("fr", "de", "fr is not supported as source; this model reads en"),
        ("en", "en", "en is not supported as target; this model writes de"),
        ("en", "auto", "auto is not supported as target; this model writes de"),
    ],
)
def test_other_languages(client: TestClient, source: str, target: str, reason: str) -> None:
    assert refused(post(client, q="the cat", source=source, target=target), 400) == reason


def test_alternatives_are_asked_for_in_vain(client: TestClient) -> None:
    assert post(client, q="the cat", source="en", target="de", alternatives=3).json()["alternatives"] == []


def test_forms(client: TestClient, model: Model) -> None:
    fields = {"q": "the cat sat", "source": "en", "target": "de", "format": "text"}
    expected = {"translatedText": lines(direct(model, ["the cat sat"]))[0]}
    assert client.post("/translate", data=fields).json() == expected
    assert client.post("/translate", files={name: (None, value) for name, value in fields.items()}).json() == expected
    both = "q=the+cat+sat&q=a%20dog%20ran&source=en&target=de"
    answer = client.post("/translate", content=both, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.json() == {"translatedText": lines(direct(model, SENTENCES[:2]))}


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b"{", "application/json", "not JSON"),
        (b"", "application/json", "not JSON"),
        (b"[1]", "application/json", "not a JSON object"),
        (b"null", "", "not a JSON object"),
        (b"[" * 100_000, "application/json", "nested too deeply"),
        (b'{"q": ' + b"9" * 5000 + b"}", "application/json", "not JSON"),
        (b'{"q": "\xff\xfe"}', "application/json", "not UTF-8"),
        ('{"q": "the cat"}'.encode("utf-16"), "application/json", "not UTF-8"),
        (b"q=%ff&target=de", "application/x-www-form-urlencoded", "not UTF-8"),
        (b"q=\xff&target=de", "application/x-www-form-urlencoded", "not UTF-8"),
        (b"q=" + b"&q=" * 20_000, "application/x-www-form-urlencoded", "not a form"),
        (b"--x\r\n", "multipart/form-data", "not a form"),
        (
            b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xff\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
            "not UTF-8",
        ),
        (b'{"target": "de"}', "application/json", "q: Field required"),
        (b'{"q": "the cat"}', "application/json", "target: Field required"),
        (b'{"q": 3, "target": "de"}', "application/json", "q"),
        (b'{"q": ["a", 3], "target": "de"}', "application/json", "q"),
        (b'{"q": "a", "target": "de", "format": "pdf"}', "application/json", "format"),
        (b'{"q": "a", "target": "de", "source": null}', "application/json", "source"),
        (b'{"q": "\\ud800", "target": "de"}', "application/json", "sentence 1 is not valid Unicode"),
    ],
)
def test_broken_bodies(client: TestClient, body: bytes, kind: str, reason: str) -> None:
    answer = client.post("/translate", content=body, headers={"content-type": kind} if kind else {})
    assert reason in refused(answer, 400)


def test_detection(client: TestClient) -> None:
    assert post(client, "/detect", q="the cat").json() == [{"confidence": 100.0, "language": "en"}]
    assert post(client, "/detect", q="3 + 4").json() == [{"confidence": 0.0, "language": "en"}]


def test_languages_and_settings(client: TestClient) -> None:
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]
    settings = client.get("/frontend/settings").json()
    assert settings["keyRequired"] is False
    assert settings["language"]["target"] == {"code": "de", "name": "German"}


# POST /v1/documents


def sentences_of(found: Translated, numbers: list[int] | None = None) -> list[dict[str, Any]]:
    return [
        {
            "sentence": number,
            "translation": translation,
            "selected": list(choice.selected),
            "probabilities": {str(d): pytest.approx(p, abs=1e-5) for d, p in choice.probabilities.items()},
            "non": choice.non if choice.non is None else pytest.approx(choice.non, abs=1e-5),
        }
        for number, (translation, choice) in enumerate(found, 1)
        if numbers is None or number in numbers
    ]


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
    assert answer[1] == {"sentence": 2, "translation": "", "selected": [], "probabilities": {}, "non": None}


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
        ({"sentences": ["a"], "selector": "previous " + "9" * 5000}, "no selector has so long a name"),
        ({"sentences": ["a"], "selector": "size-first 99999999999999999999"}, "more than 1000 sentences"),
        ({"sentences": ["a"], "selector": "previous 99999999999999999999"}, "more than 1000 sentences"),
        ({"sentences": ["a"], "numbers": [2]}, "sentence 2: the document has sentences 1 to 1"),
        ({"sentences": ["a"], "numbers": [0]}, "sentence 0: the document has sentences 1 to 1"),
        ({"sentences": ["a"], "selection": {"2": []}}, "sentence 2: the document has sentences 1 to 1"),
        ({"sentences": ["a"], "selection": {"1": [1]}}, "selection of sentence 1: distance 1; it can have none"),
        ({"sentences": ["a"] * 9, "selection": {"9": [4]}}, "sentence 9: distance 4; it can have 1 to 3"),
        ({"sentences": ["a"] * 9, "selection": {"3": [3]}}, "sentence 3: distance 3; it can have 1 to 2"),
        ({"sentences": ["a"] * 9, "selection": {"9": [0]}}, "sentence 9: distance 0"),
        ({"sentences": ["a"], "selection": {"x": [1]}}, "selection.x"),
        ({"sentences": ["a", "\ud800"]}, "sentence 2 is not valid Unicode"),
    ],
)
def test_wrong_documents(client: TestClient, fields: dict[str, Any], reason: str) -> None:
    body = json.dumps(fields)
    assert reason in refused(client.post("/v1/documents", content=body), 400)


# limits


def test_a_body_too_large(model: Model) -> None:
    with client_of(model, Limits(body_bytes=1000)) as client:
        fits = json.dumps({"q": "", "source": "en", "target": "de"})
        fits += " " * (1000 - len(fits))
        assert client.post("/translate", content=fits).status_code == 200
        assert refused(client.post("/translate", content=fits + " "), 413) == "the body has more than 1000 bytes"

        def pieces() -> Iterator[bytes]:  # without a length in the header
            for _ in range(50):
                yield b" " * 100

        for path in ("/translate", "/detect", "/v1/documents"):
            assert "more than 1000 bytes" in refused(client.post(path, content=pieces()), 413)


def test_too_many_sentences_and_too_long_ones(model: Model) -> None:
    with client_of(model, Limits(sentences=3, characters=10)) as client:
        for answer in (
            post(client, q=["a", "b c", "c", "d"], source="en", target="de"),
            post(client, q="a\nb\n\nc\nd", source="en", target="de"),
            post(client, "/v1/documents", sentences=["a"] * 4),
        ):
            assert refused(answer, 413) == "4 sentences; one request may have 3"
        for answer in (
            post(client, q=["a", "the cat sat"], source="en", target="de"),
            post(client, "/v1/documents", sentences=["a", "the cat sat"]),
        ):
            assert refused(answer, 413) == "sentence 2 has 11 characters; it may have 10"
        assert post(client, q="\na\n\n the cat is \n\nb\n", source="en", target="de").status_code == 200


class Held:
    """In the place of `translate_and_explain`: waits until it is let go, and remembers what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.begun = threading.Event(), threading.Semaphore(0)
        self.calls: list[list[tuple[str, ...]]] = []
        monkeypatch.setattr(batching, "translate_and_explain", self)

    def __call__(self, model: Model, documents: list[Document], *rest: Any, **more: Any) -> Any:
        self.calls.append([document.sentences for document in documents])
        self.begun.release()
        assert self.go.wait(20)
        return translate_and_explain(model, documents, *rest, **more)

    def wait_for_call(self) -> None:
        assert self.begun.acquire(timeout=20)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held(monkeypatch)
    yield held
    held.go.set()


def wait_until(holds: Any) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_full_queue(model: Model, held: Held) -> None:
    with client_of(model, Limits(sentences=4, waiting=4)) as client, ThreadPoolExecutor() as pool:
        first = pool.submit(post, client, q="the cat sat", source="en", target="de")
        held.wait_for_call()  # being translated, so no longer waiting
        second = pool.submit(post, client, q=["a", "b", "c"], source="en", target="de")
        batcher = client.service.batcher  # type: ignore[attr-defined]
        wait_until(lambda: batcher.waiting == 3)
        answer = post(client, "/v1/documents", sentences=["a", "b"], stream=True)
        assert refused(answer, 503) == "the queue is full (3 sentences are waiting); try again soon"
        assert answer.headers["retry-after"] == "5"
        held.go.set()
        assert first.result().status_code == second.result().status_code == 200
        assert batcher.waiting == 0
        assert post(client, q=["a", "b"], source="en", target="de").status_code == 200


def test_too_many_requests_of_one_client(model: Model, held: Held) -> None:
    with client_of(model, Limits(requests=2)) as client, ThreadPoolExecutor() as pool:
        begun = [
            pool.submit(post, client, q="the cat", source="en", target="de"),
            pool.submit(post, client, "/v1/documents", sentences=["a"], stream=True),
        ]
        clients = client.service.clients  # type: ignore[attr-defined]
        wait_until(lambda: sum(clients.count.values()) == 2)
        for answer in (
            post(client, q="the cat", source="en", target="de"),
            post(client, "/v1/documents", sentences=["a"]),
            post(client, "/v1/documents", sentences=["a"], stream=True),
        ):
            assert "2 requests of yours are under way" in refused(answer, 429)
        held.go.set()
        assert [request.result().status_code for request in begun] == [200, 200]
        assert not clients.count  # nobody is remembered
        assert post(client, q="the cat", source="en", target="de").status_code == 200


def test_clients_do_not_stand_in_each_others_way() -> None:
    clients = Clients(1)
    with clients.place("a"), clients.place("b"):
        assert clients.count == {"a": 1, "b": 1}
        with pytest.raises(Refused), clients.place("a"):
            pass
    assert not clients.count


def test_time_runs_out(model: Model, held: Held) -> None:
    with client_of(model, Limits(seconds=0.2)) as client:
        for stream in (False, True):
            answer = post(client, "/v1/documents", sentences=["a", "b"], stream=stream)
            assert refused(answer, 504) == "not done within 0.2 s; ask for fewer sentences"
        assert refused(post(client, q="the cat", source="en", target="de"), 504)
        service = client.service  # type: ignore[attr-defined]
        assert service.batcher.waiting == 0 and not service.clients.count  # given up, not left behind
        assert "dynctx_abandoned_total 3.0" in client.get("/metrics").text
        held.go.set()
        assert post(client, q="", source="en", target="de").status_code == 200


def test_time_runs_out_in_a_stream(model: Model, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status has been sent by then: the last line tells."""
    sizes = BatchSizes(sentences=1, window=0)
    with client_of(model, Limits(seconds=2.0), sizes) as client:
        held.go.set()
        original = client.service.batcher._translate  # type: ignore[attr-defined]

        def once(turn: Any) -> None:
            original(turn)
            time.sleep(2.2)

        monkeypatch.setattr(client.service.batcher, "_translate", once)  # type: ignore[attr-defined]
        answer = post(client, "/v1/documents", sentences=["a", "b"], stream=True)
        assert answer.status_code == 200
        first, last = [json.loads(line) for line in answer.text.splitlines()]
        assert first["sentence"] == 1
        assert last == {"error": "not done within 2 s; ask for fewer sentences", "status": 504}


@pytest.mark.parametrize("name", ["body_bytes", "sentences", "characters", "waiting", "requests", "seconds"])
def test_limits_of_nothing(name: str) -> None:
    with pytest.raises(DynctxError, match=f"limit {name} must be above 0, not 0"):
        Limits(**{name: 0})


def test_a_queue_smaller_than_a_request() -> None:
    with pytest.raises(DynctxError, match=r"limit waiting \(9\) must be at least limit sentences \(10\)"):
        Limits(sentences=10, waiting=9)


# keys


def test_a_key_is_needed(model: Model) -> None:
    with client_of(model, api_key="geheim äö") as client:
        fields = {"q": "the cat", "source": "en", "target": "de"}
        assert refused(post(client, **fields), 401).startswith("an API key is needed")
        assert refused(post(client, **fields, api_key=""), 401)
        assert post(client, **fields).headers["www-authenticate"] == "Bearer"
        assert refused(post(client, **fields, api_key="geheim"), 403) == "the API key is not valid"
        assert refused(client.post("/translate", data={**fields, "api_key": "nein"}), 403)
        assert refused(post(client, "/v1/documents", sentences=["a"], api_key="nein"), 403)
        assert refused(post(client, "/detect", q="a"), 401)
        assert refused(client.post("/translate", json=fields, headers={"Authorization": "Basic geheim"}), 401)
        assert refused(client.post("/translate", json=fields, headers={"Authorization": "Bearer nein"}), 403)
        assert post(client, **fields, api_key="geheim äö").status_code == 200
        assert client.post("/translate", data={**fields, "api_key": "geheim äö"}).status_code == 200
        assert post(client, "/v1/documents", sentences=["a"], api_key="geheim äö").status_code == 200
        assert client.get("/frontend/settings").json()["keyRequired"] is True
        assert client.get("/v1/model").json()["key_required"] is True
        for path in ("/", "/languages", "/health", "/metrics"):  # tell nothing that is secret
            assert client.get(path).status_code == 200


def test_a_key_in_the_header(model: Model) -> None:
    with client_of(model, api_key="geheim") as client:
        header = {"Authorization": "bearer  geheim"}
        assert client.post("/v1/documents", json={"sentences": ["a"]}, headers=header).status_code == 200


# batching


def test_requests_are_batched_together_and_answered_as_if_alone(model: Model, held: Held) -> None:
    """Twelve users at once with documents of their own, some of them choosing their selector."""
    rotated = [SENTENCES[k:] + SENTENCES[:k] for k in range(6)]
    asked = [(document, selector) for document in rotated for selector in ("probability-first", "full")]
    with client_of(model, sizes=BatchSizes(sentences=24)) as client, ThreadPoolExecutor(16) as pool:
        first = pool.submit(post, client, q="the cat sat", source="en", target="de")
        held.wait_for_call()
        requests = [
            pool.submit(post, client, "/v1/documents", sentences=document, selector=selector)
            for document, selector in asked
        ]
        wait_until(lambda: client.service.batcher.waiting == 12 * 7)  # type: ignore[attr-defined]
        held.go.set()
        for request, (document, selector) in zip(requests, asked):
            assert request.result().json()["sentences"] == sentences_of(direct(model, document, selector))
        assert first.result().status_code == 200
    # two sentences of each user a turn, those of one selector in one call
    assert [len(call) for call in held.calls] == [1] + [6] * 8


def test_a_short_request_does_not_wait_for_a_long_one(model: Model, held: Held) -> None:
    with client_of(model, sizes=BatchSizes(sentences=4)) as client, ThreadPoolExecutor() as pool:
        long = pool.submit(post, client, q=[f"the cat {k}" for k in range(40)], source="en", target="de")
        held.wait_for_call()
        short = pool.submit(post, client, q="a dog ran", source="en", target="de")
        wait_until(lambda: client.service.batcher.waiting == 37)  # type: ignore[attr-defined]
        held.go.set()
        assert long.result().status_code == short.result().status_code == 200
    calls = [any("a dog ran" in sentences for sentences in call) for call in held.calls]
    assert calls.index(True) == 1


def fill(batcher: Batcher, *documents: list[str]) -> list[Task]:
    tasks = [Task(document, range(len(document)), "none", {}, lambda item: None) for document in documents]
    batcher.tasks.extend(tasks)
    batcher.waiting = sum(map(len, documents))
    return tasks


def test_turns_go_round_and_round(model: Model) -> None:
    batcher = Batcher(model, model.config.decoding, BatchSizes(sentences=5), 100, Metrics())
    a, b, c = fill(batcher, ["x"] * 4, ["x"], ["x"] * 3)
    assert batcher._take() == {a: [0, 1], b: [0], c: [0, 1]}
    assert batcher.waiting == 3
    assert batcher._take() == {a: [2, 3], c: [2]}
    assert not batcher.tasks and batcher.waiting == 0


def test_a_batch_has_a_size_in_tokens_too(model: Model) -> None:
    """A sentence of 40 bytes is taken for 12 subwords, and has up to three like it before it (scope 3)."""
    long = "x" * 40
    batcher = Batcher(model, model.config.decoding, BatchSizes(sentences=9, tokens=8), 100, Metrics())
    (task,) = fill(batcher, [long] * 5)
    assert [task.size(place, 3) for place in range(5)] == [12, 24, 36, 48, 48]
    assert [batcher._take() for _ in range(4)] == [{task: [0, 1]}, {task: [2]}, {task: [3]}, {task: [4]}]


def test_a_request_given_up_before_it_began_does_not_end_the_service(model: Model) -> None:
    done = threading.Event()
    batcher = Batcher(model, model.config.decoding, BatchSizes(window=0.2), 100, Metrics())
    batcher.start()
    for _ in range(2):
        task = Task(["the cat"], [0], "none", {}, lambda item: None)
        batcher.submit(task)
        time.sleep(0.05)  # the service is waiting for company now
        batcher.give_up(task)
    time.sleep(0.3)
    assert batcher.alive and batcher.waiting == 0
    batcher.submit(Task(["the cat"], [0], "none", {}, lambda item: done.set()))
    assert done.wait(20)
    batcher.close()


def test_requests_for_nothing_do_not_end_the_service(model: Model) -> None:
    with client_of(model, sizes=BatchSizes(window=0)) as client:
        for _ in range(20):
            assert post(client, "/v1/documents", sentences=["a"], numbers=[]).status_code == 200
            assert post(client, q=[], source="en", target="de").status_code == 200
        assert client.get("/health").status_code == 200


def test_runs() -> None:
    assert runs([4]) == [(4, 4)]
    assert runs([0, 1, 2, 5, 7, 8]) == [(0, 2), (5, 5), (7, 8)]


def test_a_failure_hits_only_the_request_that_caused_it(
    model: Model, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held(monkeypatch)

    def fails(model: Model, documents: list[Document], *rest: Any, **more: Any) -> Any:
        if any("bad" in sentence for document in documents for sentence in document.sentences):
            raise RuntimeError("secret /etc/passwd")
        return held(model, documents, *rest, **more)

    monkeypatch.setattr(batching, "translate_and_explain", fails)
    with client_of(model) as client, ThreadPoolExecutor() as pool:
        first = pool.submit(post, client, q="the cat sat", source="en", target="de")
        held.wait_for_call()
        good = pool.submit(post, client, q="a dog ran", source="en", target="de")
        bad = pool.submit(post, client, q="bad", source="en", target="de")
        wait_until(lambda: client.service.batcher.waiting == 2)  # type: ignore[attr-defined]
        held.go.set()
        assert first.result().status_code == 200
        assert good.result().json() == {"translatedText": lines(direct(model, ["a dog ran"]))[0]}
        reason = "the translation failed through a fault of the service; its log says more"
        assert refused(bad.result(), 500) == reason
        assert "secret" in caplog.text  # it does
        assert post(client, q="a dog ran", source="en", target="de").status_code == 200  # and goes on
        assert refused(post(client, "/v1/documents", sentences=["bad"] * 99, stream=True), 500)
        assert client.service.batcher.waiting == 0  # type: ignore[attr-defined]


def test_a_fault_outside_the_batcher_tells_nothing(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> None:
        raise RuntimeError("secret")

    with client_of(model) as client:
        monkeypatch.setattr(client.service, "check_sentences", fails)  # type: ignore[attr-defined]
        answer = post(client, q="a dog ran", source="en", target="de")
        assert refused(answer, 500) == "a fault of the service; its log says more"
        assert answer.headers["x-content-type-options"] == "nosniff"


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


# the rest


def test_state(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    post(client, q=["the cat", "a dog"], source="en", target="de")
    found = client.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    counts = dict(line.rsplit(" ", 1) for line in found.text.splitlines() if not line.startswith("#"))
    assert float(counts["dynctx_sentences_total"]) >= 2
    assert counts["dynctx_waiting_sentences"] == "0.0"
    assert float(counts['dynctx_requests_total{path="/translate",status="200"}']) >= 1
    client.get("/nothing/here/1")
    client.get("/nothing/here/2")
    assert 'path="other",status="404"' in client.get("/metrics").text  # one count for all that does not exist


def test_health_while_stopping(model: Model) -> None:
    with client_of(model) as client:
        client.service.batcher.close()  # type: ignore[attr-defined]
        assert refused(client.get("/health"), 503) == "the service is stopping"
        assert refused(post(client, q="the cat", source="en", target="de"), 503) == "the service is stopping"


def test_what_is_not_there(client: TestClient) -> None:
    assert refused(client.get("/nothing"), 404) == "Not Found"
    assert refused(client.get("/static/../app.py"), 404)
    assert refused(client.get("/static/%2e%2e/app.py"), 404)
    assert refused(client.get("/translate"), 405) == "Method Not Allowed"


def test_the_model_is_described(client: TestClient) -> None:
    found = client.get("/v1/model").json()
    assert found["source"]["code"] == "en" and found["target"]["name"] == "German"
    assert (found["kind"], found["scope"], found["selector"], found["scorer"]) == (
        "tdnmt",
        3,
        "probability-first",
        True,
    )
    assert found["limits"] == {"body_bytes": 2097152, "sentences": 1000, "characters": 2000}


def test_openapi(client: TestClient) -> None:
    found = client.get("/openapi.json").json()
    paths = {"/translate", "/detect", "/languages", "/v1/documents", "/v1/model", "/health", "/metrics"}
    assert set(found["paths"]) == paths
    body = found["paths"]["/v1/documents"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"sentences", "selector", "selection", "numbers", "stream", "api_key"}
    assert "413" in found["paths"]["/translate"]["post"]["responses"]


@pytest.mark.parametrize("path", ["/", "/docs", "/static/page.js", "/static/page.css", "/health", "/nothing"])
def test_nothing_is_loaded_from_elsewhere(client: TestClient, path: str) -> None:
    answer = client.get(path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy and "http" not in policy
    for word in ("https://", "http://", "//cdn", "@import", " onclick=", " style=", "<style"):
        assert word not in answer.text.replace("http://www.w3.org/2000/svg", "")


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
        assert client.get("/v1/model").json()["scope"] == 0


def test_an_answer_is_what_a_task_delivers(model: Model) -> None:
    found: list[Any] = []
    done = threading.Event()

    def deliver(item: Any) -> None:
        found.append(item)
        done.set()

    batcher = Batcher(model, model.config.decoding, BatchSizes(), 10, Metrics())
    batcher.start()
    batcher.submit(Task(SENTENCES, [1, 6], "none", {}, deliver))
    assert done.wait(20)
    batcher.close()
    none = direct(model, SENTENCES, "none")
    assert found == [[Answer(1, *none[1]), Answer(6, *none[6])]]
    with pytest.raises(Refused, match="stopping"):
        batcher.submit(Task(SENTENCES, [1], "none", {}, deliver))
