"""Pseudo labels (section 3.3.1 of the paper): which single candidates help to translate a sentence.

A translator trained with one random candidate or none judges each candidate of each sentence by itself: by the
likelihood of the reference, or by the sentence BLEU of a greedy translation. What is stored is the value of each
candidate and of NON; a label is 1 where a candidate's value is above NON's, 0 where it is below, and a tie teaches
nothing. NON's own label is 1 where no candidate beats it.

    FOLDER/train.npy, dev.npy    [sentences, scope + 1] float32, the last column NON's; nan where there is none
                                 (of kind reward: `selection.reward_tables`)
    FOLDER/about.json            what made them, and their statistics
    FOLDER/parts/                finished parts of a run that is not at its end: it goes on from there
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynctx.batches import Gatherer
from dynctx.config import Config, DecodingConfig
from dynctx.corpus import Ints, TokenStore, reserved, some_documents
from dynctx.decoding import guess_pairs
from dynctx.errors import DynctxError, at
from dynctx.evaluation.bleu import sentence_bleus
from dynctx.files import atomic_write
from dynctx.labels import reward_tables
from dynctx.model_folder import Model, check_reserve, fingerprint
from dynctx.scoring import score

ROUNDING = 1e-6  # what a sum of float32 may be off by, as a share of it
PART = 8192  # sentences judged between two writes
ROWS = 2**13  # translations that are written at a time
Floats = NDArray[np.float32]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Labels:
    """What the scorer learns from."""

    value: Floats  # [sentences, scope + 1] 1 or 0; NON's may be a half
    counts: NDArray[np.bool_]  # [sentences, scope + 1] whether there is one: no tie, and judged at all

    @classmethod
    def of(cls, values: Floats, margin: float = 0.0, between: bool = False) -> Labels:
        """between: where a candidate beats NON, NON's label is a half instead of 0."""
        gain = values[:, :-1] - values[:, -1:]  # nan compares as neither
        least = np.maximum(margin, ROUNDING * np.abs(values[:, -1:]))  # the same context twice is a tie
        better, worse = gain > least, gain < -least
        judged = ~np.isnan(gain).all(axis=1, keepdims=True)  # has a candidate: else NON is all there is
        non = ~better.any(axis=1, keepdims=True) & judged
        value = np.concatenate([better, non], axis=1).astype(np.float32)
        if between:
            value[:, -1] = np.where(judged[:, 0], (1 + value[:, -1]) / 2, 0)
        return cls(value, np.concatenate([better | worse, judged], axis=1))


def pairs_of(gatherer: Gatherer, sentences: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Every candidate of every sentence alone, and NON: rows [m], columns [m], chosen [m, scope]."""
    scope = gatherer.scope
    exists = sentences[:, None] - np.arange(1, scope + 1) >= gatherer.firsts[sentences][:, None]
    row, column = np.nonzero(np.concatenate([exists, np.ones((len(sentences), 1), np.bool_)], axis=1))
    return row, column, column[:, None] == np.arange(scope)


def likelihood_values(model: Model, gatherer: Gatherer, sentences: Ints, batch_tokens: int) -> Floats:
    """[n, scope + 1] log P(Y | X, z)."""
    row, column, chosen = pairs_of(gatherer, sentences)
    found = score(model.translator, gatherer, sentences[row], chosen, batch_tokens=batch_tokens)
    return table(len(sentences), gatherer.scope, row, column, found.log_probability)


def bleu_values(model: Model, gatherer: Gatherer, sentences: Ints, batch_tokens: int) -> Floats:
    """[n, scope + 1] sentence BLEU of the greedy translation."""
    row, column, chosen = pairs_of(gatherer, sentences)
    references = model.target.decode([gatherer.store.target_ids(int(number))[:-1] for number in sentences])
    language = model.config.data.target_language or "en"
    scores = np.empty(len(row))

    def keep(places: Ints, guesses: list[list[int]]) -> None:
        texts = model.target.decode(guesses)
        scores[places] = sentence_bleus(texts, [references[number] for number in row[places]], language=language)

    # a translation is as long again as its source; more rows at a time are no faster, and their logits are large
    search = DecodingConfig(batch_sentences=ROWS)
    guess_pairs(model.translator, gatherer, sentences[row], chosen, search, batch_tokens // 2, keep)
    return table(len(sentences), gatherer.scope, row, column, scores)


def table(count: int, scope: int, row: Ints, column: Ints, values: NDArray[Any]) -> Floats:
    found = np.full((count, scope + 1), np.nan, np.float32)
    found[row, column] = values
    return found


def label(
    config: Config,
    model: Model,
    rank: int,
    world: int,
    say: Say,
    barrier: Callable[[], None],
    deadline: float | None = None,
) -> bool:
    """Judge train and dev; `world` processes share the parts out, the first puts them together.

    deadline (of time.monotonic, for one process): when to stop between two parts; False where that has been.
    """
    folder, data = Path(config.labels.folder), Path(config.data.folder)
    check_reserve(config.labels.model, model.config, config)
    stores = {split: TokenStore.open(data / split) for split in ("train", "dev")}
    text = {split: store.fingerprint for split, store in stores.items()}
    about = {**wanted_of(config), "weights": fingerprint(model.translator), "text": text}
    begin(folder, about, rank, barrier)
    kind, scope = KINDS[config.labels.kind], model.translator.scope
    for split, store in stores.items():
        if (folder / f"{split}.npy").exists():
            say(f"{split}: judged already, in {folder}")
            continue
        gatherer = Gatherer(store, scope, model.device)
        judge = partial(kind.judge, model, gatherer, batch_tokens=config.labels.batch_tokens)
        if config.labels.subsets and split == "train":  # validation must know of every subset
            judge = partial(judge, count=config.labels.subsets)
        wanted = judged_sentences(store, config, split)
        parts = [wanted[i : i + PART] for i in range(0, len(wanted), PART)]
        for number, sentences in enumerate(parts):
            place = folder / "parts" / f"{split}-{number:06d}.npy"
            if number % world != rank or place.exists():
                continue
            if deadline is not None and time.monotonic() > deadline:
                return False
            write(place, judge(sentences))
            say(f"{split}: part {number + 1} of {len(parts)}")
        barrier()
        if rank == 0:
            values = np.full((len(store), kind.columns(scope)), np.nan, np.float32)
            for number, sentences in enumerate(parts):
                values[sentences] = read(folder / "parts" / f"{split}-{number:06d}.npy")
            about[split] = kind.statistics(values, config.labels.margin)
            say(kind.describe(split, about[split]))
            with atomic_write(folder / "about.json") as file:
                json.dump(about, file, indent=1)
            write(folder / f"{split}.npy", values)
    barrier()
    if rank == 0:
        shutil.rmtree(folder / "parts", ignore_errors=True)
    return True


def judged_sentences(store: TokenStore, config: Config, split: str = "train") -> Ints:
    """Usable sentences, of some documents only where the config says so."""
    wanted = np.asarray(store.usable)
    if config.training.reserve and split == "train":
        wanted = reserved(store, config.training.reserve)
    if count := config.labels.sentences if split == "train" else config.labels.dev_sentences:
        wanted = some_documents(store, wanted, count)
    return np.flatnonzero(wanted)


def begin(folder: Path, about: dict[str, Any], rank: int, barrier: Callable[[], None]) -> None:
    """A folder is made by one model; parts of another must not get among its parts."""
    known = folder / "about.json"
    if known.exists():
        earlier = read_about(folder)
        check_text(folder, about["text"])
        for key in ("weights", "text"):
            if key not in earlier:
                about.pop(key, None)  # nobody knows any more, or ever did
        check_kind(folder, about)
        about |= {split: earlier[split] for split in ("train", "dev") if split in earlier}
    barrier()
    if rank == 0:
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        with atomic_write(known) as file:
            json.dump(about, file, indent=1)
    barrier()


def read_about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        return dict(about)
    except FileNotFoundError:
        raise DynctxError(f"{at(folder)}: no labels here; run 'dynctx label' first") from None
    except (TypeError, ValueError):
        raise DynctxError(
            f"{at(folder / 'about.json')}: damaged; remove the folder and run 'dynctx label' again"
        ) from None


def wanted_of(config: Config) -> dict[str, Any]:
    """What labels are of, as far as the config says."""
    return {
        "kind": config.labels.kind,
        "model": config.labels.model,
        "scope": config.model.scope,
        "data": config.data.folder,
        "sentences": config.labels.sentences,
        "dev_sentences": config.labels.dev_sentences,
        "subsets": config.labels.subsets,
        "reserve": config.training.reserve,
    }


def check_kind(folder: Path, wanted: dict[str, Any]) -> None:
    """Labels that lie there already must be of what is wanted."""
    if not (folder / "about.json").exists():
        return
    # labels of before these were written down
    known = {"reserve": 0.0, "subsets": 0, "dev_sentences": 0} | read_about(folder)
    differing = [f"{key} was {known.get(key)!r}, is {now!r}" for key, now in wanted.items() if known.get(key) != now]
    if differing:
        raise DynctxError(
            f"{at(folder)}: labels of another kind lie here ({'; '.join(differing)}); use another folder "
            "(labels.folder), or remove this one"
        )


def check_text(folder: str | Path, text: dict[str, str]) -> None:
    """Labels go by the numbers of sentences, and the same numbers may be other sentences by now."""
    known = read_about(Path(folder)).get("text", {})  # none in labels of before this was written down
    if other := [split for split, now in text.items() if known.get(split, now) != now]:
        raise DynctxError(
            f"{at(Path(folder))}: labels of other text than the prepared data now holds ({', '.join(other)}); run "
            "'dynctx label' again, with another folder (labels.folder) or after removing this one"
        )


def write(place: Path, values: Floats) -> None:
    beside = place.with_suffix(".partial")
    try:
        with open(beside, "wb") as file:
            np.save(file, values, allow_pickle=False)
        os.replace(beside, place)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise DynctxError(f"{at(place)}: cannot be written: {error.strerror or error}") from None


def read(place: Path) -> Floats:
    try:
        values = np.load(place, allow_pickle=False)
    except FileNotFoundError:
        raise DynctxError(f"{at(place)}: no labels here; run 'dynctx label' first") from None
    except (OSError, ValueError, EOFError) as error:
        raise DynctxError(f"{at(place)}: damaged ({error}); remove it and run 'dynctx label' again") from None
    return np.asarray(values, np.float32)


def labels_fingerprint(folder: str | Path, split: str) -> str:
    """Of what a scorer learns from: the labels may be made anew in the same folder."""
    values = read(Path(folder) / f"{split}.npy")
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:32]


def statistics(values: Floats, margin: float) -> dict[str, Any]:
    """How many labels are 1, 0 or tied, by distance, and how often NON wins."""
    labels = Labels.of(values, margin)
    judged = ~np.isnan(values)
    by_distance = []
    for column in range(values.shape[1] - 1):
        exist, count = judged[:, column], labels.counts[:, column]
        ones = int(labels.value[:, column].sum())
        by_distance.append({
            "distance": column + 1,
            "candidates": int(exist.sum()),
            "one": ones,
            "zero": int(count.sum()) - ones,
            "tied": int((exist & ~count).sum()),
        })  # fmt: skip
    several = judged[:, -1] & judged[:, 0]  # sentences that have a candidate at all
    return {
        "sentences": int(judged[:, -1].sum()),
        "with_candidates": int(several.sum()),
        "non_wins": int(labels.value[several, -1].sum()),
        "by_distance": by_distance,
    }


def describe(split: str, card: dict[str, Any]) -> str:
    lines = [f"{split}: {card['sentences']:,} sentences judged, {card['with_candidates']:,} with candidates"]
    lines.append(f"  NON wins in {card['non_wins'] / max(1, card['with_candidates']):.1%} of these")
    lines.append("  distance    candidates     1        0     tied")
    for row in card["by_distance"]:
        total = max(1, row["candidates"])
        shares = "".join(f"{row[name] / total:>9.1%}" for name in ("one", "zero", "tied"))
        lines.append(f"  {row['distance']:>8} {row['candidates']:>13,}{shares}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Kind:
    """A way to judge: what there is for each sentence, and what is told of it."""

    judge: Callable[..., Floats]  # model, gatherer, sentences, batch_tokens; of rewards also the count of subsets
    columns: Callable[[int], int]  # of a scope
    statistics: Callable[[Floats, float], dict[str, Any]]
    describe: Callable[[str, dict[str, Any]], str]


KINDS = {
    "likelihood": Kind(likelihood_values, lambda scope: scope + 1, statistics, describe),
    "bleu": Kind(bleu_values, lambda scope: scope + 1, statistics, describe),
    "reward": Kind(
        reward_tables.reward_values,
        lambda scope: len(reward_tables.subset_bits(scope)),
        reward_tables.statistics,
        reward_tables.describe,
    ),
}


def load_values(folder: str | Path, split: str, kind: str, sentences: int, scope: int, reserve: float = 0.0) -> Floats:
    """What was found for a split, which must fit the corpus, the scope of the model and what is to be learned."""
    about = read_about(Path(folder))
    if about["kind"] != kind:
        raise DynctxError(f"{at(Path(folder))}: labels of kind {about['kind']!r}, but labels.kind is {kind!r}")
    kept = about.get("reserve", 0.0)
    if kept != reserve:
        raise DynctxError(f"{at(Path(folder))}: labels with training.reserve {kept:g}, but here it is {reserve:g}")
    values = read(Path(folder) / f"{split}.npy")
    if values.shape != (sentences, KINDS[kind].columns(scope)):
        raise DynctxError(
            f"{at(Path(folder) / f'{split}.npy')}: labels of {values.shape[0]} sentences in {values.shape[1]} columns, "
            f"expected {sentences} in {KINDS[kind].columns(scope)} (a scope of {scope}); run 'dynctx label' again"
        )
    return values
