"""The one exception that a user is meant to see.

Whatever goes wrong through no fault of the code (a broken file, a wrong key, a damaged checkpoint) is raised
as a `DynctxError` whose text is a complete message: what is wrong, where (file and line), and the way out.
The command line prints that text alone and exits with `exit_code`; a traceback means a bug.
"""

from __future__ import annotations

import os


class DynctxError(Exception):
    """A problem the user can mend. `str(error)` is the whole message."""

    exit_code = 2


def at(path: str | os.PathLike[str], line: int | None = None) -> str:
    """`file:line`, the form that editors and terminals make clickable."""
    return f"{os.fspath(path)}:{line}" if line is not None else os.fspath(path)
