"""Bootstrap over data sets and runs: `resample`, a statistic of each resample, then `percentile_interval`.

Scores are arrays (methods, seeds, data sets) as in `results.Scores`, NaN where a run is missing.
"""

import numpy as np

from pvera.errors import InputError

RESAMPLES = 10_000


def resample(scores: np.ndarray, rng: np.random.Generator, count: int = RESAMPLES) -> np.ndarray:
    """Hierarchical resamples (count, methods, seeds, data sets) of scores (methods, seeds, data sets).

    First the data sets are drawn with replacement, the same for all methods, so that methods stay paired on
    each; then, within each drawn data set and for each method on its own, as many runs as it has (those of
    one seed have nothing in common that would pair methods). An interval over these says what other data sets
    like these, and other seeds, could give; for other seeds alone see `intervals.seed_error`.

    Two caveats. n data sets resampled have (n − 1)/n of the variance that they estimate, two thirds for
    three, so intervals from few are too narrow. And those of a benchmark were not drawn by chance, so they
    stand for others only as far as their choice does. InputError where a method has no run of a data set.
    """
    scores = _checked(scores)
    methods, seeds, width = scores.shape
    missing = np.isnan(scores)
    present_first = np.take_along_axis(scores, missing.argsort(axis=1, kind="stable"), 1)
    chosen = rng.integers(width, size=(count, width))
    runs = (~missing).sum(1)[:, chosen].swapaxes(0, 1)[:, :, None]  # (count, methods, 1, data sets)
    drawn = (rng.random((count, methods, seeds, width)) * runs).astype(np.int64)
    found = present_first[np.arange(methods)[:, None, None], drawn, chosen[:, None, None]]
    return np.where(np.arange(seeds)[:, None] < runs, found, np.nan)


def averages(scores: np.ndarray) -> np.ndarray:
    """Average over data sets of the mean over runs: (..., methods, seeds, data sets) to (..., methods)."""
    return np.nanmean(scores, axis=-2).mean(-1)


def probability_of_improvement(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """P(x > y) + ½ P(x = y) for a run x of one method and y of another on a data set, averaged over data
    sets.

    Two arrays (..., seeds, data sets) that broadcast together, to (...), as Agarwal et al. (2021) define it.
    All pairs of methods of an array (methods, seeds, data sets): `probability_of_improvement(a[:, None], a)`.
    """
    runs = (~np.isnan(scores)).sum(-2) * (~np.isnan(others)).sum(-2)  # (..., data sets)
    x, y = scores[..., :, None, :], others[..., None, :, :]
    ahead = (x > y).sum((-3, -2)) - (x < y).sum((-3, -2))
    return 0.5 + 0.5 * (ahead / runs).mean(-1)


def percentile_interval(statistic: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Low and high of a statistic (resamples, ...): the percentiles that leave (1 − level)/2 on each side."""
    low, high = np.quantile(statistic, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def _checked(scores) -> np.ndarray:
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 3 or not scores.size:
        raise InputError(f"scores are (methods, seeds, data sets), not {scores.shape}")
    if np.isnan(scores).all(1).any():
        raise InputError("each method needs a run of each data set; leave out data sets that lack one")
    return scores
