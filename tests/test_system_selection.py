"""The whole of it on a language with known answers: is what gets selected what decides?

The corpus is `dynctx.synthetic` with numbers ("it two waits there one."): each sentence is decided by no earlier
sentence, by one, or by two, at any distance of the scope, 1 to 6. Nobody tells the selector which; it learns from how
much easier the translator finds the reference with one context or another. The stages are those of the paper: a
sentence model, a model with one random candidate or none, which judges candidates (pseudo labels), the translator (any
subset of the candidates), a scorer that learns from the labels, and the stage reinforce.

Of the sentences that have a candidate, probability-first must find exactly the deciding set in more than nine of ten,
and pick the empty set in more than nine of ten that need none. A subset at random is right in one of ten, the previous
sentence in one of eight, and nothing at all in two of five: those that need none.

`make system` runs the longer version: more of everything, and the paper's estimator, which draws a single selection of
each sentence and needs many more updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dynctx.batches import Batch
from dynctx.commands import label_corpus
from dynctx.config import Config, apply_overrides, parse_config
from dynctx.documents import write_documents
from dynctx.model_folder import Model, load_model
from dynctx.pipeline import select_documents, translate_documents
from dynctx.prepare import prepare
from dynctx.synthetic import Sentence, as_documents, decided_accuracy, make_corpus
from dynctx.training import run

LENGTH = 12
SCOPE = 6


@dataclass(frozen=True)
class Size:
    """How much is trained, and how much must be learned."""

    documents: int
    single: int  # updates of the model that judges
    translator: int
    scorer: int
    reinforce: int
    estimator: str
    price: float  # of a selected sentence: a deciding one earns about 0.5, a misleading one costs 0.2, others nothing
    batch: int  # positions of a batch of the stage reinforce
    bound: float  # of exact selections, and of empty ones
    seed: int = 1


# fmt: off
QUICK = Size(
    documents=3000, single=800, translator=800, scorer=1500, reinforce=500,
    estimator="rloo", price=0.1, batch=2048, bound=0.9,  # exact would ask for all 64 subsets: a third of the updates
)
LONG = Size(
    documents=4000, single=1500, translator=1500, scorer=3000, reinforce=2500,
    estimator="self-critical", price=0.05, batch=4096, bound=0.95,
)
# fmt: on


@dataclass(frozen=True)
class Learned:
    model: Model
    size: Size
    unseen: list[list[Sentence]]
    accuracy: Callable[[str], float]  # of decided words, by selector

    def exact(self, chosen: Callable[[int, int, Sentence], set[int]], empty_only: bool = False) -> float:
        """The share of sentences with candidates whose chosen set is the deciding one."""
        found = [
            chosen(number, here, sentence) == sentence.deciding
            for number, document in enumerate(self.unseen)
            for here, sentence in enumerate(document)
            if here and not (empty_only and sentence.deciding)
        ]
        return sum(found) / len(found)


class Deciding:
    """Selects what decides: what the corpus knows and no model is told."""

    name = "deciding"

    def __init__(self, unseen: list[list[Sentence]]) -> None:
        self.flat = [sentence.deciding for document in unseen for sentence in document]

    def select(self, batch: Batch, draw: int = 0) -> Tensor:
        scope = batch.present.shape[1]
        return torch.tensor([[k + 1 in self.flat[i] for k in range(scope)] for i in batch.numbers])


def configured(folder: Path, size: Size) -> Config:
    """The config of the sentence model; the other stages differ from it in a few keys."""
    for name, documents, seed in (("train", size.documents, 1000 * size.seed), ("dev", 20, 1000 * size.seed + 1)):
        corpus = make_corpus(documents, seed, length=LENGTH, scope=SCOPE, counted=True)
        for side, texts in zip(("en", "de"), as_documents(corpus)):
            write_documents(texts, folder / f"{name}.{side}")
    files = {name: {"source": f"{folder}/{name}.en", "target": f"{folder}/{name}.de"} for name in ("train", "dev")}
    return parse_config(
        {
            "seed": size.seed,
            "data": {
                "folder": str(folder / "data"),
                **{"source_language": "en", "target_language": "de", "vocabulary": 380, "byte_fallback": False},
                **{"train": [files["train"]], "dev": files["dev"]},
            },
            "model": {
                **{"scope": SCOPE, "width": 64, "feed_forward": 128, "heads": 4, "dropout": 0.0},
                **{"encoder_layers": 1, "decoder_layers": 1},
            },
            # scores differ by 1 at most: at 0.3 even the surest candidate is left out of one draw in 30, here in 800
            "scorer": {"dropout": 0.0, "temperature": 0.15},
            "labels": {
                **{"model": str(folder / "single"), "folder": str(folder / "labels"), "margin": 0.1},
                # with L2 as in use: what it learns from labels otherwise is lost when candidates see each other
                "together": True,
                # or NON would be as far down as what misleads, and everything that does no harm be taken with the help:
                # from there a policy as good as sure of itself may fall to taking nothing
                "between": True,
            },
            "reinforce": {"estimator": size.estimator, "samples": 8, "law": "independent", "price": size.price},
            "training": {
                "output": str(folder / "sentence"),
                **{"updates": 300, "batch_tokens": 2048, "row_length": 16, "label_smoothing": 0.0},
                **{"schedule": {"peak": 0.003, "warmup": 200}, "validation": {"beam": 1}, "average": 0},
                **{"validate_every": 100_000, "checkpoint_every": 100_000, "log_every": 100},  # only at the end
            },
            "decoding": {"beam": 1},
            "runtime": {"device": "cpu", "threads": 1},
        }
    )


def train_all(folder: Path, size: Size) -> Model:
    """Every stage, one after the other."""
    config = configured(folder, size)
    prepare(config.data, say=lambda message: None, threads=1)
    run(config)
    config.model.kind = "tdnmt"

    def stage(name: str, init: str, updates: int, *overrides: str) -> None:
        own = [f"training.output={folder / name}", f"training.init={folder / init}", f"training.updates={updates}"]
        run(apply_overrides(config, [*own, *overrides]))

    stage("single", "sentence", size.single, "training.selector=random 1 or none", "training.schedule.peak=0.006")
    stage("translator", "single", size.translator, "training.selector=random subset", "training.schedule.peak=0.005")
    label_corpus(config)
    learning = ["training.schedule.peak=0.0012", "training.schedule.warmup=200", "training.batch_tokens=4096"]
    stage("scorer", "translator", size.scorer, "training.stage=scorer", *learning)
    # at twice this rate one of two deciding sentences was often lost again
    learning = ["training.schedule.peak=0.0005", "training.schedule.warmup=50", f"training.batch_tokens={size.batch}"]
    stage("reinforced", "scorer", size.reinforce, "training.stage=reinforce", *learning)
    return load_model(folder / "reinforced")


@pytest.fixture(scope="module", params=[QUICK, pytest.param(LONG, marks=pytest.mark.system)], ids=["quick", "long"])
def learned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Learned]:
    size: Size = request.param
    threads = torch.get_num_threads()
    model = train_all(tmp_path_factory.mktemp("selection"), size)
    unseen = make_corpus(100, seed=3, length=LENGTH, scope=SCOPE, counted=True)
    sources, _ = as_documents(unseen)

    def accuracy(selector: str) -> float:
        chosen = Deciding(unseen) if selector == "deciding" else model.choose(selector)
        return decided_accuracy(unseen, translate_documents(model, sources, selector=chosen))

    yield Learned(model, size, unseen, accuracy)
    torch.set_num_threads(threads)


def test_what_is_selected_is_what_decides(learned: Learned) -> None:
    sources, _ = as_documents(learned.unseen)
    choices = select_documents(learned.model, sources)
    found = learned.exact(lambda number, here, _: set(choices[number][here].selected))
    empty = learned.exact(lambda number, here, _: set(choices[number][here].selected), empty_only=True)
    assert found > learned.size.bound, found
    assert empty > learned.size.bound, empty


def test_any_distance_may_decide(learned: Learned) -> None:
    """No sentence, one or two, and each distance of the scope often enough to count."""
    deciding = [sentence.deciding for document in learned.unseen for sentence in document]
    assert {len(distances) for distances in deciding} == {0, 1, 2}
    assert all(sum(distance in found for found in deciding) > 50 for distance in range(1, SCOPE + 1))


def test_it_cannot_be_had_by_chance(learned: Learned) -> None:
    """Exact matches without any learning: nothing, the previous sentence, the previous two, everything; at random."""
    fixed = {
        name: learned.exact(lambda _, here, __, n=n: set(range(1, min(n, here) + 1)))
        for name, n in (("none", 0), ("previous 1", 1), ("previous 2", 2), ("full", SCOPE))
    }
    assert 0.35 < fixed["none"] < 0.45
    assert max(fixed["previous 1"], fixed["previous 2"], fixed["full"]) < 0.2
    sentences = [min(here, SCOPE) for document in learned.unseen for here in range(1, len(document))]
    assert sum(0.5**count for count in sentences) / len(sentences) < 0.1


def test_selected_context_translates_better_than_fixed_context(learned: Learned) -> None:
    """The words that earlier sentences decide, all with one and the same translator."""
    selected, full, previous = (learned.accuracy(name) for name in ("probability-first", "full", "previous 2"))
    assert selected > full + 0.05
    assert selected > previous + 0.15
    # and hardly worse than with the truth itself
    assert selected > learned.accuracy("deciding") - 0.05
