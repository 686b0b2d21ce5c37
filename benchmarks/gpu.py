"""Speed of the training step and of search on one GPU, beside the chip's own matrix rate.

    python benchmarks/gpu.py data/tvsub_zh-en-small

Prints JSON lines. Transformer base, bfloat16, the corpus' own lengths and vocabulary, random weights.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace

import numpy as np
import torch

from dynctx.batches import Gatherer
from dynctx.beam_search import BeamSearch
from dynctx.config import ModelConfig
from dynctx.corpus import TokenStore
from dynctx.decoding import batches_by_length
from dynctx.losses import chunk_loss_and_gradient, smoothed_cross_entropy
from dynctx.planning import choose_shape, plan_epoch
from dynctx.prepared import load_subwords
from dynctx.translators import build_translator

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def say(**record: object) -> None:
    print(json.dumps(record), flush=True)


def timed(work, repeats: int) -> float:
    work()
    work()
    wait()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    wait()
    return (time.perf_counter() - start) / repeats


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def matrix_rate() -> float:
    """FLOP/s of a large bfloat16 product of random matrices."""
    size = 8192 if DEVICE.type == "cuda" else 512
    a, b = (torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / timed(lambda: a @ b, 20)


def flops_per_step(model, shape) -> float:
    """Matrix products of one step: 6 FLOP a weight and position, and the attention of whole rows."""
    config = model.config
    d, inner = config.width, config.feed_forward
    encoder = config.encoder_layers * (4 * d * d + 2 * d * inner + 2 * d * shape.source)
    decoder = (
        config.decoder_layers * (6 * d * d + 2 * d * inner + 2 * d * (shape.target + shape.source))
        + d * model.output.weight.shape[0]
    )
    memory = config.decoder_layers * 2 * d * d
    return 6.0 * shape.rows * (shape.source * (encoder + memory) + shape.target * decoder)


def training(folder: str, batch_tokens: int, compiled: bool, rate: float, repeats: int) -> None:
    source, target = load_subwords(folder)
    torch.manual_seed(1)
    model = build_translator(ModelConfig(), len(source), len(target)).to(DEVICE).train()
    store = TokenStore.open(f"{folder}/train")
    gatherer = Gatherer(store, 0, DEVICE)
    lengths, usable = gatherer.lengths(), np.asarray(store.usable)
    shape = choose_shape(lengths, usable, 2**30)
    shape = replace(shape, rows=max(1, batch_tokens // shape.target))
    plans = plan_epoch(lengths, usable, shape, seed=1, epoch=0)[:8]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
    head = chunk_loss_and_gradient
    start = time.perf_counter()
    if compiled:
        for layer in [*model.encoder, *model.decoder]:
            layer.compile()
        head = torch.compile(chunk_loss_and_gradient)
    step = 0

    def work() -> None:
        nonlocal step
        plan = plans[step % len(plans)]
        step += 1
        batch = gatherer.gather(plan, shape)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            states = model.decode(model.encode(batch), batch)
            loss = smoothed_cross_entropy(
                states, model.output.weight, batch.target.ids, batch.target.sentence >= 0, 0.1, head
            )
        (loss / plan.target_tokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    work()
    wait()
    warm = time.perf_counter() - start
    seconds = timed(work, repeats)
    real = float(np.mean([plan.target_tokens for plan in plans]))
    positions = shape.rows * shape.target
    say(
        what="training step",
        shape=str(shape),
        compiled=compiled,
        warm_up_seconds=round(warm, 1),
        milliseconds=round(seconds * 1e3, 2),
        target_positions_per_second=round(positions / seconds),
        target_tokens_per_second=round(real / seconds),
        filled=round(real / positions, 3),
        share_of_matrix_rate=round(flops_per_step(model, shape) / seconds / rate, 3),
        peak_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2) if DEVICE.type == "cuda" else None,
    )


def decoding(folder: str, beam: int, batch_sentences: int, count: int) -> None:
    """Search on real sources. Random weights never end a sentence, so each gets the length of its reference."""
    source, target = load_subwords(folder)
    torch.manual_seed(1)
    model = build_translator(ModelConfig(), len(source), len(target)).to(DEVICE).eval()
    store = TokenStore.open(f"{folder}/dev")
    gatherer = Gatherer(store, 0, DEVICE)
    number = min(count, len(store))
    lengths = gatherer.lengths()[:, :number]

    @torch.inference_mode()
    def work() -> None:
        for chosen in batches_by_length(lengths[1], batch_sentences):
            with torch.autocast(DEVICE.type, torch.bfloat16):
                batch = gatherer.one_per_row(chosen)
                limits = torch.from_numpy(lengths[1][chosen] - 1).to(DEVICE)
                cache = model.begin(model.encode(batch), beam)
                BeamSearch(model, cache, limits, 0.6).run()

    seconds = timed(work, 1)
    say(what="search", beam=beam, batch_sentences=batch_sentences, lines_per_second=round(number / seconds))


def main() -> None:
    folder = sys.argv[1]
    small = DEVICE.type == "cpu"
    rate = matrix_rate()
    say(what="matrix rate", tflops=round(rate / 1e12, 1), torch=torch.__version__)
    sizes = [2048] if small else [16384, 32768, 65536]
    for compiled in (False, True):
        for size in sizes:
            training(folder, size, compiled, rate, 1 if small else 20)
    for beam in (1, 4):
        decoding(folder, beam, 64 if small else 2048, 64 if small else 10**9)


if __name__ == "__main__":
    main()
