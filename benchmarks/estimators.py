"""Which estimator of the policy gradient learns fastest: equal time for each, on a language with known answers.

    python benchmarks/estimators.py [--minutes 2] [--folder runs/estimators]

The corpus is `dynctx.synthetic` with numbers, scope 4: each sentence is decided by no earlier sentence, by one or by
two. All start from one translator and one scorer that has learned a little from pseudo labels. Prints a JSON line for
each: updates made in that time, the share of unseen sentences whose selection is exactly what decides them, the share
of empty selections among those that need none, and the share of decided words that are right.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from dynctx.commands import label_corpus
from dynctx.config import Config, apply_overrides, parse_config
from dynctx.documents import write_documents
from dynctx.model_folder import load_model
from dynctx.pipeline import select_documents, translate_documents
from dynctx.prepare import prepare
from dynctx.synthetic import as_documents, decided_accuracy, make_corpus
from dynctx.training import run

SCOPE, LENGTH = 4, 12
NO_SIGMOID = ["scorer.squash=false", "scorer.temperature=1"]
ESTIMATORS = {
    "before": None,
    "self-critical, sequential (the paper's)": ["reinforce.estimator=self-critical", "reinforce.law=sequential"],
    "self-critical, independent": ["reinforce.estimator=self-critical", "reinforce.law=independent"],
    "rloo, 8 samples, independent": ["reinforce.estimator=rloo", "reinforce.samples=8", "reinforce.law=independent"],
    "exact, independent": ["reinforce.estimator=exact", "reinforce.law=independent"],
    "self-critical, sequential, no sigmoid": ["reinforce.law=sequential", *NO_SIGMOID],
    "exact, independent, no sigmoid": ["reinforce.estimator=exact", "reinforce.law=independent", *NO_SIGMOID],
}


def corpus(documents: int, seed: int) -> list[list[Any]]:
    return make_corpus(documents, seed, length=LENGTH, scope=SCOPE, counted=True)


def configured(folder: Path, seed: int) -> Config:
    files = {}
    for name, documents, number in (("train", 2500, 1000 * seed), ("dev", 20, 1000 * seed + 1)):
        for side, texts in zip(("en", "de"), as_documents(corpus(documents, number))):
            write_documents(texts, folder / f"{name}.{side}")
        files[name] = {"source": f"{folder}/{name}.en", "target": f"{folder}/{name}.de"}
    sizes = {"width": 64, "feed_forward": 128, "heads": 4, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    data = {"folder": f"{folder}/data", "vocabulary": 380, "byte_fallback": False, "target_language": "de"}
    often = {"validate_every": 100_000, "checkpoint_every": 100_000, "log_every": 100, "average": 0}
    return parse_config(
        {
            "seed": seed,
            "data": {**data, "source_language": "en", "train": [files["train"]], "dev": files["dev"]},
            "model": {"scope": SCOPE, **sizes},
            "scorer": {"dropout": 0.0, "temperature": 0.3},
            "labels": {"model": f"{folder}/single", "folder": f"{folder}/labels", "margin": 0.1, "together": True},
            "reinforce": {"price": 0.1},
            "training": {
                **{"batch_tokens": 2048, "row_length": 16, "label_smoothing": 0.0, "validation": {"beam": 1}, **often},
                "schedule": {"peak": 0.003, "warmup": 100},
            },
            "decoding": {"beam": 1},
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=2.0, help="for each estimator")
    parser.add_argument("--folder", type=Path, default=Path("runs/estimators"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scorer-updates", type=int, default=300)
    parser.add_argument("--small", action="store_true", help="learn next to nothing, to see that it runs")
    arguments = parser.parse_args()
    folder = arguments.folder
    shutil.rmtree(folder, ignore_errors=True)
    config = configured(folder, arguments.seed)
    prepare(config.data, say=lambda message: None)

    def stage(name: str, updates: int, *settings: str) -> None:
        updates = min(updates, 3) if arguments.small else updates
        run(apply_overrides(config, [f"training.output={folder}/{name}", f"training.updates={updates}", *settings]))

    stage("sentence", 300)
    config.model.kind = "tdnmt"
    single = ["training.selector=random 1 or none", "training.schedule.peak=0.006"]
    stage("single", 800, f"training.init={folder}/sentence", *single)
    subset = ["training.selector=random subset", "training.schedule.peak=0.005"]
    stage("translator", 800, f"training.init={folder}/single", *subset)
    label_corpus(config)
    learning = ["training.stage=scorer", "training.schedule.peak=0.002"]
    stage("scorer", arguments.scorer_updates, f"training.init={folder}/translator", *learning)

    unseen = corpus(100, 3)
    sources, _ = as_documents(unseen)
    for number, (name, settings) in enumerate(ESTIMATORS.items()):
        place = "scorer"
        if settings is not None:
            place = f"reinforced-{number}"
            learning = ["training.stage=reinforce", "training.schedule.peak=0.001", "training.schedule.warmup=50"]
            time = [f"training.minutes={arguments.minutes}"]
            stage(place, 100_000, f"training.init={folder}/scorer", *learning, *time, *settings)
        model = load_model(folder / place)
        choices = select_documents(model, sources)
        pairs = [
            (set(choices[document][here].selected), sentence.deciding)
            for document, sentences in enumerate(unseen)
            for here, sentence in enumerate(sentences)
            if here
        ]
        empty = [not chosen for chosen, deciding in pairs if not deciding]
        record = {
            "estimator": name,
            "minutes": 0 if settings is None else arguments.minutes,
            "updates": 0 if settings is None else model.about.get("updates"),
            "exact": round(sum(chosen == deciding for chosen, deciding in pairs) / len(pairs), 3),
            "empty": round(sum(empty) / len(empty), 3),
            "decided": round(decided_accuracy(unseen, translate_documents(model, sources)), 3),
        }
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
