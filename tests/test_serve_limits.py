"""What the service will not take on: bodies, sentences, a full queue, many requests of one client, and time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from serving import Held, client_of, post, refused, wait_until

from dynctx.errors import DynctxError
from dynctx.model_folder import Model
from dynctx.serve.batching import BatchSizes
from dynctx.serve.limits import Clients, Limits, Refused

pytest_plugins = ("serve_fixtures",)


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
            assert refused(answer, 413).replace(" or more", "") == "4 sentences; one request may have 3"
        for answer in (
            post(client, q=["a", "the cat sat"], source="en", target="de"),
            post(client, "/v1/documents", sentences=["a", "the cat sat"]),
        ):
            assert refused(answer, 413) == "sentence 2 has 11 characters; it may have 10"
        assert post(client, q="\na\n\n the cat is \n\nb\n", source="en", target="de").status_code == 200


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
