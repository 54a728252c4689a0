"""Time and memory against the bound that a frozen backbone sets (`study.speed`)."""

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pvera.report.plots import COLUMN, RC, entry, key
from pvera.study.speed import SWEPT

#: Colour and marker of each precision: greys, as colours stand for methods.
PRECISIONS = {"float32": ("black", "o"), "bfloat16": ("0.4", "s"), "float16": ("0.75", "D")}
PARTS = {"step": "Training step", "evaluate": "Evaluation", "sample": "Sampling", "memory": "Memory of a step",
         "peft": "The package peft"}  # fmt: skip


def ratios(ax: Axes, rows: pd.DataFrame) -> Axes:
    """Draw the ratio to the bound of every row of one part, a line each; a stroke marks the target.

    Half precision stands a little lower.
    """
    names = list(dict.fromkeys(rows["what"]))
    for row in rows.itertuples():
        colour, marker = PRECISIONS[row.precision]
        y = names.index(row.what)
        if pd.notna(row.target):
            ax.plot([row.target] * 2, [y - 0.35, y + 0.35], color="0.4", linewidth=1.2)
        y += -0.15 if row.precision == "float32" else 0.15
        ax.plot(row.ratio, y, marker, color=colour, markersize=4, mec="white", mew=0.4, zorder=3)
    ax.axvline(1, color="0.8", linewidth=0.6, zorder=0)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="0.93", linewidth=0.6)
    return ax


def against_bounds(rows: pd.DataFrame, title: str) -> Figure:
    """Draw `ratios` of the parts of one backbone, one above the other, at column width."""
    rows = rows[~rows["bound"].str.contains("fp32|peft")]  # a comparison of two programs has no bound
    parts = [part for part in PARTS if (rows["part"] == part).any()]
    heights = [rows.loc[rows["part"] == part, "what"].nunique() + 1.5 for part in parts]
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 0.6 + 0.15 * sum(heights)), layout="constrained")
        axes = figure.subplots(len(parts), 1, sharex=True, squeeze=False, height_ratios=heights).ravel()
        for ax, part in zip(axes, parts, strict=True):
            ratios(ax, rows[rows["part"] == part]).set_title(PARTS[part], loc="left", fontsize=7)
        axes[-1].set_xlabel("Ratio to the bound (1: the frozen backbone)")
        figure.suptitle(title, fontsize=7)
        target = entry("target (at most)", "|", colour="0.4", markersize=6)
        key(figure, [*_legend(rows), target], columns=4, place="lower")
    return figure


def sweep(rows: pd.DataFrame, title: str) -> Figure:
    """Draw PVeRA's training step against its bound as one size grows, a panel per size; rows: those of part "sweep"."""
    axis, value = rows["what"].str.rsplit(n=1).str[0], rows["what"].str.rsplit(n=1).str[1].astype(int)
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 2.9), layout="constrained")
        for ax, (name, label) in zip(figure.subplots(2, 2, sharey=True).ravel(), SWEPT.items(), strict=True):
            for precision, (colour, marker) in PRECISIONS.items():
                swept = rows[(axis == name) & (rows["precision"] == precision)]
                look = {"marker": marker, "color": colour, "markersize": 3.5, "linewidth": 0.9}
                ax.plot(value[swept.index], swept["ratio"], **look)
            ticks = sorted(set(value[axis == name]))
            if name != "grid":
                ax.set_xscale("log", base=2)
            ax.set_xticks(ticks, ticks)
            ax.minorticks_off()
            ax.set_xlabel(label)
            ax.grid(color="0.93", linewidth=0.6)
        figure.supylabel("Training step of PVeRA, ratio to the bound", fontsize=8)
        figure.suptitle(title, fontsize=7)
        key(figure, _legend(rows), place="lower")
    return figure


def _legend(rows: pd.DataFrame) -> list[Line2D]:
    return [
        entry(precision, marker, colour=colour)
        for precision, (colour, marker) in PRECISIONS.items()
        if (rows["precision"] == precision).any()
    ]
