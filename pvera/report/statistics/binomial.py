"""The binomial test of the detailed tables, and what is left of many tests after correction."""

import numpy as np
from scipy.stats import binomtest
from statsmodels.stats.multitest import multipletests

from pvera.errors import InputError

LEVEL = 0.05


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


def corrected(p_values: np.ndarray, method: str = "holm") -> np.ndarray:
    """p-values corrected for their number, of the same shape; compare them with the level as before.

    method: "holm" holds the probability of any false finding, "fdr_bh" (Benjamini and Hochberg) the expected
    share of false ones among the findings. NaN stands for no test: it stays, and is not counted. InputError
    for another method, or numbers outside [0, 1].
    """
    p_values = np.asarray(p_values, np.float64)
    if method not in ("holm", "fdr_bh"):
        raise InputError(f"correction {method!r} is none of 'holm', 'fdr_bh'")
    tested = ~np.isnan(p_values)
    if not ((p_values[tested] >= 0) & (p_values[tested] <= 1)).all():
        raise InputError("p-values lie between 0 and 1")
    found = np.full(p_values.shape, np.nan)
    if tested.any():
        found[tested] = multipletests(p_values[tested], method=method)[1]
    return found
