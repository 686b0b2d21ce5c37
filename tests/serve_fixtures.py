"""What the tests of the service share; a plugin, as the fixtures of training are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from serving import Held, client_of, tiny_model
from starlette.testclient import TestClient

from dynctx.model_folder import Model


@pytest.fixture(scope="session")
def model() -> Model:
    return tiny_model()


@pytest.fixture(scope="module")
def client(model: Model) -> Iterator[TestClient]:
    with client_of(model) as client:
        yield client


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held(monkeypatch)
    yield held
    held.go.set()
