"""Contrastive accuracy: decisions and tables by hand, and scores of candidates in their context."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tiny_models import tiny_model

from dynctx.documents import Document
from dynctx.evaluation.contrastive import (
    Reads,
    Result,
    accuracies,
    ceiling,
    decide,
    lay_out,
    remarks,
    to_text,
    undecidable,
    what_it_reads,
)
from dynctx.evaluation.contrastive_sets import Item
from dynctx.evaluation.selection_accuracy import selection_accuracy
from dynctx.evaluation.selection_accuracy import to_text as selection_text
from dynctx.evaluation.split import Split
from dynctx.selection.strategies import parse_selector

EMPTY = ((), ())


def item(
    true: int = 0, distance: int | None = None, phenomenon: str = "p", kind: str = "", candidates: int = 2
) -> Item:
    names = tuple(f"c{number}" for number in range(candidates))
    context = ("z3", "z2", "z1")
    return Item(context, "x", (context,) * candidates, names, true, distance, phenomenon, kind)


def result(scores: tuple[float, ...], selected: tuple[int, ...] = (), **fields: object) -> Result:
    return Result(item(candidates=len(scores), **fields), scores, selected)  # type: ignore[arg-type]


# decisions


def test_right_only_if_strictly_best() -> None:
    best, tied, worse = result((-1.0, -2.0, -3.0)), result((-1.0, -1.0)), result((-2.0, -1.0))
    assert [(r.right, r.tie) for r in (best, tied, worse)] == [(True, False), (False, True), (False, False)]
    last = result((-2.0, -1.0), true=1)
    assert last.right and not last.tie
    among_others = result((-1.0, -2.0, -2.0))
    assert among_others.right and not among_others.tie  # only the truth can tie


def test_accuracy_by_phenomenon_distance_and_kind() -> None:
    results = [
        result((-1.0, -2.0), distance=1, kind="he"),
        result((-2.0, -1.0), distance=2, kind="he"),
        result((-1.0, -1.0), distance=2, kind="she"),
        result((-1.0, -2.0, -3.0, -4.0), distance=2, kind="she"),
        result((-1.0, -2.0), phenomenon="q"),
    ]
    rows = {(row.phenomenon, row.part): row for row in accuracies(results)}
    assert list(rows) == [("p", ""), ("p", "distance 1"), ("p", "distance 2"), ("p", "he"), ("p", "she"), ("q", "")]
    assert [row.items for row in rows.values()] == [4, 1, 3, 2, 2, 1]
    assert [row.right for row in rows.values()] == pytest.approx([0.5, 1.0, 1 / 3, 0.5, 0.5, 1.0])
    assert [row.ties for row in rows.values()] == [1, 0, 1, 0, 1, 0]
    assert rows["p", ""].chance == pytest.approx((0.5 + 0.5 + 0.5 + 0.25) / 4)
    low, high = rows["p", ""].interval
    assert low == 0.0 and high == 1.0  # four coin throws say little
    assert rows["q", ""].interval == (1.0, 1.0)
    text = to_text(list(rows.values()), ["a remark"])
    assert "  distance 2      3      33.3" in text and text.endswith("a remark")


# what cannot be known

PAIR = [
    Item(("s",), "x", (("du",), ("du",)), ("a", "b"), 0, 1, "deixis"),
    Item(("s",), "x", (("Sie",), ("Sie",)), ("b", "a"), 0, 1, "deixis"),
]


def test_ceiling() -> None:
    """The pair differs in the target context alone: whoever does not read that has one of the two."""
    assert ceiling(PAIR, False, False) == ceiling(PAIR, True, False) == 0.5
    assert ceiling(PAIR, True, True) == ceiling(PAIR, False, True) == 1.0
    other = dataclasses.replace(PAIR[1], source_context=("t",))
    assert ceiling([PAIR[0], other], False, False) == 0.5
    assert ceiling([PAIR[0], other], True, False) == 1.0
    assert ceiling([PAIR[0], PAIR[0], PAIR[1]], True, False) == pytest.approx(2 / 3)


def test_a_truth_that_stands_there_twice() -> None:
    twice = dataclasses.replace(PAIR[0], candidates=("a", "a"))
    assert undecidable(twice) and not undecidable(PAIR[0])
    assert ceiling([twice, PAIR[0]], True, True) == 0.5
    differ = dataclasses.replace(twice, target_contexts=(("du",), ("Sie",)))
    assert not undecidable(differ)  # the same words after another context


def test_remarks_say_when_a_model_sits_at_chance() -> None:
    results = [Result(item, (-1.0, -2.0), (1,)) for item in PAIR]
    (line,) = remarks(results, Reads(source=True, target=False))
    assert line == (
        "deixis: here the model reads source context, and items that look the same to it differ in their truth, "
        "so it cannot have more than 50.0 %, which is chance"
    )
    assert remarks(results, Reads(source=True, target=True)) == []
    unread = [dataclasses.replace(result, selected=()) for result in results]
    (line,) = remarks(unread, Reads(source=True, target=True))  # nothing was selected
    assert "reads no context" in line and "chance" in line


def test_remarks_on_files_without_context_and_double_truths() -> None:
    bare = Item((), "x", EMPTY, ("a", "b"), 0, None, "bare")
    twice = Item((), "x", EMPTY, ("a", "a"), 0, None, "bare")
    lines = remarks([Result(bare, (-1.0, -2.0), ()), Result(twice, (-1.0, -1.0), ())], Reads(False, False))
    assert lines == [
        "bare: in 1 items the true candidate stands twice, so no model can have them right; "
        "they are ties, save where a third candidate is likelier",
        "bare: the file holds no context, so every model is scored without",
    ]


# scores

CONTEXT = ("the cat sat", "a dog ran")
ITEMS = [
    Item(CONTEXT, "it rains", (("on the mat", "in the park"),) * 2, ("today", "again"), 0, 1, "p"),
    Item(CONTEXT, "it rains", (("on the mat", "in the park"),) * 3, ("today", "a house", "today"), 2, 2, "p"),
    Item((), "we saw", EMPTY, ("a small house", "the park"), 1, None, "q"),
]


@pytest.mark.parametrize("kind", ["sentence", "concat", "tdnmt"])
@pytest.mark.parametrize("selector", ["none", "previous 1", "full"])
def test_a_candidate_is_scored_as_the_last_sentence_of_its_document(kind: str, selector: str) -> None:
    model = tiny_model(kind)
    chosen = parse_selector(selector, 1)
    results = decide(model, ITEMS, chosen)
    for found in results:
        for context, candidate, score in zip(found.item.target_contexts, found.item.candidates, found.scores):
            pair = (
                Document("x", (*found.item.source_context, found.item.source)),
                Document("x", (*context, candidate)),
            )
            split = Split(model, [pair])
            expected = split.score(split.select(chosen)).log_probability[-1]
            assert score == pytest.approx(expected, rel=1e-5)
    read = {"none": (), "previous 1": (1,), "full": (1, 2)}[selector] if kind != "sentence" else ()
    assert [found.selected for found in results] == [read, read, ()]


def test_the_same_candidate_twice_is_a_tie_to_the_last_bit() -> None:
    first, second, _ = decide(tiny_model("tdnmt"), ITEMS, parse_selector("full", 1))
    assert second.scores[0] == second.scores[2] == first.scores[0]
    assert second.tie == (second.scores[0] >= second.scores[1]) and not second.right


def test_what_is_the_same_is_laid_out_once() -> None:
    laid = lay_out(tiny_model("concat"), ITEMS)
    assert laid.document == [[0, 1], [0, 2, 0], [3, 4]]
    assert laid.last.tolist() == [2, 5, 8, 9, 10]


def test_what_a_model_does_not_read_is_not_told_apart() -> None:
    """The pair differs in its target context, and in its source context only where nobody selects."""
    texts = ("on the mat", "in the park")
    first = Item(("the cat sat", "a dog ran"), "it rains", (texts,) * 2, ("today", "again"), 0, 1, "p")
    other = dataclasses.replace(first, target_contexts=(("a house", "again"),) * 2, candidates=("again", "today"))
    assert lay_out(tiny_model("concat"), [first, other]).document == [[0, 1], [1, 0]]
    assert lay_out(tiny_model("cadec"), [first, other]).document == [[0, 1], [2, 3]]
    far = dataclasses.replace(other, source_context=("we saw", "a dog ran"))
    assert lay_out(tiny_model("concat"), [first, far]).document == [[0, 1], [2, 3]]
    assert lay_out(tiny_model("sentence"), [first, far]).document == [[0, 1], [1, 0]]


@pytest.mark.parametrize(("selector", "scored"), [("none", 2), ("previous 1", 2), ("full", 4)])
def test_equal_inputs_are_scored_once(selector: str, scored: int) -> None:
    """The source contexts differ two sentences back: scored as one where that sentence is not selected."""
    first = ITEMS[0]
    far = dataclasses.replace(first, source_context=("we saw", CONTEXT[1]))
    counted: list[int] = []
    results = decide(tiny_model("concat"), [first, far], parse_selector(selector, 1), counted.append)
    assert sum(counted) == scored
    assert (results[0].scores == results[1].scores) == (scored == 2)


def test_items_that_look_the_same_share_a_random_draw() -> None:
    """Else a draw could tell them apart, and an accuracy could lie above its ceiling."""
    turned = [dataclasses.replace(ITEMS[0], source=f"it rains {k}") for k in range(8)]
    both = [dataclasses.replace(i, candidates=c) for i in turned for c in (("today", "again"), ("again", "today"))]
    results = decide(tiny_model("concat"), both, parse_selector("random 1", 1))
    assert {found.selected for found in results} == {(1,), (2,)}
    for one, two in zip(results[::2], results[1::2]):
        assert one.selected == two.selected and one.scores == two.scores[::-1]


def test_candidates_share_the_selection_of_their_item() -> None:
    """Even a random one: else a difference of contexts would decide."""
    many = [dataclasses.replace(ITEMS[0], candidates=("today", "again"), source=f"it rains {k}") for k in range(8)]
    results = decide(tiny_model("concat"), many, parse_selector("random 1", 1))
    assert {found.selected for found in results} == {(1,), (2,)}


def test_what_a_model_reads() -> None:
    assert what_it_reads(tiny_model("sentence")) == Reads(False, False)
    assert what_it_reads(tiny_model("concat")) == Reads(True, False)
    assert what_it_reads(tiny_model("tdnmt")) == Reads(True, False)


# selection accuracy


def test_selection_accuracy_by_hand() -> None:
    """Distances 1, 1, 3 of three candidates; selected {1}, {1, 2}, nothing."""
    results = [
        result((-1.0, -2.0), (1,), distance=1),
        result((-1.0, -2.0), (1, 2), distance=1),
        result((-1.0, -2.0), (), distance=3),
        result((-1.0, -2.0), (1,)),  # not marked: left out
        result((-1.0, -2.0), (1,), distance=0),  # decided inside the sentence: left out
    ]
    rows = {row.selector: row for row in selection_accuracy(results, scope=6, name="own")}
    figures = {name: (row.items, row.exact, row.contains, row.size) for name, row in rows.items()}
    third = 1 / 3
    assert figures["own"] == pytest.approx((3, third, 2 * third, 1.0))
    assert figures["previous 1"] == pytest.approx((3, 2 * third, 2 * third, 1.0))
    assert figures["all"] == pytest.approx((3, 0.0, 1.0, 3.0))
    assert figures["random 1"] == pytest.approx((3, third, third, 1.0))
    # sizes 1, 2, 0: contains 1/3, 2/3 and 0; exact only with one drawn
    assert figures["random, as many as selected"] == pytest.approx((3, third * third, third, 1.0))
    text = selection_text(list(rows.values()))
    assert "  previous 1                       3   66.7      66.7       1.00" in text


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("previous 1", ["all", "random 1", "random, as many as selected"]),
        ("full", ["previous 1", "random 1", "random, as many as selected"]),
        ("random 1", ["previous 1", "all", "random, as many as selected"]),
        ("previous 2", ["previous 1", "all", "random 1", "random, as many as selected"]),
    ],
)
def test_a_rule_does_not_stand_beside_itself(name: str, left: list[str]) -> None:
    rows = selection_accuracy([result((-1.0, -2.0), (1,), distance=1)], 3, name)
    assert [row.selector for row in rows] == [name, *left]


def test_selection_accuracy_of_a_scope_that_is_too_small() -> None:
    """Two candidates of three in reach: nobody can select the third."""
    rows = {row.selector: row for row in selection_accuracy([result((-1.0, -2.0), (1,), distance=3)], 2, "own")}
    assert all(row.contains == 0 for row in rows.values())
    one = {row.selector: row for row in selection_accuracy([result((-1.0, -2.0), (1,), distance=1)], 1, "own")}
    assert all(row.exact == row.contains == 1 for row in one.values())


def test_random_is_what_drawing_comes_to() -> None:
    """The expected value is that of the selector `random 1`, drawn often."""
    many = [
        dataclasses.replace(ITEMS[0], source=f"it rains {k}", source_context=(*CONTEXT, "we saw"), distance=2)
        for k in range(400)
    ]
    many = [dataclasses.replace(i, target_contexts=(("a", "b", "c"),) * 2) for i in many]
    results = decide(tiny_model("concat"), many, parse_selector("random 1", 3))
    rows = {row.selector: row for row in selection_accuracy(results, 3, "drawn")}
    assert rows["drawn"].exact == pytest.approx(rows["random 1"].exact, abs=0.08)
    assert rows["random 1"].exact == pytest.approx(1 / 3)
    assert np.isclose(rows["random, as many as selected"].exact, 1 / 3)
