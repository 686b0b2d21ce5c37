"""`dynctx serve` under load: throughput and delay with many clients, and memory under mixed requests.

    python benchmarks/serve.py MODEL                     # 1, 8 and 32 clients, then 10 minutes of mixed requests
    python benchmarks/serve.py MODEL --minutes 0         # the first part alone
    python benchmarks/serve.py MODEL --clients           # the second alone

Prints JSON lines. The clients run on the same machine, in this process; a request is a document of --sentences lines,
taken from --text (one sentence a line; default: the made-up corpus of dynctx.synthetic).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path

SAMPLE_SECONDS = 5.0


def say(**record: object) -> None:
    print(json.dumps(record), flush=True)


class Server:
    """A service in a process of its own."""

    def __init__(self, model: Path, options: list[str]) -> None:
        command = [sys.executable, "-m", "dynctx", "serve", "-m", str(model), "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"http://(\S+)", line)
        if found is None:
            sys.exit(line + self.process.stderr.read())
        self.address = found[1]
        self.log: list[str] = []
        threading.Thread(target=lambda: self.log.extend(self.process.stderr or []), daemon=True).start()

    def connect(self) -> HTTPConnection:
        return HTTPConnection(self.address, timeout=600)

    def memory(self) -> float:
        """Resident MiB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def metrics(self) -> dict[str, float]:
        connection = self.connect()
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


class Documents:
    """Documents of neighbouring lines, drawn anew for each request."""

    def __init__(self, lines: list[str], size: int) -> None:
        self.lines, self.size = lines, size

    def draw(self, rng: random.Random, size: int = 0) -> list[str]:
        size = size or self.size
        start = rng.randrange(max(1, len(self.lines) - size))
        return self.lines[start : start + size]


def post(connection: HTTPConnection, path: str, body: str | bytes) -> tuple[int, bytes]:
    connection.request("POST", path, body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def together(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def throughput(server: Server, documents: Documents, clients: int, seconds: float) -> None:
    delays: list[float] = []
    before, start = server.metrics(), time.monotonic()

    def work(number: int) -> None:
        rng, connection = random.Random(number), server.connect()
        while time.monotonic() - start < seconds:
            begun = time.monotonic()
            status, answer = post(connection, "/v1/documents", json.dumps({"sentences": documents.draw(rng)}))
            assert status == 200, answer
            delays.append(time.monotonic() - begun)

    together(clients, work)
    took, after = time.monotonic() - start, server.metrics()

    def risen(name: str) -> float:
        return after[name] - before[name]

    delays.sort()
    say(
        what="throughput",
        clients=clients,
        sentences_a_request=documents.size,
        seconds=round(took, 1),
        requests_per_second=round(len(delays) / took, 2),
        sentences_per_second=round(risen("dynctx_sentences_total") / took, 1),
        p50_milliseconds=round(1e3 * delays[len(delays) // 2]),
        p99_milliseconds=round(1e3 * delays[min(len(delays) - 1, int(len(delays) * 0.99))]),
        sentences_a_batch=round(risen("dynctx_batch_sentences_sum") / max(1, risen("dynctx_batch_sentences_count")), 1),
        requests_a_batch=round(risen("dynctx_batch_requests_sum") / max(1, risen("dynctx_batch_requests_count")), 1),
        mib=round(server.memory(), 1),
    )


def mixed(
    documents: Documents, source: str, target: str
) -> list[tuple[Callable[[random.Random], tuple[str, bytes]], set[int]]]:
    """Good, broken and huge requests, each with the answers that it may get (503: the queue may be full)."""

    def of(path: str, make: Callable[[random.Random], object]) -> Callable[[random.Random], tuple[str, bytes]]:
        def request(rng: random.Random) -> tuple[str, bytes]:
            content = make(rng)
            return path, content if isinstance(content, bytes) else json.dumps(content).encode()

        return request

    def translate(rng: random.Random, **more: object) -> dict[str, object]:
        return {"q": documents.draw(rng), "source": source, "target": target, **more}

    good, draw = {200, 503}, documents.draw
    return [
        (of("/translate", translate), good),
        (of("/translate", lambda rng: translate(rng, q="\n".join(draw(rng)))), good),
        (of("/translate", lambda rng: translate(rng, q=f"<p>{'</p><p>'.join(draw(rng))}</p>", format="html")), good),
        (of("/v1/documents", lambda rng: {"sentences": draw(rng, rng.randint(1, 60)), "stream": True}), good),
        (of("/v1/documents", lambda rng: {"sentences": draw(rng), "selector": "none"}), good),
        (of("/v1/documents", lambda rng: {"sentences": draw(rng), "numbers": [1], "selection": {"1": []}}), good),
        (of("/v1/documents", lambda rng: {"sentences": ["word " * 390] * 2}), good),
        (of("/v1/documents", lambda rng: {"sentences": draw(rng), "selection": {"1": [1]}}), {400}),
        (of("/v1/documents", lambda rng: b'{"sentences": ["cut'), {400}),
        (of("/v1/documents", lambda rng: b'{"sentences": ["\xff\xfe"]}'), {400}),
        (of("/v1/documents", lambda rng: b"[" * 50_000), {400}),
        (of("/v1/documents", lambda rng: {"sentences": ["x"] * 1001}), {413}),
        (of("/v1/documents", lambda rng: {"sentences": ["x" * 5000]}), {413}),
        (of("/v1/documents", lambda rng: b" " * 5_000_000), {413}),
        (of("/nothing/" + "x" * 50, lambda rng: b"{}"), {404}),
    ]


def soak(server: Server, documents: Documents, minutes: float, clients: int) -> None:
    connection = server.connect()
    connection.request("GET", "/languages")
    source, target = (language["code"] for language in json.loads(connection.getresponse().read()))
    kinds, seconds, start = mixed(documents, source, target), 60 * minutes, time.monotonic()
    answers: Counter[str] = Counter()
    unexpected: list[str] = []
    samples: list[float] = []

    def work(number: int) -> None:
        if number == clients:
            return watch()
        rng = random.Random(number)
        while time.monotonic() - start < seconds:
            if rng.random() < 0.1:
                leave(rng)
                continue
            make, allowed = rng.choice(kinds)
            path, body = make(rng)
            try:
                status, answer = post(server.connect(), path, body)
            except (OSError, HTTPException) as error:
                unexpected.append(f"{path}: {error!r}")
                continue
            answers[str(status)] += 1
            if status not in allowed or b"Traceback" in answer:
                unexpected.append(f"{path}: {status} {answer[:200]!r}")

    def leave(rng: random.Random) -> None:
        """A client that does not wait for its answer."""
        connection = server.connect()
        connection.request("POST", "/v1/documents", json.dumps({"sentences": documents.draw(rng, 60), "stream": True}))
        time.sleep(rng.random() / 2)
        connection.close()
        answers["left"] += 1

    def watch() -> None:
        while (passed := time.monotonic() - start) < seconds:
            samples.append(server.memory())
            say(what="memory", second=round(passed), mib=round(samples[-1], 1))
            time.sleep(min(SAMPLE_SECONDS, max(0.01, seconds - passed)))

    together(clients + 1, work)
    warm = samples[len(samples) // 5 :]  # the first fifth is start-up: every shape of batch is met once
    third = max(1, len(warm) // 3)
    say(
        what="soak",
        minutes=minutes,
        clients=clients,
        answers=dict(sorted(answers.items())),
        unexpected=len(unexpected),
        examples=unexpected[:5],
        mib_first_third=round(sum(warm[:third]) / third, 1),
        mib_last_third=round(sum(warm[-third:]) / third, 1),
        mib_highest=round(max(samples), 1),
        waiting_afterwards=server.metrics()["dynctx_waiting_sentences"],
    )


def made_up(count: int) -> list[str]:
    from dynctx.synthetic import as_documents, make_corpus

    sources, _ = as_documents(make_corpus(count, seed=3))
    return [sentence for document in sources for sentence in document.sentences]


def main() -> None:
    parser = argparse.ArgumentParser(description="dynctx serve under load")
    parser.add_argument("model", type=Path)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each number of clients")
    parser.add_argument("--minutes", type=float, default=10.0, help="of mixed requests; 0: none")
    parser.add_argument("--sentences", type=int, default=8, help="of a request")
    parser.add_argument("--text", type=Path, help="sentences of the source language, one a line")
    parser.add_argument(
        "--serve", nargs="*", default=[], metavar="OPTION", help="more for dynctx serve: --serve=--int8"
    )
    options = parser.parse_args()
    lines = options.text.read_text(encoding="utf-8").splitlines() if options.text else made_up(200)
    documents = Documents([line.strip() for line in lines if line.strip()], options.sentences)
    server = Server(options.model, options.serve)
    try:
        say(
            what="server",
            model=str(options.model),
            options=options.serve,
            cpus=os.cpu_count(),
            mib=round(server.memory(), 1),
        )
        for clients in options.clients:
            throughput(server, documents, clients, options.seconds)
        if options.minutes:
            soak(server, documents, options.minutes, clients=8)
    finally:
        say(what="stop", exit_code=server.stop(), log_lines=len(server.log), log=server.log[:3])


if __name__ == "__main__":
    main()
