"""Statistics of the analyses: arrays in, numbers out; scipy and statsmodels do the tests."""

import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binom, mannwhitneyu, t
from statsmodels.stats.power import TTestPower

LEVEL = 0.05  # of tests; intervals have the others


def binomial_p_value(correct, n, reference_correct):
    """Return the one-sided p-value of the detailed tables: is a method's accuracy below the reference's?

    correct: the method's correct answers, pooled over seeds. n: seeds × test images. reference_correct: PVeRA's
    correct answers on the same n. All may be arrays. The p-value is P(X ≤ correct) for X ~ Binomial(n,
    reference_correct / n).

    A reference of 0 gives p-value 1. A reference of n gives p-value 0 for any error. The test takes the reference
    accuracy as known and the answers of several seeds to one image as independent; both make it anti-conservative.
    """
    return binom.cdf(correct, n, reference_correct / n)


# Intervals of means, most of them of paired differences

POWER = 0.8  # of a difference that counts as one that could be shown


class Interval(NamedTuple):
    """The interval low, high of one mean, and the interval `bounds` of the smallest true mean of all contrasts.

    The second judges them all; for one contrast it is the contrast's own.
    """

    low: float
    high: float
    bounds: tuple[float, float]


class Effect(NamedTuple):
    """The smallest of several mean paired differences, with its intervals.

    name: the contrast that has it. mean: its mean over units, after averaging each unit over its repeats. others: for
    other units; these: for other repeats of these units. detectable: the true mean that the interval for other units
    separates from zero in 80 of 100 samples, given the observed spread; NaN for several contrasts. units, repeats: how
    many there are, most often data sets and seeds.
    """

    name: str
    mean: float
    others: Interval
    these: Interval
    detectable: float
    units: int
    repeats: int


def weakest_contrast(contrasts: Mapping[str, np.ndarray]) -> Effect:
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

    def interval(half_width: Callable[[np.ndarray, float], float]) -> Interval:
        half = half_width(kept[name], LEVEL)
        lows = [means[contrast] - half_width(gaps, LEVEL) for contrast, gaps in kept.items()]
        highs = [
            means[contrast] + half_width(gaps, LEVEL / len(kept)) for contrast, gaps in kept.items()
        ]
        return Interval(
            means[name] - half, means[name] + half, (float(np.min(lows)), float(np.min(highs)))
        )

    gaps = kept[name]
    able = detectable(gaps) if len(kept) == 1 else float("nan")
    repeats = int((~np.isnan(gaps)).any(0).sum())
    return Effect(
        name, means[name], interval(over_units), interval(over_repeats), able, len(gaps), repeats
    )


def over_repeats(differences: np.ndarray, level: float = LEVEL) -> float:
    """Return half the width of the interval of the mean of differences (units, repeats), given other repeats.

    The units are fixed, most often data sets. With the variance s² of the n repeats of a unit, that of the mean over U
    units is Σ (s²/n) / U². Student's t with Satterthwaite's degrees of freedom accounts for the few repeats behind each
    s. NaN where a unit has one repeat; zero without any spread.
    """
    repeats = (~np.isnan(differences)).sum(1)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # NaN is the result for one repeat, and for no spread
        variance = np.nanstd(differences, axis=1, ddof=1).astype(float) ** 2 / repeats
        total = variance.sum()
        freedom = total**2 / (variance**2 / (repeats - 1)).sum() if total else 1
    return float(t.ppf(1 - level / 2, freedom) * np.sqrt(total) / len(differences))


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


def mean_interval(
    values: pd.DataFrame, over: Callable[[np.ndarray], float] = over_units
) -> dict[str, float]:
    """Return mean, low and high: the mean over units (rows) of their means over repeats (columns), with its interval.

    over: `over_units` or `over_repeats`. A unit without a value does not count.
    """
    values = values.dropna(how="all")
    mean, half = values.mean(axis=1).mean(), over(values.to_numpy())
    return {"mean": mean, "low": mean - half, "high": mean + half}


def over_datasets(values: pd.DataFrame) -> pd.DataFrame:
    """Return the `mean_interval` of each column (rows); values: rows with the levels dataset and seed."""
    parts = [mean_interval(column.unstack("seed", sort=False)) for _, column in values.items()]
    return pd.DataFrame(parts, values.columns, ["mean", "low", "high"])


def detectable(differences: np.ndarray) -> float:
    """Return the true mean that the interval of differences (units, repeats) separates from zero with power `POWER`.

    NaN for fewer than two units.
    """
    units = len(differences)
    if units < 2:
        return float("nan")
    standardised = float(np.squeeze(TTestPower().solve_power(nobs=units, alpha=LEVEL, power=POWER)))
    return standardised * np.sqrt(units) * over_units(differences) / t.ppf(1 - LEVEL / 2, units - 1)


# Ranks: the order of numbers, not their scale


class RankSum(NamedTuple):
    """The outcome of `rank_sum` for samples x and y.

    superiority: P(x > y) + ½ P(x = y) of a random pair, the area under the ROC curve; ½ means no effect.
    """

    p_value: float
    superiority: float

    @property
    def cliffs_delta(self) -> float:
        """P(x > y) − P(x < y), also called rank-biserial correlation."""
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
