"""Verdicts on claims, by intervals of paired differences.

An interval over seeds is for fixed tasks, one over data sets for random tasks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.report.statistics import Interval, weakest_contrast
from pvera.report.table import NOTHING, fixed, interval, signed, title

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
EQUIVALENT = "equivalent"
INCONCLUSIVE = "inconclusive"
UNTESTABLE = "not tested"

RULE = (
    "Differences are paired by data set and seed, with 95 % intervals. *Fixed tasks*: over seeds, "
    "on these data sets. *Random tasks*: if these data sets were a random sample of tasks, where "
    "those of the same images count as one. An effect above zero speaks for the claim: it is "
    "*supported* where the interval lies above zero, *contradicted* where it lies below, and "
    "*inconclusive* otherwise. Two variants are *equivalent* where the interval lies within "
    "±1 point. Where several comparisons decide, such as the highest of eight, the interval is "
    "that of the closest one, and the verdict is stricter: it is corrected for their number. Test "
    "images stay; docs/design.md says what others would add."
)


class Untestable(Exception):
    """A claim's results are missing; the message says which."""


class Answer(NamedTuple):
    """A verdict that a count of data sets gives, instead of an interval."""

    #: The count in words.
    reading: str
    #: One of the verdicts above.
    verdict: str
    #: What was counted.
    scale: str


#: Name of a comparison -> differences by data set and seed, NaN where a run is missing.
PairedDifferences = dict[str, pd.Series]
#: From results to differences that must all be positive on average, or to a count's answer.
Contrast = Callable[[Any], PairedDifferences | Answer]


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
    contrast: Contrast
    #: How the effect is written.
    measure: Measure = Measure()
    #: The sample: "data sets"; "models", each with other data sets; or "seeds" on fixed data sets.
    units: str = "data sets"
    #: Two variants are equivalent where the interval lies within ± this.
    margin: float = 0
    #: Where the paper has it, if not where the topic stands.
    place: str = ""
    #: Whether it stands on the page of claims, or in its notebook alone.
    page: bool = True


class Verdict(NamedTuple):
    """The verdict in one scope, with the interval behind it."""

    #: None where the scope does not apply.
    word: str | None = None
    #: Lower end, NaN without an interval.
    low: float = np.nan
    #: Upper end.
    high: float = np.nan

    def write(self, digits: int) -> str:
        """Return the verdict and its interval as text."""
        if self.word is None:
            return NOTHING
        if np.isnan(self.low):
            return self.word
        return f"{self.word} {interval(None, self.low, self.high, digits)}"


@dataclass(frozen=True)
class Judgement:
    """A claim with its effect and verdicts."""

    #: The claim.
    claim: Claim
    #: The effect in words, or why the claim is not tested.
    reading: str
    #: Numbers of units and seeds.
    scale: str = ""
    #: The effect.
    difference: float = np.nan
    #: Over seeds, on these data sets.
    fixed_tasks: Verdict = Verdict()
    #: Over data sets as a sample.
    random_tasks: Verdict = Verdict()
    #: Of the random tasks.
    minimum_detectable_effect: float = np.nan

    def row(self) -> dict[str, Any]:
        """Return the columns of the CSV files."""
        return {
            "claim": self.claim.text,
            "reading": self.reading,
            "scale": self.scale,
            "difference": self.difference,
            "seeds_verdict": self.fixed_tasks.word,
            "seeds_low": self.fixed_tasks.low,
            "seeds_high": self.fixed_tasks.high,
            "tasks_verdict": self.random_tasks.word,
            "tasks_low": self.random_tasks.low,
            "tasks_high": self.random_tasks.high,
            "minimum_detectable_effect": self.minimum_detectable_effect,
        }


def judge(claim: Claim, results: Any) -> Judgement:
    """Judge a claim on its topic's results; without enough of them it is not tested."""
    try:
        outcome = claim.contrast(results)
        if isinstance(outcome, Answer):
            counted = Verdict(outcome.verdict)
            return Judgement(claim, outcome.reading, outcome.scale, fixed_tasks=counted)
        return compare(claim, outcome)
    except Untestable as reason:
        return not_tested(claim, str(reason))


def not_tested(claim: Claim, reason: str) -> Judgement:
    """Return the judgement on a claim without results."""
    return Judgement(claim, reason, fixed_tasks=Verdict(UNTESTABLE))


def compare(claim: Claim, differences: PairedDifferences) -> Judgement:
    """Judge a claim by the intervals of the smallest mean difference.

    Raises:
        Untestable: A comparison has no pair, or there is no interval.
    """
    frames = {name: _by_seed(series) for name, series in differences.items()}
    if any(frame.isna().all(axis=None) for frame in frames.values()):
        raise Untestable("no runs to compare")

    if claim.units == "seeds":
        # Seeds are the sample; there is no other spread.
        frames = {name: frame.T for name, frame in frames.items()}
        effect = weakest_contrast(_arrays(frames))
        fixed, random = _verdict(claim, effect.over_units), Verdict()
        detectable = np.nan
    else:
        effect = weakest_contrast(_arrays(frames))
        sample = weakest_contrast(_arrays({n: pooled(f) for n, f in frames.items()}))
        has_seeds = frames[effect.name].columns.name == "seed"
        fixed = Verdict()
        if claim.units == "data sets" and has_seeds:
            fixed = _verdict(claim, effect.over_seeds)
        random = _verdict(claim, sample.over_units)
        detectable = claim.measure.convert(sample.minimum_detectable_effect)
    if fixed.word is None and random.word is None:
        raise Untestable(f"fewer than two {claim.units}: no interval")

    difference = claim.measure.convert(effect.mean)
    reading = claim.measure.write(difference)
    if effect.name:
        reading = f"{effect.name}: {reading}"
    scale = _count(effect.units, claim.units)
    if claim.units != "seeds":
        scale += f", {_count(effect.seeds, 'seeds')}"
    return Judgement(claim, reading, scale, difference, fixed, random, detectable)


def _by_seed(differences: pd.Series) -> pd.DataFrame:
    """Return differences as (units, seeds), with one column where they have no seeds."""
    if "seed" in differences.index.names:
        return differences.unstack("seed", sort=False)
    return differences.to_frame()


def _arrays(frames: dict[str, pd.DataFrame]) -> dict[str, np.ndarray]:
    return {name: frame.to_numpy() for name, frame in frames.items()}


def _verdict(claim: Claim, interval: Interval) -> Verdict:
    """Return the verdict that an interval gives; none without bounds."""
    if np.isnan(interval.bounds).any():
        return Verdict()
    convert = claim.measure.convert
    word = verdict(interval.bounds, claim.margin)
    return Verdict(word, convert(interval.low), convert(interval.high))


def _count(number: int, units: str) -> str:
    return f"{number} {units if number > 1 else units.removesuffix('s')}"


#: Data set -> the images that it shares with others. In a sample they count as one unit.
SAME_IMAGES = {
    "clevr_count": "clevr",
    "clevr_dist": "clevr",
    "dsprites_loc": "dsprites",
    "dsprites_ori": "dsprites",
    "smallnorb_azi": "smallnorb",
    "smallnorb_ele": "smallnorb",
}


def pooled(differences: pd.DataFrame) -> pd.DataFrame:
    """Return differences (units, seeds) with one mean for data sets of the same images."""
    if "dataset" not in differences.index.names:
        return differences
    datasets = differences.index.get_level_values("dataset")
    return differences.groupby(datasets.map(lambda name: SAME_IMAGES.get(name, name))).mean()


def verdict(bounds: tuple[float, float], margin: float = 0) -> str:
    """Return the verdict on the claim that an effect is positive.

    Args:
        bounds: Both ends of its interval. One without width decides nothing: a few equal
            differences do not tell how much they vary.
        margin: The effect is equivalent to zero where the interval lies within ± this.
    """
    low, high = bounds
    if np.isclose(low, high, rtol=0, atol=1e-12):
        return INCONCLUSIVE
    if -margin < low <= 0 <= high < margin:
        return EQUIVALENT
    if low > 0:
        return SUPPORTED
    return CONTRADICTED if high < 0 else INCONCLUSIVE


def contrast(compute: Callable[..., PairedDifferences]) -> Callable[..., Contrast]:
    """Make a function of results and options a function of the options that returns a contrast."""

    def with_options(*options, **named) -> Contrast:
        return lambda results: compute(results, *options, **named)

    return with_options


@contrast
def lead(scores: pd.DataFrame, method: str, *others: str) -> PairedDifferences:
    """Return how far a method lies above others.

    Args:
        scores: Rows (category, dataset, seed), columns methods.
        method: The method.
        others: The others; by default all methods of the paper that have scores.

    Raises:
        Untestable: A named method has no scores, or there is no other one.
    """
    others = others or tuple(name for name in PAPER_METHODS if name in scores and name != method)
    for name in (method, *others):
        if name not in scores:
            raise Untestable(f"no runs of {title(name)}")
    if not others:
        raise Untestable(f"no other method than {title(method)}")
    return {f"{title(method)} − {title(other)}": scores[method] - scores[other] for other in others}
