"""Statistics of the analyses: arrays in, numbers out; scipy, statsmodels and scikit-learn do the tests.

Scores are arrays (methods, seeds, data sets) as of `report.scores.cube`, NaN where a run is missing.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import binomtest, friedmanchisquare, mannwhitneyu, norm, rankdata, studentized_range, t, wilcoxon
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

LEVEL = 0.05  # of tests
CONFIDENCE = 1 - LEVEL  # of intervals


def seed_error(std: np.ndarray, runs: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """Return half the width of the 95 % interval of an average over data sets, given other seeds.

    std: (..., data sets), the standard deviation s of a single run on each, or √(s² + s'²) for a difference of two
    methods. runs: the number of runs n, of the same shape or one number. The data sets are fixed. The variance of the
    average over D data sets is Σ (s²/n) / D². Student's t with Satterthwaite's degrees of freedom accounts for the
    few runs behind each s. level: the error that is allowed. NaN where an s is NaN; zero where all are zero.
    """
    std, runs = np.broadcast_arrays(np.asarray(std, np.float64), runs)
    variance = std**2 / runs
    total = variance.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):  # zero spread, or one run
        freedom = np.where(total > 0, total**2 / (variance**2 / (runs - 1)).sum(-1), 1)
    return np.where(np.isnan(total), np.nan, t.ppf(1 - level / 2, freedom) * np.sqrt(total)) / std.shape[-1]


# The detailed tables' test, and corrections for many tests


def binomial_p_value(correct: int, n: int, reference_correct: int) -> float:
    """Return the one-sided p-value of the detailed tables: is a method's accuracy below the reference's?

    correct: the method's correct answers, pooled over seeds. n: seeds × test images. reference_correct: PVeRA's
    correct answers on the same n. The p-value is P(X ≤ correct) for X ~ Binomial(n, reference_correct / n).

    A reference of 0 gives p-value 1. A reference of n gives p-value 0 for any error. The test takes the reference
    accuracy as known and the answers of several seeds to one image as independent; both make it anti-conservative.
    """
    return float(binomtest(int(correct), int(n), reference_correct / n, alternative="less").pvalue)


def corrected(p_values: np.ndarray, method: str = "holm") -> np.ndarray:
    """Return p-values corrected for their number, of the same shape; compare them with the level as before.

    method: "holm" controls the probability of any false finding, "fdr_bh" (Benjamini and Hochberg) the expected
    share of false findings among all findings. NaN means no test: it stays NaN and is not counted.
    """
    adjusted = np.array(p_values, np.float64)
    tested = ~np.isnan(adjusted)
    if tested.any():
        adjusted[tested] = multipletests(adjusted[tested], method=method)[1]
    return adjusted


# Bootstrap over data sets

SEED, RESAMPLES = 0, 10_000


def resample(scores: np.ndarray) -> np.ndarray:
    """Draw `RESAMPLES` resamples (resamples, methods, seeds, data sets) of scores (methods, seeds, data sets).

    Data sets are drawn with replacement, the same for all methods, so that methods stay paired on each; all runs on a
    data set come with it. The spread of the data sets' means already holds that of their seeds: drawing runs as well
    would count it twice (Davison and Hinkley, 1997, Section 3.8), and three of three runs with two thirds of their
    variance. For other seeds alone see `seed_error`. The data sets of a benchmark are a choice, not a random sample.
    """
    width = scores.shape[2]
    chosen = np.random.default_rng(SEED).integers(width, size=(RESAMPLES, width))
    return np.moveaxis(scores[:, :, chosen], 2, 0)


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


def percentile_interval(statistic: np.ndarray, estimate: np.ndarray, units: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the percentiles of a statistic (resamples, ...) that leave 2.5 % on each side, widened.

    estimate: (...), the statistic of the sample itself. units: how many units n were resampled. A bootstrap of n units
    gives (n − 1)/n of the variance of a mean, and knows nothing of the doubt in that variance. So the distances from
    the estimate are multiplied by √(n / (n − 1)) · t / z, the quantiles of Student's t with n − 1 degrees of freedom
    and of the normal distribution, as the expanded percentiles of Hesterberg (2015) are for normal data. NaN for one
    unit.
    """
    estimate = np.asarray(estimate, np.float64)
    if units < 2:
        return np.full_like(estimate, np.nan), np.full_like(estimate, np.nan)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(statistic, [tail, 1 - tail], axis=0)
    wider = np.sqrt(units / (units - 1)) * t.ppf(tail, units - 1) / norm.ppf(tail)
    return estimate + wider * (low - estimate), estimate + wider * (high - estimate)


def cluster_interval(differences: np.ndarray, units: np.ndarray | None = None) -> tuple[float, float]:
    """Return the interval of a mean over test images by a bootstrap of their units, drawn whole.

    differences: (n,), per image the difference of two methods, for example of their shares of seeds with a correct
    answer; the pairs are kept. units: (n,), the unit that each image comes from: a region, a patient, a scan; images
    of one unit are not independent. Without units each image is one. The trained adapters are fixed. The bounds are
    NaN for one unit.
    """
    units = np.arange(len(differences)) if units is None else units
    _, unit = np.unique(units, return_inverse=True)
    sums = np.round(np.bincount(unit, differences), 9)
    # Units of equal sum and size need not be told apart, so one multinomial draw stands for all of them.
    kinds, counts = np.unique(np.stack([sums, np.bincount(unit)], 1), axis=0, return_counts=True)
    drawn = np.random.default_rng(SEED).multinomial(counts.sum(), counts / counts.sum(), size=RESAMPLES)
    total, images = (drawn @ kinds).T
    low, high = percentile_interval(total / images, np.mean(differences), int(counts.sum()))
    return float(low), float(high)


# Intervals of paired differences

POWER = 0.8  # of a difference that counts as one that could be shown


@dataclass(frozen=True)
class Effect:
    """The smallest of several mean paired differences, with its intervals.

    name: the contrast that has it. mean: its mean over units, after averaging each unit over its repeats. low, high:
    its interval for other units. these_low, these_high: its interval for other repeats of these units. bounds,
    these_bounds: in both scopes the interval of the smallest true mean, which judges all contrasts; for one contrast
    it is the contrast's own. detectable: the true mean that the interval for other units separates from zero in 80 of
    100 samples, given the observed spread; NaN for several contrasts. units, repeats: how many there are, most often
    data sets and seeds.
    """

    name: str
    mean: float
    low: float
    high: float
    these_low: float
    these_high: float
    bounds: tuple[float, float]
    these_bounds: tuple[float, float]
    detectable: float
    units: int
    repeats: int


def smallest(contrasts: Mapping[str, np.ndarray]) -> Effect:
    """Return the smallest mean of the contrasts, which must be positive for all of them to be.

    contrasts: name -> differences (units, repeats), NaN where one of the pair is missing; a unit without any pair does
    not count. Of the interval of the smallest true mean, the lower bound is the lowest of the contrasts' own: the true
    smallest lies below its own bound as rarely as any. The upper bound is the lowest of upper bounds that Bonferroni
    corrects for the number of contrasts, since any of them may lie too low. Bounds are NaN where a contrast has fewer
    than two units, or repeats.
    """
    kept = {name: gaps[~np.isnan(gaps).all(1)] for name, gaps in contrasts.items()}
    means = {name: float(np.nanmean(gaps, 1).mean()) for name, gaps in kept.items()}
    name = min(means, key=means.__getitem__)

    def bounds(half_width: Callable[[np.ndarray, float], float]) -> tuple[float, float]:
        lows = [means[one] - half_width(gaps, LEVEL) for one, gaps in kept.items()]
        highs = [means[one] + half_width(gaps, LEVEL / len(kept)) for one, gaps in kept.items()]
        return float(np.min(lows)), float(np.min(highs))

    half, of_these = over_units(kept[name]), over_repeats(kept[name])
    return Effect(
        name, means[name], means[name] - half, means[name] + half, means[name] - of_these, means[name] + of_these,
        bounds(over_units), bounds(over_repeats), detectable(kept[name]) if len(kept) == 1 else float("nan"),
        len(kept[name]), int((~np.isnan(kept[name])).any(0).sum()),
    )  # fmt: skip


def over_repeats(differences: np.ndarray, level: float = LEVEL) -> float:
    """Return half the width of the interval of the mean of differences (units, repeats), given other repeats.

    NaN where a unit has one repeat.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NaN is the result for one repeat
        spread = np.nanstd(differences, axis=1, ddof=1)
    return float(seed_error(spread, (~np.isnan(differences)).sum(1), level))


def over_units(differences: np.ndarray, level: float = LEVEL) -> float:
    """Return half the width of the interval of the mean of differences (units, repeats), given other units.

    It is Student's t over the units' means, but no less than other repeats imply: a few means can agree by luck, more
    closely than their own noise lets them. Röver, Knapp and Friede (2015) bound the error of a meta-analysis so. NaN
    for fewer than two units.
    """
    means = np.nanmean(differences, 1)
    if len(means) < 2:
        return float("nan")
    half = t.ppf(1 - level / 2, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means))
    return float(np.fmax(half, over_repeats(differences, level)))


def detectable(differences: np.ndarray) -> float:
    """Return the true mean that the interval of differences (units, repeats) separates from zero with power `POWER`.

    NaN for fewer than two units.
    """
    units = len(differences)
    if units < 2:
        return float("nan")
    return _standardised(units) * np.sqrt(units) * over_units(differences) / t.ppf(1 - LEVEL / 2, units - 1)


@cache
def _standardised(n: int) -> float:
    """Return the `detectable` mean of n values in their standard deviations."""
    return float(np.squeeze(TTestPower().solve_power(nobs=n, alpha=1 - CONFIDENCE, power=POWER)))


# Ranks: the order of numbers, not their scale


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


def rank_sum(x: np.ndarray, y: np.ndarray) -> RankSum:
    """Return the unpaired Wilcoxon rank-sum (Mann-Whitney) test: does x (n,) tend to be greater than y (m,)?

    The p-value is exact where a sample has at most eight values and there are no ties, else it is the normal
    approximation corrected for ties and continuity (scipy's "auto"). With thousands of images tiny effects are
    significant and p-values underflow to zero: report the effect size too. NaN for an empty sample.
    """
    if not len(x) or not len(y):
        return RankSum(np.nan, np.nan)
    test = mannwhitneyu(np.asarray(x, np.float64), np.asarray(y, np.float64), alternative="greater")
    return RankSum(float(test.pvalue), float(test.statistic) / (len(x) * len(y)))


def signed_rank(differences: np.ndarray) -> float:
    """Return the p-value of Wilcoxon's paired signed-rank test: do the differences (n,) tend to be positive?

    One difference per data set, for example between two methods' accuracies. Zeros are dropped. Differences that agree
    to nine decimals are tied (71.4 − 71.1 and 61.6 − 61.3 differ in floating point). The test is exact for small n
    (scipy's "auto"): n data sets give at least 2⁻ⁿ, so four cannot reach 0.05.
    """
    differences = np.round(differences, 9)
    differences = differences[differences != 0]
    return float(wilcoxon(differences, alternative="greater").pvalue) if len(differences) else 1.0


@dataclass(frozen=True)
class Friedman:
    """The outcome of `friedman` for k methods on n data sets.

    ranks: (k,) average ranks, 1 the best. p_value: of the hypothesis that all methods are alike. critical_difference:
    the least distance of average ranks that Nemenyi's test finds significant; it controls the error over all pairs.
    cliques: the maximal groups of methods without a significant pair, as positions in `ranks`; groups, and the members
    of each, are ordered by average rank.
    """

    ranks: np.ndarray
    p_value: float
    critical_difference: float
    cliques: tuple[tuple[int, ...], ...]


def friedman(values: np.ndarray) -> Friedman:
    """Return Friedman's test with Nemenyi's critical difference (Demšar, 2006) on values (methods, data sets).

    The highest value has rank 1. Ties share their mean rank, and the statistic is corrected for them. The p-value (χ²
    with k − 1 degrees of freedom) is rough below ten data sets. It is NaN for two methods, where `signed_rank` is the
    test.
    """
    k, n = values.shape
    by_dataset = rankdata(-values, axis=0)
    p_value = np.nan
    if (by_dataset == by_dataset[0]).all():
        p_value = 1.0
    elif k > 2:
        p_value = float(friedmanchisquare(*values).pvalue)
    ranks, difference = by_dataset.mean(1), nemenyi_difference(k, n)
    return Friedman(ranks, p_value, difference, cliques(ranks, difference))


@cache
def nemenyi_difference(methods: int, datasets: int) -> float:
    """Return Nemenyi's critical difference of average ranks, q √(k (k + 1) / 6n); q: studentized range over √2."""
    q = studentized_range.ppf(1 - LEVEL, methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * datasets)))


def cliques(ranks: np.ndarray, difference: float) -> tuple[tuple[int, ...], ...]:
    """Return the maximal groups of methods whose average ranks (k,) lie closer than `difference`."""
    order = np.argsort(ranks, kind="stable")
    groups, end = [], 0
    for start in range(len(order)):
        last = int(np.searchsorted(ranks[order], ranks[order[start]] + difference))  # the first that is too far away
        if last > max(end, start + 1):  # else it is part of the group before, or alone
            groups.append(tuple(order[start:last].tolist()))
        end = max(end, last)
    return tuple(groups)
