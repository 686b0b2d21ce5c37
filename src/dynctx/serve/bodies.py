"""Request bodies: read up to a limit, then taken apart as JSON or as a form. Whatever is wrong has a reason."""

from __future__ import annotations

import asyncio
import json
import re
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from dynctx.documents import is_text
from dynctx.serve.limits import Limits, Refused

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # one half of a pair, alone or not
MOST_FIELDS = 10_000  # of a form
DRAIN_BYTES, DRAIN_SECONDS = 2**26, 5.0  # how much of a body that is too large is still taken in
Kind = TypeVar("Kind", bound=BaseModel)


async def parse(request: Request, kind: type[Kind], limits: Limits) -> Kind:
    """The body as a `kind`, JSON or form."""
    try:
        async with asyncio.timeout(limits.seconds):
            body = await read(request, limits.body_bytes)
    except TimeoutError:
        raise Refused(408, f"the request did not arrive within {limits.seconds:g} s") from None
    except ClientDisconnect:
        raise Refused(400, "the client left before the request was complete") from None
    content = fields_of(body, request.headers.get("content-type", ""))
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        # of a choice of types pydantic names the type too: q.str
        place = ".".join(str(part) for part in first["loc"])
        raise Refused(400, f"{place or 'body'}: {first['msg']}") from None


async def read(request: Request, most: int) -> bytes:
    announced = request.headers.get("content-length", "")
    body, size = bytearray(), int(announced) if announced.isdecimal() and len(announced) < 20 else 0
    too_large = size > most
    try:
        # a client that is still writing would not read the answer, so some of what is too much is taken in
        async with asyncio.timeout(None) as drain:
            received = 0
            async for chunk in request.stream():
                received += len(chunk)
                too_large = too_large or received > most
                if not too_large:
                    body += chunk
                    continue
                if drain.when() is None:
                    drain.reschedule(asyncio.get_running_loop().time() + DRAIN_SECONDS)
                if received > DRAIN_BYTES:
                    break
    except TimeoutError:
        if not too_large:
            raise
    if too_large:
        raise Refused(413, f"the body has more than {most} bytes", {"Connection": "close"})
    return bytes(body)


def fields_of(body: bytes, content_type: str) -> dict[str, Any]:
    """Names and values. A name that a form has more than once becomes a list."""
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == "application/x-www-form-urlencoded":
            pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
            return gathered(pairs)
        if kind == "multipart/form-data":
            return gathered(multipart(body, content_type))
        content = json.loads(body.decode())
    except UnicodeDecodeError:
        raise Refused(400, "the body is not UTF-8") from None
    except RecursionError:
        raise Refused(400, "the body is nested too deeply") from None
    except ValueError as error:
        what = "JSON" if kind not in ("application/x-www-form-urlencoded", "multipart/form-data") else "a form"
        raise Refused(400, f"the body is not {what}: {error}") from None
    if SURROGATE.search(body) and not is_text(json.dumps(content, ensure_ascii=False)):
        raise Refused(400, "the body is not valid Unicode (half of a surrogate pair)")
    if not isinstance(content, dict):
        raise Refused(400, "the body is not a JSON object")
    return content


def multipart(body: bytes, content_type: str) -> list[tuple[str, str]]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    if not message.is_multipart():
        raise ValueError("no parts, or a wrong boundary")
    found = []
    for part in message.iter_parts():
        name, content = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            found.append((name, content.decode()))
    return found


def gathered(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name not in found:
            found[name] = value
        elif isinstance(found[name], list):
            found[name].append(value)
        else:
            found[name] = [found[name], value]
    return found
