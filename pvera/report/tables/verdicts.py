"""Statements of the paper, with verdicts for our results."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from pvera.report.scores import Scores
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, plain, signed

BY_SEED = "By seed: the same difference for each seed alone, positive where the statement holds."


@dataclass(frozen=True)
class Claim:
    """A statement and the difference that must be positive for it to hold.

    above, below: how a positive and a negative difference read, "{}" standing for its size.
    difference: over all seeds. by_seed: for each seed, NaN where a run is missing. digits: shown after the point.
    """

    text: str
    above: str
    below: str
    difference: float
    by_seed: Sequence[float]
    digits: int = 1

    @property
    def verdict(self) -> str:
        if np.isnan(self.difference):
            return "cannot be told: runs are missing"
        holds = self.difference > 0
        depends = any((value > 0) != holds for value in self.by_seed if not np.isnan(value))
        return ("holds" if holds else "does not hold") + ", but depends on the seed" * depends

    @property
    def reading(self) -> str:
        """The difference in words, e.g. "6.5 points below the best other method"."""
        if np.isnan(self.difference):
            return NOTHING
        size = plain(abs(self.difference), self.digits)
        if not size.strip("0."):
            return "no difference"
        return (self.above if self.difference > 0 else self.below).format(size)


class Statement(NamedTuple):
    """A statement about scores; the other fields are those of `Claim`, `difference` a function of the scores."""

    text: str
    above: str
    below: str
    difference: Callable[[Scores], float]
    digits: int = 1


def judge(scores: Scores, statements: Iterable[Statement]) -> list[Claim]:
    """Measure each statement on the scores of the paper's methods, over all seeds and for each alone."""
    scores = scores.of_paper()
    of_seeds = [replace(scores, values=scores.values[:, [s]], seeds=(seed,)) for s, seed in enumerate(scores.seeds)]
    return [
        Claim(one.text, one.above, one.below, one.difference(scores), [*map(one.difference, of_seeds)], one.digits)
        for one in statements
    ]


def verdict_table(name: str, caption: str, about: str, claims: Sequence[Claim], seeds: Sequence[int]) -> Table:
    """Build a table with a row per claim: the verdict, the difference in words, and the difference for each seed."""
    rows, data = [], []
    for claim in claims:
        by_seed = ", ".join(signed(value, claim.digits) for value in claim.by_seed)
        rows.append(Row(claim.text, (Cell(claim.verdict), Cell(claim.reading), Cell(by_seed))))
        row = {
            "claim": claim.text,
            "unit": claim.above.replace("{}", "").strip(),
            "difference": claim.difference,
            "verdict": claim.verdict,
        }
        data.append(row | {f"seed{seed}": value for seed, value in zip(seeds, claim.by_seed, strict=True)})
    panel = Panel("", ("Verdict", "Difference", "By seed"), tuple(rows))
    return Table(name, f"{caption} {BY_SEED}", about, (panel,), pd.DataFrame(data))


def answer(verdicts: Iterable[str]) -> str:
    """Count verdicts in one sentence, e.g. those in the data of a `verdict_table`."""
    verdicts = [verdict for verdict in verdicts if verdict != NOTHING]
    hold, fail, unknown = (
        sum(verdict.startswith(start) for verdict in verdicts) for start in ("holds", "does not hold", "cannot")
    )
    text = f"**Answer.** Of {len(verdicts)} statement{'s' * (len(verdicts) != 1)}, {hold} hold{'s' * (hold == 1)} here"
    text += f" and {fail} {'does' if fail == 1 else 'do'} not"
    if unknown:
        text += f"; {unknown} cannot be told"
    if depends := sum("depends" in verdict for verdict in verdicts):
        text += f"; {depends} of these verdicts depend{'s' * (depends == 1)} on the seed"
    return f"{text}."
