"""Requests of many users in one batch: turns, sizes, failures, and that batching changes no answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from serving import SENTENCES, Held, client_of, direct, lines, post, refused, sentences_of, wait_until
from tiny_models import PAIRS, tiny_model

from dynctx.documents import Document
from dynctx.model_folder import Model
from dynctx.pipeline import translate_documents
from dynctx.serve import batching
from dynctx.serve.batching import Answer, Batcher, BatchSizes, Task, runs
from dynctx.serve.limits import Refused
from dynctx.serve.metrics import Metrics

pytest_plugins = ("serve_fixtures",)


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


def test_the_queue_can_be_full_to_the_last_place(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batcher, "alive", True)
    batcher = Batcher(model, model.config.decoding, BatchSizes(), 5, Metrics())
    batcher.submit(Task(["x"] * 5, range(5), "none", {}, lambda item: None))
    with pytest.raises(Refused, match="the queue is full"):
        batcher.submit(Task(["x"], range(1), "none", {}, lambda item: None))
    assert batcher.waiting == 5


def test_a_task_that_failed_is_not_gone_on_with(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: Any, **__: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(batching, "translate_and_explain", fault)
    told: list[Any] = []
    batcher = Batcher(model, model.config.decoding, BatchSizes(sentences=2), 100, Metrics())
    batcher.tasks.append(Task(["x"] * 5, range(5), "none", {}, told.append))
    batcher.waiting = 5
    batcher._translate(batcher._take())
    assert [refusal.status for refusal in told] == [500]
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


@pytest.mark.parametrize("kind", ["tdnmt", "han", "cadec"])
@pytest.mark.parametrize("users", [1, 12])
def test_a_document_in_turns_is_the_document_at_once(kind: str, users: int) -> None:
    """Also where what was said before is read: not in turns then; and a part of it, asked for by its places."""
    made = tiny_model(kind)
    document, places = PAIRS[1][0].sentences, [range(6), [2, 5]]
    expected = translate_documents(made, [PAIRS[1][0]])[0].sentences
    found: list[dict[int, str | None]] = [{} for _ in range(2 * users)]

    def deliver(own: dict[int, str | None]) -> Callable[[list[Answer] | Refused], None]:
        return lambda answers: own.update({a.place: a.translation for a in cast(list[Answer], answers)})

    batcher = Batcher(made, made.config.decoding, BatchSizes(sentences=4), 1000, Metrics())
    tasks = [Task(document, places[n % 2], "full", {}, deliver(own)) for n, own in enumerate(found)]
    batcher.tasks.extend(tasks)
    batcher.waiting = sum(len(task.left) for task in tasks)
    batcher.start()
    batcher.close()
    assert found == [{place: expected[place] for place in places[number % 2]} for number in range(2 * users)]
