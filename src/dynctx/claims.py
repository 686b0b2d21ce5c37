"""One process at a time: a claim on a folder that is being written to.

Two runs with one output folder would write over each other's checkpoints, and each would go on from the other's. So
whoever writes claims the folder first. A claim is a locked file in it, which the system releases when the process ends,
however it ends: no claim outlives a crash.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dynctx.errors import DynctxError, at

try:
    import fcntl
except ImportError:  # Windows: there, nobody is kept out
    fcntl = None  # type: ignore[assignment]

NAME = ".claim"
TRIES = 1000  # to find a folder that others make and take away again
UNABLE = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)  # of file systems that know no locks: work goes on


class Busy(DynctxError):
    """Another process works there."""


@contextmanager
def claimed(folder: str | os.PathLike[str], wait: bool = False) -> Iterator[None]:
    """Nobody else claims the folder during this block. Where somebody has: Busy, or `wait` for the end of that.

    The folder is made if it is not there, and does not stay if nothing is put into it.
    """
    place = Path(folder)
    new = not place.exists()
    try:
        held = _lock(place / NAME, wait)
    except BlockingIOError:
        who = _owner(place / NAME)
        raise Busy(f"{at(folder)}: another process{who} works there; wait for it, or name another folder") from None
    except OSError as error:
        raise DynctxError(
            f"{at(folder)}: cannot be written: {error.strerror}; change the permissions or choose another path"
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):
            (place / NAME).unlink()  # while it is still ours
        held.close()
        if new:
            with suppress(OSError):
                place.rmdir()


def _lock(file: Path, wait: bool) -> IO[str]:
    while True:
        held = _opened(file)
        try:
            _flock(held, wait)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(held.fileno()), file.stat()):
                    held.truncate(0)
                    held.write(str(os.getpid()))
                    held.flush()
                    return held
        except BaseException:
            held.close()
            raise
        held.close()  # whoever held it has just removed it: lock the one that comes next


def _opened(file: Path) -> IO[str]:
    for left in reversed(range(TRIES)):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            return open(file, "a", encoding="ascii")  # closed when the claim ends
        except (FileExistsError, FileNotFoundError):  # whoever had made the folder has just taken it away
            if not left:
                raise
    raise AssertionError


def _flock(held: IO[str], wait: bool) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in UNABLE:
            raise


def _owner(file: Path) -> str:
    try:
        return f" ({int(file.read_text(encoding='ascii'))})"
    except (OSError, ValueError):
        return ""
