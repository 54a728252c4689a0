"""Statistics of the benchmark's tables."""

import warnings

import numpy as np
from scipy.stats import binomtest

LEVEL = 0.05


def mean_and_std(values: np.ndarray, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sample standard deviation over the runs there are along `axis`; NaN stands for a missing run.

    The standard deviation divides by n − 1 (ddof = 1): three seeds are a sample, and dividing by n would
    understate their spread by 18 %. The paper does not say which it uses. NaN for fewer than two runs.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NaN is the answer where no or one run is left
        return np.nanmean(values, axis), np.nanstd(values, axis, ddof=1)


def binomial_p_value(correct: int, n: int, reference_correct: int) -> float:
    """One-sided pooled binomial test of the detailed tables: is a method's accuracy below the reference's?

    correct: the method's right answers, pooled over seeds; n: seeds × test images; reference_correct: PVeRA's
    right answers on the same n. The reference accuracy p = reference_correct / n counts as known. The p-value
    is P(X ≤ correct) for X ~ Binomial(n, p).

    At p = 0 nothing is lower (p-value 1); at p = 1 a single error is impossible under the null hypothesis
    (p-value 0). Treating p as known, and the answers of several seeds to one image as independent, makes
    the test readier to find a difference than a two-sample test.
    """
    return float(binomtest(int(correct), int(n), reference_correct / n, alternative="less").pvalue)


def binomial_star(correct: int, n: int, reference_correct: int) -> bool:
    """The star of the detailed tables: significantly below the reference at `LEVEL`."""
    return binomial_p_value(correct, n, reference_correct) < LEVEL
