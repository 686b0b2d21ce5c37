"""A tiny model with a scorer, services around it, and what is asked of them, for the tests of `dynctx serve`."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from tiny_runs import Warm

from dynctx.config import Config, DataConfig, DecodingConfig, ModelConfig, ScorerConfig
from dynctx.documents import Document
from dynctx.model_folder import Model, build_scorer
from dynctx.pipeline import Choice, translate_and_explain
from dynctx.serve import batching
from dynctx.serve.app import make_app
from dynctx.serve.batching import BatchSizes
from dynctx.serve.limits import Limits
from dynctx.serve.service import Service
from dynctx.subwords import train_subwords
from dynctx.translators import build_translator

TEXT = ["the cat sat on the mat", "a dog ran in the park", "it rains today again and again", "we saw a small house"]
SENTENCES = ["the cat sat", "a dog ran", "it rains today", "we saw a house", "the park again", "a small mat", "it sat"]
Translated = list[tuple[str, Choice]]


def tiny_model() -> Model:
    """Untrained, and far from uniform: translations and selections differ from sentence to sentence."""
    subwords = train_subwords(TEXT, 60, kind="unigram", byte_fallback=False, threads=1)
    torch.manual_seed(1)
    config = Config(
        data=DataConfig(source_language="en", target_language="de"),
        model=ModelConfig(
            kind="tdnmt",
            scope=3,
            width=16,
            feed_forward=32,
            heads=2,
            encoder_layers=1,
            decoder_layers=1,
            tie_embeddings="none",
        ),
        scorer=ScorerConfig(enabled=True, pair_layers=1, set_layers=1),
        decoding=DecodingConfig(beam=2, max_extra=4, selector="probability-first"),
    )
    translator = build_translator(config.model, len(subwords), len(subwords))
    scorer = build_scorer(config)
    assert scorer is not None
    with torch.no_grad():
        for parameter in [*translator.parameters(), *scorer.parameters()]:
            parameter.mul_(1.5)
    translator.eval()
    scorer.eval()
    return Model(config, translator, subwords, subwords, {}, scorer)


@contextmanager
def client_of(
    model: Model,
    limits: Limits | None = None,
    sizes: BatchSizes | None = None,
    api_key: str | None = None,
    selector: str | None = None,
    origins: Sequence[str] = (),
) -> Iterator[TestClient]:
    """A client of a service in this process; `client.service` is the service."""
    service = Service(model, limits, sizes, api_key, selector)
    with TestClient(make_app(service, origins), raise_server_exceptions=False) as client:
        client.service = service  # type: ignore[attr-defined]
        yield client


def direct(model: Model, sentences: list[str], selector: str = "probability-first") -> Translated:
    """What the library says without any service."""
    (document,), (choices,) = translate_and_explain(
        model, [Document("x", tuple(sentences))], selector=model.choose(selector), for_people=True
    )
    return list(zip(document.sentences, choices))


def lines(found: Translated) -> list[str]:
    return [translation for translation, _ in found]


def sentences_of(found: Translated, numbers: list[int] | None = None) -> list[dict[str, Any]]:
    return [
        {
            "sentence": number,
            "translation": translation,
            "selected": list(choice.selected),
            "probabilities": {str(d): pytest.approx(p, abs=1e-5) for d, p in choice.probabilities.items()},
            "non": choice.non if choice.non is None else pytest.approx(choice.non, abs=1e-5),
            "kept": choice.kept,
        }
        for number, (translation, choice) in enumerate(found, 1)
        if numbers is None or number in numbers
    ]


def post(client: TestClient, path: str = "/translate", **fields: Any) -> Any:
    return client.post(path, json=fields)


def refused(answer: Any, status: int) -> str:
    """The reason of an error of this status; an error is one reason and nothing else."""
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    assert "Traceback" not in answer.text and ".py" not in answer.text
    return answer.json()["error"]


class Held:
    """In the place of `translate_and_explain`: waits until it is let go, and remembers what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.begun = threading.Event(), threading.Semaphore(0)
        self.calls: list[list[tuple[str, ...]]] = []
        monkeypatch.setattr(batching, "translate_and_explain", self)

    def __call__(self, model: Model, documents: list[Document], *rest: Any, **more: Any) -> Any:
        self.calls.append([document.sentences for document in documents])
        self.begun.release()
        assert self.go.wait(20)
        return translate_and_explain(model, documents, *rest, **more)

    def wait_for_call(self) -> None:
        assert self.begun.acquire(timeout=20)


def wait_until(holds: Any) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Server:
    """`dynctx serve` as a process of its own, at a port that was free."""

    def __init__(self, warm: Warm, folder: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        arguments = ["serve", "-m", str(folder), "--port", "0", "--device", "cpu", *options]
        self.process = warm.start(*arguments, environment=environment)
        deadline = time.monotonic() + 60
        while not (found := re.search(r"http://\S+", self.log())):
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.01)
        self.url = found[0]

    def log(self) -> str:
        return self.process.err.read_text(encoding="utf-8") if self.process.err.exists() else ""

    def signal(self, number: int) -> None:
        self.process.kill(number)

    def ended(self) -> tuple[int, list[str]]:
        """Its exit code, and its log without the line that says where it is."""
        ended = self.process.wait()
        return ended.code, ended.err.splitlines()[1:]
