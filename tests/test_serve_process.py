"""`dynctx serve` as people run it: a process with a port, existing clients, clients that leave, and a clean stop."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from serving import SENTENCES, Server, tiny_model
from tiny_runs import Warm

from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.model_folder import save_model
from dynctx.pipeline import translate_documents
from dynctx.serve.server import bind, is_loopback

pytest_plugins = ("tiny_fixtures",)

LONG = [f"the cat sat {k}" for k in range(60)]  # with one sentence a batch, a second or more


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("serve") / "tiny"
    save_model(place, tiny_model())
    return place


@pytest.fixture(scope="module")
def server(folder: Path, warm: Warm) -> Iterator[Server]:
    server = Server(warm, folder, "--batch", "1", "--max-body", "50000")
    yield server
    server.signal(signal.SIGTERM)
    # of all that was asked of it, its log has this alone
    assert server.ended() == (0, ["WARNING:  Invalid HTTP request received."])


def connect(server: Server) -> HTTPConnection:
    return HTTPConnection(server.url.removeprefix("http://"), timeout=60)


def ask(server: Server, path: str, **fields: Any) -> tuple[int, Any]:
    connection = connect(server)
    connection.request("POST", path, json.dumps(fields))
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def metric(server: Server, name: str) -> float:
    connection = connect(server)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " "))


def wait_until(holds: Any) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_is_reached_from_this_machine_only(server: Server) -> None:
    assert server.url.startswith("http://127.0.0.1:")


def test_a_client_of_libretranslate(server: Server) -> None:
    pytest.importorskip("libretranslatepy", reason="libretranslatepy is not installed (extra: dev)")
    from libretranslatepy import LibreTranslateAPI

    api = LibreTranslateAPI(server.url)
    (document,) = translate_documents(tiny_model(), [Document("x", tuple(SENTENCES))])
    assert api.translate("\n".join(SENTENCES), "en", "de") == "\n".join(document.sentences)
    assert [language["code"] for language in api.languages()] == ["en", "de"]
    assert api.detect("the cat") == [{"confidence": 100.0, "language": "en"}]
    with pytest.raises(HTTPError) as error:
        api.translate("the cat", "en", "fr")
    assert error.value.code == 400
    assert json.loads(error.value.read()) == {"error": "fr is not supported as target; this model writes de"}


def test_a_key_from_the_environment_and_a_client_that_gives_it(folder: Path, warm: Warm) -> None:
    pytest.importorskip("libretranslatepy", reason="libretranslatepy is not installed (extra: dev)")
    from libretranslatepy import LibreTranslateAPI

    server = Server(warm, folder, environment={"DYNCTX_API_KEY": "geheim"})
    try:
        assert LibreTranslateAPI(server.url, "geheim").translate("the cat", "en", "de")
        with pytest.raises(HTTPError) as error:
            LibreTranslateAPI(server.url, "falsch").translate("the cat", "en", "de")
        assert error.value.code == 403
    finally:
        server.signal(signal.SIGINT)
    assert server.ended() == (0, [])


def test_translations_come_as_they_are_made(server: Server) -> None:
    connection = connect(server)
    connection.request("POST", "/v1/documents", json.dumps({"sentences": LONG * 2, "stream": True}))
    answer = connection.getresponse()
    assert json.loads(answer.readline())["sentence"] == 1
    waiting = metric(server, "dynctx_waiting_sentences")
    assert waiting > 10  # the first was here long before the last was made
    numbers = [json.loads(line).get("sentence") for line in answer.read().splitlines()]
    assert numbers == [*range(2, 121), None]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away(server: Server, stream: bool) -> None:
    before = metric(server, "dynctx_abandoned_total")
    connection = connect(server)
    connection.request("POST", "/v1/documents", json.dumps({"sentences": LONG, "stream": stream}))
    wait_until(lambda: metric(server, "dynctx_waiting_sentences") > 0)
    connection.close()
    wait_until(lambda: metric(server, "dynctx_abandoned_total") == before + 1)
    assert metric(server, "dynctx_waiting_sentences") == 0  # what it has not begun is not done
    assert ask(server, "/translate", q="the cat", source="en", target="de")[0] == 200


def test_a_client_that_goes_away_in_the_middle_of_its_request(server: Server) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    for body in (b"", b'{"q": '):
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + body)
    assert ask(server, "/translate", q="the cat", source="en", target="de")[0] == 200


def test_a_huge_body_is_answered(server: Server) -> None:
    status, answer = ask(server, "/translate", q="x" * 5_000_000, source="en", target="de")
    assert (status, answer) == (413, {"error": "the body has more than 50000 bytes"})


def test_what_is_no_http(server: Server) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        assert b"Traceback" not in raw.recv(10_000)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_finishes_what_has_begun(folder: Path, warm: Warm, number: int) -> None:
    server = Server(warm, folder, "--batch", "1")
    streaming, plain = connect(server), connect(server)
    streaming.request("POST", "/v1/documents", json.dumps({"sentences": LONG, "stream": True}))
    answer = streaming.getresponse()
    answer.readline()
    plain.request("POST", "/translate", json.dumps({"q": LONG[:40], "source": "en", "target": "de"}))
    wait_until(lambda: metric(server, "dynctx_waiting_sentences") > 60)
    server.signal(number)

    def refused() -> bool:
        try:
            connect(server).connect()
        except ConnectionRefusedError:
            return True
        return False

    wait_until(refused)  # nobody new
    lines = answer.read().splitlines()
    assert json.loads(lines[-1]) == {"done": True} and len(lines) == 60
    assert len(json.loads(plain.getresponse().read())["translatedText"]) == 40
    assert server.ended() == (0, [])


def test_a_port_in_use(folder: Path, server: Server, warm: Warm) -> None:
    port = server.url.rpartition(":")[2]
    ended = warm.run("serve", "-m", folder, "--port", port)
    reason = "cannot listen there: Address already in use; choose another --host or --port"
    assert (ended.code, ended.err) == (2, f"dynctx: 127.0.0.1:{port}: {reason}\n")


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 0), ("127.0.0.1", 99999), ("203.0.113.1", 0)])
def test_addresses_that_cannot_be(host: str, port: int) -> None:
    with pytest.raises(DynctxError, match=f"{host}:{port}: cannot listen there: .*; choose another --host or --port"):
        bind(host, port)


def test_addresses() -> None:
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("::1%lo")
    assert not is_loopback("0.0.0.0") and not is_loopback("::")


@pytest.mark.parametrize("origin", ["example.org", "foo", "https://", "https://example.org/page"])
def test_origins_that_no_page_has(origin: str, folder: Path, warm: Warm) -> None:
    ended = warm.run("serve", "-m", folder, "--port", "0", "--allow-origin", origin)
    said = f"dynctx: --allow-origin {origin}: no origin of pages; name it as https://example.org\n"
    assert (ended.code, ended.err) == (2, said)
