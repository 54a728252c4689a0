"""The binomial test of the detailed tables."""

from scipy.stats import binomtest

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
