"""Tables of several systems: the scores of `evaluate`, in every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.evaluation.bleu import corpus_bleu, corpus_chrf, document_bleu
from dynctx.evaluation.compare import System, Table, compare, parse_system
from dynctx.evaluation.significance import paired_bootstrap

REFERENCES = [
    Document("a", tuple(f"the {word} cat sat on the mat number {k}" for k, word in enumerate("abcdefgh"))),
    Document("b", tuple(f"a {word} dog ran in the park number {k}" for k, word in enumerate("ijklmnop"))),
]
LINES = [sentence for document in REFERENCES for sentence in document.sentences]
WORSE = [line.replace("cat sat", "cat stood").replace("dog ran", "dog went") for line in LINES]


def table() -> Table:
    systems = [System("base", WORSE), System("best_one", list(LINES)), System("same", WORSE)]
    return compare(systems, REFERENCES, "base", "en", samples=200)


def test_scores_and_comparisons_are_those_of_the_metrics() -> None:
    found = table()
    assert found.names == ["BLEU", "chrF", "document BLEU"]
    base, best, same = found.rows
    bleu = corpus_bleu(WORSE, [LINES])
    assert base.scores[0].value == bleu.value
    assert base.scores[1].value == corpus_chrf(WORSE, [LINES]).value
    split = [[WORSE[:8], WORSE[8:]], [LINES[:8], LINES[8:]]]
    assert base.scores[2].value == document_bleu(split[0], [split[1]]).value
    assert base.against == ()
    assert best.against[0] == paired_bootstrap(corpus_bleu(LINES, [LINES]), bleu, samples=200)
    assert best.against[0].p_value < 0.05
    assert same.against[0].delta == 0 and same.against[0].p_value == 1
    assert best.against[2].units == 2 and best.against[2].p_value >= 0.5  # two documents prove nothing


def test_text() -> None:
    lines = table().to_text().splitlines()
    base, best, same = (line.split() for line in lines[1:4])
    value = f"{corpus_bleu(WORSE, [LINES]).value:.2f}"
    gain = 100 - corpus_bleu(WORSE, [LINES]).value
    assert base[:2] == ["base", value]
    assert best[:3] == ["best_one", "100.00*", f"({gain:+.2f})"]
    assert same[:3] == ["same", value, "(+0.00)"]
    assert lines[4].startswith("16 sentences in 2 documents.") and "200 resamples" in lines[4]
    assert lines[5].startswith("BLEU: nrefs:1|case:mixed")


def test_markdown() -> None:
    lines = table().to_markdown().splitlines()
    assert lines[0] == "| system | BLEU | chrF | document BLEU |"
    assert lines[1] == "| --- | ---: | ---: | ---: |"
    assert lines[3].startswith(r"| best_one | 100.00\* (+")
    assert all(line.count(" | ") == 3 for line in lines[:5])


def test_latex() -> None:
    lines = table().to_latex().splitlines()
    assert lines[0] == r"\begin{tabular}{lrrr}" and lines[1] == r"\toprule" and lines[3] == r"\midrule"
    assert lines[5].startswith(r"best\_one & 100.00$^{*}$ (+") and lines[5].endswith(r"\\")
    assert lines[7:9] == [r"\bottomrule", r"\end{tabular}"]
    assert all(line.startswith("%") for line in lines[9:])


def test_json() -> None:
    content = json.loads(table().to("json"))
    assert content["baseline"] == "base" and content["sentences"] == 16
    assert [system["name"] for system in content["systems"]] == ["base", "best_one", "same"]
    assert content["systems"][1]["scores"]["BLEU"] == pytest.approx(100)
    assert content["systems"][1]["against"][0]["p_value"] < 0.05


def test_mistakes() -> None:
    with pytest.raises(DynctxError, match="two systems have one name"):
        compare([System("a", LINES), System("a", LINES)], REFERENCES, "a", "en")
    with pytest.raises(DynctxError, match="baseline 'b' is not among the systems: a"):
        compare([System("a", LINES)], REFERENCES, "b", "en")
    with pytest.raises(DynctxError, match="a: 3 translations for 16 references"):
        compare([System("a", LINES[:3])], REFERENCES, "a", "en")
    with pytest.raises(DynctxError, match="format 'word': expected text"):
        table().to("word")


def test_systems_by_name(tmp_path: Path) -> None:
    file, folder = tmp_path / "out=1.txt", tmp_path / "model"
    file.write_text("x")
    folder.mkdir()
    assert parse_system(str(file)) == (str(file), file, None)  # a file with "=" in its name
    assert parse_system(f"mine={file}") == ("mine", file, None)
    assert parse_system(f"mine={folder}@previous 2") == ("mine", folder, "previous 2")
    assert parse_system(f"{folder}@full") == (f"{folder}@full", folder, "full")
    with pytest.raises(DynctxError, match="no such file of translations or model folder"):
        parse_system(str(tmp_path / "nothing"))
