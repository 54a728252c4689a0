"""Bootstrap over data sets: `resample`, a statistic of each resample, then `percentile_interval`.

Scores are arrays (methods, seeds, data sets) as of `report.scores.cube`, NaN where a run is missing.
"""

import numpy as np
from scipy.stats import norm, t

from pvera.errors import InputError

RESAMPLES = 10_000


def resample(scores: np.ndarray, rng: np.random.Generator, count: int = RESAMPLES) -> np.ndarray:
    """Draw resamples (count, methods, seeds, data sets) of scores (methods, seeds, data sets).

    Data sets are drawn with replacement, the same for all methods, so that methods stay paired on each; all runs on a
    data set come with it. The spread of the data sets' means already holds that of their seeds: drawing runs as well
    would count it twice (Davison and Hinkley, 1997, Section 3.8), and three of three runs with two thirds of their
    variance. An interval over these resamples covers other data sets, and other seeds as far as their noise differs
    from data set to data set; for other seeds alone see `intervals.seed_error`. The data sets of a benchmark are a
    choice, not a random sample.

    InputError where a method has no run on a data set.
    """
    scores = _checked(scores)
    width = scores.shape[2]
    return np.moveaxis(scores[:, :, rng.integers(width, size=(count, width))], 2, 0)


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


def percentile_interval(
    statistic: np.ndarray, estimate: np.ndarray, units: int, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Return the percentiles of a statistic (resamples, ...) that leave (1 − level)/2 on each side, widened.

    estimate: (...), the statistic of the sample itself. units: how many units n were resampled. A bootstrap of n units
    gives (n − 1)/n of the variance of a mean, and knows nothing of the doubt in that variance. So the distances from
    the estimate are multiplied by √(n / (n − 1)) · t / z, the quantiles of Student's t with n − 1 degrees of freedom
    and of the normal distribution, as the expanded percentiles of Hesterberg (2015) are for normal data. NaN for one
    unit.
    """
    estimate = np.asarray(estimate, np.float64)
    if units < 2:
        return np.full_like(estimate, np.nan), np.full_like(estimate, np.nan)
    tail = (1 - level) / 2
    low, high = np.quantile(statistic, [tail, 1 - tail], axis=0)
    wider = np.sqrt(units / (units - 1)) * t.ppf(tail, units - 1) / norm.ppf(tail)
    return estimate + wider * (low - estimate), estimate + wider * (high - estimate)


def _checked(scores) -> np.ndarray:
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 3 or not scores.size:
        raise InputError(f"scores must be a non-empty array (methods, seeds, data sets), not {scores.shape}")
    if np.isnan(scores).all(1).any():
        raise InputError("every method needs a run on every data set; leave out the data sets that lack one")
    return scores
