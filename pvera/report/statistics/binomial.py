"""The binomial test of the detailed tables, and corrections of p-values for many tests."""

import numpy as np
from scipy.stats import binomtest
from statsmodels.stats.multitest import multipletests

from pvera.errors import InputError

LEVEL = 0.05


def binomial_p_value(correct: int, n: int, reference_correct: int) -> float:
    """Return the one-sided p-value of the detailed tables: is a method's accuracy below the reference's?

    correct: the method's correct answers, pooled over seeds. n: seeds × test images. reference_correct: PVeRA's
    correct answers on the same n. The p-value is P(X ≤ correct) for X ~ Binomial(n, reference_correct / n).

    A reference of 0 gives p-value 1. A reference of n gives p-value 0 for any error. The test takes the reference
    accuracy as known and the answers of several seeds to one image as independent; both make it anti-conservative.
    """
    return float(binomtest(int(correct), int(n), reference_correct / n, alternative="less").pvalue)


def binomial_star(correct: int, n: int, reference_correct: int) -> bool:
    """Return whether the detailed tables print a star: significantly below the reference at `LEVEL`."""
    return binomial_p_value(correct, n, reference_correct) < LEVEL


def corrected(p_values: np.ndarray, method: str = "holm") -> np.ndarray:
    """Return p-values corrected for their number, of the same shape; compare them with the level as before.

    method: "holm" controls the probability of any false finding, "fdr_bh" (Benjamini and Hochberg) the expected
    share of false findings among all findings. NaN means no test: it stays NaN and is not counted. InputError for
    another method or numbers outside [0, 1].
    """
    p_values = np.asarray(p_values, np.float64)
    if method not in ("holm", "fdr_bh"):
        raise InputError(f"correction {method!r} is none of 'holm', 'fdr_bh'")
    tested = ~np.isnan(p_values)
    if not ((p_values[tested] >= 0) & (p_values[tested] <= 1)).all():
        raise InputError("p-values lie between 0 and 1")
    adjusted = np.full(p_values.shape, np.nan)
    if tested.any():
        adjusted[tested] = multipletests(p_values[tested], method=method)[1]
    return adjusted
