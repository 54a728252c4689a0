"""Verdicts on claims, by intervals of paired differences.

The words:

- Fixed tasks: these data sets and no others; the interval is over seeds.
- Random tasks: these data sets as a random sample of tasks; the interval is over them.
- Seeds: the columns of differences; trainings that differ in their random numbers alone.
- Units: the rows of differences; data sets, or models of one data set each.
- Margin: effects within ± this count as zero; a claim without one is never "equivalent".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from pvera.report.contrasts import Untestable, paired_differences, pool_same_images
from pvera.report.statistics import Effect, Interval, effect_of, smallest_effect
from pvera.report.text import fixed, signed, title

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
        size = fixed(abs(mean), self.digits)
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
    #: The rows, and so the verdicts: "data sets", on fixed and on random tasks; "models", one of
    #: each data set, on random tasks alone; "seeds" of all images, on fixed tasks alone.
    units: Literal["data sets", "models", "seeds"] = "data sets"
    #: Two variants are equivalent where the interval contains zero and lies within ± this; without
    #: a margin they never are.
    margin: float = 0
    #: Whether it stands on the page of claims, or in its notebook alone.
    is_main: bool = True


class Verdict(NamedTuple):
    """A verdict and the interval of the effect; without a word where there is no interval."""

    word: str = ""
    low: float = np.nan
    high: float = np.nan


@dataclass(frozen=True)
class Judgement:
    """A claim with its effect and verdicts."""

    claim: Claim
    #: The effect in words, or why the claim is not tested.
    effect_text: str
    #: Numbers of units and seeds, in words.
    sample_size: str = ""
    #: The effect.
    difference: float = np.nan
    #: By the interval over seeds.
    fixed_tasks: Verdict = Verdict()
    #: By the interval over data sets, or models, as a sample.
    random_tasks: Verdict = Verdict()
    #: On random tasks, see `statistics.minimum_detectable_effect`.
    minimum_detectable_effect: float = np.nan

    def csv_row(self) -> dict[str, Any]:
        """Return the row of the CSV file, by its headings."""
        row = {
            "claim": self.claim.text,
            "reading": self.effect_text,
            "scale": self.sample_size,
            "difference": self.difference,
        }
        for scope, verdict in {"seeds": self.fixed_tasks, "tasks": self.random_tasks}.items():
            row[f"{scope}_verdict"] = verdict.word
            row[f"{scope}_low"] = verdict.low
            row[f"{scope}_high"] = verdict.high
        return row | {"minimum_detectable_effect": self.minimum_detectable_effect}


def judge(claim: Claim, scores: pd.DataFrame) -> Judgement:
    """Judge a claim; without enough scores it is not tested.

    Args:
        claim: The claim.
        scores: A row per unit and seed, with the columns that the claim compares.
    """
    try:
        return _judge(claim, scores)
    except Untestable as reason:
        return Judgement(claim, str(reason), fixed_tasks=Verdict(UNTESTABLE))


def _judge(claim: Claim, scores: pd.DataFrame) -> Judgement:
    sign = -1 if claim.measure.lower_is_better else 1
    # Other column -> differences (units, seeds), above zero where the first column is better.
    differences = {
        other: sign * paired_differences(scores, claim.first, other) for other in claim.others
    }
    effect = smallest_effect(differences)
    # Of the same comparison, even if pooling makes another one the smallest.
    pooled = {other: pool_same_images(frame) for other, frame in differences.items()}
    sample = effect_of(pooled, effect.name)

    fixed_tasks = Verdict() if claim.units == "models" else _verdict(claim, effect.over_seeds)
    random_tasks = _verdict(claim, sample.over_units)
    if not (fixed_tasks.word or random_tasks.word):
        raise Untestable(f"fewer than two {claim.units}: no interval")
    return Judgement(
        claim,
        _effect_text(claim, effect),
        _sample_size(claim, effect),
        claim.measure.convert(effect.mean),
        fixed_tasks,
        random_tasks,
        claim.measure.convert(sample.minimum_detectable_effect),
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
    seeds = _count(effect.seeds, "seeds")
    if claim.units == "seeds":
        return seeds
    return f"{_count(effect.units, claim.units)}, {seeds}"


def _count(number: int, units: str) -> str:
    return f"{number} {units if number > 1 else units.removesuffix('s')}"


def _verdict(claim: Claim, interval: Interval) -> Verdict:
    """Return the verdict by an interval; one without a word if there are no bounds."""
    bounds = interval.bounds_of_smallest
    if np.isnan(bounds).any():
        return Verdict()
    convert = claim.measure.convert
    word = verdict_word(bounds, claim.margin)
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
