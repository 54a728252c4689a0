"""Statements of the paper, held against results."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, signed


@dataclass(frozen=True)
class Claim:
    """A statement and the number that must be positive for it to hold.

    difference: over all seeds; by_seed: the same for each seed (NaN where a run that it needs is missing), to
    see whether it depends on the draw. digits: shown after the point.
    """

    text: str
    unit: str
    difference: float
    by_seed: Sequence[float]
    digits: int = 1

    @property
    def verdict(self) -> str:
        if np.isnan(self.difference):
            return "cannot be told: runs are missing"
        holds = self.difference > 0
        other = any((value > 0) != holds for value in self.by_seed if not np.isnan(value))
        return ("holds" if holds else "does not hold") + ", but depends on the seed" * other


def held(name: str, caption: str, about: str, claims: Sequence[Claim], seeds: Sequence[int]) -> Table:
    """A row per claim: the verdict, the number behind it, and that of each seed."""
    rows, data = [], []
    for claim in claims:
        shown = signed(claim.difference, claim.digits)
        if shown != NOTHING:
            shown += f" {claim.unit}"
        by_seed = ", ".join(signed(value, claim.digits) for value in claim.by_seed)
        rows.append(Row(claim.text, (Cell(claim.verdict), Cell(shown), Cell(by_seed))))
        row = {
            "claim": claim.text,
            "unit": claim.unit,
            "difference": claim.difference,
            "verdict": claim.verdict,
        }
        data.append(row | {f"seed{seed}": value for seed, value in zip(seeds, claim.by_seed, strict=True)})
    panel = Panel("", ("Here", "Difference", "By seed"), tuple(rows))
    return Table(name, caption, about, (panel,), pd.DataFrame(data))
