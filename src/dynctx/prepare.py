"""`dynctx prepare`: texts -> subword model(s), token stores and a data card, all in one folder (`dynctx.prepared`).

Every text is read twice and never held: once for the subword model, once to be encoded. All of it is made in a folder
inside and put in its place at the end, so what was prepared before stays whole if anything goes wrong on the way.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dynctx.claims import claimed
from dynctx.config import DataConfig, ParallelFiles
from dynctx.corpus import StoreWriter
from dynctx.documents import Document, read_parallel
from dynctx.errors import DynctxError
from dynctx.files import atomic_write
from dynctx.languages import is_foreign, name_of
from dynctx.plain_data import to_dict
from dynctx.prepared import MADE, borrowed_subwords, check_folder, put_in_place, save_subwords, write_pairs
from dynctx.subwords import Subwords, train_subwords

MANY_SENTENCES = 200  # few documents are as long
CHUNK = 50_000  # sentences encoded at a time: enough to keep the threads busy, little memory
Say = Callable[[str], None]


def prepare(config: DataConfig, say: Say = print, threads: int = 2) -> dict[str, Any]:
    """Do all of it; returns the data card."""
    splits = check_splits(config)
    with claimed(config.folder):
        check_folder(config, splits)
        made = Path(config.folder) / MADE
        shutil.rmtree(made, ignore_errors=True)  # of a call that was killed
        try:
            made.mkdir()
            card = make(config, made, splits, say, threads)
            put_in_place(made)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return card


def make(
    config: DataConfig, folder: Path, splits: dict[str, list[ParallelFiles]], say: Say, threads: int
) -> dict[str, Any]:
    held_out = [name for name in splits if name != "train"]
    seen = {name: HeldOut(splits[name][0]) for name in held_out}  # first: what is wrong with them shows at once
    if config.subwords_from:
        source, target = borrowed_subwords(config.subwords_from)
    else:
        say("training the subword model" + ("" if config.joint else "s"))
        source, target = make_subwords(config, threads)
    save_subwords(folder, source, target)
    card: dict[str, Any] = {
        "source_language": config.source_language,
        "target_language": config.target_language,
        "vocabulary": {"source": len(source), "target": len(target), "joint": source is target},
        "splits": {},
    }
    for name, files in splits.items():
        say(f"encoding {name}")
        watchers = list(seen.values()) if name == "train" else []
        writer = StoreWriter(folder / name, max(len(source), len(target)))
        split = encode_split(writer, files, source, target, config, name == "train", watchers, threads)
        if name != "train":
            write_pairs(read_pairs(files[0]), folder / f"{name}.jsonl")
        card["splits"][name] = split
    for name, watcher in seen.items():
        card["splits"][name]["overlap_with_train"] = watcher.overlap()
    card["config"] = to_dict(config)
    for doubt in doubts(config, card, seen):
        say(f"warning: {doubt}")
    with atomic_write(folder / "card.json") as file:
        json.dump(card, file, indent=1, ensure_ascii=False)
    return card


def doubts(config: DataConfig, card: dict[str, Any], held_out: dict[str, HeldOut]) -> list[str]:
    """What is probably not meant so."""
    train, found = card["splits"]["train"], []
    for name, split in card["splits"].items():
        documents, sentences = split["documents"], split["sentences"]
        if documents == 1 and sentences > MANY_SENTENCES:
            found.append(
                f"{name} is one document of {sentences:,} sentences; is a blank line missing between documents?"
            )
        if documents == sentences > 1:
            found.append(f"every document of {name} has one sentence: there is no context in it")
    if train["fit_for_training"] < train["sentences"] / 2:
        found.append(
            f"{train['sentences'] - train['fit_for_training']:,} of {train['sentences']:,} pairs are not trained on"
        )
    size = min(card["vocabulary"]["source"], card["vocabulary"]["target"])
    if size < config.vocabulary and not config.subwords_from:
        found.append(f"the training data makes a vocabulary of {size:,} pieces, not of {config.vocabulary:,}")
    corpora = [*config.train, *([config.dev] if config.dev else []), *config.test.values()]
    for same in {files.source.path for files in corpora if files.source == files.target}:
        found.append(f"{same} is both source and target")
    for name, watcher in held_out.items():
        if watcher.overlap()["pairs"] > len(watcher.pairs) / 2:
            found.append(f"most lines of {name} are in train as well: its scores will mean little")
        for side, language in enumerate((config.source_language, config.target_language)):
            foreign = sum(is_foreign(pair[side], language or "") for pair in watcher.pairs)
            if foreign > len(watcher.pairs) / 2:
                found.append(f"most {('sources', 'targets')[side]} of {name} have no letter of {name_of(language)}")
    return found


def check_splits(config: DataConfig) -> dict[str, list[ParallelFiles]]:
    if not config.train:
        raise DynctxError("data.train is empty: name at least one pair of training files")
    splits = {"train": config.train}
    if config.dev is not None:
        splits["dev"] = [config.dev]
    for name, files in config.test.items():
        # no dots: "card.json" or "dev.jsonl" as a folder would be in the way of the file
        if name in ("train", "dev") or not name.replace("-", "").replace("_", "").isalnum():
            raise DynctxError(
                f"data.test: {name!r} cannot name a test set (letters, digits, - and _; not train or dev)"
            )
        splits[name] = [files]
    return splits


def read_pairs(files: ParallelFiles) -> Iterator[tuple[Document, Document]]:
    pairs = read_parallel(files.source, files.target)
    return islice(pairs, files.documents) if files.documents else pairs


def make_subwords(config: DataConfig, threads: int) -> tuple[Subwords, Subwords]:
    def sentences(*sides: int) -> Iterator[str]:
        for files in config.train:
            for pair in read_pairs(files):
                for side in sides:
                    yield from pair[side].sentences

    def train(*sides: int) -> Subwords:
        return train_subwords(
            sentences(*sides),
            config.vocabulary,
            kind=config.subwords,
            character_coverage=config.character_coverage,
            byte_fallback=config.byte_fallback,
            normalization=config.normalization,
            sample=config.subword_sample,
            threads=threads,
        )

    if config.joint:
        model = train(0, 1)
        return model, model
    return train(0), train(1)


class HeldOut:
    """Counts how many lines of a dev or test set occur in train as well, holding the held-out lines only."""

    def __init__(self, files: ParallelFiles) -> None:
        self.pairs = [p for s, t in read_pairs(files) for p in zip(s.sentences, t.sentences)]
        self.sources = {source for source, _ in self.pairs}
        self.seen_sources: set[str] = set()
        self.seen_pairs: set[tuple[str, str]] = set()

    def watch(self, source: str, target: str) -> None:
        if source in self.sources:
            self.seen_sources.add(source)
            self.seen_pairs.add((source, target))

    def overlap(self) -> dict[str, int]:
        return {
            "sources": sum(source in self.seen_sources for source, _ in self.pairs),
            "pairs": sum(pair in self.seen_pairs for pair in self.pairs),
        }


def encode_split(
    writer: StoreWriter,
    files: list[ParallelFiles],
    source: Subwords,
    target: Subwords,
    config: DataConfig,
    training: bool,
    watchers: list[HeldOut],
    threads: int,
) -> dict[str, Any]:
    """Encode documents in chunks and describe what was seen. Only training pairs are ever dropped."""
    dropped: Counter[str] = Counter()
    histogram: dict[str, Counter[int]] = {"source": Counter(), "target": Counter()}
    pieces = dict.fromkeys(histogram, 0)
    documents = sentences = 0
    for chunk in chunks(files):
        ids = [
            model.encode([s for pair in chunk for s in pair[side].sentences], threads)
            for side, model in enumerate((source, target))
        ]
        at = 0
        for pair in chunk:
            end = at + len(pair[0].sentences)
            both = [ids[0][at:end], ids[1][at:end]]
            reasons = [why_unfit(s, t, config) if training else "" for s, t in zip(*both)]
            dropped.update(reason for reason in reasons if reason)
            for name, side in zip(histogram, both):
                histogram[name].update(map(len, side))
            if training:  # what is too long to train on may still be context, cut to the limit
                both = [[sentence[: config.max_length] for sentence in side] for side in both]
                for watcher in watchers:
                    for line in zip(pair[0].sentences, pair[1].sentences):
                        watcher.watch(*line)
            for name, side in zip(pieces, both):
                pieces[name] += sum(map(len, side))
            writer.add(both[0], both[1], [not reason for reason in reasons])
            documents, sentences, at = documents + 1, sentences + len(reasons), end
    writer.close()
    return {
        "documents": documents,
        "sentences": sentences,
        "fit_for_training": sentences - sum(dropped.values()) if training else 0,
        "dropped": dict(dropped),
        "pieces": pieces,  # that are stored; lengths are of the texts as they are
        "lengths": {name: summarise(counts) for name, counts in histogram.items()},
    }


def chunks(files: list[ParallelFiles]) -> Iterator[list[tuple[Document, Document]]]:
    chunk: list[tuple[Document, Document]] = []
    size = 0
    for corpus in files:
        for pair in read_pairs(corpus):
            chunk.append(pair)
            size += len(pair[0].sentences)
            if size >= CHUNK:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk


def why_unfit(source: list[int], target: list[int], config: DataConfig) -> str:
    if not source or not target:
        return "empty"
    if max(len(source), len(target)) > config.max_length:
        return "longer than max_length"
    # very short lines reach any ratio by chance: the slack lets "OK" be "That is all right"
    if max(len(source), len(target)) > config.max_ratio * min(len(source), len(target)) + 5:
        return "length ratio over max_ratio"
    return ""


def summarise(counts: Counter[int]) -> dict[str, Any]:
    lengths = np.array(sorted(counts))
    weights = np.array([counts[n] for n in lengths])
    reached = np.cumsum(weights) / weights.sum()
    edges = [0, 1, 5, 10, 20, 30, 50, 80, 128, 10**9]
    names = ["0", "1-4", "5-9", "10-19", "20-29", "30-49", "50-79", "80-127", "128+"]
    bins = {
        name: int(weights[(lengths >= low) & (lengths < high)].sum())
        for name, low, high in zip(names, edges, edges[1:])
    }
    quantiles = {f"p{q}": int(lengths[np.searchsorted(reached, q / 100)]) for q in (50, 90, 99)}
    return {
        "mean": round(float((lengths * weights).sum() / weights.sum()), 2),
        **quantiles,
        "max": int(lengths[-1]),
        "histogram": bins,
    }


def card_text(card: dict[str, Any]) -> str:
    """The data card for a terminal."""
    vocabulary = card["vocabulary"]
    kind = "joint" if vocabulary["joint"] else f"separate, target {vocabulary['target']:,}"
    lines = [f"vocabulary: {vocabulary['source']:,} pieces ({kind})"]
    for name, split in card["splits"].items():
        lines.append(f"{name}: {split['documents']:,} documents, {split['sentences']:,} sentence pairs")
        for side in ("source", "target"):
            about = split["lengths"][side]
            lines.append(
                f"  {side}: {split['pieces'][side]:,} pieces, mean {about['mean']}, median {about['p50']}, "
                f"90 % up to {about['p90']}, 99 % up to {about['p99']}, longest {about['max']}"
            )
            total = max(1, split["sentences"])
            shown = [f"{k}: {100 * v / total:.1f} %" for k, v in about["histogram"].items() if v]
            lines.append("    length " + "  ".join(shown))
        if split["dropped"]:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in split["dropped"].items())
            lines.append(f"  not trained on, kept as context: {reasons}")
        if "overlap_with_train" in split:
            overlap = split["overlap_with_train"]
            lines.append(f"  also in train: {overlap['sources']:,} source lines, {overlap['pairs']:,} whole pairs")
    return "\n".join(lines)
