"""The token store: a prepared parallel corpus as flat, memory-mapped arrays.

A split is a folder of raw little-endian arrays and a `store.json` that says what they are:

    source.tokens, target.tokens    every sentence's ids, each ending in EOS, laid end to end
    source.starts, target.starts    [sentences + 1] where each sentence begins in its tokens
    documents                       [documents + 1] the sentence each document begins with
    usable                          [sentences] 1 where the pair is fit for training

Because a document's sentences lie next to each other, the context of a sentence (the previous k sentences) is a
contiguous range of tokens: candidates are found by index and nothing is ever copied into a "context file".
Pairs unfit for training keep their place, since a later sentence may still need them as context.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dynctx.errors import DynctxError, at
from dynctx.subwords import EOS

SIDES = ("source", "target")
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TokenStore:
    """One split of a prepared corpus. Arrays are memory maps: only what is touched is read."""

    source: NDArray[np.uint16] | NDArray[np.int32]  # [source tokens]
    target: NDArray[np.uint16] | NDArray[np.int32]  # [target tokens]
    source_starts: Ints  # [sentences + 1]
    target_starts: Ints  # [sentences + 1]
    documents: Ints  # [documents + 1]
    usable: NDArray[np.bool_]  # [sentences]

    def __len__(self) -> int:
        return len(self.source_starts) - 1

    @property
    def document_starts(self) -> Ints:
        """[sentences] the first sentence of the document that each sentence stands in."""
        sizes = np.diff(self.documents)
        return np.repeat(np.asarray(self.documents[:-1]), sizes)

    @cached_property
    def fingerprint(self) -> str:
        """Of all that is in it: what was worked out for one text must not be taken for that of another."""
        digest = hashlib.sha256()
        for array in (np.ascontiguousarray(getattr(self, part.name)) for part in fields(self)):
            digest.update(len(array).to_bytes(8, "little"))
            digest.update(array.view(np.uint8).data)
        return digest.hexdigest()[:16]

    def source_ids(self, sentence: int) -> list[int]:
        return self.source[self.source_starts[sentence] : self.source_starts[sentence + 1]].tolist()

    def target_ids(self, sentence: int) -> list[int]:
        return self.target[self.target_starts[sentence] : self.target_starts[sentence + 1]].tolist()

    @classmethod
    def open(cls, folder: str | Path) -> TokenStore:
        folder = Path(folder)
        try:
            about = json.loads((folder / "store.json").read_text(encoding="utf-8"))
            arrays = {name: _map(folder / name, *entry) for name, entry in about["arrays"].items()}
            return cls(
                source=arrays["source.tokens"],
                target=arrays["target.tokens"],
                source_starts=arrays["source.starts"],
                target_starts=arrays["target.starts"],
                documents=arrays["documents"],
                usable=arrays["usable"].view(np.bool_),
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            missing = Path(error.filename).name
            raise DynctxError(
                f"{at(folder)}: no prepared corpus here ({missing} is missing); run 'dynctx prepare' first"
            ) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DynctxError(f"{at(folder / 'store.json')}: damaged ({error}); run 'dynctx prepare' again") from None

    @classmethod
    def from_ids(
        cls,
        documents: Sequence[Sequence[tuple[Sequence[int], Sequence[int]]]],
        usable: Sequence[bool] | None = None,
    ) -> TokenStore:
        """A store in memory: documents of (source ids, target ids), EOS not included. For use and for tests."""
        pairs = [pair for document in documents for pair in document]
        flat = {side: [[*pair[k], EOS] for pair in pairs] for k, side in enumerate(SIDES)}
        starts = {side: np.cumsum([0, *map(len, flat[side])]) for side in SIDES}
        tokens = {side: np.array([i for ids in flat[side] for i in ids], dtype=np.int32) for side in SIDES}
        return cls(
            source=tokens["source"],
            target=tokens["target"],
            source_starts=starts["source"],
            target_starts=starts["target"],
            documents=np.cumsum([0, *map(len, documents)]),
            usable=np.ones(len(pairs), np.bool_) if usable is None else np.asarray(usable, np.bool_),
        )


def some_documents(store: TokenStore, usable: NDArray[np.bool_], sentences: int) -> NDArray[np.bool_]:
    """[sentences] the usable ones of documents drawn at random, always in the same order, until there are so many."""
    borders = np.asarray(store.documents)
    order = np.random.default_rng(0).permutation(len(borders) - 1)
    sizes = np.diff(np.concatenate([[0], np.cumsum(usable)])[borders])[order]
    taken = np.zeros(len(order), np.bool_)
    taken[order[np.cumsum(sizes) - sizes < sentences]] = True
    return np.repeat(taken, np.diff(borders)) & usable


def reserved(store: TokenStore, share: float) -> NDArray[np.bool_]:
    """[sentences] which translators do not learn from (training.reserve), so that they can be asked about them: whole
    documents drawn at random, always the same, that make up at most this share."""
    usable, borders = np.asarray(store.usable), np.asarray(store.documents)
    sizes = np.diff(np.concatenate([[0], np.cumsum(usable)])[borders])
    taken, left = np.zeros(len(sizes), np.bool_), share * usable.sum()
    for document in np.random.default_rng(0).permutation(len(sizes)).tolist():
        if sizes[document] <= left:
            taken[document] = True
            left -= sizes[document]
    found = np.repeat(taken, np.diff(borders)) & usable
    if share and not found.any():
        raise DynctxError(
            f"training.reserve is {share:g}, and every document of the training data is larger than that share of it"
        )
    return found


def _map(path: Path, dtype: str, length: int) -> np.ndarray:
    """A read-only memory map whose size is checked, so that a cut-off file is named and not half used."""
    expected = np.dtype(dtype).itemsize * length
    found = path.stat().st_size
    if found != expected:
        raise DynctxError(f"{at(path)}: {found} bytes, expected {expected}; run 'dynctx prepare' again")
    if length == 0:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r", shape=(length,))


class StoreWriter:
    """Writes a store document by document, holding one document in memory; `close` makes it visible."""

    def __init__(self, folder: str | Path, vocabulary: int) -> None:
        self.folder = Path(folder)
        self.beside = self.folder.with_name(self.folder.name + ".partial")
        shutil.rmtree(self.beside, ignore_errors=True)
        self.beside.mkdir(parents=True)
        # uint16 halves the memory of every vocabulary in common use
        self.dtypes = {f"{side}.tokens": "<u2" if vocabulary <= 65536 else "<i4" for side in SIDES}
        self.dtypes |= {"source.starts": "<i8", "target.starts": "<i8", "documents": "<i8", "usable": "|u1"}
        self.files = {name: open(self.beside / name, "wb") for name in self.dtypes}  # noqa: SIM115 (closed in close)
        self.lengths = dict.fromkeys(self.dtypes, 0)
        self.ends = dict.fromkeys(SIDES, 0)
        self._append("source.starts", [0])
        self._append("target.starts", [0])
        self._append("documents", [0])

    def _append(self, name: str, values: Sequence[int] | np.ndarray) -> None:
        array = np.asarray(values, dtype=self.dtypes[name])
        array.tofile(self.files[name])
        self.lengths[name] += len(array)

    def add(self, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], usable: Sequence[bool]) -> None:
        """One document: ids of each sentence (EOS is added here)."""
        for side, sentences in zip(SIDES, (source, target)):
            starts = np.cumsum([len(ids) + 1 for ids in sentences]) + self.ends[side]
            self._append(f"{side}.tokens", [i for ids in sentences for i in (*ids, EOS)])
            self._append(f"{side}.starts", starts)
            self.ends[side] = int(starts[-1])
        self._append("usable", np.asarray(usable, np.uint8))
        self._append("documents", [self.lengths["usable"]])

    def close(self) -> None:
        for file in self.files.values():
            file.close()
        arrays = {name: [self.dtypes[name], self.lengths[name]] for name in self.dtypes}
        (self.beside / "store.json").write_text(json.dumps({"arrays": arrays}, indent=1), encoding="utf-8")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.beside.rename(self.folder)
