"""The page of a table: its lines, its means, and what stands below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dynctx.table_pages import markdown, means, translated_with
from dynctx.tables import TableConfig, load_table

TABLE: dict[str, Any] = {
    "title": "By hand",
    "config": "mine.yaml",
    "test": "news",
    "beam": 4,
    "seeds": [1, 2, 3],
    "runs": {"a": {}},
    "rows": [
        {"name": "first", "run": "a"},
        {"name": "third", "run": "a"},
        {"name": "second", "run": "a", "control": "first", "others": ["third"], "paper": 20.34},
    ],
}
HEAD = "| row | seed | BLEU | chrF | against its control | selected | none | updates | paper |"


@pytest.fixture
def table(tmp_path: Path) -> TableConfig:
    place = tmp_path / "table.yaml"
    (tmp_path / "mine.yaml").touch()
    place.write_text(yaml.safe_dump(TABLE), encoding="utf-8")
    return load_table(place)


def record(name: str, seed: int, bleu: float, chrf: float, *against: tuple[str, float, float]) -> dict[str, Any]:
    return {
        **{"row": name, "seed": seed, "selected": 0.5 * seed, "empty": 0.1 * seed, "torch": "2.13.0+cpu"},
        **{"model": {"updates": 100 * seed, "run_updates": 100 * seed}, "scores": {"BLEU": bleu, "chrF": chrf}},
        "signatures": {"BLEU": "b", "chrF": "c"},
        "against": [{"row": control, "delta": delta, "p": p} for control, delta, p in against],
    }


def results(*records: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{found['row']} / {found['seed']}": found for found in records}


def test_one_seed_has_no_mean(table: TableConfig) -> None:
    found = results(record("first", 2, 20, 40), record("second", 2, 21, 41, ("first", 1.0, 0.03), ("third", -0.5, 0.4)))
    assert means(table, found) == {}
    page = markdown(table, "dynctx reproduce x", found)
    assert page == (
        f"# By hand\n\n    dynctx reproduce x\n\n{HEAD}\n|{'---|' * 9}\n"
        "| first | 2 | 20.00 | 40.00 |  | 1.00 | 20.0% | 200 |  |\n"
        "| second | 2 | 21.00 | 41.00 | +1.00 (p = 0.030, first); -0.50 (p = 0.400, third) | 1.00 | 20.0% | 200 "
        "| 20.34 |\n\n"
        "Test set: news, beam 4. Translated with torch 2.13.0+cpu (CPU, float32).\n\n* BLEU: `b`\n* chrF: `c`\n"
    )


def test_means_by_hand(table: TableConfig) -> None:
    found = results(
        record("first", 1, 20, 40),
        record("first", 2, 21, 44),
        record("first", 3, 25, 42),
        record("third", 2, 1, 1),
        record("second", 1, 21.5, 40, ("first", 1.5, 0.001), ("third", 1.0, 0.04)),
        record("second", 3, 24.5, 40, ("first", -0.5, 0.05), ("third", 2.0, 0.01)),
        {key: value for key, value in record("second", 2, 0, 0).items() if key != "scores"},  # not scored yet
    )
    assert means(table, found) == {
        "first": {
            "seeds": [1, 2, 3],
            "scores": {
                "BLEU": {"mean": 22.0, "lowest": 20, "highest": 25},
                "chrF": {"mean": 42.0, "lowest": 40, "highest": 44},
            },
            **{"against": [], "selected": 1.0, "empty": 0.2},
        },
        "second": {
            "seeds": [1, 3],
            "scores": {
                "BLEU": {"mean": 23.0, "lowest": 21.5, "highest": 24.5},
                "chrF": {"mean": 40.0, "lowest": 40, "highest": 40},
            },
            "against": [
                {"row": "first", "delta": 0.5, "seeds": 2, "significant": 1},
                {"row": "third", "delta": 1.5, "seeds": 2, "significant": 2},
            ],
            **{"selected": 1.0, "empty": 0.2},
        },
    }
    lines = [line for line in markdown(table, "x", found).splitlines() if line.startswith("| ")][1:]
    assert [line.split(" | ")[:2] for line in lines] == [
        *(["| first", "1"], ["| first", "2"], ["| first", "3"], ["| first", "mean of 3"], ["| third", "2"]),
        *(["| second", "1"], ["| second", "3"], ["| second", "mean of 2"]),
    ]
    assert lines[3] == (
        "| first | mean of 3 | 22.00 (20.00 to 25.00) | 42.00 (40.00 to 44.00) |  | 1.00 | 20.0% |  |  |"
    )
    assert "| +0.50 (p < 0.05 in 1 of 2, first); +1.50 (p < 0.05 in 2 of 2, third) |" in lines[-1]
    assert lines[-1].endswith("| 20.34 |")
    assert "Means: in brackets the lowest and the highest of the seeds" in markdown(table, "x", found)


def test_how_long_runs_were_trained(table: TableConfig) -> None:
    """The model that is kept may be an earlier one; what is older than the record of a run's length is said to be."""

    def lines(*models: dict[str, int]) -> tuple[list[str], str]:
        records = [record(row.name, 2, 20, 40) | {"model": model} for row, model in zip(table.rows, models)]
        page = markdown(table, "x", results(*records)).splitlines()
        cells = [line.split(" | ")[7] for line in page if line.startswith("| ")][1:]
        return cells, "".join(line for line in page if line.startswith("Updates: "))

    whole, short, old = {"updates": 5, "run_updates": 5}, {"updates": 3, "run_updates": 5}, {"updates": 4}
    assert lines(whole, whole) == (["5", "5"], "")
    best = "Updates: of the run, in brackets of the model that was kept, the best by its score on dev"
    assert lines(whole, short) == (["5", "5 (best 3)"], f"{best}.")
    kept = "of the model that was kept"
    assert lines(old, old) == (["4", "4"], f"Updates: {kept}; the run may have been longer.")
    assert lines(short, old) == (["5 (best 3)", "4"], f"{best}; {kept} for 'third'; the run may have been longer.")


def test_which_rows_were_translated_where() -> None:
    gpu, cpu = {"torch": "2.11.0+cu130"}, {"torch": "2.13.0+cpu", "device": "CPU, float32"}
    assert (
        translated_with([{"row": "a", **cpu}, {"row": "b", **cpu}])
        == "Translated with torch 2.13.0+cpu (CPU, float32)."
    )
    assert translated_with([{"row": "a", **cpu}, {"row": "b", **gpu}, {"row": "b", **gpu}]) == (
        "Translated with torch 2.13.0+cpu (CPU, float32): 'a'; torch 2.11.0+cu130 (CUDA, bfloat16): 'b'."
    )
