"""Shares of the grid table: percentages of whole numbers of configurations, and the most chosen values."""

import math
from collections.abc import Iterator
from itertools import product

from pvera.adapters import METHODS
from pvera.report.audit.core import CONTRADICTS, EPSILON, FOLLOWS, Finding
from pvera.report.published import Published


def shares(percents: list[int], total: int) -> tuple[int, ...] | None:
    """Return whole numbers that sum to `total` and print as these percentages of it; None if there are none."""
    options = [[k for k in range(total + 1) if abs(100 * k / total - p) <= 0.5 + EPSILON] for p in percents]
    return next((counts for counts in product(*options) if sum(counts) == total), None)


def check_grid(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the grid table: shares of its configurations, and its most chosen values."""
    total = int(paper.quote("configurations"))
    for method, rows in paper.grid.groupby("method", sort=False):
        percents = rows["percent"].tolist()
        counts = shares(percents, total)
        note = f"sums to {sum(percents)}, as rounded shares may" if counts and sum(percents) != 100 else ""
        if not counts:
            alone = [p for p in percents if not _is_share(p, total)]
            note = ", ".join(f"{p}% is no multiple of 1/{total} ({_neighbours(p, total)})" for p in alone)
            note += "; conjecture: adjusted so that the row sums to 100" if sum(percents) == 100 else ""
        yield Finding(
            "grid shares", f"Table 4, {METHODS[method].title}", ", ".join(f"{p}%" for p in percents),
            ", ".join(f"{k}/{total}" for k in counts) if counts else f"no counts that sum to {total}",
            FOLLOWS if counts else CONTRADICTS, note,
        )  # fmt: skip
    for method, quote in (("lora", "lora_rank"), ("vera", "vera_learning_rate")):
        rows = paper.grid[paper.grid["method"] == method]
        most = rows.loc[rows["percent"].idxmax(), "value"]
        yield Finding(
            "grid shares", f"text, most chosen value of {METHODS[method].title}", paper.quote(quote),
            f"{most:g}", FOLLOWS if float(paper.quote(quote)) == most else CONTRADICTS,
        )  # fmt: skip


def _is_share(percent: int, total: int) -> bool:
    return any(abs(100 * k / total - percent) <= 0.5 + EPSILON for k in range(total + 1))


def _neighbours(percent: int, total: int) -> str:
    below = math.floor(percent * total / 100)
    return " and ".join(f"{k}/{total} = {100 * k / total:.1f}%" for k in (below, below + 1))
