"""What is a label and what is not, by hand; which sentences are judged."""

from __future__ import annotations

import numpy as np

from dynctx.config import Config, LabelsConfig, TrainingConfig
from dynctx.corpus import TokenStore
from dynctx.labels.pseudo_labels import (
    Labels,
    judged_sentences,
    statistics,
)

NAN = float("nan")


def test_labels_by_hand() -> None:
    """Better than NON is 1, worse 0, a tie and an absent candidate no label; NON is 1 where none is better."""
    values = np.array(
        [
            [-1.0, -3.0, -2.0, -2.0],  # better, worse, tie
            [-2.5, -2.0, NAN, -2.0],  # worse, tie, absent
            [NAN, NAN, NAN, -2.0],  # the first of a document: there is nothing to choose
            [NAN, NAN, NAN, NAN],  # unfit for training: never judged
        ],
        np.float32,
    )
    labels = Labels.of(values)
    assert labels.value.tolist() == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert labels.counts.tolist() == [
        [True, True, False, True],
        [True, False, False, True],
        [False, False, False, False],
        [False, False, False, False],
    ]


def test_non_between_those_that_help_and_the_others() -> None:
    """1 helps and 2 hurts; nothing helps; a sentence without candidates; one that nobody asked about."""
    values = np.array([[2, 0, 1], [0, 0, 1], [NAN, NAN, 1], [NAN, NAN, NAN]], np.float32)
    labels = Labels.of(values, between=True)
    assert labels.value.tolist() == [[1, 0, 0.5], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert labels.counts.tolist() == Labels.of(values).counts.tolist()
    assert statistics(values, 0.0)["non_wins"] == 1


def test_a_margin_makes_ties() -> None:
    """Gains of 0.25, 0.5, 0.75 and -0.5, -0.75 with a margin of 0.5: at the margin is still a tie."""
    values = np.array([[0.25, 0.5, 0.75, 0.0], [-0.5, -0.75, 0.25, 0.0]], np.float32)
    labels = Labels.of(values, margin=0.5)
    assert labels.value.tolist() == [[0, 0, 1, 0], [0, 0, 0, 1]]
    assert labels.counts.tolist() == [[False, False, True, True], [False, True, False, True]]


def test_statistics_by_hand() -> None:
    values = np.array([[-1.0, -3.0, -2.0], [-2.0, NAN, -2.0], [NAN, NAN, -1.0], [NAN, NAN, NAN]], np.float32)
    assert statistics(values, 0.0) == {
        "sentences": 3,
        "with_candidates": 2,
        "non_wins": 1,
        "by_distance": [
            {"distance": 1, "candidates": 2, "one": 1, "zero": 0, "tied": 1},
            {"distance": 2, "candidates": 1, "one": 0, "zero": 1, "tied": 0},
        ],
    }


def test_which_sentences_are_judged() -> None:
    """Whole documents until there are enough sentences, of those kept from translators; what is unusable never."""
    pairs = [([7], [8])] * 4
    store = TokenStore.from_ids([pairs] * 5)
    store.usable[5] = False
    everyone = [n for n in range(20) if n != 5]
    assert judged_sentences(store, Config()).tolist() == everyone
    kept = TrainingConfig(reserve=0.45)  # 8.55 of 19 sentences: two documents
    of_kept = judged_sentences(store, Config(training=kept)).tolist()
    documents = {n // 4 for n in of_kept}
    assert of_kept == [n for n in everyone if n // 4 in documents] and len(documents) == 2
    for wanted, count in ((1, 1), (99, 2)):
        found = judged_sentences(store, Config(labels=LabelsConfig(sentences=wanted), training=kept)).tolist()
        taken = {n // 4 for n in found}
        assert taken <= documents and len(taken) == count and found == [n for n in everyone if n // 4 in taken]
    of_dev = Config(labels=LabelsConfig(sentences=1, dev_sentences=9), training=kept)  # dev is nobody's to learn from
    found = judged_sentences(store, of_dev, "dev").tolist()
    taken = {n // 4 for n in found}
    assert len(taken) == 3 and found == [n for n in everyone if n // 4 in taken]
    assert judged_sentences(store, Config(labels=LabelsConfig(sentences=1)), "dev").tolist() == everyone


def test_rounding_is_no_gain() -> None:
    """An empty line is the same context as none, and is scored in another row: the last bits may differ."""
    values = np.array([[-100.00001, -99.0, -100.0]], np.float32)
    assert Labels.of(values).counts.tolist() == [[False, True, True]]
