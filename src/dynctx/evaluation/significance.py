"""Paired bootstrap resampling (Koehn, 2004): is one system better than another, or was it the test set?

The test set is drawn again and again, with replacement, from its own sentences (or documents), and both
systems are scored on each draw. Nothing is counted anew: a `Score` keeps the counts of every sentence, and
the score of a draw is made from their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dynctx.errors import DynctxError
from dynctx.evaluation.bleu import Score

DEFAULT_SAMPLES = 1000
DEFAULT_SEED = 12345  # sacreBLEU's, with which these draws are the same as its own


class Interval(NamedTuple):
    """The middle 95 % of the resampled values."""

    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """A system beside a baseline on the same test set. `p_value` is two-sided."""

    name: str
    system: float
    baseline: float
    delta: float
    p_value: float
    system_interval: Interval
    baseline_interval: Interval
    delta_interval: Interval
    samples: int
    seed: int
    units: int
    signature: str


def paired_bootstrap(
    system: Score, baseline: Score, *, samples: int = DEFAULT_SAMPLES, seed: int = DEFAULT_SEED
) -> Comparison:
    """Compare two scores of the same metric on the same sentences (or documents)."""
    if system.signature != baseline.signature:
        raise DynctxError(
            f"{system.name} ({system.signature}) cannot be compared with "
            f"{baseline.name} ({baseline.signature}): score both translations in the same way"
        )
    units = len(system.counts)
    if len(baseline.counts) != units:
        raise DynctxError(
            f"{system.name}: {units} segments of the system against {len(baseline.counts)} of the baseline: "
            f"score both on the same test set"
        )
    sums = _resampled_sums(np.hstack([system.counts, baseline.counts]), samples, seed)
    width = system.counts.shape[1]
    system_values = np.array([system.from_counts(row) for row in sums[:, :width]])
    baseline_values = np.array([baseline.from_counts(row) for row in sums[:, width:]])
    deltas = system_values - baseline_values
    return Comparison(
        name=system.name,
        system=system.value,
        baseline=baseline.value,
        delta=system.value - baseline.value,
        p_value=_two_sided_p(deltas, units),
        system_interval=_interval(system_values),
        baseline_interval=_interval(baseline_values),
        delta_interval=_interval(deltas),
        samples=samples,
        seed=seed,
        units=units,
        signature=f"{system.signature}|bs:{samples}|seed:{seed}",
    )


def bootstrap_interval(
    values: Sequence[float], *, samples: int = DEFAULT_SAMPLES, seed: int = DEFAULT_SEED
) -> Interval:
    """The 95 % interval of the mean of `values`."""
    if len(values) == 0:
        raise DynctxError("bootstrap: there are no values to resample")
    column = np.asarray(values, dtype=np.float64)[:, None]
    return _interval(_resampled_sums(column, samples, seed)[:, 0] / len(values))


def _resampled_sums(counts: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """The column sums of each draw of `len(counts)` rows.

    One draw at a time: all of them at once would take `samples` times the memory of the test set.
    """
    if samples < 1:
        raise DynctxError(f"bootstrap: {samples} resamples asked for: at least 1 is needed, 1000 are usual")
    if seed < 0:
        raise DynctxError(f"bootstrap: seed {seed} is negative: give 0 or more")
    random = np.random.default_rng(seed)
    sums = np.empty((samples, counts.shape[1]))
    for sample in range(samples):
        times_drawn = np.bincount(random.integers(len(counts), size=len(counts)), minlength=len(counts))
        sums[sample] = times_drawn @ counts
    return sums


def _two_sided_p(deltas: np.ndarray, units: int) -> float:
    """Twice the share of draws in which the worse system wins or ties, the draw observed counted in.

    Koehn asks only whether the system is better; doubling lets either be so. The draws know nothing beyond
    the `units` they are taken from: with a single document all are the same, and p would be tiny. Hence the
    floor: that n differences all point one way has probability 2^(1-n) by chance alone; p claims no less.
    """
    against = min(np.count_nonzero(deltas <= 0), np.count_nonzero(deltas >= 0))
    p = 2 * (1 + against) / (len(deltas) + 1)
    return float(min(1.0, max(p, 2.0 ** (1 - units))))


def _interval(values: np.ndarray) -> Interval:
    ordered = np.sort(values)
    tail = len(ordered) // 40
    return Interval(float(ordered[tail]), float(ordered[len(ordered) - tail - 1]))
