"""What a table of results is: runs that start from one another, and rows that score a run beside a control."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dynctx.config import DecodingConfig
from dynctx.errors import DynctxError, at
from dynctx.plain_data import build, read_yaml


@dataclass
class Run:
    """One training run: settings laid over the table's config, the run it starts from, whose labels it learns from.

    Or no training at all: a model that is there already, to start from or to score, the same for every seed.
    """

    settings: list[str] = field(default_factory=list)
    init: str = ""
    labels: str = ""
    model: str = ""


@dataclass
class TableRow:
    """A line of the table: a run translated with a selector (without one: as it was trained)."""

    name: str
    run: str
    selector: str = ""
    control: str = ""
    others: list[str] = field(default_factory=list)  # further rows to compare with
    paper: float | None = None
    seeds: list[int] = field(default_factory=list)


@dataclass
class TableConfig:
    title: str
    config: str
    test: str
    runs: dict[str, Run]
    rows: list[TableRow]
    folder: str = "runs"
    settings: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=lambda: [1])
    beam: int = 0  # 0: what the config says (decoding.beam)


def compared(row: TableRow) -> list[str]:
    return [name for name in (row.control, *row.others) if name]


def is_scored(record: dict[str, Any], row: TableRow) -> bool:
    """Scored, and compared with just those rows that the table says now."""
    return "scores" in record and [found["row"] for found in record["against"]] == compared(row)


def asked(table: TableConfig, row: TableRow, decoding: DecodingConfig, text: str) -> dict[str, Any]:
    """What a row is of: it stays so, or the rows of a table could not be compared. text: the test set's fingerprint."""
    run = table.runs[row.run]
    search = {name: getattr(decoding, name) for name in ("length_penalty", "max_extra", "sampling", "temperature")}
    return {
        "run": run.model or row.run,
        "test": table.test,
        "text": text,
        "beam": table.beam,
        "asked": row.selector,
        # what the run's settings say now; a model from elsewhere has a selector of its own
        "decoding": {**search, "selector": row.selector or ("" if run.model else decoding.selector)},
    }


def seeds_of(table: TableConfig, row: TableRow) -> set[int]:
    return set(row.seeds or table.seeds)


def load_table(path: Path) -> TableConfig:
    table = build(TableConfig, read_yaml(path), at(path), "")
    table.config = str(find_config(table.config, path))
    if not table.seeds:
        raise DynctxError(f"{at(path)}: seeds is empty; name at least one")
    names = [row.name for row in table.rows]
    for row in table.rows:
        if row.run not in table.runs:
            raise DynctxError(f"{at(path)}: row {row.name!r} names no run of the table: {row.run!r}")
        for control in compared(row):
            if control not in names[: names.index(row.name)]:
                raise DynctxError(f"{at(path)}: row {row.name!r}: its control {control!r} is no row above it")
            if lacking := sorted(seeds_of(table, row) - seeds_of(table, table.rows[names.index(control)])):
                raise DynctxError(
                    f"{at(path)}: row {row.name!r} has seed {lacking[0]}, and its control {control!r} has not"
                )
    for name, run in table.runs.items():
        if run.model and (run.settings or run.init or run.labels):
            raise DynctxError(
                f"{at(path)}: run {name!r} is a model that is there already: nothing else can be set for it"
            )
        for other in (run.init, run.labels):
            if other and other not in list(table.runs)[: list(table.runs).index(name)]:
                raise DynctxError(f"{at(path)}: run {name!r} builds on {other!r}, which is no run above it")
    if len(set(names)) != len(names):
        raise DynctxError(f"{at(path)}: two rows have one name")
    return table


def find_config(config: str, table: Path) -> Path:
    """The config of a table, from the current folder as all paths in it, or else beside the table."""
    for place in (Path(config), table.parent / config):
        if place.exists():
            return place
    raise DynctxError(
        f"{at(table)}: its config {config} is neither in {Path.cwd()} nor in {table.resolve().parent}; call dynctx "
        "from the folder that the paths in the table begin at (for a table of dynctx's own, the repository)"
    )


def chosen_rows(
    table: TableConfig, path: Path, only: tuple[str, ...] = (), seeds: tuple[int, ...] = ()
) -> list[TableRow]:
    """The rows whose names are like one of these, with those of their seeds; all, where none is given."""
    known = {seed for row in table.rows for seed in seeds_of(table, row)}
    if unknown := sorted(set(seeds) - known):
        raise DynctxError(f"{at(path)}: no row has seed {unknown[0]}; there are {', '.join(map(str, sorted(known)))}")
    for pattern in only:
        if not any(fnmatchcase(row.name, pattern) for row in table.rows):
            raise DynctxError(f"{at(path)}: no row has a name like {pattern!r}")
    named = [row for row in table.rows if not only or any(fnmatchcase(row.name, pattern) for pattern in only)]
    wanted = [replace(row, seeds=[s for s in row.seeds or table.seeds if not seeds or s in seeds]) for row in named]
    return [row for row in wanted if row.seeds]
