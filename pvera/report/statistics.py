"""Statistics of the analyses: arrays in, numbers out; scipy, statsmodels and scikit-learn do the tests.

Scores are arrays (methods, seeds, data sets) as of `report.scores.cube`, NaN where a run is missing.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import binomtest, friedmanchisquare, mannwhitneyu, norm, rankdata, studentized_range, t, wilcoxon
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from pvera.errors import InputError

# Means, intervals, coverage


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


# The detailed tables' test, and corrections for many tests


LEVEL = 0.05


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


# Bootstrap over data sets


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


# Intervals of paired differences


POWER = 0.8  # of a difference that counts as one that could be shown
SEED = 0  # of the bootstrap


@dataclass(frozen=True)
class Effect:
    """The smallest of several mean paired differences, with its interval.

    name: the contrast that has it. mean: its mean over units, after averaging each unit over its repeats. low, high:
    the interval by Student's t over units, with `standard_error`. bootstrap_low, bootstrap_high: by a bootstrap of
    units, widened alike. detectable: the true mean that the first interval separates from zero in 80 of 100 samples,
    given the observed spread; NaN for several contrasts, whose interval it does not describe. units, repeats: how many
    there are, most often data sets and seeds.
    """

    name: str
    mean: float
    low: float
    high: float
    bootstrap_low: float
    bootstrap_high: float
    detectable: float
    units: int
    repeats: int


def smallest(contrasts: Mapping[str, np.ndarray], level: float = 0.95) -> Effect:
    """Return the smallest mean of the contrasts, which must be positive for all of them to be.

    contrasts: name -> differences (units, repeats), NaN where one of the pair is missing; a unit without any pair does
    not count. The interval is one of the smallest true mean. Its lower bound is the lowest of the contrasts' own: the
    true smallest lies below its own bound as rarely as any. Its upper bound is the lowest of upper bounds that
    Bonferroni corrects for the number of contrasts, since any of them may lie too low. Bounds are NaN for a contrast
    with fewer than two units. InputError for no contrast, or one without any pair.
    """
    if not contrasts:
        raise InputError("an effect needs a contrast")
    kept = {name: _present(name, differences) for name, differences in contrasts.items()}
    means = {name: np.nanmean(differences, 1).mean() for name, differences in kept.items()}
    name = min(means, key=means.__getitem__)
    bounds = np.full(4, np.nan)
    if min(map(len, kept.values())) > 1:
        stricter = 1 - (1 - level) / len(contrasts)
        (low, bootstrap_low), _ = np.min([_bounds(differences, level) for differences in kept.values()], 0)
        _, (high, bootstrap_high) = np.min([_bounds(differences, stricter) for differences in kept.values()], 0)
        bounds = low, high, bootstrap_low, bootstrap_high
    return Effect(
        name, float(means[name]), *map(float, bounds),
        detectable(kept[name], level) if len(kept) == 1 else float("nan"),
        len(kept[name]), int((~np.isnan(contrasts[name])).any(0).sum()),
    )  # fmt: skip


def standard_error(differences: np.ndarray) -> float:
    """Return the standard error of the mean over units of differences (units, repeats), NaN where one is missing.

    It is that of the units' means, but no less than the repeats within units imply: a few means can agree by luck, more
    closely than their own noise lets them. Röver, Knapp and Friede (2015) bound the error of a meta-analysis so. NaN
    for fewer than two units.
    """
    differences = np.asarray(differences, np.float64)
    units, repeats = len(differences), (~np.isnan(differences)).sum(1)
    if units < 2:
        return float("nan")
    means = np.nanmean(differences, 1)
    freedom = (repeats - 1).sum()
    within = np.nansum((differences - means[:, None]) ** 2) / freedom if freedom else 0.0
    return float(np.sqrt(max(means.var(ddof=1), within * (1 / repeats).mean()) / units))


def detectable(differences: np.ndarray, level: float = 0.95) -> float:
    """Return the true mean that a t-interval of differences (units, repeats) separates from zero with power `POWER`.

    NaN for fewer than two units.
    """
    units = len(differences)
    return _standardised(units, level) * np.sqrt(units) * standard_error(differences) if units > 1 else float("nan")


@cache
def _standardised(n: int, level: float) -> float:
    """Return the `detectable` mean of n values in their standard deviations."""
    return float(np.squeeze(TTestPower().solve_power(nobs=n, alpha=1 - level, power=POWER)))


def cluster_interval(
    differences: np.ndarray, units: np.ndarray | None = None, level: float = 0.95, count: int = RESAMPLES
) -> tuple[float, float]:
    """Return the interval of a mean over test images by a bootstrap of their units, drawn whole.

    differences: (n,), per image the difference of two methods, for example of their shares of seeds with a correct
    answer; the pairs are kept. units: (n,), the unit that each image comes from: a region, a patient, a scan; images
    of one unit are not independent. Without units each image is one. The trained adapters are fixed. The bounds are
    NaN for one unit. InputError for shapes that do not match, or NaN.
    """
    differences = np.asarray(differences, np.float64)
    units = np.arange(len(differences)) if units is None else np.asarray(units)
    if differences.ndim != 1 or not differences.size or units.shape != differences.shape:
        raise InputError(f"differences {differences.shape} and units {units.shape} are not (n,) and (n,)")
    if np.isnan(differences).any():
        raise InputError("a difference of test images is NaN")
    _, unit = np.unique(units, return_inverse=True)
    sums = np.round(np.bincount(unit, differences), 9)
    # Units of equal sum and size need not be told apart, so one multinomial draw stands for all of them.
    kinds, counts = np.unique(np.stack([sums, np.bincount(unit)], 1), axis=0, return_counts=True)
    drawn = np.random.default_rng(SEED).multinomial(counts.sum(), counts / counts.sum(), size=count)
    total, images = (drawn @ kinds).T
    low, high = percentile_interval(total / images, differences.mean(), int(counts.sum()), level)
    return float(low), float(high)


def _present(name: str, differences: np.ndarray) -> np.ndarray:
    """Return the differences (units, repeats) of the units that have one."""
    differences = np.asarray(differences, np.float64)
    present = ~np.isnan(differences).all(1)
    if not present.any():
        raise InputError(f"there is no pair of runs for {name or 'the contrast'}")
    return differences[present]


def _bounds(differences: np.ndarray, level: float) -> np.ndarray:
    """Return (low, high) x (t, bootstrap) of the mean over units of differences (units, repeats)."""
    values, error = np.nanmean(differences, 1), standard_error(differences)
    units, mean = len(values), values.mean()
    half = t.ppf((1 + level) / 2, units - 1) * error
    drawn = np.random.default_rng(SEED).choice(values, (RESAMPLES, units)).mean(1)
    observed = values.std(ddof=1) / np.sqrt(units)
    widened = mean + (drawn - mean) * (error / observed if observed else 1)
    return np.array([(mean - half, mean + half), percentile_interval(widened, mean, units, level)]).T


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
