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


def check_search(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the sentence that says what is searched, against the grid table and the search of β."""
    said, searched = paper.quote("grid_main"), paper.quote("grid_searched")
    panels = [name for name in ("ratio", "rank", "learning_rate") if name in set(paper.grid["hyperparameter"])]
    listed = [name for name in ("ratio", "rank", "learning_rate") if name.replace("_", " ") in searched]
    yield Finding(
        "grid shares", "text, searched hyperparameters", searched, f"Table 4: {', '.join(panels)}",
        FOLLOWS if panels == listed else CONTRADICTS,
    )  # fmt: skip
    values = paper.grid.groupby("method").size()
    counted = ", ".join(map(str, sorted(values.unique())))
    agree = counted == paper.quote("grid_values")
    yield Finding(
        "grid shares", "text, values per grid", paper.quote("grid_values"), counted,
        FOLLOWS if agree else CONTRADICTS,
    )  # fmt: skip
    named = any(name in searched for name in ("β", "KL"))
    yield Finding(
        "grid shares", "text, only the main hyperparameter is searched", f"{said} ({searched})",
        f"β of PVeRA by a {paper.quote('beta_search')} on the validation loss, per data set",
        FOLLOWS if named else CONTRADICTS,
        "" if named else "PVeRA's β is a second one, so PVeRA has more configurations to choose from than the others",
    )  # fmt: skip


def check_grid(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the grid table: shares of its configurations, and its most chosen values."""
    total = int(paper.quote("configurations"))
    for method, rows in paper.grid.groupby("method", sort=False):
        percents = rows["percent"].tolist()
        counts = shares(percents, total)
        note = f"sums to {sum(percents)}, as rounded shares may" if counts and sum(percents) != 100 else ""
        if not counts:
            alone = [p for p in percents if not _is_share(p, total)]
            note = ", ".join(f"{p} % is no multiple of 1/{total} ({_neighbours(p, total)})" for p in alone)
            note += "; conjecture: adjusted so that the row sums to 100" if sum(percents) == 100 else ""
        yield Finding(
            "grid shares", f"Table 4, {METHODS[method].title}", ", ".join(f"{p} %" for p in percents),
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
    return " and ".join(f"{k}/{total} = {100 * k / total:.1f} %" for k in (below, below + 1))
