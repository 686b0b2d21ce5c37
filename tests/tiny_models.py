"""Tiny random models with a subword model of their own, for the tests of the evaluation suite."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from dynctx.config import Config, DataConfig, DecodingConfig, ModelConfig, ScorerConfig, TrainingConfig
from dynctx.documents import Document
from dynctx.model_folder import Model, build_scorer, save_model
from dynctx.subwords import Subwords, train_subwords
from dynctx.translators import build_translator

LINES = ["the cat sat on the mat", "a dog ran in the park", "it rains today again and again", "we saw a small house"]
SCOPE = 3

# two documents and a single sentence; the third sentence of the first is empty, and so is a reference of the second
PAIRS = [
    (
        Document("one", ("the cat sat", "a dog ran", "", "it rains again", "we saw a park")),
        Document("one", ("on the mat", "in the park", "", "today and again", "a small house")),
    ),
    (
        Document("two", ("a cat", "the house", "a dog sat", "the park", "we ran today", "it sat")),
        Document("two", ("the cat sat", "a house", "the dog", "", "we ran", "it sat again")),
    ),
    (Document("three", ("the dog",)), Document("three", ("a dog",))),
]


@functools.cache
def tiny_subwords() -> Subwords:
    return train_subwords(LINES, 60, kind="unigram", byte_fallback=False, threads=1)


@functools.cache
def tiny_model(kind: str = "tdnmt", scorer: bool = False, scope: int = SCOPE, selector: str = "full") -> Model:
    """Random, but far from uniform, so that each sentence and each context makes a difference. Must not be changed."""
    subwords = tiny_subwords()
    sizes = ModelConfig(
        kind=kind,  # type: ignore[arg-type]
        scope=scope,
        width=16,
        feed_forward=32,
        heads=2,
        encoder_layers=1,
        decoder_layers=1,
        tie_embeddings="none",
    )
    config = Config(
        data=DataConfig(source_language="en", target_language="en"),
        model=sizes,
        scorer=ScorerConfig(enabled=scorer, pair_layers=1, set_layers=1),
        training=TrainingConfig(selector=selector),
        decoding=DecodingConfig(beam=2, max_extra=4, batch_sentences=4),
    )
    torch.manual_seed(1)
    translator = build_translator(sizes, len(subwords), len(subwords)).eval()
    chooser = build_scorer(config)
    with torch.no_grad():
        for module in (translator, chooser):
            for parameter in module.parameters() if module is not None else ():
                parameter.mul_(3.0)
    return Model(config, translator, subwords, subwords, {}, None if chooser is None else chooser.eval())


def prepared_folder(folder: Path, pairs: list[tuple[Document, Document]] = PAIRS, name: str = "news") -> Path:
    """What `dynctx prepare` leaves of a test set's text."""
    import json

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
        for source, target in pairs:
            record = {"id": source.id, "source": list(source.sentences), "target": list(target.sentences)}
            file.write(json.dumps(record) + "\n")
    return folder


def saved(folder: Path, model: Model) -> Path:
    save_model(folder, model)
    return folder
