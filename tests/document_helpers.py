"""For the tests of documents: what a file holds in short, the message of a refusal, and the pace of properties."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from dynctx.documents import TextFile, read_documents
from dynctx.errors import DynctxError

# Every test example has its own file, so one tmp_path for all examples of a property does no harm.
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(path: str, format: str = "auto", **options: str) -> list[tuple[str, list[str]]]:
    return [(d.id, list(d.sentences)) for d in read_documents(TextFile(path, format, **options))]


def message(call, *arguments, **options) -> str:
    """The text of the DynctxError that a call ends in."""
    with pytest.raises(DynctxError) as caught:
        result = call(*arguments, **options)
        if result is not None:
            list(result)
    text = str(caught.value)
    assert "\n" not in text
    return text
