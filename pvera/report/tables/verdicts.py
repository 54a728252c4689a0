"""The paper's claims, judged by intervals of paired differences over data sets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from pvera.adapters import METHODS, PAPER_METHODS
from pvera.report.scores import Scores
from pvera.report.statistics import Effect, smallest
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, interval, plain, signed

HOLDS, FAILS, UNDECIDED, UNTESTABLE = VERDICTS = ("holds", "fails", "undecided", "not testable here")

RULE = (
    "95 % interval: Student's t over data sets, or the units that the text names, of differences paired by data set "
    "and seed; never narrower than the spread of the seeds implies. Its sign is the claim's: a claim holds above zero, "
    "fails below it, and is undecided around it. A claim about several differences is judged by the smallest: its "
    "interval runs from the lowest of their lower ends to the lowest of their upper ends after Bonferroni's "
    "correction. Could be shown: the true difference that the interval of a single one separates from zero in 80 of "
    "100 repetitions."
)
MORE = "Bootstrap: the same interval from resampled data sets. By seed: the difference for each seed alone."


BY_SEED = ("data sets", "models")  # units that have a difference for each seed


class Untestable(Exception):
    """A claim's results are missing; the message says which."""


@dataclass(frozen=True)
class Claim:
    """A judged claim.

    reading: the effect in words, or the reason why there is none. effect: behind the verdict, in the units that are
    shown; None for a count or without results. by_seed: the effect of each seed alone, where seeds are shown. scale:
    what the verdict rests on, e.g. "6 data sets, 3 seeds". digits: shown after the point. cut: how many of
    the trainings behind it a limit on epochs ended, in words; empty for none.
    """

    text: str
    verdict: str
    reading: str
    effect: Effect | None = None
    by_seed: tuple[float, ...] = ()
    scale: str = ""
    digits: int = 1
    cut: str = ""

    @property
    def interval(self) -> str:
        """The 95 % interval; empty without one."""
        return interval(None, self.effect.low, self.effect.high, self.digits) if self.effect else NOTHING


class Statement(NamedTuple):
    """A claim before it is judged.

    contrasts: results -> name -> paired differences (data sets, seeds), NaN where a run is missing. The claim holds if
    all are positive on average. It raises `Untestable` where results are missing. above, below: how a positive and a
    negative mean read, with {size} and the {name} of the smallest contrast. shown: a difference in the units of the
    words, where they are others; it keeps order and sign. units: what is replicated; "seeds" for a claim about one data
    set. turned: the names of contrasts for which `above` and `below` change places.
    """

    text: str
    above: str
    below: str
    contrasts: Callable[..., Mapping[str, np.ndarray]]
    digits: int = 1
    shown: Callable[[float], float] = float
    units: str = "data sets"
    turned: tuple[str, ...] = ()

    def judge(self, results) -> Claim:
        """Judge the claim on the results that `contrasts` takes."""
        try:
            contrasts = self.contrasts(results)
        except Untestable as missing:
            return self.untested(str(missing))
        if absent := [name for name, differences in contrasts.items() if np.isnan(differences).all()]:
            return self.untested(f"no runs to compare with {absent[0]}" if absent[0] else "no runs to compare")
        over_seeds = self.units == "seeds"
        effect = smallest({name: part.T if over_seeds else part for name, part in contrasts.items()})
        if np.isnan(effect.low):
            return self.untested(f"fewer than two {self.units}: no interval")
        shown = Effect(
            effect.name, *map(self.shown, (effect.mean, effect.low, effect.high, effect.bootstrap_low,
            effect.bootstrap_high, effect.detectable)), effect.units, effect.repeats,
        )  # fmt: skip
        part = contrasts[effect.name]
        seeds = [self.shown(np.mean(column[~np.isnan(column)])) if (~np.isnan(column)).any() else np.nan
                 for column in np.asarray(part).T]  # fmt: skip
        scale = [f"{effect.units} {self.units}"]
        if self.units in BY_SEED:
            scale.append(f"{effect.repeats} seed{'s' * (effect.repeats != 1)}")
        return Claim(self.text, verdict(effect), self._read(shown), shown, tuple(seeds), ", ".join(scale), self.digits)

    def untested(self, reason: str) -> Claim:
        """Return the claim as not testable, with the reason."""
        return Claim(self.text, UNTESTABLE, reason, digits=self.digits)

    def _read(self, effect: Effect) -> str:
        size = plain(abs(effect.mean), self.digits)
        if not size.strip("0."):
            return f"a difference of {size}"
        above = (effect.mean > 0) != (effect.name in self.turned)
        return (self.above if above else self.below).format(size=size, name=effect.name)


def verdict(effect: Effect) -> str:
    """Return the verdict on a claim that its effect is positive.

    An interval without width decides nothing: that few differences are equal does not say how much they vary.
    """
    if np.isclose(effect.low, effect.high, rtol=0, atol=1e-12):
        return UNDECIDED
    return HOLDS if effect.low > 0 else FAILS if effect.high < 0 else UNDECIDED


def judge(results, statements: Iterable[Statement]) -> list[Claim]:
    """Judge each statement on the results that its contrasts take."""
    return [statement.judge(results) for statement in statements]


# Contrasts of scores

Values = Mapping[str, np.ndarray]  # method -> (data sets, seeds)


def by_method(scores: Scores, factor: float = 100) -> dict[str, np.ndarray]:
    """Return the scores of the paper's methods, method -> (data sets, seeds), times `factor`."""
    scores = scores.of_paper()
    return {method: factor * of_method.T for method, of_method in zip(scores.methods, scores.values, strict=True)}


def leads(values: Values, of: str, over: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Return how far `of` lies above each method of `over`, by default all others; named by the other's title.

    Raises `Untestable` without one of the methods that are named, or without another.
    """
    others = [method for method in values if method != of] if over is None else list(over)
    for method in (of, *others):
        if method not in values:
            raise Untestable(f"no runs of {METHODS[method].title}")
    if not others:
        raise Untestable(f"no method beside {METHODS[of].title}")
    return {METHODS[other].title: values[of] - values[other] for other in others}


def others(*methods: str) -> list[str]:
    """Return the paper's methods but these."""
    return [method for method in PAPER_METHODS if method not in methods]


# Tables


def verdict_table(name: str, caption: str, about: str, claims: Sequence[Claim], seeds: Sequence[int]) -> Table:
    """Build a table with a row per claim: verdict, effect in words, intervals, and the effect of each seed."""
    rows, data = [], []
    for claim in claims:
        effect = claim.effect
        of_seeds = claim.by_seed if len(claim.by_seed) == len(seeds) else ()
        cells = [claim.verdict, claim.reading, claim.interval]
        if effect:
            cells += [
                interval(None, effect.bootstrap_low, effect.bootstrap_high, claim.digits),
                plain(effect.detectable, claim.digits),
                ", ".join(signed(value, claim.digits) for value in of_seeds) or NOTHING,
            ]
        else:
            cells += [NOTHING] * 3
        rows.append(Row(claim.text, tuple(map(Cell, cells))))
        data.append(numbers(claim) | dict(zip((f"seed{seed}" for seed in seeds), of_seeds, strict=False)))
    header = ("Verdict", "Difference", "95 % interval", "Bootstrap", "Could be shown", "By seed")
    columns = [*numbers(Claim("", "", "")), *(f"seed{seed}" for seed in seeds)]
    panel = Panel("", header, tuple(rows))
    return Table(name, f"{caption} {RULE} {MORE}", about, (panel,), pd.DataFrame(data, columns=columns))


def numbers(claim: Claim) -> dict:
    """Return a claim's verdict and numbers, NaN where there are none: the row of a CSV file."""
    effect = claim.effect or Effect("", *[np.nan] * 6, 0, 0)
    return {
        "claim": claim.text,
        "verdict": claim.verdict,
        "difference": effect.mean,
        "low": effect.low,
        "high": effect.high,
        "bootstrap_low": effect.bootstrap_low,
        "bootstrap_high": effect.bootstrap_high,
        "could_be_shown": effect.detectable,
        "reading": claim.reading,
        "scale": claim.scale,
        "cut": claim.cut,
    }


def closing(table: Table) -> str:
    """Close a notebook on its `verdict_table`: see `in_short`."""
    return in_short(table.data)


def in_short(data: pd.DataFrame) -> str:
    """Count the verdicts in rows of `numbers`; state the first claim, and each that fails, with its effect."""
    stated = data[(data.index == data.index[0]) | (data["verdict"] == FAILS)]
    said = [f"{row.claim}: {row.verdict} ({row.reading})." for row in stated.itertuples()]
    return " ".join([answer(data["verdict"]), *said])


def answer(verdicts: Iterable[str]) -> str:
    """Count verdicts in one sentence, e.g. those in the data of a `verdict_table`."""
    verdicts = list(verdicts)
    words = {HOLDS: ("holds", "hold"), FAILS: ("fails", "fail")}
    counts = [(verdicts.count(kind), *words.get(kind, (f"is {kind}", f"are {kind}"))) for kind in VERDICTS]
    *parts, last = [f"{count} {one if count == 1 else several}" for count, one, several in counts if count]
    text = f"{', '.join(parts)} and {last}" if parts else last
    return f"**Answer.** Of {len(verdicts)} claim{'s' * (len(verdicts) != 1)}, {text}."
