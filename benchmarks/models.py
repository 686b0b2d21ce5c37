"""What context costs: every document-level model beside the sentence model, as ratios from one run.

    python benchmarks/models.py data/tvsub_zh-en-small [--steps] [--memory] [--search] [--compiled] [--base]

Prints JSON lines; without a choice, all but what is compiled. Training steps have the same number of target positions,
16,384 and as many as keep the chip busy, and their time is counted per target token, as packing differs from model to
model. Transformer base, bfloat16, the corpus' own lengths and vocabulary, random weights; what stage 2 freezes is
frozen. On a CPU everything is tiny and only shows that the program works; with --base it is Transformer base there too,
in float32, on less text.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dynctx.batches import Gatherer
from dynctx.config import Config, DecodingConfig, ModelConfig, SanConfig, TrainingConfig
from dynctx.corpus import TokenStore
from dynctx.decoding import translate
from dynctx.losses import chunk_loss_and_gradient, smoothed_cross_entropy
from dynctx.planning import Plan, Shape, choose_shape, plan_epoch
from dynctx.prepared import load_subwords
from dynctx.selection.strategies import parse_selector
from dynctx.training.translation import freeze
from dynctx.translators import build_translator
from dynctx.translators.sentence import SentNmt

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CPU = DEVICE.type == "cpu"
TINY = CPU and "--base" not in sys.argv
BASE = ModelConfig(width=64, feed_forward=128, heads=4, encoder_layers=2, decoder_layers=2) if TINY else ModelConfig()
POSITIONS = 1024 if CPU else 65536  # target positions of a training step
FEW_POSITIONS = 1024 if CPU else 16384  # and of a smaller one, which waits for the host more than for the chip
REPEATS, WARM_UP = (2, 2) if TINY else (6, 2) if CPU else (20, 6)  # steps that are timed, and steps before them
LINES, BATCH = (128, 64) if CPU else (20_000, 4096)  # what is translated, and how much at a time
ROUNDS = 1 if TINY else 11 if CPU else 5  # of searches, all models in turn, as a machine's speed changes while they run

# each model as its paper uses it, and what its training step may cost
MODELS: dict[str, tuple[dict[str, Any], float | None]] = {
    "sentence": ({"kind": "sentence"}, None),
    "concat, previous 2": ({"kind": "concat", "scope": 2}, None),
    "tdnmt, previous 2": ({"kind": "tdnmt", "scope": 2}, 1.5),
    "san, previous 6": ({"kind": "san", "scope": 6}, 1.8),
    "san, previous 6, live": ({"kind": "san", "scope": 6, "san": SanConfig("live_detached")}, None),
    "han joint, previous 3": ({"kind": "han", "scope": 3}, 2.0),
    "cadec, previous 3": ({"kind": "cadec", "scope": 3}, 3.0),
}
SCOPE_6 = {f"{kind}, previous 6": {"kind": kind, "scope": 6} for kind in ("concat", "tdnmt", "san", "han", "cadec")}
WHOLE_DOCUMENT = {"kind": "san", "scope": 1000}
IN_TURN = ("han", "cadec")  # a line waits for the translations that it reads: the beginnings of many tell how fast
BEGINNING = 20  # lines of each of these documents


def say(**record: object) -> None:
    print(json.dumps(record), flush=True)


def wait() -> None:
    if not CPU:
        torch.cuda.synchronize()


def mixed_precision() -> torch.autocast:
    return torch.autocast(DEVICE.type, torch.bfloat16, enabled=not CPU or TINY)


def build(folder: str, settings: dict[str, Any]) -> SentNmt:
    source, target = load_subwords(folder)
    torch.manual_seed(1)
    model = build_translator(replace(BASE, **settings), len(source), len(target))
    freeze(model, Config(training=TrainingConfig(init="a sentence model")))
    return model.to(DEVICE)


def planned(model: SentNmt, folder: str, positions: int) -> tuple[Gatherer, Shape, list[Plan]]:
    store = TokenStore.open(f"{folder}/train")
    gatherer = Gatherer(store, model.scope, DEVICE, model.lays_context)
    lengths, usable = gatherer.lengths(), np.asarray(store.usable)
    shape = choose_shape(lengths, usable, 2**40)
    shape = replace(shape, rows=max(1, positions // shape.target))
    plans = plan_epoch(lengths, usable, shape, 1, 0, model.run_length, np.asarray(store.documents))
    return gatherer, shape, plans[: REPEATS + WARM_UP]


def training(folder: str, settings: dict[str, Any], compiled: bool, positions: int = POSITIONS) -> dict[str, Any]:
    """Milliseconds of a step and per thousand target tokens, and the memory it takes."""
    model = build(folder, settings).train()
    gatherer, shape, plans = planned(model, folder, positions)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, betas=(0.9, 0.98), fused=True)
    selector, head = parse_selector("full", 1), chunk_loss_and_gradient
    if compiled:
        model.compile_layers()
        head = torch.compile(chunk_loss_and_gradient)

    def step(plan: Plan, number: int) -> None:
        torch.manual_seed(number)
        batch = gatherer.gather(plan, shape)
        with mixed_precision():
            states = model.decode(model.encode(batch, selector.select(batch)), batch)
            real = batch.target.sentence >= 0
            loss = smoothed_cross_entropy(states, model.output.weight, batch.target.ids, real, 0.1, head)
        (loss / plan.target_tokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    if not CPU:
        torch.cuda.reset_peak_memory_stats()
    # of seeds 0 to 19, half draw references as CADec's drafts and half draw samples
    warm = len(plans) - REPEATS if len(plans) > REPEATS else 0
    for number, plan in enumerate(plans[:warm]):
        step(plan, number)
    seconds = measured(lambda: [step(plan, number) for number, plan in enumerate(plans[warm:])])
    steps, tokens = len(plans) - warm, sum(plan.target_tokens for plan in plans[warm:])
    return {
        "shape": str(shape),
        "milliseconds": round(1e3 * seconds / steps, 2),
        "milliseconds_per_1000_tokens": round(1e6 * seconds / tokens, 4),
        "peak_gib": None if CPU else round(torch.cuda.max_memory_allocated() / 2**30, 2),
    }


def measured(work: Callable[[], Any]) -> float:
    wait()
    start = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - start


def decoding(folder: str, settings: dict[str, Any], count: int, selector: str = "full") -> Callable[[], None]:
    """Translates the first `count` lines of train, or the first lines of its documents if they are translated in
    order. Random weights never end: a translation has five pieces more than its source, as references have."""
    model = build(folder, settings).eval()
    store = TokenStore.open(f"{folder}/train")
    gatherer = Gatherer(store, model.scope, DEVICE, model.lays_context)
    numbers, chosen = np.arange(len(store)), parse_selector(selector, 1)
    sentences = (numbers[numbers - gatherer.firsts < BEGINNING] if model.reads_targets else numbers)[:count]
    config = DecodingConfig(beam=4, max_extra=5, batch_sentences=BATCH)

    def work() -> None:
        with mixed_precision():
            translate(model, gatherer, sentences, config, chosen)

    work()
    return work


def steps(folder: str, compiled: bool, positions: int = POSITIONS) -> None:
    base = None
    for name, (settings, bound) in MODELS.items():
        found = training(folder, settings, compiled, positions)
        base = base or found["milliseconds_per_1000_tokens"]
        ratio = round(found["milliseconds_per_1000_tokens"] / base, 3)
        within = None if bound is None else ratio <= bound
        about = {"model": name, "target_positions": positions, "compiled": compiled}
        say(what="training step", **about, **found, ratio=ratio, bound=bound, within=within)
        torch._dynamo.reset()


def memory(folder: str) -> None:
    for name, settings in SCOPE_6.items():
        found = training(folder, settings, False, FEW_POSITIONS)
        say(what="memory at scope 6", model=name, target_positions=FEW_POSITIONS, **found)
    say(what="whole documents", model="san", **training(folder, WHOLE_DOCUMENT, False, FEW_POSITIONS))


def search(folder: str) -> None:
    parallel = {name: settings for name, (settings, _) in MODELS.items() if settings["kind"] not in IN_TURN}
    searches = {name: decoding(folder, settings, LINES) for name, settings in parallel.items()}
    rounds = [{name: measured(work) for name, work in searches.items()} for _ in range(ROUNDS)]
    for name, settings in parallel.items():
        seconds = statistics.median(found[name] for found in rounds)
        ratio = round(statistics.median(found[name] / found["sentence"] for found in rounds), 3)
        bound = 1.25 if settings["kind"] == "tdnmt" else None
        within = None if bound is None else ratio <= bound
        about = {"seconds": round(seconds, 3), "ratio": ratio, "bound": bound, "within": within, "rounds": ROUNDS}
        say(what="search, beam 4", model=name, lines=LINES, batch=BATCH, **about)
    for name in MODELS.keys() - parallel.keys():
        lines = min(LINES, 2000)
        for selector in ("full", "none"):  # each line waits for those before it, or for nobody
            seconds = round(measured(decoding(folder, MODELS[name][0], lines, selector)), 2)
            what = f"search in turn, beam 4, {BEGINNING} lines of each document"
            say(what=what, model=name, selector=selector, lines=lines, seconds=seconds)


def main() -> None:
    folder = sys.argv[1]
    chosen = [part for part in sys.argv[2:] if part != "--base"] or ["--steps", "--memory", "--search"]
    say(what="run", torch=torch.__version__, device=torch.cuda.get_device_name() if not CPU else "cpu")
    if "--steps" in chosen:
        for positions in sorted({FEW_POSITIONS, POSITIONS}):
            steps(folder, False, positions)
    if "--memory" in chosen:
        memory(folder)
    if "--search" in chosen:
        search(folder)
    if "--compiled" in chosen:  # takes minutes
        steps(folder, compiled=True)


if __name__ == "__main__":
    main()
