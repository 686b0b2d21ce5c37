"""Learning: where earlier sentences decide, models with context learn what the sentence model can only guess.

The corpus is `dynctx.synthetic`: "it" and "there" each have three translations, and only the last thing or place that
was mentioned (here within two sentences) tells which is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dynctx.config import Config, apply_overrides, parse_config
from dynctx.documents import write_documents
from dynctx.model_folder import load_model
from dynctx.pipeline import translate_documents
from dynctx.prepare import prepare
from dynctx.selection.strategies import parse_selector
from dynctx.synthetic import as_documents, decided_accuracy, make_corpus
from dynctx.training import run

SEED = 1
SCOPE, LENGTH = 2, 10
UNSEEN = make_corpus(100, seed=3, length=LENGTH, scope=SCOPE)

# What each kind of model needs to learn it, beginning from the sentence model. HAN and SAN are not told the order of
# sentences: where both speak of a thing they must guess whose "it" is, and cannot have more than 97 % right.
SETTINGS = {
    "concat": ["training.updates=700", "training.schedule.peak=0.005"],
    "tdnmt": ["training.updates=800", "training.schedule.peak=0.006"],
    "han": ["training.updates=400", "training.schedule.peak=0.005", "training.batch_tokens=1024"],
    "han decoder": [
        *("model.han.encoder=false", "training.updates=300"),
        *("training.schedule.peak=0.005", "training.batch_tokens=1024"),
    ],
    "san": ["training.updates=350", "training.schedule.peak=0.005", "training.batch_tokens=1024"],
    "cadec": ["training.updates=450", "training.schedule.peak=0.004", "training.batch_tokens=1024"],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Config]:
    """The config of a trained sentence model; its data and every run lie in the folder that holds its output."""
    folder = tmp_path_factory.mktemp("models")
    for name, documents, seed in (("train", 1500, SEED * 1000), ("dev", 10, SEED * 1000 + 1)):
        corpus = make_corpus(documents, seed, length=LENGTH, scope=SCOPE)
        for side, texts in zip(("en", "de"), as_documents(corpus)):
            write_documents(texts, folder / f"{name}.{side}")
    files = {name: {"source": f"{folder}/{name}.en", "target": f"{folder}/{name}.de"} for name in ("train", "dev")}
    config = parse_config(
        {
            "seed": SEED,
            "data": {
                "folder": str(folder / "data"),
                **{"source_language": "en", "target_language": "de", "vocabulary": 240, "byte_fallback": False},
                **{"train": [files["train"]], "dev": files["dev"]},
            },
            "model": {
                **{"scope": SCOPE, "width": 64, "feed_forward": 128, "heads": 4, "dropout": 0.0},
                **{"encoder_layers": 1, "decoder_layers": 1},
            },
            "training": {
                "output": str(folder / "sentence"),
                **{"updates": 300, "batch_tokens": 2048, "row_length": 16, "label_smoothing": 0.0},
                **{"schedule": {"peak": 0.003, "warmup": 100}, "validation": {"beam": 1}, "average": 0},
                **{"validate_every": 10_000, "checkpoint_every": 10_000, "log_every": 100},  # only at the end
            },
            "decoding": {"beam": 1},
            "runtime": {"device": "cpu", "threads": 1},
        }
    )
    threads = torch.get_num_threads()
    prepare(config.data, say=lambda message: None, threads=1)
    run(config)
    yield config
    torch.set_num_threads(threads)


def accuracy(folder: str | Path, selector: str | None = None) -> float:
    """The share of decided words that are right, on documents that were not trained on."""
    model = load_model(folder)
    chosen = parse_selector(selector, 1) if selector else None
    sources, references = as_documents(UNSEEN)
    assert decided_accuracy(UNSEEN, references) == 1.0
    return decided_accuracy(UNSEEN, translate_documents(model, sources, selector=chosen))


def test_the_sentence_model_can_only_guess(trained: Config) -> None:
    """One answer in three, while all that nothing decides is translated without fault."""
    assert accuracy(trained.training.output) < 0.45
    sources, references = as_documents(UNSEEN)
    translations = translate_documents(load_model(trained.training.output), sources)
    wrong = total = 0
    for sentences, translation, reference in zip(UNSEEN, translations, references):
        for sentence, found, expected in zip(sentences, translation.sentences, reference.sentences):
            if not sentence.decided:
                total += 1
                wrong += found != expected
    assert wrong < 0.02 * total


@pytest.mark.parametrize("kind", list(SETTINGS))
def test_models_with_context_learn_what_decides(kind: str, trained: Config) -> None:
    output = Path(trained.training.output).with_name(kind.replace(" ", "-"))
    settings = [f"model.kind={kind.split()[0]}", "training.selector=full", f"training.init={trained.training.output}"]
    run(apply_overrides(trained, [*settings, f"training.output={output}", *SETTINGS[kind]]))
    assert accuracy(output) > 0.95
    # it is the context that tells: without it the same model guesses
    assert accuracy(output, "none") < 0.5
