"""Tests, intervals and effect sizes of the analyses: arrays in, numbers out."""

import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binom, mannwhitneyu, t
from statsmodels.stats.power import TTestPower

#: Significance level of tests; intervals have the confidence 1 − LEVEL.
LEVEL = 0.05
#: Power at which an effect counts as detectable.
POWER = 0.8


def binomial_p_value(correct, n, reference_correct):
    """Return the one-sided p-value of the paper's stars: is an accuracy below the reference's?

    It is P(X ≤ correct) for X ~ Binomial(n, reference_correct / n). The paper takes the reference
    accuracy as known, and the answers of several seeds to one image as independent. Both make the
    test anti-conservative.

    Args:
        correct: Correct answers of the method, pooled over seeds; a number or an array, as all.
        n: Seeds × test images.
        reference_correct: PVeRA's correct answers on the same n.

    Returns:
        The p-value; 1 for a reference of 0, and 0 for a reference of n and any error.
    """
    return binom.cdf(correct, n, reference_correct / n)


# Intervals of mean paired differences


class Interval(NamedTuple):
    """The confidence interval of one mean, and of the smallest of several true means."""

    #: Lower end for the one mean.
    low: float
    #: Upper end for the one mean.
    high: float
    #: Both ends for the smallest true mean, which decide on all comparisons; of a single comparison
    #: they are low and high.
    deciding: tuple[float, float]


class Effect(NamedTuple):
    """One of several mean paired differences, most often the smallest.

    Differences form an array (units, seeds); most often a unit is a data set.
    """

    #: The comparison.
    name: str
    #: The mean of its differences over units, after averaging each unit over its seeds.
    mean: float
    #: Interval for a random sample of units.
    random_tasks: Interval
    #: Interval for these units and other seeds.
    fixed_tasks: Interval
    #: See `minimum_detectable_effect`; NaN for several comparisons, since it is that of one t-test.
    minimum_detectable_effect: float
    #: Number of units.
    units: int
    #: Number of seeds.
    seeds: int


#: From differences (units, seeds) and a level to half the width of the mean's interval.
HalfWidth = Callable[[np.ndarray, float], float]


def effect_of(comparisons: Mapping[str, pd.DataFrame], name: str | None = None) -> Effect:
    """Return the mean of the comparison `name`, with its intervals among all comparisons.

    Args:
        comparisons: Name -> differences, a row per unit and a column per seed, NaN where one of a
            pair is missing. A unit without any pair does not count.
        name: The comparison; by default that with the smallest mean: all are positive where it is.

    Returns:
        The effect; bounds are NaN where a comparison has fewer than two units, or seeds.
    """
    complete = {key: frame.dropna(how="all").to_numpy() for key, frame in comparisons.items()}
    # Over units, of their means over seeds.
    means = {key: float(np.nanmean(d, axis=1).mean()) for key, d in complete.items()}
    if name is None:
        name = min(means, key=means.__getitem__)

    differences = complete[name]
    detectable = minimum_detectable_effect(differences) if len(complete) == 1 else np.nan
    return Effect(
        name,
        means[name],
        random_tasks=_interval(complete, means, name, half_width_over_units),
        fixed_tasks=_interval(complete, means, name, half_width_over_seeds),
        minimum_detectable_effect=detectable,
        units=len(differences),
        seeds=int((~np.isnan(differences)).any(axis=0).sum()),
    )


def _interval(
    comparisons: Mapping[str, np.ndarray],
    means: Mapping[str, float],
    name: str,
    half_width: HalfWidth,
) -> Interval:
    """Return the interval of the comparison `name`, and that of the smallest true mean of all.

    The lower bound is the lowest of the comparisons' own (intersection-union test, Berger, 1982):
    the smallest true mean lies below its own bound as rarely as any. The upper bound is corrected
    for the number of comparisons (Bonferroni), since any of their upper ends may lie too low.
    """
    corrected = LEVEL / len(comparisons)
    lows = [means[key] - half_width(d, LEVEL) for key, d in comparisons.items()]
    highs = [means[key] + half_width(d, corrected) for key, d in comparisons.items()]
    half = half_width(comparisons[name], LEVEL)
    deciding = float(np.min(lows)), float(np.min(highs))
    return Interval(means[name] - half, means[name] + half, deciding)


def half_width_over_seeds(differences: np.ndarray, level: float = LEVEL) -> float:
    """Return half the width of the interval of a mean over fixed units, given other seeds.

    Args:
        differences: (units, seeds), NaN where a pair is missing.
        level: One minus the confidence.

    Returns:
        The half width; NaN where a unit has one seed, zero without any spread.
    """
    seeds = (~np.isnan(differences)).sum(axis=1)
    with warnings.catch_warnings():
        # NaN is the result for one seed.
        warnings.simplefilter("ignore", RuntimeWarning)
        # Variance of a unit's mean: s² / n.
        variances = np.nanstd(differences, axis=1, ddof=1) ** 2 / seeds
        total = variances.sum()
        # Satterthwaite (1946): (Σ vᵤ)² / Σ vᵤ² / (nᵤ − 1) degrees of freedom.
        freedom = total**2 / (variances**2 / (seeds - 1)).sum() if total else 1

    # Standard error of the mean over U units: √(Σ vᵤ) / U.
    standard_error = np.sqrt(total) / len(differences)
    return float(t.ppf(1 - level / 2, freedom) * standard_error)


def half_width_over_units(differences: np.ndarray, level: float = LEVEL) -> float:
    """Return half the width of the interval of a mean, given other units.

    Args:
        differences: (units, seeds), NaN where a pair is missing.
        level: One minus the confidence.

    Returns:
        The half width; NaN for fewer than two units.
    """
    means = np.nanmean(differences, axis=1)
    if len(means) < 2:
        return np.nan

    # Student's t over the units' means.
    standard_error = means.std(ddof=1) / np.sqrt(len(means))
    half = t.ppf(1 - level / 2, len(means) - 1) * standard_error
    # A few means can agree by luck, more closely than their own noise allows. So Röver, Knapp and
    # Friede (2015) bound the standard error of a meta-analysis from below.
    return float(np.fmax(half, half_width_over_seeds(differences, level)))


def mean_interval(
    values: pd.DataFrame, half_width: HalfWidth = half_width_over_units
) -> dict[str, float]:
    """Return a mean over units of their means over seeds, with its interval.

    Args:
        values: A row per unit, a column per seed. A unit without a value does not count.
        half_width: `half_width_over_units` or `half_width_over_seeds`.

    Returns:
        The keys "mean", "low" and "high".
    """
    values = values.dropna(how="all")
    mean = values.mean(axis=1).mean()
    half = half_width(values.to_numpy(), LEVEL)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def mean_intervals(values: pd.DataFrame) -> pd.DataFrame:
    """Return the `mean_interval` over data sets of each column.

    Args:
        values: Rows have the levels dataset and seed.

    Returns:
        A row per column of `values`, with the columns mean, low and high.
    """
    intervals = [mean_interval(column.unstack("seed", sort=False)) for _, column in values.items()]
    return pd.DataFrame(intervals, values.columns, ["mean", "low", "high"])


def minimum_detectable_effect(differences: np.ndarray) -> float:
    """Return the true mean that the interval over units separates from zero with power `POWER`.

    It is that of a t-test (Cohen, 1988), in standard deviations of the units' means, times the
    standard deviation that the interval implies.

    Args:
        differences: (units, seeds), NaN where a pair is missing.

    Returns:
        The effect; NaN for fewer than two units.
    """
    units = len(differences)
    if units < 2:
        return np.nan

    solution = TTestPower().solve_power(nobs=units, alpha=LEVEL, power=POWER)
    standardised = float(np.squeeze(solution))
    standard_error = half_width_over_units(differences) / t.ppf(1 - LEVEL / 2, units - 1)
    return standardised * np.sqrt(units) * standard_error


# Ranks: the order of numbers, not their scale


class RankSum(NamedTuple):
    """The outcome of `rank_sum` for samples x and y."""

    #: One-sided.
    p_value: float
    #: P(x > y) + ½ P(x = y) of a random pair, the area under the ROC curve; ½ means no effect.
    superiority: float

    @property
    def cliffs_delta(self) -> float:
        """P(x > y) − P(x < y) (Cliff, 1993), also called rank-biserial correlation."""
        return 2 * self.superiority - 1


def rank_sum(x: np.ndarray, y: np.ndarray) -> RankSum:
    """Test whether x tends to be greater than y (unpaired; Wilcoxon, 1945; Mann and Whitney, 1947).

    The p-value is exact where a sample has at most eight values and there are no ties. Otherwise it
    is the normal approximation with corrections for ties and continuity (scipy's "auto"). With
    thousands of images tiny effects are significant: report the effect size too.

    Args:
        x: Sample (n,).
        y: Sample (m,).

    Returns:
        The p-value and the effect size; NaN for an empty sample.
    """
    if not len(x) or not len(y):
        return RankSum(np.nan, np.nan)
    test = mannwhitneyu(np.asarray(x, np.float64), np.asarray(y, np.float64), alternative="greater")
    return RankSum(float(test.pvalue), float(test.statistic) / (len(x) * len(y)))
