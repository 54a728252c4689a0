"""Bootstrap over data sets and runs: `resample`, a statistic of each resample, then `percentile_interval`.

Scores are arrays (methods, seeds, data sets) as in `report.scores.Scores`, NaN where a run is missing.
"""

import numpy as np

from pvera.errors import InputError

RESAMPLES = 10_000


def resample(scores: np.ndarray, rng: np.random.Generator, count: int = RESAMPLES) -> np.ndarray:
    """Draw hierarchical resamples (count, methods, seeds, data sets) of scores (methods, seeds, data sets).

    First, data sets are drawn with replacement, the same for all methods, so that methods stay paired on each. Then
    each method's runs on each drawn data set are drawn with replacement, as many as it has; methods are independent
    here, because runs of one seed share nothing that would pair them. An interval over these resamples covers other
    data sets and other seeds; for other seeds alone see `intervals.seed_error`.

    Two caveats. Resampling n data sets gives (n − 1)/n of the variance that it estimates (two thirds for three), so
    intervals from few data sets are too narrow. The data sets of a benchmark are a choice, not a random sample.
    InputError where a method has no run on a data set.
    """
    scores = _checked(scores)
    methods, seeds, width = scores.shape
    missing = np.isnan(scores)
    present_first = np.take_along_axis(scores, missing.argsort(axis=1, kind="stable"), 1)
    chosen = rng.integers(width, size=(count, width))
    runs = (~missing).sum(1)[:, chosen].swapaxes(0, 1)[:, :, None]  # (count, methods, 1, data sets)
    drawn = (rng.random((count, methods, seeds, width)) * runs).astype(np.int64)
    resampled = present_first[np.arange(methods)[:, None, None], drawn, chosen[:, None, None]]
    return np.where(np.arange(seeds)[:, None] < runs, resampled, np.nan)


def averages(scores: np.ndarray) -> np.ndarray:
    """Return the mean over data sets of the mean over runs: (..., methods, seeds, data sets) to (..., methods)."""
    return np.nanmean(scores, axis=-2).mean(-1)


def probability_of_improvement(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return P(x > y) + ½ P(x = y) for runs x and y of two methods on a data set, averaged over data sets.

    scores, others: (..., seeds, data sets), which broadcast together; the result is (...). The definition is that of
    Agarwal et al. (2021). For all pairs of methods in an array (methods, seeds, data sets):
    `probability_of_improvement(a[:, None], a)`.
    """
    runs = (~np.isnan(scores)).sum(-2) * (~np.isnan(others)).sum(-2)  # (..., data sets)
    x, y = scores[..., :, None, :], others[..., None, :, :]
    ahead = (x > y).sum((-3, -2)) - (x < y).sum((-3, -2))
    return 0.5 + 0.5 * (ahead / runs).mean(-1)


def percentile_interval(statistic: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return the percentiles of a statistic (resamples, ...) that leave (1 − level)/2 on each side."""
    low, high = np.quantile(statistic, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def _checked(scores) -> np.ndarray:
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 3 or not scores.size:
        raise InputError(f"scores must be a non-empty array (methods, seeds, data sets), not {scores.shape}")
    if np.isnan(scores).all(1).any():
        raise InputError("every method needs a run on every data set; leave out the data sets that lack one")
    return scores
