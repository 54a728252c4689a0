"""Means, their intervals, and the coverage of intervals."""

import warnings

import numpy as np
from scipy.stats import t

from pvera.errors import InputError


def mean_and_std(values: np.ndarray, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the sample standard deviation over the runs along `axis`; NaN marks a missing run.

    The standard deviation divides by n − 1 (ddof = 1): three seeds are a sample, and dividing by n would
    understate their spread by 18 %. The paper does not say which it uses. It is NaN for fewer than two runs.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NaN is the result for no run, or the std of one
        return np.nanmean(values, axis), np.nanstd(values, axis, ddof=1)


def seed_error(std: np.ndarray, runs: np.ndarray, level: float = 0.95) -> np.ndarray:
    """Return half the width of the confidence interval of an average over data sets, given other seeds.

    std: (..., data sets), the standard deviation s of a single run on each, or √(s² + s'²) for a difference of two
    methods. runs: the number of runs n, of the same shape or one number. The data sets are fixed. The variance of the
    average over D data sets is Σ (s²/n) / D². Student's t with Satterthwaite's degrees of freedom accounts for the
    few runs behind each s. NaN where an s is NaN; zero where all are zero.
    """
    std, runs = np.broadcast_arrays(np.asarray(std, np.float64), runs)
    variance = std**2 / runs
    total = variance.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):  # zero spread, or one run
        freedom = np.where(total > 0, total**2 / (variance**2 / (runs - 1)).sum(-1), 1)
    return np.where(np.isnan(total), np.nan, t.ppf((1 + level) / 2, freedom) * np.sqrt(total)) / std.shape[-1]


def coverage(low: np.ndarray, high: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of the intervals [low, high] that contain their truth, bounds included.

    The three arrays broadcast together. For `t_interval` the truth is the mean of very many other draws. InputError
    for no interval, NaN, or low > high.
    """
    low, high, truth = np.broadcast_arrays(low, high, truth)
    if not low.size or np.isnan([low, high, truth]).any() or (low > high).any():
        raise InputError("coverage needs intervals with low ≤ high, and numbers for the truth")
    return float(((low <= truth) & (truth <= high)).mean())
