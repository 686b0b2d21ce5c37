"""Stopping a run that is asked to: at the end of an update, when all that it has learned can be kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopping(gently: bool) -> Iterator[list[BaseException]]:
    """What to raise once an update is done, where Ctrl-C or a request to end has come; a second one ends at once.

    Several processes would not stop at the same update, so they are not asked.
    """
    asked: list[BaseException] = []

    def note(number: int, _: Any) -> None:
        signal.signal(number, before[number])
        asked.append(KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number))

    before: dict[int, Any] = {}
    if gently and threading.current_thread() is threading.main_thread():
        for kind in (signal.SIGINT, signal.SIGTERM):
            before[kind] = signal.signal(kind, note)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
