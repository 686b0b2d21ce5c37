"""dynctx beside HF transformers' Marian on the same workload, in one run, as ratios.

    pip install -e ".[bench]"
    python benchmarks/peers.py [--repeats 3]

The workload is that of `dynctx bench` (src/dynctx/bench.py). Both run with two threads; each measurement of one is
followed by the same one of the other, so that a machine that slows down slows both. Prints JSON lines.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # as the command `dynctx` has it; read when torch is imported

import numpy as np
import torch

from dynctx import bench
from dynctx.decoding import batches_by_length
from dynctx.devices import pick_device
from dynctx.linear import to_int8

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def marian() -> Any:
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(1)
    config = MarianConfig(
        vocab_size=bench.VOCABULARY,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        activation_function="relu",
        share_encoder_decoder_embeddings=True,
        pad_token_id=0,
        eos_token_id=3,
        decoder_start_token_id=2,
        max_position_embeddings=256,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config)


def padded(chosen: np.ndarray, sources: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [torch.tensor([*sources[i], 3]) for i in chosen]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return ids, (ids != 0).long()


def marian_decode(model: Any, beam: int, repeats: int, count: int = 200) -> float:
    sources = bench.sources(count)
    batches = batches_by_length(np.array([len(s) for s in sources]), bench.BATCH)

    @torch.inference_mode()
    def work() -> None:
        for chosen in batches:
            ids, mask = padded(chosen, sources)
            out = model.generate(
                input_ids=ids,
                attention_mask=mask,
                num_beams=beam,
                do_sample=False,
                min_new_tokens=bench.LENGTH,
                max_new_tokens=bench.LENGTH,
                length_penalty=0.6,
                early_stopping=False,
            )
            assert out.shape[1] == bench.LENGTH + 1

    model.eval()
    return count / bench.timed(work, repeats, torch.device("cpu"))


def marian_training(model: Any, repeats: int) -> float:
    count = -(-4096 // bench.LENGTH)
    sources = bench.sources(count)
    ids, mask = padded(np.arange(count), sources)
    labels = torch.randint(7, bench.VOCABULARY, (count, bench.LENGTH))
    loss_function = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))

    def work() -> None:
        inputs = torch.cat([torch.full((count, 1), 2), labels[:, :-1]], dim=1)
        logits = model(input_ids=ids, attention_mask=mask, decoder_input_ids=inputs, use_cache=False).logits
        loss_function(logits.flatten(0, 1), labels.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    model.train()
    return labels.numel() / bench.timed(work, repeats, torch.device("cpu"))


def marian_int8() -> Any:
    from torch.ao.quantization import quantize_dynamic

    model = marian().eval()
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


def say(what: str, ours: float, theirs: float, unit: str) -> None:
    record = {"what": what, "unit": unit, "dynctx": round(ours, 1), "marian": round(theirs, 1)}
    print(json.dumps({**record, "ratio": round(ours / theirs, 2)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(2)
    device = pick_device("cpu")
    for precision in ("float32", "int8"):
        ours = bench.base_model(device)
        if precision == "int8":
            to_int8(ours)
        theirs = marian() if precision == "float32" else marian_int8()
        for beam in (1, 4):
            speeds = bench.decode_speed(ours, beam, repeats, device), marian_decode(theirs, beam, repeats)
            say(f"decode, beam {beam}, {precision}", *speeds, "sentences/s")
    speeds = bench.training_speed(bench.base_model(device), repeats, device), marian_training(marian(), repeats)
    say("training, float32", *speeds, "target tokens/s")


if __name__ == "__main__":
    main()
