"""Steps that are recorded once and replayed on a GPU say the same as steps that are made one by one.

Without a GPU the recording itself cannot be tried; what it stands on (nothing moves, rooms are enlarged) is tested in
test_search_leaks.py. `python tests/test_replay.py` runs this file on a machine without pytest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from dynctx import replay
from dynctx.batches import Gatherer
from dynctx.beam_search import Hypothesis
from dynctx.config import DecodingConfig, ModelConfig
from dynctx.corpus import TokenStore
from dynctx.decoding import translate
from dynctx.replay import Replayed
from dynctx.selection.strategies import parse_selector
from dynctx.translators import build_translator

try:
    import pytest

    needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
except ImportError:  # on a machine that only runs it

    def needs_gpu(test):  # type: ignore[no-untyped-def]
        return test


V, SCOPE = 60, 3
SIZES = ModelConfig(width=64, feed_forward=128, heads=4, encoder_layers=2, decoder_layers=2, dropout=0.1, scope=SCOPE)
KINDS = ("sentence", "concat", "tdnmt", "han", "san", "cadec")


def test_work_is_done_as_often_as_asked() -> None:
    """On a CPU, where nothing is recorded."""
    done: list[int] = []
    step = Replayed(lambda: done.append(len(done)), torch.device("cpu"), 1)
    for _ in range(4):
        step()
    step.changed(1)
    step()
    assert done == [0, 1, 2, 3, 4] and step.graph is None


def test_the_first_step_is_made_and_the_others_replayed(monkeypatch: Any) -> None:
    """After a change the next step is recorded at once, as what it needs is there already; a large one is made first,
    to keep the device busy meanwhile."""
    happened: list[str] = []

    class Graph:
        def replay(self) -> None:
            happened.append("replayed")

    monkeypatch.setattr(replay, "record", lambda work: happened.append("recorded") or Graph())
    step = Replayed(lambda: happened.append("made"), torch.device("cuda"), 1)  # the work itself needs none
    for _ in range(3):
        step()
    assert happened == ["made", "recorded", "replayed", "replayed"]
    step.changed(100)
    step()
    assert happened[4:] == ["recorded", "replayed"]
    step.changed(replay.BUSY)
    step()
    step()
    assert happened[6:] == ["made", "recorded", "replayed"]


def test_what_cannot_be_recorded_is_done_step_by_step(monkeypatch: Any) -> None:
    def refuse(work: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(replay, "record", refuse)
    done: list[int] = []
    step = Replayed(lambda: done.append(len(done)), torch.device("cuda"), 1)  # the work itself needs none
    step()
    with pytest.warns(UserWarning, match="could not be recorded.*not permitted"):
        step()
    step.changed(1)
    step()
    assert done == [0, 1, 2]


def corpus() -> TokenStore:
    rng = np.random.default_rng(1)
    return TokenStore.from_ids(
        [
            [(rng.integers(7, V, rng.integers(1, 30)).tolist(), [7]) for _ in range(rng.integers(1, 12))]
            for _ in range(12)
        ]
    )


@contextmanager
def one_by_one() -> Iterator[None]:
    """Nothing is recorded."""
    before = Replayed.__call__
    Replayed.__call__ = lambda self: self.work()  # type: ignore[method-assign]
    try:
        yield
    finally:
        Replayed.__call__ = before  # type: ignore[method-assign]


def translations(kind: str, device: str, low: bool, **settings: object) -> list[Hypothesis]:
    torch.manual_seed(4)
    model = build_translator(dataclasses.replace(SIZES, kind=kind), V, V).to(device).eval()  # type: ignore[arg-type]
    gatherer = Gatherer(corpus(), model.scope, device, model.lays_context)
    torch.manual_seed(5)
    config = dataclasses.replace(DecodingConfig(max_extra=40, batch_sentences=64), **settings)  # type: ignore[arg-type]
    with torch.autocast(device, torch.bfloat16, enabled=low):
        return translate(model, gatherer, np.arange(len(gatherer.store)), config, parse_selector("previous 2", 1))


@needs_gpu
def test_replays_say_what_single_steps_say() -> None:
    for kind in KINDS:
        for low in (False, True):
            for settings in ({"beam": 4}, {"beam": 1}, {"sampling": True}):
                if kind in ("han", "cadec") and "sampling" in settings:
                    continue
                recorded = []
                record = replay.record
                replay.record = lambda work: recorded.append(1) or record(work)  # noqa: B023
                try:
                    found = translations(kind, "cuda", low, **settings)
                finally:
                    replay.record = record
                with one_by_one():
                    expected = translations(kind, "cuda", low, **settings)
                assert recorded, (kind, settings)
                same = sum(a.ids == b.ids for a, b in zip(found, expected)) / len(found)
                print(f"{kind:<9} {settings} bfloat16 {low}: {len(recorded)} recorded, {same:.1%} the same", flush=True)
                assert same == 1.0, (kind, settings, low)


@needs_gpu
def test_a_gpu_says_what_a_cpu_says() -> None:
    """In float32; near ties may fall the other way."""
    for kind in KINDS:
        found, expected = (translations(kind, device, False, beam=4) for device in ("cuda", "cpu"))
        same = sum(a.ids == b.ids for a, b in zip(found, expected)) / len(found)
        print(f"{kind:<9} GPU and CPU: {same:.1%} the same", flush=True)
        assert same > 0.9, kind


if __name__ == "__main__":
    test_work_is_done_as_often_as_asked()
    test_replays_say_what_single_steps_say()
    test_a_gpu_says_what_a_cpu_says()
