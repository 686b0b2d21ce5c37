"""dynctx: document translation that chooses, for each sentence, the earlier sentences it needs.

`dynctx.load(folder).translate(sentences)` is the Python API (docs/api.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynctx.api import DocumentTranslator, Translation, load
    from dynctx.pipeline import Choice

__version__ = "0.1.0"
__all__ = ["Choice", "DocumentTranslator", "Translation", "load"]


def __getattr__(name: str) -> Any:
    """The API is imported when it is asked for: torch takes seconds, and the command line must start at once."""
    if name in __all__:
        from dynctx import api

        return getattr(api, name)
    raise AttributeError(f"module 'dynctx' has no attribute {name!r}")
