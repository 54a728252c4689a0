"""Claims, judged by intervals of paired differences over data sets."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.report.statistics import weakest_contrast
from pvera.report.table import NOTHING, interval, plain, signed, title

#: The scale of a claim about counts.
EXACT = "counts, exact"
HOLDS, FAILS, EQUAL, UNDECIDED, UNTESTABLE = VERDICTS = ("holds", "fails", "equal", "undecided", "not testable here")

RULE = (
    "Differences are paired by data set and seed. “On these tasks” has the 95 % interval if seeds were drawn anew, "
    "“on tasks like these” that if these tasks were a random sample of tasks, where those of the same images count as "
    "one. An effect above zero speaks for the claim: it holds where the interval lies above zero, fails where it lies "
    "below, and is undecided otherwise. Two variants are equal where the interval lies within ±1 point. Where several "
    "comparisons decide, such as the highest of eight, the interval is that of the closest one, and the verdict is "
    "stricter: it is corrected for their number. Where images differ from VTAB-1k, the tables of accuracy say in "
    "what. Test images stay: others, 2,000 of each data set, would add a standard error of about 0.7 points on one "
    "data set, and 0.2 on the mean of twelve (the design expected 0.4 on one)."
)
#: The columns of a judged claim in CSV files, and their values before it is judged.
FIELDS: dict[str, Any] = {
    "claim": "", "verdict": None, "these_verdict": None, "difference": np.nan, "low": np.nan, "high": np.nan,
    "these_low": np.nan, "these_high": np.nan, "could_be_shown": np.nan, "reading": "", "scale": "", "cut": "",
    "page": True,
}  # fmt: skip


class Untestable(Exception):
    """A claim's results are missing; the message says which."""


class Answer(NamedTuple):
    """The text of an exact count, or of another effect with its interval, and the verdict on a claim about it."""

    reading: str
    verdict: str
    scale: str = EXACT
    difference: float = np.nan
    low: float = np.nan
    high: float = np.nan


@dataclass(frozen=True)
class Claim:
    """A line of the registry.

    topic: a key of `claims.TOPICS`. text: the claim, or a function from the topic's results, or None, to it. contrast:
    from the topic's results to name -> paired differences by unit and, where there are several, seed, NaN where a run
    is missing, or to an `Answer`. The claim holds if all differences are positive on average. It raises `Untestable`
    where results are missing. effect: how the smallest mean reads, with its {signed} value or its {size}. convert: a
    difference in the units of the words, where they are others; it keeps the order. units: what is replicated; "seeds"
    for a claim about these data sets alone. margin: where the interval lies within ± this, the two are equal. page: the
    claim stands on the page of all claims, of this backbone alone where one is named; otherwise only in its notebook.
    place: where the paper has it, if it is not the topic's place.
    """

    topic: str
    text: str | Callable[[Any], str]
    contrast: Callable[[Any], "Gaps | Answer"]
    effect: str = "{signed}"
    digits: int = 1
    convert: Callable[[float], float] = float
    units: str = "data sets"
    margin: float = 0
    page: bool | str = True
    place: str = ""

    def judge(self, data, missing: str = "") -> dict:
        """Return the row of `FIELDS` with `digits`, and the effect of each seed alone.

        data: the topic's results, None where there are none; then `missing` says so.
        """
        row = FIELDS | {"claim": self.text(data) if callable(self.text) else self.text, "digits": self.digits}
        try:
            if data is None:
                raise Untestable(missing)
            return row | self._judged(self.contrast(data))
        except Untestable as reason:
            return row | {"verdict": UNTESTABLE, "reading": str(reason)}

    def _judged(self, judged: "Gaps | Answer") -> dict:
        if isinstance(judged, Answer):
            return judged._asdict()
        contrasts = {
            name: gaps.unstack("seed", sort=False) if "seed" in gaps.index.names else gaps.to_frame()
            for name, gaps in judged.items()
        }
        if any(gaps.isna().all(axis=None) for gaps in contrasts.values()):
            raise Untestable("no runs to compare")
        over_seeds = self.units == "seeds"
        these = {name: (gaps.T if over_seeds else gaps).to_numpy() for name, gaps in contrasts.items()}
        others = {name: pooled(gaps).to_numpy() for name, gaps in contrasts.items()}
        effect = weakest_contrast(these)
        sample = effect if over_seeds else weakest_contrast(others)
        gaps, scopes = contrasts[effect.name], {}
        if not np.isnan(sample.others.bounds).any():
            scopes["these_" if over_seeds else ""] = sample.others
        if self.units == "data sets" and gaps.columns.name == "seed" and not np.isnan(effect.these.bounds).any():
            scopes["these_"] = effect.these
        if not scopes:
            raise Untestable(f"fewer than two {self.units}: no interval")
        mean = self.convert(effect.mean)
        read = self.effect.format(size=plain(abs(mean), self.digits), signed=signed(mean, self.digits))
        row = {"reading": f"{effect.name}: {read}" if effect.name else read, "difference": mean}
        row["scale"] = f"{effect.units} {self.units if effect.units > 1 else self.units.removesuffix('s')}"
        if self.units in ("data sets", "models"):
            row["scale"] += ", 1 seed" if effect.repeats == 1 else f", {effect.repeats} seeds"
        if not over_seeds:
            row["could_be_shown"] = self.convert(sample.detectable)
        if gaps.columns.name == "seed":
            row |= {f"seed{seed}": self.convert(gap) for seed, gap in gaps.mean().items()}
        for scope, estimate in scopes.items():
            row[f"{scope}verdict"] = verdict(estimate.bounds, self.margin)
            row |= {f"{scope}low": self.convert(estimate.low), f"{scope}high": self.convert(estimate.high)}
        return row


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
        return UNDECIDED
    if -margin < low <= 0 <= high < margin:
        return EQUAL
    return HOLDS if low > 0 else FAILS if high < 0 else UNDECIDED


# Contrasts of scores (rows category, dataset and seed, columns methods)

Gaps = dict[str, pd.Series]
Contrast = Callable[[Any], Gaps]


def contrast(compute: Callable[..., Gaps]) -> Callable[..., Contrast]:
    """Turn a function of (results, options) into one of the options alone, which returns the function of results."""
    return lambda *options, **named: lambda results: compute(results, *options, **named)


@contrast
def lead(scores: pd.DataFrame, method: str, *over: str, lowest: bool = False, sign: str = "−") -> Gaps:
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


def _scope(scope: str, row: pd.Series) -> str:
    """Return the cell of a scope, verdict and interval; scope: what its columns begin with."""
    verdict, low, high = (row[f"{scope}{name}"] for name in ("verdict", "low", "high"))
    if pd.isna(low):
        return NOTHING if pd.isna(verdict) else verdict
    return f"{verdict} {interval(None, low, high, row['digits'])}"


#: How judged claims are shown.
SHOWN = {
    "reading": ("Effect", lambda row: row["reading"]),
    "these_low": ("On these tasks", partial(_scope, "these_")),
    "low": ("On tasks like these", partial(_scope, "")),
    "scale": ("Scale", lambda row: ", ".join(filter(None, [row["scale"], row["cut"]])) or NOTHING),
}
