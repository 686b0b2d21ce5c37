"""What another translator makes of each context, read from files: labels and rewards for a selector of its own.

One JSON object a line, for each sentence of the split in order, the higher the better:

    {"none": -14.2, "1": -12.9, "2": -15.0}                      kinds likelihood and bleu: each candidate by itself
    {"none": 0.31, "1": 0.34, "2": 0.31, "1 2": 0.36}            kind reward: sets of the candidates there are
    {}                                                           nothing was asked about this sentence

Keys are distances: 1 is the sentence just before. Of a sentence to learn from, some of the sets will do; of one to be
judged by, all are needed, since any of them may be selected.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from dynctx.config import Config
from dynctx.corpus import TokenStore
from dynctx.errors import DynctxError, at
from dynctx.files import atomic_write, read_lines
from dynctx.labels.pseudo_labels import KINDS, Floats, Say, begin, write


def adopt(config: Config, say: Say) -> None:
    """Make a folder of labels, as `dynctx label` with a model of its own does, of the files that the config names."""
    labels, folder = config.labels, Path(config.labels.folder)
    files = {"train": labels.train, "dev": labels.dev}
    if lacking := [f"labels.{split}" for split, path in files.items() if not path]:
        raise DynctxError(f"{lacking[0]} is missing: values of train and of dev are needed")
    if labels.model:
        raise DynctxError("labels.model and labels.train: either a model judges or a file says what another one found")
    stores = {split: TokenStore.open(Path(config.data.folder) / split) for split in files}
    scope, kind = config.model.scope, KINDS[labels.kind]
    values = {
        split: read_values(path, labels.kind, scope, stores[split], gaps=split == "train")
        for split, path in files.items()
    }
    about: dict[str, Any] = {
        "kind": labels.kind,
        "model": "",
        "scope": scope,
        "data": config.data.folder,
        "reserve": config.training.reserve,
        "files": files,
        "text": {split: store.fingerprint for split, store in stores.items()},
    }
    begin(folder, about, 0, lambda: None)
    for split, found in values.items():
        warn_of_gaps(split, found, stores[split], scope, labels.kind, say)
        about[split] = kind.statistics(found, labels.margin)
        say(kind.describe(split, about[split]))
        write(folder / f"{split}.npy", found)
    with atomic_write(folder / "about.json") as file:
        json.dump(about, file, indent=1)
    (folder / "parts").rmdir()


def warn_of_gaps(split: str, values: Floats, store: TokenStore, scope: int, kind: str, say: Say) -> None:
    """A distance that no line has a value for is one that the scorer learns nothing about, and might select."""
    before, columns = np.arange(len(store)) - store.document_starts, np.arange(values.shape[1])
    sets = kind == "reward"
    unsaid = []
    for d in range(1, min(scope, int(before.max(initial=0))) + 1):
        has_it = columns >> (d - 1) & 1 == 1 if sets else columns == d - 1
        if np.isnan(values[before >= d][:, has_it]).all():
            unsaid.append(d)
    if unsaid:
        say(
            f"{split}: no value for distance {', '.join(map(str, unsaid))}: nothing is learned about such candidates, "
            "and they may be selected all the same; a smaller model.scope leaves the farthest out"
        )


def read_values(path: str, kind: str, scope: int, store: TokenStore, gaps: bool = False) -> Floats:
    """[sentences, columns] as `dynctx label` would write them; nan where nothing is said. gaps: of kind reward, a line
    may have some of the sets only."""
    candidates = np.minimum(np.arange(len(store)) - store.document_starts, scope)  # [sentences]
    values = np.full((len(store), KINDS[kind].columns(scope)), np.nan, np.float32)
    count = 0
    for count, line in enumerate(read_lines(path), 1):
        if count <= len(store):
            record = _parse(line, at(path, count), int(candidates[count - 1]))
            if kind == "reward":
                _subsets(values[count - 1], record, int(candidates[count - 1]), gaps, at(path, count))
            else:
                _singles(values[count - 1], record, at(path, count))
    if count != len(store):
        raise DynctxError(f"{at(path)}: {count:,} lines for {len(store):,} sentences; one for each is needed, in order")
    return values


def _parse(line: str, where: str, candidates: int) -> dict[frozenset[int], float]:
    """Values by sets of distances; the empty set is that of "none"."""
    try:
        content = json.loads(line)
        record = {_distances(key): float(value) for key, value in content.items()}
    except (AttributeError, TypeError, ValueError):
        raise DynctxError(
            f'{where}: expected a JSON object of numbers, such as {{"none": -14.2, "1": -12.9}}'
        ) from None
    if len(record) < len(content):
        raise DynctxError(f"{where}: two values for one set of distances: {', '.join(map(repr, content))}")
    for distances, value in record.items():
        if not math.isfinite(value):
            raise DynctxError(f"{where}: {value} is no value")
        if beyond := [d for d in distances if not 1 <= d <= candidates]:
            raise DynctxError(f"{where}: distance {beyond[0]}; this sentence has {candidates} candidates")
    if record and frozenset() not in record:
        raise DynctxError(f'{where}: "none", the value without context, is missing')
    return record


def _distances(key: str) -> frozenset[int]:
    """{1, 3} of "1 3", and the empty set of "none", which has to be said."""
    if key == "none":
        return frozenset()
    if not key.split():
        raise ValueError(key)
    return frozenset(int(word) for word in key.split())


def _singles(row: Floats, record: dict[frozenset[int], float], where: str) -> None:
    for distances, value in record.items():
        if len(distances) > 1:
            raise DynctxError(f"{where}: {sorted(distances)} together; only labels.kind reward knows sets")
        row[min(distances) - 1 if distances else -1] = value


def _subsets(row: Floats, record: dict[frozenset[int], float], candidates: int, gaps: bool, where: str) -> None:
    if not record:
        return
    if not gaps and len(record) != 2**candidates:
        raise DynctxError(
            f"{where}: {len(record)} sets of {candidates} candidates, of which there are {2**candidates}: to be judged "
            "by, all are needed (or {}, for a sentence that is left out)"
        )
    for distances, value in record.items():
        row[sum(1 << (distance - 1) for distance in distances)] = value
    # a set with a candidate that does not exist is worth what it is worth without
    row[:] = row[np.arange(len(row)) & (2**candidates - 1)]
