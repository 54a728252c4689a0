"""Rank statistics: they depend on the order of numbers alone, not on their scale."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import friedmanchisquare, mannwhitneyu, rankdata, studentized_range, wilcoxon

from pvera.errors import InputError
from pvera.report.statistics.binomial import LEVEL


@dataclass(frozen=True)
class RankSum:
    """The outcome of `rank_sum` for samples x and y.

    superiority: P(x > y) + ½ P(x = y) of a random pair, the area under the ROC curve; ½ means no effect.
    cliffs_delta: P(x > y) − P(x < y) = 2 · superiority − 1, also called rank-biserial correlation.
    """

    p_value: float
    superiority: float

    @property
    def cliffs_delta(self) -> float:
        return 2 * self.superiority - 1


def rank_sum(x: np.ndarray, y: np.ndarray, alternative: str = "greater") -> RankSum:
    """Return the unpaired Wilcoxon rank-sum (Mann-Whitney) test: does x (n,) tend to be greater than y (m,)?

    alternative: "greater", "less" or "two-sided". The p-value is exact where a sample has at most eight values and
    there are no ties, else it is the normal approximation corrected for ties and continuity (scipy's "auto"). With
    thousands of images tiny effects are significant and p-values underflow to zero: report the effect size too.
    InputError for an empty sample or NaN.
    """
    x, y = (_sample(values, "the rank-sum test") for values in (x, y))
    if alternative not in ("greater", "less", "two-sided"):
        raise InputError(f"alternative {alternative!r} is none of 'greater', 'less', 'two-sided'")
    test = mannwhitneyu(x, y, alternative=alternative)
    return RankSum(float(test.pvalue), float(test.statistic) / (len(x) * len(y)))


def signed_rank(differences: np.ndarray, alternative: str = "greater") -> float:
    """Return the p-value of Wilcoxon's paired signed-rank test: do the differences (n,) tend to be positive?

    One difference per data set, for example between two methods' accuracies. Zeros are dropped. Differences that agree
    to nine decimals are tied (71.4 − 71.1 and 61.6 − 61.3 differ in floating point). The test is exact for small n
    (scipy's "auto"): n data sets give at least 2⁻ⁿ, so four cannot reach 0.05. InputError for no difference or NaN.
    """
    differences = np.round(_sample(differences, "the signed-rank test"), 9)
    differences = differences[differences != 0]
    return float(wilcoxon(differences, alternative=alternative).pvalue) if len(differences) else 1.0


@dataclass(frozen=True)
class Friedman:
    """The outcome of `friedman` for k methods on n data sets.

    ranks: (k,) average ranks, 1 the best. statistic, p_value: of the hypothesis that all methods are alike.
    critical_difference: the least distance of average ranks that Nemenyi's test finds significant; it controls the
    error over all pairs. cliques: the maximal groups of methods without a significant pair, as positions in `ranks`;
    groups, and the members of each, are ordered by average rank.
    """

    ranks: np.ndarray
    statistic: float
    p_value: float
    critical_difference: float
    cliques: tuple[tuple[int, ...], ...]


def friedman(values: np.ndarray, level: float = LEVEL) -> Friedman:
    """Return Friedman's test with Nemenyi's critical difference (Demšar, 2006) on values (methods, data sets).

    The highest value has rank 1. Ties share their mean rank, and the statistic is corrected for them. The p-value (χ²
    with k − 1 degrees of freedom) is rough below ten data sets. It is NaN for two methods, where `signed_rank` is the
    test. InputError for fewer than two methods, no data set, or NaN.
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 2 or len(values) < 2 or not values.size or np.isnan(values).any():
        raise InputError(
            f"Friedman's test needs (methods, data sets), two methods or more, without NaN: {values.shape}"
        )
    k, n = values.shape
    by_dataset = rankdata(-values, axis=0)
    statistic, p_value = np.nan, np.nan
    if (by_dataset == by_dataset[0]).all():
        statistic, p_value = 0.0, 1.0
    elif k > 2:
        statistic, p_value = map(float, friedmanchisquare(*values))
    ranks = by_dataset.mean(1)
    difference = nemenyi_difference(k, n, level)
    return Friedman(ranks, statistic, p_value, difference, _cliques(ranks, difference))


@cache
def nemenyi_difference(methods: int, datasets: int, level: float = LEVEL) -> float:
    """Return Nemenyi's critical difference of average ranks, q √(k (k + 1) / 6n); q: studentized range over √2."""
    q = studentized_range.ppf(1 - level, methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * datasets)))


def _cliques(ranks: np.ndarray, difference: float) -> tuple[tuple[int, ...], ...]:
    order = np.argsort(ranks, kind="stable")
    cliques, end = [], 0
    for start in range(len(order)):
        last = int(np.searchsorted(ranks[order], ranks[order[start]] + difference))  # the first that is too far away
        if last > max(end, start + 1):  # else it is part of the group before, or alone
            cliques.append(tuple(order[start:last].tolist()))
        end = max(end, last)
    return tuple(cliques)


def _sample(values, test: str) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not values.size or np.isnan(values).any():
        raise InputError(f"{test} needs a list of numbers without NaN, not an array of shape {values.shape}")
    return values
