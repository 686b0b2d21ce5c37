"""`dynctx bench`: speed and memory on a fixed workload, as JSON lines.

The workload: Transformer base with a shared vocabulary of 16,000 and random weights; 200 sources of 10 to 40 tokens
(mean 25), translations forced to 30 tokens, batches of 32 sentences; training on batches of about 4,096 target
tokens, Adam, label smoothing 0.1.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any, TypeVar

import numpy as np
import torch

from dynctx.batches import Gatherer
from dynctx.beam_search import BeamSearch
from dynctx.config import ModelConfig
from dynctx.corpus import TokenStore
from dynctx.decoding import batches_by_length
from dynctx.devices import pick_device
from dynctx.linear import to_int8
from dynctx.losses import smoothed_cross_entropy
from dynctx.planning import choose_shape, plan_epoch
from dynctx.subwords import SPECIAL
from dynctx.training.reporting import peak_memory
from dynctx.translators import build_translator
from dynctx.translators.sentence import SentNmt

VOCABULARY, LENGTH, BATCH = 16000, 30, 32
T = TypeVar("T")


def sources(count: int, seed: int = 7) -> list[list[int]]:
    """Sentences of 10 to 40 tokens, 25 in the mean (EOS included)."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(10, 41, count)
    return [rng.integers(len(SPECIAL), VOCABULARY, n - 1).tolist() for n in lengths]


def corpus(count: int) -> TokenStore:
    rng = np.random.default_rng(8)
    targets = rng.integers(len(SPECIAL), VOCABULARY, (count, LENGTH - 1)).tolist()
    return TokenStore.from_ids([list(zip(sources(count), targets))])


def base_model(device: torch.device) -> SentNmt:
    torch.manual_seed(1)
    return build_translator(ModelConfig(), VOCABULARY, VOCABULARY).to(device)


def timed(work: Callable[[], Any], repeats: int, device: torch.device) -> float:
    """Median seconds of a call, after one to warm up."""
    work()
    seconds = []
    for _ in range(repeats):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def decode_speed(model: SentNmt, beam: int, repeats: int, device: torch.device, count: int = 200) -> float:
    """Sentences a second."""
    store = corpus(count)
    gatherer = Gatherer(store, 0, device)
    batches = batches_by_length(np.diff(store.source_starts), BATCH)

    @torch.inference_mode()
    def work() -> None:
        for chosen in batches:
            batch = gatherer.one_per_row(chosen)
            limits = torch.full((len(chosen),), LENGTH, device=device)
            cache = model.begin(model.encode(batch), beam)
            found = BeamSearch(model, cache, limits, 0.6, forced_length=LENGTH).run()
            assert all(len(hypothesis.ids) == LENGTH for hypothesis in found)

    model.eval()
    return count / timed(work, repeats, device)


def training_speed(model: SentNmt, repeats: int, device: torch.device, target_tokens: int = 4096) -> float:
    """Target tokens a second."""
    store = corpus(-(-target_tokens // LENGTH))
    gatherer = Gatherer(store, 0, device)
    lengths, usable = gatherer.lengths(), np.asarray(store.usable)
    shape = choose_shape(lengths, usable, batch_tokens=2**30)
    plan = plan_epoch(lengths, usable, shape, seed=1, epoch=0)[0]
    shape = replace(shape, rows=int(plan.row.max()) + 1)  # all of them in one batch
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)

    def work() -> None:
        batch = gatherer.gather(plan, shape)
        states = model.decode(model.encode(batch), batch)
        loss = smoothed_cross_entropy(states, model.output.weight, batch.target.ids, batch.target.sentence >= 0, 0.1)
        (loss / plan.target_tokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    model.train()
    return plan.target_tokens / timed(work, repeats, device)


def start_up() -> float:
    """Seconds that the command takes to print its help."""
    command = [sys.executable, "-m", "dynctx", "--help"]
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def decoding(precision: str, beam: int, threads: int, repeats: int) -> dict[str, Any]:
    device = ready(threads)
    model = base_model(device)
    if precision == "int8":
        to_int8(model)
    speed = decode_speed(model, beam, repeats, device)
    return {"sentences_per_second": round(speed, 2), "peak_mib": peak_mib(device)}


def training(threads: int, repeats: int) -> dict[str, Any]:
    device = ready(threads)
    speed = training_speed(base_model(device), repeats, device)
    return {"target_tokens_per_second": round(speed, 1), "peak_mib": peak_mib(device)}


def ready(threads: int) -> torch.device:
    torch.set_num_threads(threads)
    return pick_device("cpu")


def peak_mib(device: torch.device) -> int:
    return round(peak_memory(device) / 2**20)


def alone(work: Callable[..., T], *arguments: Any) -> T:
    """In a process of its own: the peak of a process's memory is that of all it has done."""
    dies = (signal.SIGINT, signal.SIG_DFL)  # without a word: whoever waits for it has one
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=signal.signal, initargs=dies) as pool:
        return pool.submit(work, *arguments).result()


def bench(threads: int, repeats: int) -> Iterator[dict[str, Any]]:
    about = {"threads": threads, "torch": torch.__version__}
    yield {"what": "start-up of the help", "seconds": round(start_up(), 3)}
    for precision in ("float32", "int8"):
        for beam in (1, 4):
            found = alone(decoding, precision, beam, threads, repeats)
            yield {"what": "decode", "precision": precision, "beam": beam, **found, **about}
    yield {"what": "train", "precision": "float32", **alone(training, threads, repeats), **about}


def run(threads: int, repeats: int) -> None:
    for record in bench(threads, repeats):
        print(json.dumps(record), flush=True)
