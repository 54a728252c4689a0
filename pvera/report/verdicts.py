"""Verdicts on claims, by intervals of paired differences.

The words:

- Seeds: the columns of differences; trainings that differ in their random numbers alone.
- Units: the rows of differences; data sets, or models of one data set each.
- Fixed tasks: these data sets and no others; the interval is over seeds.
- Random tasks: these data sets as a random sample of tasks; the interval is over units.
- Scope: fixed tasks, or random tasks.
- Margin: effects within ± this count as zero; a claim without one is never "equivalent".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pvera.report.contrasts import Untestable, paired_differences, pool_same_images
from pvera.report.statistics import Effect, Interval, effect_of
from pvera.report.text import decimal, signed, title

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
EQUIVALENT = "equivalent"
INCONCLUSIVE = "inconclusive"
UNTESTABLE = "not tested"

FIXED_TASKS = "Fixed tasks"
RANDOM_TASKS = "Random tasks"
#: Scope -> how the names of its columns in CSV files begin.
SCOPES = {FIXED_TASKS: "seeds", RANDOM_TASKS: "tasks"}
#: Units of a claim -> its scopes.
SCOPES_OF = {
    # A row per data set.
    "data sets": (FIXED_TASKS, RANDOM_TASKS),
    # A row per model, each trained on a data set of its own: other tasks are other models.
    "models": (RANDOM_TASKS,),
    # One row of all images, which has no other tasks.
    "seeds": (FIXED_TASKS,),
}


@dataclass(frozen=True)
class Measure:
    """How effects and intervals are written."""

    #: Text with the {signed} mean, or its {size}.
    text: str = "{signed}"
    #: Decimals.
    digits: int = 1
    #: From a difference to the unit of the text; keeps the order.
    convert: Callable[[float], float] = float
    #: Whether the better of two has the lower scores.
    lower_is_better: bool = False

    def write(self, mean: float) -> str:
        """Return the text for a mean."""
        size = decimal(abs(mean), self.digits)
        return self.text.format(size=size, signed=signed(mean, self.digits))


@dataclass(frozen=True)
class Claim:
    """A sentence, and the columns of a frame of scores that decide on it."""

    #: The sentence.
    text: str
    #: The column that is better than each of `others` if the claim is true.
    first: str
    #: The columns that it is compared with.
    others: tuple[str, ...]
    #: How the effect is written.
    measure: Measure = Measure()
    #: What the rows are, a key of `SCOPES_OF`.
    units: str = "data sets"
    #: Two variants are equivalent where the interval contains zero and lies within ± this; without
    #: a margin they never are.
    margin: float = 0
    #: Whether it stands on the page of claims, or in its notebook alone.
    is_main: bool = True


class Verdict(NamedTuple):
    """A verdict and the interval of the effect; without a word where there is no interval.

    The interval is that of the one comparison that is shown. Where a claim has several, all of them
    decide: the word follows `statistics.Interval.deciding`, which may lie elsewhere.
    """

    word: str = ""
    low: float = np.nan
    high: float = np.nan


@dataclass(frozen=True)
class Judgement:
    """A claim with its effect and verdicts."""

    claim: Claim
    #: The effect in words, or why the claim is not tested.
    effect_text: str
    #: By scope, those that the claim has.
    verdicts: Mapping[str, Verdict]
    #: Numbers of units and seeds, in words.
    sample_size: str = ""
    #: The effect.
    difference: float = np.nan
    #: On random tasks, see `statistics.minimum_detectable_effect`.
    minimum_detectable_effect: float = np.nan

    def csv_row(self) -> dict[str, Any]:
        """Return the row of the CSV file, whose headings are older than the names here."""
        row = {
            "claim": self.claim.text,
            "reading": self.effect_text,
            "scale": self.sample_size,
            "difference": self.difference,
        }
        for scope, prefix in SCOPES.items():
            verdict = self.verdicts.get(scope, Verdict())
            row[f"{prefix}_verdict"] = verdict.word
            row[f"{prefix}_low"] = verdict.low
            row[f"{prefix}_high"] = verdict.high
        return row | {"minimum_detectable_effect": self.minimum_detectable_effect}


def judge(claim: Claim, scores: pd.DataFrame) -> Judgement:
    """Judge a claim; without enough scores it is not tested, as its first scope then says.

    Args:
        claim: The claim.
        scores: A row per unit and seed, with the columns that the claim compares.
    """
    try:
        return _judge(claim, scores)
    except Untestable as reason:
        scope, *_ = SCOPES_OF[claim.units]
        return Judgement(claim, str(reason), {scope: Verdict(UNTESTABLE)})


def _judge(claim: Claim, scores: pd.DataFrame) -> Judgement:
    sign = -1 if claim.measure.lower_is_better else 1
    # Other column -> differences (units, seeds), above zero where the first column is better.
    differences = {
        other: sign * paired_differences(scores, claim.first, other) for other in claim.others
    }
    effect = effect_of(differences)
    # Fixed tasks: all data sets. Random tasks: those of the same images pooled. Both show the same
    # comparison, even if pooling makes another one the smallest.
    pooled = {other: pool_same_images(frame) for other, frame in differences.items()}
    pooled_effect = effect_of(pooled, effect.name)

    intervals = {FIXED_TASKS: effect.fixed_tasks, RANDOM_TASKS: pooled_effect.random_tasks}
    verdicts = {scope: _verdict(claim, intervals[scope]) for scope in SCOPES_OF[claim.units]}
    if not any(verdict.word for verdict in verdicts.values()):
        raise Untestable("too few runs for an interval")
    return Judgement(
        claim,
        _effect_text(claim, effect),
        verdicts,
        _sample_size(claim, effect),
        claim.measure.convert(effect.mean),
        claim.measure.convert(pooled_effect.minimum_detectable_effect),
    )


def _effect_text(claim: Claim, effect: Effect) -> str:
    """Write the effect, after the comparison that decides if there are several."""
    measure = claim.measure
    text = measure.write(measure.convert(effect.mean))
    if len(claim.others) == 1:
        return text
    compared = [title(claim.first), title(effect.name)]
    if measure.lower_is_better:
        compared.reverse()
    return f"{' − '.join(compared)}: {text}"


def _sample_size(claim: Claim, effect: Effect) -> str:
    """Write the numbers of units and seeds: "1 data set, 3 seeds"."""
    seeds = _count(effect.seeds, "seeds")
    # The one row of all images is no number of units.
    return seeds if claim.units == "seeds" else f"{_count(effect.units, claim.units)}, {seeds}"


def _count(number: int, units: str) -> str:
    return f"{number} {units if number > 1 else units.removesuffix('s')}"


def _verdict(claim: Claim, interval: Interval) -> Verdict:
    """Return the verdict by an interval; one without a word if there are no bounds."""
    if np.isnan(interval.deciding).any():
        return Verdict()
    convert = claim.measure.convert
    word = verdict_word(interval.deciding, claim.margin)
    return Verdict(word, convert(interval.low), convert(interval.high))


def verdict_word(bounds: tuple[float, float], margin: float) -> str:
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
