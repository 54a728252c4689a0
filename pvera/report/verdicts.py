"""Verdicts on claims, by intervals of paired differences.

The words:

- Fixed tasks: these data sets and no others; the interval is over seeds.
- Random tasks: these data sets as a random sample of tasks; the interval is over them.
- Seeds: the columns of differences; trainings that differ in their random numbers alone.
- Units: the rows of differences; data sets, or models, or seeds where a claim pools all images.
- Margin: effects within ± this count as zero; a claim without one is never "equivalent".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from pvera.data.tasks import SAME_IMAGES
from pvera.report.statistics import Effect, Interval, effect_of, smallest_effect
from pvera.report.text import fixed, signed

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
EQUIVALENT = "equivalent"
INCONCLUSIVE = "inconclusive"
UNTESTABLE = "not tested"

#: The caption of the page of claims, and its notes.
PAIRED = "Differences are paired by data set and seed, with 95 % intervals."
RULE = (
    "Fixed tasks: over seeds, on these data sets. Random tasks: if these data sets were a random "
    "sample of tasks, where those of the same images count as one. An effect above zero speaks for "
    "the claim: it is supported where the interval lies above zero, and contradicted where it lies "
    "below. Where the interval contains zero, the claim is inconclusive; but for the claims that "
    "PVeRA is more accurate than VeRA with latent dropout, by learning σ, or by the KL term, the "
    "two are equivalent if it lies within ±1 point. Where several comparisons decide, such as the "
    "highest of eight, the interval is that of the closest one; the claim is supported where all "
    "intervals lie above zero, and contradicted where one lies below zero after correction for "
    "their number. Test images stay; docs/design.md says what others would add."
)


class Untestable(Exception):
    """A claim's results are missing; the message says which."""


#: Differences by data set and seed, NaN where a run is missing: of one comparison, or of several by
#: their names.
PairedDifferences: TypeAlias = pd.Series | dict[str, pd.Series]
#: From results to differences that must all be positive on average.
Comparison = Callable[[Any], PairedDifferences]


@dataclass(frozen=True)
class Measure:
    """How effects and intervals are written."""

    #: Text with the {signed} mean, or its {size}.
    text: str = "{signed}"
    #: Decimals.
    digits: int = 1
    #: From a difference to the unit of the text; keeps the order.
    convert: Callable[[float], float] = float

    def write(self, mean: float) -> str:
        """Return the text for a mean."""
        size = fixed(abs(mean), self.digits)
        return self.text.format(size=size, signed=signed(mean, self.digits))


@dataclass(frozen=True)
class Claim:
    """A sentence, and the comparison that decides on it."""

    #: The sentence.
    text: str
    #: From the topic's results to what decides; raises `Untestable` where results are missing.
    compare: Comparison
    #: How the effect is written.
    measure: Measure = Measure()
    #: The sample, and so the verdicts: "data sets", on fixed and on random tasks; "models", one of
    #: each data set, on random tasks alone; "seeds", on fixed tasks alone.
    units: Literal["data sets", "models", "seeds"] = "data sets"
    #: Two variants are equivalent where the interval contains zero and lies within ± this; without
    #: a margin they never are.
    margin: float = 0
    #: Whether it stands on the page of claims, or in its notebook alone.
    is_main: bool = True


@dataclass(frozen=True)
class Judgement:
    """A claim with its effect and verdicts: a row of the CSV files."""

    #: The sentence.
    claim: str
    #: The effect in words, or why the claim is not tested.
    reading: str
    #: Numbers of units and seeds.
    scale: str = ""
    #: The effect.
    difference: float = np.nan
    #: Over seeds, on these data sets; None where this does not apply.
    seeds_verdict: str | None = None
    seeds_low: float = np.nan
    seeds_high: float = np.nan
    #: Over data sets as a sample; None where this does not apply.
    tasks_verdict: str | None = None
    tasks_low: float = np.nan
    tasks_high: float = np.nan
    #: On random tasks, see `statistics.minimum_detectable_effect`.
    minimum_detectable_effect: float = np.nan


def judge(claim: Claim, results: Any) -> Judgement:
    """Judge a claim on its topic's results; without enough of them it is not tested."""
    try:
        differences = claim.compare(results)
        if isinstance(differences, pd.Series):
            differences = {"": differences}
        frames = {name: _by_seed(series) for name, series in differences.items()}
        if any(frame.isna().all(axis=None) for frame in frames.values()):
            raise Untestable("no runs to compare")
        if claim.units == "seeds":
            return _judge_over_seeds(claim, frames)
        return _judge_over_datasets(claim, frames)
    except Untestable as reason:
        return Judgement(claim.text, str(reason), seeds_verdict=UNTESTABLE)


def _judge_over_seeds(claim: Claim, frames: dict[str, pd.DataFrame]) -> Judgement:
    """Judge by the sample of seeds; there is no other spread."""
    # After the transpose a unit is a seed.
    effect = smallest_effect({name: frame.T.to_numpy() for name, frame in frames.items()})
    scopes = _verdict("seeds", claim, effect.over_units)
    return _judgement(claim, effect, _count(effect.units, "seeds"), scopes)


def _judge_over_datasets(claim: Claim, frames: dict[str, pd.DataFrame]) -> Judgement:
    """Judge by the interval over data sets or models, and by the one over seeds on data sets."""
    effect = smallest_effect({name: frame.to_numpy() for name, frame in frames.items()})
    # Of the same comparison, even if pooling makes another one the smallest.
    units = {name: pooled(frame).to_numpy() for name, frame in frames.items()}
    sample = effect_of(units, effect.name)
    scopes = {}
    if claim.units == "data sets" and frames[effect.name].columns.name == "seed":
        scopes = _verdict("seeds", claim, effect.over_seeds)
    scopes |= _verdict("tasks", claim, sample.over_units)
    detectable = claim.measure.convert(sample.minimum_detectable_effect)
    scale = f"{_count(effect.units, claim.units)}, {_count(effect.seeds, 'seeds')}"
    return _judgement(claim, effect, scale, scopes, detectable)


def _judgement(
    claim: Claim,
    effect: Effect,
    scale: str,
    scopes: dict[str, Any],
    detectable: float = np.nan,
) -> Judgement:
    """Return the judgement with the verdicts of its scopes."""
    if not scopes:
        raise Untestable(f"fewer than two {claim.units}: no interval")
    difference = claim.measure.convert(effect.mean)
    reading = claim.measure.write(difference)
    if effect.name:
        reading = f"{effect.name}: {reading}"
    return Judgement(
        claim.text,
        reading,
        scale,
        difference,
        minimum_detectable_effect=detectable,
        **scopes,
    )


def _verdict(scope: str, claim: Claim, interval: Interval) -> dict[str, Any]:
    """Return the columns of a scope, "seeds" or "tasks"; none without bounds."""
    bounds = interval.bounds_of_smallest
    if np.isnan(bounds).any():
        return {}
    convert = claim.measure.convert
    return {
        f"{scope}_verdict": verdict(bounds, claim.margin),
        f"{scope}_low": convert(interval.low),
        f"{scope}_high": convert(interval.high),
    }


def _by_seed(differences: pd.Series) -> pd.DataFrame:
    """Return differences as (units, seeds), with one column where they have no seeds."""
    if "seed" in differences.index.names:
        return differences.unstack("seed", sort=False)
    return differences.to_frame()


def _count(number: int, units: str) -> str:
    return f"{number} {units if number > 1 else units.removesuffix('s')}"


def pooled(differences: pd.DataFrame) -> pd.DataFrame:
    """Return differences (units, seeds) with one mean for data sets of the same images."""
    if "dataset" not in differences.index.names:
        return differences
    datasets = differences.index.get_level_values("dataset")
    images = datasets.map(lambda name: SAME_IMAGES.get(name, name))
    return differences.groupby(images).mean()


def verdict(bounds: tuple[float, float], margin: float = 0) -> str:
    """Return the verdict on the claim that an effect is positive.

    Args:
        bounds: Both ends of its interval. One without width decides nothing: a few equal
            differences do not tell how much they vary.
        margin: An effect that may be zero is equivalent to it where the interval lies within ±
            this.
    """
    low, high = bounds
    if np.isclose(low, high, rtol=0, atol=1e-12):
        return INCONCLUSIVE
    if low > 0:
        return SUPPORTED
    if high < 0:
        return CONTRADICTED
    # The interval contains zero.
    return EQUIVALENT if -margin < low and high < margin else INCONCLUSIVE
