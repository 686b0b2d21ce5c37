"""A service as a process: bind, say where, serve, stop cleanly."""

from __future__ import annotations

import ipaddress
import re
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from dynctx.commands import changed
from dynctx.devices import pick_device
from dynctx.errors import DynctxError
from dynctx.linear import to_int8
from dynctx.model_folder import load_model
from dynctx.serve.app import make_app
from dynctx.serve.batching import BatchSizes
from dynctx.serve.limits import Limits
from dynctx.serve.service import Service

GRACE = 5.0  # seconds beyond the time limit of a request, after which a stop no longer waits


def serve(
    folder: Path,
    host: str,
    port: int,
    api_key: str | None,
    selector: str | None,
    beam: int | None,
    batch: int | None,
    int8: bool,
    device: str,
    limits: Limits,
    origins: Sequence[str] = (),
) -> None:
    """Until SIGTERM or SIGINT. Then no request is taken any more, and those that were taken are finished."""
    for origin in origins:
        if not re.fullmatch(r"\*|https?://[^/\s]+", origin):
            raise DynctxError(f"--allow-origin {origin}: no origin of pages; name it as https://example.org")
    with bind(host, port) as listener:  # first: loading takes seconds, and a port in use should show at once
        model = load_model(folder, pick_device(device))
        model.config.decoding = changed(model.config.decoding, beam=beam, batch_sentences=batch)
        sizes = None if batch is None else BatchSizes(batch)
        if int8:
            to_int8(model.translator)
        service = Service(model, limits, sizes, api_key or None, selector, folder.resolve().name)
        config = uvicorn.Config(
            make_app(service, origins),
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=int(limits.seconds + GRACE),
        )
        if not is_loopback(listener.getsockname()[0]) and not api_key:
            sys.stderr.write("dynctx: whoever reaches this address can use it; --api-key asks for a key\n")
        server = Server(config, f"serving {folder} at {url_of(listener)} (Ctrl-C stops)")
        # uvicorn raises the signal that stopped it once more when all is done; by then it is no error
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, server.handle_exit)
        server.run(sockets=[listener])


class Server(uvicorn.Server):
    """Says where it is once it can be reached."""

    def __init__(self, config: uvicorn.Config, ready: str) -> None:
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            sys.stderr.write(f"dynctx: {self.ready}\n")
            sys.stderr.flush()


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def bind(host: str, port: int) -> socket.socket:
    try:
        if not 0 <= port < 2**16:  # which getaddrinfo takes for another port
            raise OverflowError("ports go from 0 to 65535")
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DynctxError(f"{host}:{port}: cannot listen there: {reason}; choose another --host or --port") from None
    return listener


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
