"""A tiny model with a scorer, and services around it, for the tests of `dynctx serve`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from starlette.testclient import TestClient

from dynctx.config import Config, DataConfig, DecodingConfig, ModelConfig, ScorerConfig
from dynctx.model_folder import Model, build_scorer
from dynctx.serve.app import make_app
from dynctx.serve.batching import BatchSizes
from dynctx.serve.limits import Limits
from dynctx.serve.service import Service
from dynctx.subwords import train_subwords
from dynctx.translators import build_translator

TEXT = ["the cat sat on the mat", "a dog ran in the park", "it rains today again and again", "we saw a small house"]
SENTENCES = ["the cat sat", "a dog ran", "it rains today", "we saw a house", "the park again", "a small mat", "it sat"]


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
) -> Iterator[TestClient]:
    """A client of a service in this process; `client.service` is the service."""
    service = Service(model, limits, sizes, api_key, selector)
    with TestClient(make_app(service), raise_server_exceptions=False) as client:
        client.service = service  # type: ignore[attr-defined]
        yield client


class Server:
    """`dynctx serve` as a process of its own."""

    def __init__(self, folder: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "dynctx.cli", "serve", "-m", str(folder), "--port", "0", *options]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"http://\S+", line)
        if not found:
            self.process.kill()
            raise AssertionError(line + self.process.communicate()[1])
        self.url = found[0]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and what it wrote to stderr."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err
