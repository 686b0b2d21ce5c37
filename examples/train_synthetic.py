"""Train something in a minute: make a small corpus, train on it, translate a document it has not seen.

    python examples/train_synthetic.py

The corpus is made up (dynctx.synthetic): how "it" and "there" are translated depends on what was mentioned before.
Two models are trained, one on single sentences and one that also reads the six previous ones.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from dynctx.config import Config, load_config
from dynctx.documents import write_documents
from dynctx.model_folder import load_model
from dynctx.pipeline import translate_documents
from dynctx.prepare import card_text, prepare
from dynctx.synthetic import as_documents, decided_accuracy, make_corpus
from dynctx.training import run

FOLDER = Path("runs/synthetic")
CONFIG = Path(__file__).with_name("train_synthetic.yaml")


def configured(*settings: str) -> Config:
    return load_config(CONFIG, settings)


def main() -> None:
    start = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name, documents, seed in (("train", 1500, 1), ("dev", 20, 2)):
        for side, texts in zip(("en", "de"), as_documents(make_corpus(documents, seed))):
            write_documents(texts, FOLDER / f"{name}.{side}")
    print("== preparing the data", flush=True)
    print(card_text(prepare(configured().data)))
    print("\n== training a sentence model", flush=True)
    run(configured())
    print("\n== training a model that reads the previous sentences", flush=True)
    run(
        configured(
            "model.kind=concat",
            "training.selector=full",
            f"training.init={FOLDER}/sentence",
            f"training.output={FOLDER}/concat",
            "training.updates=450",
        )
    )
    corpus = make_corpus(40, seed=3)
    sources, references = as_documents(corpus)
    translated = {name: translate_documents(load_model(FOLDER / name), sources) for name in ("sentence", "concat")}
    print("\n== a document that neither model has seen")
    print(f"{'source':<26}{'reference':<28}{'single sentences':<28}with previous sentences")
    columns = [documents[0].sentences for documents in (sources, references, *translated.values())]
    for source, reference, alone, context in zip(*columns):
        marks = [" " if text == reference else "*" for text in (alone, context)]
        print(f"{source:<26}{reference:<28}{alone + ' ' + marks[0]:<28}{context} {marks[1]}")
    print("(* differs from the reference)\n")
    for name, documents in translated.items():
        share = 100 * decided_accuracy(corpus, documents)
        print(f"{name:<10}{share:5.1f} % of the words that an earlier sentence decides are right (guessing: 33 %)")
    print(f"done in {time.monotonic() - start:.0f} s; the models are in {FOLDER}")


if __name__ == "__main__":
    main()
