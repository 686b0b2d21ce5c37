"""What every answer has in common: headers, errors, JSON lines, and clients that go away."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dynctx.serve.limits import Refused
from dynctx.serve.metrics import Metrics
from dynctx.serve.service import Answers, Service

T = TypeVar("T")
# nothing is loaded from anywhere else, nothing inline is run, and no other site may frame the page
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
CLIENT_LEFT = 499  # no one reads this answer; it is what the counts show


class Outermost:
    """Puts the headers above on every answer, and counts it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics
        self.headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *self.headers]
            await send(message)

        try:
            await self.app(scope, receive, sending)
        finally:
            # the path of the route and not of the request: of those there is no end
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(path, status).inc()
            self.metrics.request_seconds.labels(path).observe(time.perf_counter() - start)


def add_errors(app: FastAPI) -> None:
    """Every error is {"error": reason}. What went wrong inside is logged by the server and not told to the client."""

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return JSONResponse({"error": error.reason}, error.status, error.headers)

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": "a fault of the service; its log says more"}, 500, HEADERS)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled where the client goes away. The body must have been read."""
    doing, gone = asyncio.ensure_future(work), asyncio.ensure_future(disconnected(request))
    try:
        await asyncio.wait((doing, gone), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise Refused(CLIENT_LEFT, "the client left")
        return doing.result()
    finally:
        doing.cancel()
        gone.cancel()
        await asyncio.gather(doing, gone, return_exceptions=True)


async def disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class JsonLines(StreamingResponse):
    """A stream that is cleaned up after even where its first line was never sent."""

    def __init__(self, lines: AsyncIterator[bytes], close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().__init__(lines, media_type="application/x-ndjson", headers={"Cache-Control": "no-store"})
        self.close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.close()


async def stream(
    request: Request, service: Service, client: str, answers: Answers, shape: Callable[[Any], dict[str, Any]]
) -> Response:
    """A line for each answer. The first are waited for, so that what goes wrong until then has its proper status."""
    service.clients.enter(client)

    async def close() -> None:
        service.clients.leave(client)
        await answers.aclose()

    async def begin() -> list[Any]:
        return await anext(answers, [])

    try:
        first = await unless_gone(request, begin())
    except BaseException:
        await close()
        raise

    async def lines() -> AsyncIterator[bytes]:
        try:
            yield json_lines(map(shape, first))
            async for found in answers:
                yield json_lines(map(shape, found))
            yield json_lines([{"done": True}])
        except Refused as error:
            yield json_lines([{"error": error.reason, "status": error.status}])

    return JsonLines(lines(), close)


def json_lines(records: Any) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
