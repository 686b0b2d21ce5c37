"""What selection costs: translation with and without it, and a step of reinforcement beside a step of plain training.

    python benchmarks/selection.py data/tvsub_zh-en-small [--init SENTENCE_MODEL] [--decoding] [--small]

Base size, TDNMT with scope 6, the lengths of a real prepared corpus, random weights, or those of a sentence model where
it has any. Prints JSON lines; times in milliseconds. `--small` makes everything tiny, to see on a CPU that it runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynctx.batches import Batch, Gatherer
from dynctx.config import Config, DecodingConfig, apply_overrides, parse_config
from dynctx.corpus import TokenStore
from dynctx.decoding import Translating, translate
from dynctx.devices import pick_device
from dynctx.model_folder import Model, save_model
from dynctx.prepared import load_subwords
from dynctx.selection.scorer import Scorer, judge
from dynctx.selection.strategies import Previous, Selector, parse_selector
from dynctx.training.reinforce import ReinforceRecipe
from dynctx.training.translation import TranslationRecipe, start_from
from dynctx.translators import build_translator

ROUNDS = 9  # of searches, all selectors in turn, as a machine's speed changes while they run
SMALL = ["model.width=32", "model.feed_forward=32", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1"]


def say(**record: Any) -> None:
    print(json.dumps(record), flush=True)


class Clock:
    """Times parts of a step; on a GPU each part is waited for, so parts add up to a little more than the whole."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.found = device, defaultdict[str, list[float]](list)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def wrap(self, owner: Any, name: str) -> None:
        inner: Callable[..., Any] = getattr(owner, name)

        def timed(*values: Any, **named: Any) -> Any:
            self.wait()
            start = time.perf_counter()
            result = inner(*values, **named)
            self.wait()
            self.found[name].append(1e3 * (time.perf_counter() - start))
            return result

        setattr(owner, name, timed)


def step_time(recipe: TranslationRecipe, device: torch.device, steps: int, warm: int = 3) -> float:
    """Milliseconds of loss, backward and optimizer, the median of the steps."""
    recipe.module.to(device)
    trainable = [p for p in recipe.module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-6, fused=True)
    batches = recipe.updates(0, 0)
    clock = Clock(device)
    times = []
    for number in range(warm + steps):
        _, _, plans = next(batches)
        clock.wait()
        start = time.perf_counter()
        recipe.module.train()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss, _ = recipe.loss(plans[0])
        (loss / recipe.normaliser(plans)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        clock.wait()
        if number >= warm:
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def training(config: Config, folder: Path, device: torch.device, steps: int) -> None:
    plain = TranslationRecipe(apply_overrides(config, ["training.selector=full", "training.freeze=nothing"]), device)
    tokens = next(plain.updates(0, 0))[2][0].target_tokens
    base = step_time(plain, device, steps)
    say(what="training step, TDNMT scope 6, full", milliseconds=round(base, 1), target_tokens=tokens)
    del plain
    found: dict[str, float] = {}
    for name, settings in {
        "in a batch that generates": ["reinforce.generated=1"],
        "in a batch that does not": ["reinforce.generated=0"],
        "in one that does not, all sentences tried": ["reinforce.generated=0", "reinforce.tried=1"],
        "scorer only": ["reinforce.scorer_only=true"],
    }.items():
        settings = ["training.stage=reinforce", "scorer.enabled=true", f"training.init={folder}", *settings]
        recipe = ReinforceRecipe(apply_overrides(config, settings), device)
        found[name] = whole = step_time(recipe, device, steps)
        clock = Clock(device)
        for part in ("probabilities", "rewards", "generate", "translate", "logs"):
            clock.wrap(recipe, part)
        step_time(recipe, device, 3, warm=1)
        parts = {part: round(statistics.median(times), 1) for part, times in clock.found.items()}
        say(what=f"reinforce step, {name}", milliseconds=round(whole, 1), ratio=round(whole / base, 2), parts=parts)
        del recipe
    generates, other, *_ = found.values()
    share = config.reinforce.generated
    whole = share * generates + (1 - share) * other
    say(
        what=f"reinforce step, {share:g} of them generating", milliseconds=round(whole, 1), ratio=round(whole / base, 2)
    )


class Given:
    """What another selector has chosen: the same context without asking for it."""

    name = "given"

    def __init__(self, selection: Tensor) -> None:
        self.selection = selection  # [sentences, scope]

    def select(self, batch: Batch, epoch: int = 0) -> Tensor:
        return self.selection[batch.origin.to_device(batch.numbers)]


def decoding(config: Config, device: torch.device, count: int, batch: int) -> None:
    """Beam 4 over dev: TDNMT with two sentences that a scorer selects, with the same two when they are known, with the
    previous two, which are not as long as what random weights like, and with all six. The paper's scorer, and one of
    bags."""
    model = config.model
    source, target = load_subwords(Path(config.data.folder))
    translator = build_translator(model, len(source), len(target)).to(device).eval()
    gatherer = Gatherer(TokenStore.open(Path(config.data.folder) / "dev"), model.scope, device)
    sentences = np.arange(min(count, len(gatherer.store)))
    # random weights never end: a translation has five pieces more than its source, as references have
    search = DecodingConfig(beam=4, max_extra=5, batch_sentences=batch)

    def run(selector: Selector) -> float:
        clock = Clock(device)
        clock.wait()
        start = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            translate(translator, gatherer, sentences, search, selector)
        clock.wait()
        return time.perf_counter() - start

    for reader in ("pairs", "bags"):
        layers = apply_overrides(config, [f"scorer.reader={reader}"]).scorer
        scorer = Scorer(layers, model.width, model.feed_forward, model.heads, model.scope).to(device).eval()
        learned = parse_selector("size-first 2", 1, judge(scorer, translator.source_embedding))
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            chosen = learned.select(gatherer.bare(sentences))
        selectors = [learned, Given(chosen), Previous(2), Previous(model.scope)]
        [run(selector) for selector in selectors]
        times = zip(*[[run(selector) for selector in selectors] for _ in range(ROUNDS)])
        within, same, previous, full = (statistics.median(seconds) for seconds in times)
        tokens = [
            int(gatherer.lengths_of(sentences, own.cpu().numpy())[2].sum())
            for own in (chosen, Previous(2).select(gatherer.bare(sentences)))
        ]
        say(
            what="beam 4 over dev, TDNMT scope 6",
            reader=reader,
            sentences=len(sentences),
            selected_2_seconds=round(within, 3),
            the_same_2_given_seconds=round(same, 3),
            ratio=round(within / same, 3),
            choosing_milliseconds=round(choosing(partial(run, learned), device), 1),
            context_tokens=tokens[0],
            previous_2_seconds=round(previous, 3),
            ratio_to_previous=round(within / previous, 3),
            context_tokens_of_previous=tokens[1],
            full_6_seconds=round(full, 3),
            ratio_to_full=round(within / full, 3),
        )


def choosing(work: Callable[[], Any], device: torch.device) -> float:
    """Milliseconds that a translation takes to choose."""
    clock, choose = Clock(device), Translating.choose
    clock.wrap(Translating, "choose")
    for _ in range(5):
        work()
    Translating.choose = choose  # type: ignore[method-assign]
    return statistics.median(clock.found["choose"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--batch-tokens", type=int, default=660_000)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument(
        "--init", default="", help="a sentence model: its translations end, those of random weights do not"
    )
    parser.add_argument("--decoding", action="store_true", help="translation only, no training steps")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    device = pick_device("auto")
    torch.set_float32_matmul_precision("high")
    content = {
        "data": {"folder": arguments.folder, "dev": {"source": "dev", "target": "dev"}},
        "model": {"kind": "tdnmt", "scope": 6, "norm": "pre"},
        "training": {"batch_tokens": arguments.batch_tokens},
        "reinforce": {"reward_tokens": 2 * arguments.batch_tokens},
    }
    config = apply_overrides(parse_config(content), SMALL if arguments.small else [])
    source, target = load_subwords(Path(arguments.folder))
    torch.manual_seed(1)
    folder = Path("runs/benchmark")
    translator = build_translator(config.model, len(source), len(target))
    start_from(translator, None, arguments.init, source, target)
    model = config.model
    scorer = Scorer(config.scorer, model.width, model.feed_forward, model.heads, model.scope)
    with_scorer = apply_overrides(config, ["scorer.enabled=true"])
    save_model(folder, Model(with_scorer, translator, source, target, {}, scorer))
    say(device=torch.cuda.get_device_name() if device.type == "cuda" else "cpu", torch=torch.__version__)
    decoding(config, device, 200 if arguments.small else 10**9, 32 if arguments.small else 2048)
    if not arguments.decoding:
        training(config, folder, device, arguments.steps)


if __name__ == "__main__":
    main()
