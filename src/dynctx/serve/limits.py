"""How much one request may ask for, and how a request is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from dynctx.errors import DynctxError


@dataclass(frozen=True)
class Limits:
    """All of these are answered with a reason; docs/serve.md says which status each has."""

    body_bytes: int = 2 * 2**20  # of one request
    sentences: int = 1000  # of one request
    characters: int = 2000  # of one sentence
    waiting: int = 10_000  # sentences of all requests together that are not being translated yet
    requests: int = 64  # of one client at a time
    seconds: float = 120.0  # for a request to arrive, and again for its translations

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise DynctxError(f"limit {field.name} must be above 0, not {getattr(self, field.name):g}")
        if self.waiting < self.sentences:
            raise DynctxError(
                f"limit waiting ({self.waiting}) must be at least limit sentences ({self.sentences}), "
                "or a request of that size is never taken"
            )


class Refused(Exception):
    """A request that is not answered: `reason` is what the client reads."""

    def __init__(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.headers = status, headers or {}
        self.reason = reason.encode("utf-8", "backslashreplace").decode()  # what it quotes may be half a surrogate pair


class Clients:
    """Counts the requests under way of each client, so that no one of them takes all the places."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.count: Counter[str] = Counter()

    def enter(self, client: str) -> None:
        if self.count[client] >= self.most:
            reason = f"{self.most} requests of yours are under way already; wait for one of them"
            raise Refused(429, reason, {"Retry-After": "1"})
        self.count[client] += 1

    def leave(self, client: str) -> None:
        self.count[client] -= 1
        if not self.count[client]:
            del self.count[client]  # or every address ever seen would stay

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        self.enter(client)
        try:
            yield
        finally:
            self.leave(client)
