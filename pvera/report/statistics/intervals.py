"""Means, their intervals, and how often intervals hold what they should."""

import warnings

import numpy as np
from scipy.stats import t

from pvera.errors import InputError


def mean_and_std(values: np.ndarray, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sample standard deviation over the runs there are along `axis`; NaN stands for a missing run.

    The standard deviation divides by n − 1 (ddof = 1): three seeds are a sample, and dividing by n would
    understate their spread by 18 %. The paper does not say which it uses. NaN for fewer than two runs.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NaN is the answer where no or one run is left
        return np.nanmean(values, axis), np.nanstd(values, axis, ddof=1)


def seed_error(std: np.ndarray, runs: np.ndarray, level: float = 0.95) -> np.ndarray:
    """Half the width of the interval of an average over data sets: how far other seeds could move it.

    std: (..., data sets), the standard deviation of a single run on each, or √(s² + s'²) for a difference of
    two methods; runs: how many there are, of the same shape or one number. The data sets stay as they are.
    The variance of the average is Σ s²/n over the number of data sets squared; Student's t with
    Satterthwaite's degrees of freedom takes account of the few runs behind each s. NaN where an s is; zero
    where all are zero.
    """
    std, runs = np.broadcast_arrays(np.asarray(std, np.float64), runs)
    variance = std**2 / runs
    total = variance.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):  # without any spread there is no doubt
        freedom = np.where(total > 0, total**2 / (variance**2 / (runs - 1)).sum(-1), 1)
    return np.where(np.isnan(total), np.nan, t.ppf((1 + level) / 2, freedom) * np.sqrt(total)) / std.shape[-1]


def coverage(low: np.ndarray, high: np.ndarray, truth: np.ndarray) -> float:
    """Share of the intervals [low, high] that hold their truth, bounds included.

    The three arrays broadcast together. For `t_interval` the truth is the mean of very many draws, best of
    others than those behind the intervals. InputError for no interval, NaN, or bounds the wrong way round.
    """
    low, high, truth = np.broadcast_arrays(low, high, truth)
    if not low.size or np.isnan([low, high, truth]).any() or (low > high).any():
        raise InputError("coverage needs intervals with low ≤ high, and numbers for the truth")
    return float(((low <= truth) & (truth <= high)).mean())
