"""A table of results as a page: a line for each row and seed, and for rows of several seeds a line of means.

Records are those that `dynctx.reproduce` keeps, by "name / seed". Means are worked out anew from them whenever the
results are written, so they never disagree with the lines above them.
"""

from __future__ import annotations

from typing import Any

from dynctx.tables import TableConfig, TableRow

Record = dict[str, Any]
SIGNIFICANT = 0.05
NOTE = (
    "Means: in brackets the lowest and the highest of the seeds; the difference to a control is the mean of the "
    f"differences of each seed, and it is told in how many seeds p < {SIGNIFICANT:g}."
)


def keyed(name: str, seed: int) -> str:
    return f"{name} / {seed}"


def scored(table: TableConfig, row: TableRow, results: dict[str, Record]) -> list[Record]:
    """The finished records of a row, in the order of its seeds."""
    found = [results.get(keyed(row.name, seed), {}) for seed in row.seeds or table.seeds]
    return [record for record in found if "scores" in record]


def means(table: TableConfig, results: dict[str, Record]) -> dict[str, Record]:
    """Of each row with more than one finished seed, by its name."""
    found = {row.name: scored(table, row, results) for row in table.rows}
    return {name: mean_of(records) for name, records in found.items() if len(records) > 1}


def mean_of(records: list[Record]) -> Record:
    first = records[0]
    return {
        "seeds": [record["seed"] for record in records],
        "scores": {name: spread([record["scores"][name] for record in records]) for name in first["scores"]},
        "against": [
            difference(found["row"], [a for record in records for a in record["against"] if a["row"] == found["row"]])
            for found in first["against"]
        ],
        "selected": mean([record["selected"] for record in records]),
        "empty": mean([record["empty"] for record in records]),
    }


def mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 3)


def spread(values: list[float]) -> Record:
    return {"mean": mean(values), "lowest": min(values), "highest": max(values)}


def difference(control: str, found: list[Record]) -> Record:
    """The difference to one control, over the seeds in which it was compared with."""
    return {
        "row": control,
        "delta": mean([a["delta"] for a in found]),
        "seeds": len(found),
        "significant": sum(a["p"] < SIGNIFICANT for a in found),
    }


def markdown(table: TableConfig, command: str, results: dict[str, Record]) -> str:
    lines = [f"# {table.title}", "", f"    {command}", ""]
    finished = [record for record in results.values() if "scores" in record]
    names = list(finished[0]["scores"]) if finished else []
    lines.append(f"| row | seed | {' | '.join(names)} | against its control | selected | none | updates | paper |")
    lines.append("|" + "---|" * (len(names) + 7))
    averages = means(table, results)
    for row in table.rows:
        paper = "" if row.paper is None else f"{row.paper:.2f}"
        found = [cells(record, names) for record in scored(table, row, results)]
        if row.name in averages:
            found.append(mean_cells(averages[row.name], names))
        lines += [f"| {' | '.join([row.name, *line, paper])} |" for line in found]
    if finished:
        lines += ["", f"Test set: {table.test}, beam {table.beam}. {translated_with(finished)}", ""]
        lines += [NOTE, ""] if averages else []
        lines += [f"Updates: {note}.", ""] if (note := about_updates(finished)) else []
        lines += [f"* {name}: `{signature}`" for name, signature in finished[0]["signatures"].items()]
    return "\n".join(lines) + "\n"


def cells(record: Record, names: list[str]) -> list[str]:
    against = "; ".join(f"{a['delta']:+.2f} (p = {a['p']:.3f}, {a['row']})" for a in record["against"])
    scores = [f"{record['scores'][name]:.2f}" for name in names]
    context = [f"{record['selected']:.2f}", f"{record['empty']:.1%}"]
    return [str(record["seed"]), *scores, against, *context, updates(record)]


def updates(record: Record) -> str:
    """How long the run was trained, and up to where the model that was kept."""
    kept, trained = record["model"]["updates"], record["model"].get("run_updates")
    return str(kept) if trained in (None, kept) else f"{trained} (best {kept})"


def about_updates(records: list[Record]) -> str:
    """What a reader cannot guess of that column."""
    short = [r for r in records if r["model"].get("run_updates") not in (None, r["model"]["updates"])]
    unknown = list(dict.fromkeys(repr(r["row"]) for r in records if r["model"].get("run_updates") is None))
    notes = ["of the run, in brackets of the model that was kept, the best by its score on dev"] if short else []
    if unknown:
        rows = "" if len(unknown) == len({r["row"] for r in records}) else f" for {', '.join(unknown)}"
        notes.append(f"of the model that was kept{rows}; the run may have been longer")
    return "; ".join(notes)


def mean_cells(record: Record, names: list[str]) -> list[str]:
    against = "; ".join(
        f"{a['delta']:+.2f} (p < {SIGNIFICANT:g} in {a['significant']} of {a['seeds']}, {a['row']})"
        for a in record["against"]
    )
    found = [record["scores"][name] for name in names]
    scores = [f"{score['mean']:.2f} ({score['lowest']:.2f} to {score['highest']:.2f})" for score in found]
    context = [f"{record['selected']:.2f}", f"{record['empty']:.1%}"]
    return [f"mean of {len(record['seeds'])}", *scores, against, *context, ""]


def translated_with(records: list[Record]) -> str:
    """Which torch and which kind of device made the translations; where rows differ in it, which rows."""
    rows: dict[str, list[str]] = {}
    for record in records:
        device = record.get("device") or ("CPU, float32" if "+cpu" in record["torch"] else "CUDA, bfloat16")
        names = rows.setdefault(f"torch {record['torch']} ({device})", [])
        if record["row"] not in names:
            names.append(record["row"])
    if len(rows) == 1:
        return f"Translated with {next(iter(rows))}."
    return "Translated with " + "; ".join(f"{key}: {', '.join(map(repr, names))}" for key, names in rows.items()) + "."
