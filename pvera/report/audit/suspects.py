"""Cells that look like trainings that learned nothing, and the averages that they move.

Nothing printed contradicts such a cell, so every finding here is not checkable: the predictions would tell.
"""

from collections.abc import Iterator

import pandas as pd

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS
from pvera.report.audit.core import EPSILON, HALF, UNCHECKED, Finding, cell_title, titles
from pvera.report.published import BACKBONES, TABLES, Published

CHECK = "suspected cells"
REPEATED = 1 / 3  # of a data set's cells; so many equal ones are listed
FAILED, LOW = 1 / 10, 1 / 2  # of the median over a backbone's methods


def check_suspects(paper: Published) -> Iterator[Finding]:
    """Yield the findings on repeated cells, on cells far below all others, and on the averages of their methods."""
    for dataset, cells in paper.detailed.groupby("dataset", sort=False):
        yield from _repeated(dataset, cells)
    for backbone in BACKBONES:
        table = paper.accuracies(backbone)
        failed = far_below(table, FAILED)
        for method, dataset in _cells(failed):
            yield Finding(
                CHECK, f"{TABLES[backbone]} ({BACKBONES[backbone]}), {cell_title(method, dataset)}",
                f"{table.at[method, dataset]:.1f}", f"median of the methods {table[dataset].median():.1f}", UNCHECKED,
                f"1 / classes is {100 / TASKS[dataset].classes:.1f}; conjecture: a training that failed",
            )  # fmt: skip
        for method in failed.index[failed.any(axis=1)]:
            yield _average(backbone, table, method)


def far_below(table: pd.DataFrame, share: float) -> pd.DataFrame:
    """Return the cells (methods × data sets) under `share` of the median over methods."""
    return table < share * table.median()


def _cells(chosen: pd.DataFrame) -> list[tuple[str, str]]:
    return [(method, dataset) for method, row in chosen.iterrows() for dataset in row.index[row]]


def _repeated(dataset: str, cells: pd.DataFrame) -> Iterator[Finding]:
    """Yield a finding where many cells of a data set are equal and have no spread over seeds."""
    counts = cells.loc[cells["std"] == 0, "accuracy"].value_counts()
    if counts.empty or counts.max() <= REPEATED * len(cells):
        return
    value = counts.idxmax()
    equal = cells[(cells["std"] == 0) & (cells["accuracy"] == value)]
    below, above = ((sign * (cells["accuracy"] - value) > 2 * HALF + EPSILON).sum() for sign in (-1, 1))
    note = "conjecture: near the ceiling"
    if not below:
        note = "no cell is clearly below; conjecture: constant answers, the share of the most frequent class"
        if pvera := [BACKBONES[b] for b in equal.loc[equal["method"] == "pvera", "backbone"]]:
            note += f"; PVeRA's on {' and '.join(pvera)} is one of them"
    yield Finding(
        CHECK, f"Tables 6 to 8, {TASKS[dataset].title}", f"{len(equal)} of {len(cells)} cells are {value:.1f} ± 0.0",
        f"{below} cells below it, {above} above it", UNCHECKED, note,
    )  # fmt: skip


def _average(backbone: str, table: pd.DataFrame, method: str) -> Finding:
    """Return the finding on a method's average with and without its low cells, beside that of linear probing."""
    rows, texts = table.loc[[method, "linear"]], []
    for share, name in ((FAILED, "a tenth"), (LOW, "half")):
        low = far_below(table, share).loc[method]
        rest = rows.loc[:, ~low]
        texts.append(f"{_beside(rest)} without its {low.sum()} under {name} of the median")
    note = ""
    if _below_linear(rows):
        note = f"below linear probing, {'also' if _below_linear(rest) else 'but not'} without these"
    return Finding(
        CHECK, f"{TABLES[backbone]} ({BACKBONES[backbone]}), average of {titles([method])}",
        f"{METHODS[method].title} and Linear: {_beside(rows)} over all data sets", "; ".join(texts), UNCHECKED, note,
    )  # fmt: skip


def _below_linear(rows: pd.DataFrame) -> bool:
    method, linear = rows.mean(axis=1)
    return bool(method < linear)


def _beside(rows: pd.DataFrame) -> str:
    return " and ".join(f"{mean:.1f}" for mean in rows.mean(axis=1))
