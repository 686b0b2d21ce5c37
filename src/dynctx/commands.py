"""What the commands do that is more than one call."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dynctx.claims import claimed
from dynctx.config import Config, DecodingConfig
from dynctx.config_rules import LARGEST_BEAM
from dynctx.devices import pick_device
from dynctx.documents import Document, write_jsonl
from dynctx.errors import DynctxError, at
from dynctx.files import check_place
from dynctx.model_folder import Model, check_subwords, load_model, save_model
from dynctx.pipeline import Choice, translate_documents
from dynctx.prepared import load_subwords, prepared_otherwise
from dynctx.processes import ALONE, Processes
from dynctx.selection.strategies import Fixed, OneOrNone, Previous, Random, Selector


def train_model(config: Config) -> None:
    from dynctx import training

    leader = int(os.environ.get("RANK", 0)) == 0  # of torchrun's processes
    changes = prepared_otherwise(config.data)
    for difference in changes if leader else ():
        warn(f"{config.data.folder}: {difference} since this was prepared; 'dynctx prepare' makes it anew")
    with claimed(config.training.output) if leader else nullcontext():
        training.run(config)


def label_corpus(config: Config, deadline: float | None = None) -> bool:
    """Pseudo labels for train and dev, alone or as one of torchrun's processes; False if the time was up."""
    from dynctx.labels.outside_values import adopt
    from dynctx.labels.pseudo_labels import label
    from dynctx.training.fabric import make_fabric

    if config.labels.train or config.labels.dev:
        with claimed(config.labels.folder):
            adopt(config, print)
        return True
    if not config.labels.model:
        raise DynctxError(
            "labels.model is missing: the model that judges the candidates (or labels.train and labels.dev: files of "
            "what another one found)"
        )
    fabric = make_fabric(config)
    model = load_model(config.labels.model, fabric.device)
    if not model.translator.scope:
        raise DynctxError(f"{config.labels.model}: a model that reads no context cannot judge it")
    if config.model.scope != model.translator.scope:
        raise DynctxError(
            f"{config.labels.model}: that model has a scope of {model.translator.scope}, the config of "
            f"{config.model.scope} (model.scope); they must be the same"
        )
    check_subwords(config.labels.model, model, *load_subwords(config.data.folder))
    leader = fabric.global_rank == 0
    say = print if leader else lambda text: None
    with claimed(config.labels.folder) if leader else nullcontext(), torch.no_grad(), fabric.autocast():
        return label(config, model, fabric.global_rank, fabric.world_size, say, fabric.barrier, deadline)


def export_model(place: Path, folder: Path, half: bool, mebibytes: int) -> None:
    """A copy of a model that stands by itself."""
    if mebibytes < 0:
        raise DynctxError("--split must not be negative")
    if folder.exists():
        raise DynctxError(f"{at(folder)}: is there already; name a folder that is not")
    model = load_model(place)
    for name in ("output", "init"):  # of no use elsewhere
        setattr(model.config.training, name, "")
    save_model(folder, model, dtype=torch.float16 if half else None, shard_bytes=mebibytes * 2**20 or 2**31)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder}: {size / 1e6:.1f} MB")


def selector_of(model: Model, name: str | None) -> Selector:
    return model.selector if name is None else model.choose(name)


def check_chooses(model: Model) -> None:
    """Whether there is any sense in asking this model what it would select, where no selector is named."""
    if isinstance(model.selector, Random | OneOrNone):
        raise DynctxError(
            f"this model has no context scorer, and learned from context drawn at random ({model.selector.name}): it "
            "would choose nothing. Name a selector, or take a model with a scorer"
        )


def explained(
    documents: Sequence[Document],
    choices: list[list[Choice]],
    translated: Sequence[Document] | None = None,
    files: Sequence[str] | None = None,
    places: Sequence[Sequence[Mapping[str, Any]]] | None = None,
) -> Iterator[str]:
    """A JSON line for each sentence, in order. files: that each document is from. places: of each sentence in it."""
    for number, (document, chosen) in enumerate(zip(documents, choices)):
        for place, (sentence, choice) in enumerate(zip(document.sentences, chosen)):
            record: dict[str, Any] = {"document": document.id, "sentence": place + 1}
            if files is not None:
                record = {"file": files[number], **record}
            if places is not None:
                record |= places[number][place]
            record["text"] = sentence
            if translated is not None:
                record["translation"] = translated[number].sentences[place]
            if choice.kept:
                record["kept"] = True
            record["selected"] = list(choice.selected)
            distances = sorted({*choice.selected, *choice.candidates})
            record["candidates"] = [
                {"distance": distance, "text": document.sentences[place - distance]}
                | ({"probability": round(choice.probabilities[distance], 6)} if choice.probabilities else {})
                for distance in distances
            ]
            if choice.non is not None:
                record["non"] = round(choice.non, 6)
            yield json.dumps(record, ensure_ascii=False)


def warn(text: str) -> None:
    sys.stderr.write(f"dynctx: {text}\n")


class bar:
    """A progress bar on stderr, where that is a terminal."""

    def __init__(self, total: int, quiet: bool = False, doing: str = "translating") -> None:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self.progress = Progress(console=console, disable=quiet or not console.is_terminal, transient=True)
        self.task = self.progress.add_task(doing, total=total)

    def __enter__(self) -> Any:
        self.progress.start()
        return lambda count: self.progress.update(self.task, advance=count)

    def __exit__(self, *error: object) -> None:
        self.progress.stop()


def oracle_of(model: Model, pairs: Sequence[tuple[Document, Document]]) -> Selector:
    """The best subset of each sentence by its reference: a bound, not a way to translate."""
    from dynctx.evaluation.oracle import TRYING, Oracle, tries
    from dynctx.evaluation.split import Split

    split = Split(model, pairs)
    with bar(tries(split.gatherer, np.arange(len(split))), doing=TRYING) as advance, precision(model.device):
        chosen = split.select(Oracle(model.translator, advance))
    return Fixed(Previous(0), {n: (np.flatnonzero(row) + 1).tolist() for n, row in enumerate(chosen)}, "oracle")


def test_model(
    folder: Path,
    split: str,
    data: Path | None,
    output: Path | None,
    beam: int | None,
    batch: int | None,
    device: str,
    selector: str | None = None,
    processes: Processes = ALONE,
) -> dict[str, Any]:
    """Translate a prepared dev or test set with its model and score it; the translations can be kept."""
    from dynctx.evaluation.bleu import main_scores
    from dynctx.prepared import read_held_out

    check_place(output)
    model = load_model(folder, pick_device(device))
    pairs = read_held_out(data or model.config.data.folder, split)
    decoding = changed(model.config.decoding, beam=beam, batch_sentences=batch)
    chosen = oracle_of(model, pairs) if selector == "oracle" else selector_of(model, selector)
    sources = [source for source, _ in pairs]
    with bar(sum(len(source.sentences) for source in sources)) as advance, precision(model.device):
        translated = translate_documents(model, sources, decoding, chosen, advance, warn, processes)
    language = model.config.data.target_language or "en"
    hypotheses = [sentence for document in translated for sentence in document.sentences]
    references = [sentence for _, target in pairs for sentence in target.sentences]
    if output is not None and processes.leads:
        write_jsonl(translated, output)
    scores = main_scores(hypotheses, [references], [len(t.sentences) for _, t in pairs], language=language)
    return {
        "model": str(folder),
        "split": split,
        "beam": decoding.beam,
        "selector": chosen.name,
        "sentences": len(references),
        "scores": {score.name: round(score.value, 2) for score in scores},
        "signatures": {score.name: score.signature for score in scores},
    }


def changed(decoding: DecodingConfig, **settings: Any) -> DecodingConfig:
    """A copy with the settings that were given."""
    given = {name: value for name, value in settings.items() if value is not None}
    for name, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} must be a whole number, not {value!r}")
        if value < 1:
            raise DynctxError(f"{name} must be at least 1, not {value}")
    if given.get("beam", 1) > LARGEST_BEAM:
        raise DynctxError(f"beam must be at most {LARGEST_BEAM}, not {given['beam']}")
    return dataclasses.replace(decoding, **given)


def precision(device: torch.device) -> torch.autocast:
    """bfloat16 on a GPU, float32 on a CPU."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
