"""A prepared folder: where everything is in it, and what is read of it by those who use it.

    FOLDER/spm.model              (or spm.source.model and spm.target.model)
    FOLDER/train/ dev/ NAME/      token stores, one a split
    FOLDER/dev.jsonl NAME.jsonl   the texts of dev and test, for scoring
    FOLDER/card.json              what is in it: counts, lengths, what was dropped, overlap; written last

A model folder has its subword models under the same names.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from dynctx.config import DataConfig, ParallelFiles
from dynctx.documents import Document
from dynctx.errors import DynctxError, at
from dynctx.files import atomic_write
from dynctx.plain_data import to_dict
from dynctx.subwords import Subwords

SUBWORDS = ("spm.model", "spm.source.model", "spm.target.model")
MADE = ".unfinished"  # no split can have this name


def save_subwords(folder: Path, source: Subwords, target: Subwords) -> None:
    for name in SUBWORDS:
        (folder / name).unlink(missing_ok=True)  # a joint model must not lie beside separate ones
    if source is target:
        source.save(folder / "spm.model")
    else:
        source.save(folder / "spm.source.model")
        target.save(folder / "spm.target.model")


def load_subwords(folder: str | Path) -> tuple[Subwords, Subwords]:
    """Source and target; the same object when the vocabulary is joint."""
    folder = Path(folder)
    if (folder / "spm.source.model").exists():
        return Subwords.load(folder / "spm.source.model"), Subwords.load(folder / "spm.target.model")
    joint = Subwords.load(folder / "spm.model")
    return joint, joint


def borrowed_subwords(folder: str) -> tuple[Subwords, Subwords]:
    """Those of a model, or of a run's best model."""
    place = Path(folder)
    if not (place / "config.yaml").exists() and (place / "model" / "config.yaml").exists():
        place = place / "model"
    return load_subwords(place)


def write_pairs(pairs: Iterable[tuple[Document, Document]], path: Path) -> None:
    """One document a line: id, source sentences, target sentences."""
    with atomic_write(path) as file:
        for source, target in pairs:
            line = {"id": source.id, "source": list(source.sentences), "target": list(target.sentences)}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def read_held_out(folder: str | Path, name: str) -> list[tuple[Document, Document]]:
    """The texts of dev or a test set, as `write_pairs` left them."""
    path = Path(folder) / f"{name}.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # splitlines would also cut at U+2028 and U+0085
        records = [json.loads(line) for line in lines if line]
        return [(Document(r["id"], tuple(r["source"])), Document(r["id"], tuple(r["target"]))) for r in records]
    except (FileNotFoundError, NotADirectoryError):
        there = ", ".join(sorted(file.stem for file in Path(folder).glob("*.jsonl")))
        hint = f"there are: {there}" if there else f"no text is prepared in {folder}; run 'dynctx prepare' first"
        raise DynctxError(f"{path}: no such prepared split; {hint}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise DynctxError(f"{path}: damaged ({error}); run 'dynctx prepare' again") from None


def fingerprint_of(pairs: list[tuple[Document, Document]]) -> str:
    """Of the texts of a test set: what one name stood for yesterday may be other text today."""
    content = json.dumps([[source.sentences, target.sentences] for source, target in pairs])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def prepared_otherwise(config: DataConfig) -> list[str]:
    """What has changed in the settings since the folder was prepared, in words; what counts is what was prepared."""
    place = Path(config.folder) / "card.json"  # the last thing that is written
    if not place.exists():
        raise DynctxError(f"{config.folder}: no prepared data here (data.folder); run 'dynctx prepare' first")
    try:
        then = dict(json.loads(place.read_text(encoding="utf-8"))["config"])
    except (OSError, ValueError, KeyError, TypeError):
        raise DynctxError(f"{at(place)}: damaged; run 'dynctx prepare' again") from None
    now = to_dict(config)
    names = [name for name in now if name != "folder" and name in then and then[name] != now[name]]
    corpora = ("train", "dev", "test")  # too long to tell
    return [f"data.{n} has changed" + ("" if n in corpora else f" ({then[n]!r}, now {now[n]!r})") for n in names]


def check_folder(config: DataConfig, splits: dict[str, list[ParallelFiles]]) -> None:
    """Nothing is written over that an earlier call has not made, least of all what is to be read."""
    folder = Path(config.folder)
    files = [*SUBWORDS, "card.json", *(f"{name}.jsonl" for name in splits if name != "train")]
    for path in [path for corpora in splits.values() for corpus in corpora for path in corpus.paths]:
        if Path(path).resolve() in {(folder / name).resolve() for name in files}:
            raise DynctxError(f"data.folder: {at(path)} is read, and would be written over; choose another folder")
    ours = made_here(folder)
    for place in [*(folder / name for name in splits), *(folder / name for name in files)]:
        foreign = not (place / "store.json").exists() if place.is_dir() else place.name not in ours
        if place.exists() and foreign:
            raise DynctxError(f"data.folder: {at(place)} is there and was not made by 'prepare'; choose another folder")


def made_here(folder: Path) -> set[str]:
    """Names of the files that an earlier call has made."""
    names = {place.parent.name for place in folder.glob("*/store.json")}
    try:
        splits = json.loads((folder / "card.json").read_text(encoding="utf-8"))["splits"]
        names |= set(splits)
    except (OSError, ValueError, KeyError, TypeError):  # none, or not ours, or an earlier call was cut off
        splits = None
    if splits is None and not names and not (folder / MADE).exists():
        return set()
    return {*SUBWORDS, "card.json", *(f"{name}.jsonl" for name in names)}


def put_in_place(made: Path) -> None:
    """What was made, in the place of what an earlier call made here; splits that this one has not are gone, too."""
    folder = made.parent
    (folder / "card.json").unlink(missing_ok=True)  # a folder without a card is one that is not finished
    for old in [place for place in folder.iterdir() if (place / "store.json").exists() and place != made]:
        shutil.rmtree(old)
        (folder / f"{old.name}.jsonl").unlink(missing_ok=True)
    for name in SUBWORDS:
        (folder / name).unlink(missing_ok=True)
    for new in sorted(made.iterdir(), key=lambda place: place.name == "card.json"):  # the card last
        new.replace(folder / new.name)
