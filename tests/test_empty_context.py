"""Empty context: the paper's own tables, kappa, annotation files and sheets."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_models import PAIRS, tiny_model

from dynctx.batches import Gatherer
from dynctx.corpus import TokenStore
from dynctx.documents import Document
from dynctx.errors import DynctxError
from dynctx.evaluation import annotation
from dynctx.evaluation.bleu import corpus_bleu
from dynctx.evaluation.empty_context import (
    Annotation,
    against,
    agreement,
    automatic,
    find,
    kappa,
    read_annotations,
    report,
)
from dynctx.evaluation.split import Split


def lists(both: int, first_only: int, second_only: int, neither: int) -> tuple[list[bool], list[bool]]:
    first = [True] * (both + first_only) + [False] * (second_only + neither)
    second = [True] * both + [False] * first_only + [True] * second_only + [False] * neither
    return first, second


def test_the_papers_prediction() -> None:
    """Table 4 of the appendix gives table 5: 68.46, 51.78, 58.96."""
    found = against(*lists(102, 47, 95, 256))
    assert (found.both, found.wrongly_empty, found.missed, found.neither) == (102, 47, 95, 256)
    percent = [round(100 * value, 2) for value in (found.precision, found.recall, found.f1)]
    assert percent == [68.46, 51.78, 58.96]


def test_the_papers_agreement() -> None:
    """Table 3 of the appendix, 0.72: agreement 429 of 500, and 217 * 248 + 283 * 252 of 500 * 500 by chance."""
    assert kappa(*lists(197, 20, 51, 232)) == pytest.approx((0.858 - 0.500528) / (1 - 0.500528))


def test_kappa_by_hand() -> None:
    """Agreement 0.75, by chance 0.5 * 0.25 + 0.5 * 0.75 = 0.5."""
    assert kappa([True, True, False, False], [True, False, False, False]) == pytest.approx((0.75 - 0.5) / 0.5)
    assert kappa([True, False], [False, True]) == -1.0
    assert kappa([True, True], [True, True]) == 1.0
    with pytest.raises(DynctxError, match="no sentence was annotated by both"):
        kappa([], [])


def test_nothing_predicted_and_nothing_to_predict() -> None:
    nothing = against([False, False], [True, False])
    assert (nothing.precision, nothing.recall, nothing.f1) == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="2 predictions for 1"):
        against([True, True], [True])


# annotation files


def test_annotation_files_round_trip(tmp_path: Path) -> None:
    entries = [Annotation("one", 4, {"a": True, "b": False}), Annotation("two", 2, {"a": True, "b": True})]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(entry.to_line() + "\n" for entry in entries), encoding="utf-8")
    assert read_annotations(path) == entries
    assert [entry.empty for entry in entries] == [False, True]  # where both say so
    names, counts, value = agreement(entries)
    assert names == ("a", "b") and (counts.both, counts.wrongly_empty) == (1, 1) and value == 0.0
    assert find(Split(tiny_model("concat"), PAIRS), entries) == {3: False, 6: True}


@pytest.mark.parametrize("line", ["{", "3", "{}", '{"document": "a", "sentence": 1, "labels": {}}',
                                  '{"document": "a", "sentence": 1, "labels": {"x": 1}}',
                                  '{"document": "a", "sentence": "?", "labels": {"x": true}}'])  # fmt: skip
def test_broken_annotation_files(line: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{Annotation('a', 1, {'x': True}).to_line()}\n{line}\n", encoding="utf-8")
    with pytest.raises(DynctxError, match=r"a\.jsonl:2: expected an object"):
        read_annotations(path)


def test_annotations_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DynctxError, match="no annotation in it"):
        read_annotations(tmp_path / "empty.jsonl")
    with pytest.raises(DynctxError, match="agreement is that of two annotators; the file has 1: a"):
        agreement([Annotation("one", 1, {"a": True})])
    with pytest.raises(DynctxError, match="document 'one', sentence 9: not in this set"):
        find(Split(tiny_model("concat"), PAIRS), [Annotation("one", 9, {"a": True})])


# the automatic label


def test_automatic_labels_by_hand() -> None:
    """Sentence 3 is helped by its first candidate, 4 by its second, 5 by both together alone, and 6 by less than 1."""
    log_probability = {
        3: {"": -9.0, "1": -7.5, "2": -9.0, "12": -9.0},
        4: {"": -9.0, "1": -9.0, "2": -7.5, "12": -9.0},
        5: {"": -9.0, "1": -9.0, "2": -9.0, "12": -7.5},
        6: {"": -9.0, "1": -8.5, "2": -8.0, "12": -9.0},
    }

    def score(given: np.ndarray, sentences: np.ndarray) -> SimpleNamespace:
        names = ["".join(str(place + 1) for place in np.flatnonzero(row)) for row in given]
        return SimpleNamespace(log_probability=np.array([log_probability[s][n] for s, n in zip(sentences, names)]))

    gatherer = Gatherer(TokenStore.from_ids([[([7], [7])] * 7]), 2)
    split = SimpleNamespace(gatherer=gatherer, scorable=np.arange(3, 7), score=score)
    assert automatic(split, 1.0) == {3: False, 4: False, 5: False, 6: True}  # type: ignore[arg-type]


def test_automatic_labels_against_the_scores_themselves() -> None:
    split = Split(tiny_model("tdnmt"), PAIRS)
    margin = 8.0
    found = automatic(split, margin)
    assert sorted(found) == split.scorable.tolist()
    for sentence, empty in found.items():
        count = min(3, split.place(sentence)[1] - 1)
        tries = [np.eye(3, dtype=bool)[k] for k in range(count)] + [np.arange(3) < count] * (count > 0)
        none = split.score(np.zeros((1, 3), bool), np.array([sentence])).log_probability[0]
        gains = [split.score(t[None], np.array([sentence])).log_probability[0] - none for t in tries]
        assert empty == all(gain <= margin for gain in gains)
    assert len(set(found.values())) == 2  # both kinds occur
    assert all(automatic(split, 1e6).values())
    assert all(automatic(Split(tiny_model("sentence"), PAIRS), 0.0).values())


@pytest.mark.parametrize("kind", ["tdnmt", "han"])
def test_only_what_was_annotated_need_be_translated(kind: str) -> None:
    """The same translations of these; a model that reads its own earlier ones makes them all."""
    split = Split(tiny_model(kind), PAIRS)
    full, some = split.model.choose("full"), split.scorable[[3, 7]].tolist()
    made: list[int] = []
    found, everything = split.translate(full, progress=made.append, only=some), split.translate(full)
    assert [found[s] for s in some] == [everything[s] for s in some]
    assert sum(made) == (2 if kind == "tdnmt" else len(split.filled))


def test_report_by_hand() -> None:
    """Sentences 0 and 1 are empty, 3 and 4 not; 0 and 3 are predicted to be."""
    split = Split(tiny_model("concat"), PAIRS)
    predicted = np.zeros(len(split), bool)
    predicted[[0, 3, 7]] = True  # 7 was not annotated
    good = list(split.references)
    bad = ["x"] * len(split)
    found = report(split, {0: True, 1: True, 3: False, 4: False}, "people", predicted, {"good": good, "bad": bad})
    assert (found.sentences, found.empty) == (4, 2)
    assert (found.prediction.both, found.prediction.wrongly_empty) == (1, 1)
    assert (found.prediction.missed, found.prediction.neither) == (1, 1)
    references = [split.references[s] for s in (0, 1)]
    assert found.bleu["good"][0] == pytest.approx(corpus_bleu(references, [references]).value)
    assert found.bleu["bad"] == (0.0, 0.0)
    text = found.to_text()
    assert "precision 50.00, recall 50.00, F1 50.00" in text and "4 sentences, 2 of them need no context" in text
    assert found.alone == 1 and "of those predicted empty 1 have no candidates" in text  # sentence 0
    none = report(split, {0: True}, "people", predicted, {"good": good})
    assert none.bleu["good"][1] is None and none.to_text().endswith("-")


# sheets

LONG = [
    (
        Document("d", tuple(f"source\t{k}" for k in range(1, 9))),
        Document("d", tuple(f"reference {k}" for k in range(1, 9))),
    ),
    (Document("e", ("short", "too")), Document("e", ("kurz", "auch"))),
]


def fill(path: Path, answers: list[str]) -> None:
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    filled = [f"{line}{answer}" for line, answer in zip(lines, answers, strict=True)]
    path.write_text("\n".join([head, *filled]) + "\n", encoding="utf-8")


def cells(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def test_three_blind_steps(tmp_path: Path) -> None:
    sample = annotation.draw(LONG, 3, 6, seed=1)
    sample.save(tmp_path)
    assert sorted(sample.places) == [("d", 7), ("d", 8)]  # only these have six before them
    sample_again = annotation.load_sample(tmp_path)
    assert sample_again == sample
    path, step = annotation.write_next(tmp_path, "ann", LONG, sample)
    assert (path.name, step) == ("ann.step1.tsv", 1)
    head, first, second = cells(path)
    assert head == ["number", "source", "translation"]
    numbers = [place[1] for place in sample.places]
    assert [first, second] == [["1", f"source {numbers[0]}", ""], ["2", f"source {numbers[1]}", ""]]
    assert "reference" not in path.read_text()  # nothing that would give it away

    with pytest.raises(DynctxError, match=r"ann\.step1\.tsv:2: 'translation' of sentence 1 is not filled in yet"):
        annotation.write_next(tmp_path, "ann", LONG, sample)
    fill(path, ["mine one", "mine two"])
    path, step = annotation.write_next(tmp_path, "ann", LONG, sample)
    assert step == 2
    head, first, _ = cells(path)
    assert head == ["number", "source", "translation", "reference", "appropriate"]
    assert first == ["1", f"source {numbers[0]}", "mine one", f"reference {numbers[0]}", ""]
    assert f"source {numbers[0] - 1}" not in " ".join(first)  # still no context

    fill(path, ["yes", "perhaps"])
    with pytest.raises(DynctxError, match="'appropriate' is 'perhaps'; answer yes or no"):
        annotation.write_next(tmp_path, "ann", LONG, sample)
    path.write_text(path.read_text().replace("perhaps", "YES"))
    path, step = annotation.write_next(tmp_path, "ann", LONG, sample)
    assert step == 3
    head, first, _ = cells(path)
    assert head[4:6] == ["source 6 before", "reference 6 before"] and head[-1] == "needs change"
    assert first[4] == f"source {numbers[0] - 6}" and first[-3:-1] == [
        f"source {numbers[0] - 1}",
        f"reference {numbers[0] - 1}",
    ]
    fill(path, ["no", "yes"])
    assert annotation.write_next(tmp_path, "ann", LONG, sample)[1] == 4
    entries = annotation.read_back(tmp_path, ["ann"])
    assert entries == [
        Annotation("d", numbers[0], {"ann": True}),  # appropriate, and needs no change
        Annotation("d", numbers[1], {"ann": False}),
    ]


def test_rows_in_another_order_and_spaces_around(tmp_path: Path) -> None:
    """As a spreadsheet may leave them."""
    sample = annotation.draw(LONG, 2, 6, seed=1)
    path, _ = annotation.write_next(tmp_path, "a", LONG, sample)
    fill(path, ["one", "two"])
    head, first, second = path.read_text().splitlines()
    path.write_text(f"{head}\r\n{second} \r\n\r\n{first}\r\n")
    assert annotation.read_sheet(path, 1, sample) == ["one", "two"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[1:], "the first line should name the columns: number, source, translation"),
        (lambda lines: lines[:2], "sentence 2 is missing"),
        (lambda lines: [*lines, lines[1]], "sentence 1 stands here a second time"),
        (lambda lines: [lines[0], "7\tx\ty", lines[2]], "'7' is no number of a sentence"),
        (lambda lines: [lines[0], "1\tx", lines[2]], "2 columns, expected 3"),
    ],
)
def test_broken_sheets(change: object, message: str, tmp_path: Path) -> None:
    sample = annotation.draw(LONG, 2, 6, seed=1)
    path, _ = annotation.write_next(tmp_path, "a", LONG, sample)
    fill(path, ["one", "two"])
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")  # type: ignore[operator]
    before = path.read_text()
    with pytest.raises(DynctxError, match=message):
        annotation.write_next(tmp_path, "a", LONG, sample)
    assert path.read_text() == before and len(list(tmp_path.iterdir())) == 1


def test_samples(tmp_path: Path) -> None:
    many = [(Document(str(d), tuple(["x"] * 30)), Document(str(d), tuple(["y"] * 30))) for d in range(5)]
    first, again, other = (annotation.draw(many, 40, 6, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len(set(first.places)) == 40 and all(number > 6 for _, number in first.places)
    assert first.places != sorted(first.places)  # no row is the context of the next
    with pytest.raises(DynctxError, match="no document has a sentence with 6 before it"):
        annotation.draw(LONG[1:], 3, 6, 1)
    with pytest.raises(DynctxError, match="both must be at least 1"):
        annotation.draw(LONG, 0, 6, 1)
    with pytest.raises(DynctxError, match="letters, digits"):
        annotation.write_next(tmp_path, "../x", LONG, first)
    with pytest.raises(DynctxError, match=r"no sample\.json here"):
        annotation.read_back(tmp_path, ["a"])
    (tmp_path / "sample.json").write_text(json.dumps({"places": 3}))
    with pytest.raises(DynctxError, match=r"sample\.json: damaged"):
        annotation.load_sample(tmp_path)
