"""Claims, judged by intervals of paired differences over seeds (fixed tasks) and over data sets (random tasks)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.report.statistics import Effect, Interval, weakest_contrast
from pvera.report.table import NOTHING, Column, fixed, interval, signed, title

#: The scale of a claim about counts.
EXACT = "counts, exact"
VERDICTS = ("supported", "contradicted", "equivalent", "inconclusive", "not tested")
SUPPORTED, CONTRADICTED, EQUIVALENT, INCONCLUSIVE, UNTESTABLE = VERDICTS

RULE = (
    "Differences are paired by data set and seed, with 95 % intervals. *Fixed tasks*: over seeds, on these data sets. "
    "*Random tasks*: if these data sets were a random sample of tasks, where those of the same images count as one. "
    "An effect above zero speaks for the claim: it is *supported* where the interval lies above zero, *contradicted* "
    "where it lies below, and *inconclusive* otherwise. Two variants are *equivalent* where the interval lies within "
    "±1 point. Where several comparisons decide, such as the highest of eight, the interval is that of the closest "
    "one, and the verdict is stricter: it is corrected for their number. Test images stay; docs/design.md says what "
    "others would add."
)
#: What an interval is over -> the title of its column.
SCOPES = {"seeds": "Fixed tasks", "tasks": "Random tasks"}
#: The columns of a judged claim in CSV files, and their values before it is judged.
FIELDS: dict[str, Any] = {
    "claim": "",
    "reading": "",
    "scale": "",
    "difference": np.nan,
    "seeds_verdict": None,
    "seeds_low": np.nan,
    "seeds_high": np.nan,
    "tasks_verdict": None,
    "tasks_low": np.nan,
    "tasks_high": np.nan,
    "minimum_detectable_effect": np.nan,
}


class Untestable(Exception):
    """A claim's results are missing; the message says which."""


class Answer(NamedTuple):
    """The text of an exact count, and the verdict on a claim about it."""

    reading: str
    verdict: str
    scale: str = EXACT


@dataclass(frozen=True)
class Claim:
    """A line of the registry.

    Attributes:
        topic: A key of `claims.TOPICS`.
        text: The claim.
        contrast: From the topic's results to name -> paired differences by data set and seed, NaN where a run is
            missing, or to an `Answer`. The claim holds if all differences are positive on average. It raises
            `Untestable` where results are missing.
        effect: How the smallest mean reads, with its {signed} value or its {size}.
        digits: Decimals of the effect and its intervals.
        convert: A difference in the units of the words, where they are others; it keeps the order.
        units: What is replicated: "data sets"; "models", of which each sees other data sets; or "seeds", for a claim
            about these data sets alone.
        margin: Where the interval lies within ± this, the two are equivalent.
        place: Where the paper has it, if it is not the topic's place.
        page: Whether it stands on the page of claims, or in its notebook alone.
    """

    topic: str
    text: str
    contrast: Callable[[Any], "PairedDifferences | Answer"]
    effect: str = "{signed}"
    digits: int = 1
    convert: Callable[[float], float] = float
    units: str = "data sets"
    margin: float = 0
    place: str = ""
    page: bool = True

    def judge(self, data, missing: str = "") -> dict:
        """Return the row of `FIELDS`, with `digits`.

        Args:
            data: The topic's results, None where there are none.
            missing: Says so then.
        """
        row = FIELDS | {"claim": self.text, "digits": self.digits}
        try:
            if data is None:
                raise Untestable(missing)
            outcome = self.contrast(data)
            if isinstance(outcome, Answer):
                return row | {
                    "reading": outcome.reading,
                    "scale": outcome.scale,
                    "seeds_verdict": outcome.verdict,
                }
            return row | self._judged(outcome)
        except Untestable as reason:
            return row | {"reading": str(reason), "seeds_verdict": UNTESTABLE}

    def _judged(self, differences: "PairedDifferences") -> dict:
        by_seed = {
            name: gaps.unstack("seed", sort=False)
            if "seed" in gaps.index.names
            else gaps.to_frame()
            for name, gaps in differences.items()
        }
        if any(gaps.isna().all(axis=None) for gaps in by_seed.values()):
            raise Untestable("no runs to compare")

        if self.units == "seeds":  # their spread is all that there is
            effect = weakest_contrast({name: gaps.T.to_numpy() for name, gaps in by_seed.items()})
            scopes = {"seeds": effect.others}
            detectable = np.nan
        else:
            effect = weakest_contrast({name: gaps.to_numpy() for name, gaps in by_seed.items()})
            sample = weakest_contrast(
                {name: pooled(gaps).to_numpy() for name, gaps in by_seed.items()}
            )
            of_seeds = self.units == "data sets" and by_seed[effect.name].columns.name == "seed"
            scopes = ({"seeds": effect.these} if of_seeds else {}) | {"tasks": sample.others}
            detectable = self.convert(sample.detectable)
        scopes = {
            scope: estimate
            for scope, estimate in scopes.items()
            if not np.isnan(estimate.bounds).any()
        }
        if not scopes:
            raise Untestable(f"fewer than two {self.units}: no interval")

        row = {
            "reading": self._read(effect),
            "scale": self._scale(effect),
            "difference": self.convert(effect.mean),
        }
        for scope, estimate in scopes.items():
            row |= self._bounds(scope, estimate)
        return row | {"minimum_detectable_effect": detectable}

    def _read(self, effect: Effect) -> str:
        mean = self.convert(effect.mean)
        text = self.effect.format(
            size=fixed(abs(mean), self.digits), signed=signed(mean, self.digits)
        )
        return f"{effect.name}: {text}" if effect.name else text

    def _scale(self, effect: Effect) -> str:
        text = f"{effect.units} {self.units if effect.units > 1 else self.units.removesuffix('s')}"
        if self.units == "seeds":
            return text
        return f"{text}, {effect.repeats} seed{'s' if effect.repeats > 1 else ''}"

    def _bounds(self, scope: str, estimate: Interval) -> dict:
        return {
            f"{scope}_verdict": verdict(estimate.bounds, self.margin),
            f"{scope}_low": self.convert(estimate.low),
            f"{scope}_high": self.convert(estimate.high),
        }


#: Data sets of the same images: as a sample they are one unit.
SAME_IMAGES = {
    "clevr_count": "clevr", "clevr_dist": "clevr", "dsprites_loc": "dsprites", "dsprites_ori": "dsprites",
    "smallnorb_azi": "smallnorb", "smallnorb_ele": "smallnorb",
}  # fmt: skip


def unit(dataset: str) -> str:
    """Return the unit of a sample to which a data set belongs."""
    return SAME_IMAGES.get(dataset, dataset)


def pooled(gaps: pd.DataFrame) -> pd.DataFrame:
    """Return differences (units, repeats) with the mean of data sets of the same images in their place."""
    if "dataset" not in gaps.index.names:
        return gaps
    return gaps.groupby(gaps.index.get_level_values("dataset").map(unit)).mean()


def verdict(bounds: tuple[float, float], margin: float = 0) -> str:
    """Return the verdict on a claim that an effect with these bounds is positive.

    An interval without width decides nothing: that few differences are equal does not say how much they vary.
    """
    low, high = bounds
    if np.isclose(low, high, rtol=0, atol=1e-12):
        return INCONCLUSIVE
    if -margin < low <= 0 <= high < margin:
        return EQUIVALENT
    if low > 0:
        return SUPPORTED
    return CONTRADICTED if high < 0 else INCONCLUSIVE


# Contrasts of scores (rows category, dataset and seed, columns methods)

PairedDifferences = dict[str, pd.Series]
Contrast = Callable[[Any], PairedDifferences]


def contrast(compute: Callable[..., PairedDifferences]) -> Callable[..., Contrast]:
    """Turn a function of (results, options) into one of the options alone, which returns the function of results."""
    return lambda *options, **named: lambda results: compute(results, *options, **named)


@contrast
def lead(
    scores: pd.DataFrame, method: str, *over: str, lowest: bool = False, sign: str = "−"
) -> PairedDifferences:
    """Return how far `method` lies above each of `over`, by default all other methods of the paper.

    lowest: how far it lies below. sign: "/" for logarithms. `Untestable` without one of the methods that are named, or
    without another.
    """
    others = over or tuple(name for name in PAPER_METHODS if name in scores and name != method)
    for name in (method, *others):
        if name not in scores:
            raise Untestable(f"no runs of {title(name)}")
    if not others:
        raise Untestable(f"no method beside {title(method)}")
    pairs = [(other, method) if lowest else (method, other) for other in others]
    return {f"{title(high)} {sign} {title(low)}": scores[high] - scores[low] for high, low in pairs}


below = partial(lead, lowest=True)


# Shown


def scope_cell(row: pd.Series, scope: str) -> str:
    """Return the verdict and the interval of a scope."""
    word, low, high = (row[f"{scope}_{name}"] for name in ("verdict", "low", "high"))
    if pd.isna(low):
        return NOTHING if pd.isna(word) else word
    return f"{word} {interval(None, low, high, row['digits'])}"


#: How judged claims are shown.
SHOWN = {
    "reading": Column("Effect", lambda row: row["reading"]),
    "seeds_low": Column(SCOPES["seeds"], partial(scope_cell, scope="seeds")),
    "tasks_low": Column(SCOPES["tasks"], partial(scope_cell, scope="tasks")),
    "scale": Column("Scale", lambda row: row["scale"] or NOTHING),
}
