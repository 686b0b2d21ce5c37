"""The paired bootstrap: p-values and intervals by hand, as sacreBLEU has them, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from noisy_text import random_corpus
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from dynctx.errors import DynctxError
from dynctx.evaluation.bleu import Score, corpus_bleu, corpus_chrf
from dynctx.evaluation.significance import bootstrap_interval, paired_bootstrap


def summed(values: list[float]) -> Score:
    """A score that is the sum of its units."""
    return Score("sum", sum(values), "sum", np.array(values)[:, None], lambda row: float(row[0]))


def test_bootstrap_p_by_hand() -> None:
    # Differences +1, +1, -1. A draw of three is not positive if it holds -1 twice or thrice:
    # 3 * (1/3)^2 * 2/3 + (1/3)^3 = 7/27, and twice that for both sides.
    comparison = paired_bootstrap(summed([2, 2, 0]), summed([1, 1, 1]), samples=5000)
    assert comparison.delta == 1
    assert comparison.p_value == pytest.approx(14 / 27, abs=0.03)
    assert comparison.delta_interval == (-3, 3)
    assert comparison.system_interval == (0, 6)
    assert comparison.baseline_interval == (3, 3)


@pytest.mark.parametrize(("units", "floor"), [(1, 1.0), (2, 0.5), (6, 1 / 32), (30, 2 / 1001)])
def test_p_is_modest_about_few_units(units: int, floor: float) -> None:
    comparison = paired_bootstrap(summed([2] * units), summed([1] * units))
    assert comparison.p_value == pytest.approx(floor)
    assert comparison.units == units


def test_identical_systems_do_not_differ() -> None:
    hypotheses, references = random_corpus(50, noise=0.3)
    score = corpus_bleu(hypotheses, [references])
    comparison = paired_bootstrap(score, score)
    assert comparison.delta == 0
    assert comparison.p_value == 1
    assert comparison.delta_interval == (0, 0)


@pytest.mark.parametrize("metric", [corpus_bleu, corpus_chrf])
def test_better_system_is_significantly_better(metric: Callable[..., Score]) -> None:
    good, references = random_corpus(80, noise=0.2)
    bad = random_corpus(80, noise=0.5)[0]
    better, worse = metric(good, [references]), metric(bad, [references])
    comparison = paired_bootstrap(better, worse, samples=300, seed=3)
    assert comparison.delta == better.value - worse.value > 0
    assert comparison.p_value < 0.05
    assert 0 < comparison.delta_interval.low < comparison.delta < comparison.delta_interval.high
    assert comparison.system_interval.low < better.value < comparison.system_interval.high
    assert comparison.signature == f"{better.signature}|bs:300|seed:3"

    swapped = paired_bootstrap(worse, better, samples=300, seed=3)
    assert swapped.delta == -comparison.delta
    assert swapped.p_value == comparison.p_value
    assert swapped.system_interval == comparison.baseline_interval


def test_bootstrap_is_a_function_of_the_seed() -> None:
    hypotheses, references = random_corpus(40, noise=0.3)
    system, baseline = corpus_bleu(hypotheses, [references]), corpus_bleu(hypotheses[::-1], [references])
    first = paired_bootstrap(system, baseline, samples=50, seed=5)
    assert first == paired_bootstrap(system, baseline, samples=50, seed=5)
    assert first.delta_interval != paired_bootstrap(system, baseline, samples=50, seed=6).delta_interval


def test_bootstrap_agrees_with_sacrebleu() -> None:
    good, references = random_corpus(120, noise=0.30)
    bad = random_corpus(120, noise=0.34)[0]
    metrics = {"BLEU": BLEU(), "chrF2": CHRF()}
    _, theirs = PairedTest([("baseline", bad), ("system", good)], metrics, [references], "bs", n_samples=500)()
    for name, metric in (("BLEU", corpus_bleu), ("chrF2", corpus_chrf)):
        ours = paired_bootstrap(metric(good, [references]), metric(bad, [references]), samples=500)
        baseline, system = theirs[name]
        assert ours.baseline == pytest.approx(baseline.score) and ours.system == pytest.approx(system.score)
        # The same seed draws the same sentences, so the half widths of the intervals are equal.
        for interval, result in ((ours.baseline_interval, baseline), (ours.system_interval, system)):
            assert (interval.high - interval.low) / 2 == pytest.approx(result.ci, rel=1e-6)
        # sacreBLEU counts one tail, and how far draws stray from their mean; near enough for a bell curve.
        assert 0.005 < system.p_value < 0.3
        assert ours.p_value / 2 == pytest.approx(system.p_value, abs=0.02)


def test_bootstrap_refuses_what_cannot_be_compared() -> None:
    system = corpus_bleu(["a b", "c d"], [["a b", "c d"]])
    with pytest.raises(DynctxError, match="score both on the same test set"):
        paired_bootstrap(system, corpus_bleu(["a b"], [["a b"]]))
    with pytest.raises(DynctxError, match="score both translations in the same way"):
        paired_bootstrap(system, corpus_chrf(["a b", "c d"], [["a b", "c d"]]))
    with pytest.raises(DynctxError, match="0 resamples asked for"):
        paired_bootstrap(system, system, samples=0)
    with pytest.raises(DynctxError, match="seed -1 is negative"):
        paired_bootstrap(system, system, seed=-1)


def test_bootstrap_interval_of_a_mean() -> None:
    # The mean of 100 tosses of a coin has a standard deviation of 0.05.
    low, high = bootstrap_interval([0.0, 1.0] * 50, samples=2000)
    assert (low, high) == pytest.approx((0.5 - 1.96 * 0.05, 0.5 + 1.96 * 0.05), abs=0.011)
    assert bootstrap_interval([3.0, 3.0]) == (3.0, 3.0)
    with pytest.raises(DynctxError, match="no values"):
        bootstrap_interval([])
