"""Contradictions in the paper's printed tables (`report.audit`)."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS
from pvera.report import audit as checks
from pvera.report import stars
from pvera.report.plots import PAGE, entry, key
from pvera.report.published import BACKBONES, TABLES, Published

#: Colours that no method has.
CONTRADICTION, OPEN = "#BB0000", "0.85"


def table(ax: Axes, paper: Published, backbone: str) -> Axes:
    """Draw the cells of one detailed table: methods × data sets.

    Grey: rounding leaves the star open. Red: a printed star that does not follow (filled), or a star that must stand
    but does not (hollow). Cross: a mean far below those of the other methods.
    """
    decided, printed = stars.decisions(paper, backbone), paper.accuracies(backbone, "star")
    wrong = stars.contradictions(decided, printed)
    accuracy = paper.accuracies(backbone)
    low = accuracy < accuracy.median() / 10
    methods, datasets = list(low.index), list(low.columns)
    for column, method in enumerate(methods):
        for row, dataset in enumerate(datasets):
            if method in decided.index and decided.at[method, dataset] is None:
                ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=OPEN, linewidth=0))
            if method in wrong.index and wrong.at[method, dataset]:
                face = CONTRADICTION if printed.at[method, dataset] else "white"
                ax.plot(column, row, "*", color=CONTRADICTION, mfc=face, markersize=6, mew=0.7)
            if low.at[method, dataset]:
                ax.plot(column, row, "x", color="black", markersize=4, mew=0.8)
    ax.set_xticks(range(len(methods)), [METHODS[method].title for method in methods], rotation=90)
    ax.set_yticks(range(len(datasets)), [TASKS[name].title for name in datasets], fontsize=6)
    ax.set_xlim(-0.5, len(methods) - 0.5)
    ax.set_ylim(len(datasets) - 0.5, -0.5)
    ax.set_xticks(np.arange(len(methods) - 1) + 0.5, minor=True)
    ax.set_yticks(np.arange(len(datasets) - 1) + 0.5, minor=True)
    ax.grid(which="minor", color="0.9", linewidth=0.5)
    ax.tick_params(which="both", length=0)
    ax.set_title(
        f"{TABLES[backbone]}, {BACKBONES[backbone]}\nstars that contradict: {wrong.to_numpy().sum()}", fontsize=7
    )
    return ax


def audit(paper: Published, findings: pd.DataFrame) -> Figure:
    """Draw `table` for the three detailed tables, and beside them the contradictions of `audit` per kind of check."""
    wrong = findings[findings["verdict"] == checks.CONTRADICTS]["check"].value_counts()
    figure = Figure(figsize=(PAGE, 3.6))
    *grid, bars = figure.subplots(1, len(TABLES) + 1, width_ratios=[1] * len(TABLES) + [0.7])
    for i, (ax, backbone) in enumerate(zip(grid, TABLES, strict=True)):
        table(ax, paper, backbone)
        if i:
            ax.set_yticklabels([])
    bars.barh(range(len(wrong)), wrong, color=CONTRADICTION, height=0.6)
    for row, (name, count) in enumerate(wrong.items()):
        bars.text(0.2, row - 0.4, f"{name}: {count}", fontsize=6, va="bottom")
    bars.set_ylim(len(wrong) - 0.4, -0.9)
    bars.set_yticks([])
    bars.set_xlabel("Contradictions")
    bars.set_title(f"{wrong.sum()} of {len(findings)} checks\ncontradict", fontsize=7)
    key(figure, [
        entry("printed star that does not follow", "*", colour=CONTRADICTION, markersize=6),
        entry("star that must stand but does not", "*", colour=CONTRADICTION, mfc="white", markersize=6),
        Patch(color=OPEN, label="rounding leaves the star open"),
        entry("under a tenth of the methods' median", "x", colour="black"),
    ], columns=2)  # fmt: skip
    return figure
