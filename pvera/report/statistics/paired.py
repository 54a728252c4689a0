"""Intervals of paired differences: over data sets and seeds (`smallest`), and over the test images of one data set
(`cluster_interval`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import t
from statsmodels.stats.power import TTestPower

from pvera.errors import InputError
from pvera.report.statistics.bootstrap import RESAMPLES, percentile_interval

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
    corrected = 1 - (1 - level) / len(contrasts)
    kept = {name: _present(name, differences) for name, differences in contrasts.items()}
    means = {name: np.nanmean(differences, 1).mean() for name, differences in kept.items()}
    name = min(means, key=means.__getitem__)
    enough = min(map(len, kept.values())) > 1
    bounds = np.full((2, 2), np.nan)
    if enough:
        every = [[_bounds(differences, part) for part in (level, corrected)] for differences in kept.values()]
        bounds = (
            np.array([[plain[0], stricter[1]] for plain, stricter in every]).min(0).T
        )  # (t, bootstrap) x (low, high)
    (low, high), (bootstrap_low, bootstrap_high) = bounds
    return Effect(
        name, float(means[name]), float(low), float(high), float(bootstrap_low), float(bootstrap_high),
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
