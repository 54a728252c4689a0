"""Time against the bound that a frozen backbone sets (`pvera.speed`)."""

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pvera.report.plots import COLUMN, RC
from pvera.study.speed import SWEPT

#: Colour and marker of each precision.
PRECISIONS = {"float32": ("#0072B2", "o"), "bfloat16": ("#D55E00", "s"), "float16": ("#009E73", "D")}
PARTS = {"step": "Training step", "evaluate": "Evaluation", "sample": "Draws", "memory": "Memory of a step",
         "peft": "The package peft"}  # fmt: skip


def ratios(ax: Axes, rows: pd.DataFrame) -> Axes:
    """Ratio to the bound of every row of one part, a line each, half precision a little lower; a grey stroke marks the
    target."""
    names = list(dict.fromkeys(rows["what"]))
    for row in rows.itertuples():
        colour, marker = PRECISIONS[row.precision]
        y = names.index(row.what)
        if pd.notna(row.target):
            ax.plot([row.target] * 2, [y - 0.35, y + 0.35], color="0.5", linewidth=1.2)
        y += -0.15 if row.precision == "float32" else 0.15
        ax.plot(row.ratio, y, marker, color=colour, markersize=4, mec="white", mew=0.4, zorder=3)
    ax.axvline(1, color="0.8", linewidth=0.6, zorder=0)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="0.93", linewidth=0.6)
    return ax


def against_bounds(rows: pd.DataFrame, title: str) -> Figure:
    """`ratios` of the parts of one backbone, one above the other, at column width; `title`: what they are of."""
    rows = rows[~rows["bound"].str.contains("fp32|peft")]  # one against another is no bound
    parts = [part for part in PARTS if (rows["part"] == part).any()]
    heights = [rows.loc[rows["part"] == part, "what"].nunique() + 1.5 for part in parts]
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 0.6 + 0.15 * sum(heights)), layout="constrained")
        axes = figure.subplots(len(parts), 1, sharex=True, squeeze=False, height_ratios=heights).ravel()
        for ax, part in zip(axes, parts, strict=True):
            ratios(ax, rows[rows["part"] == part]).set_title(PARTS[part], loc="left", fontsize=7)
        axes[-1].set_xlabel("Ratio to the bound")
        figure.suptitle(title, fontsize=7)
        target = Line2D([], [], color="0.5", marker="|", linestyle="", markersize=6, label="target")
        figure.legend(handles=[*_legend(rows), target], loc="outside lower center", ncols=4)
    return figure


def sweep(rows: pd.DataFrame, title: str) -> Figure:
    """The step of PVeRA against its bound as one size grows, a panel each, of the rows of part "sweep"; `title`: what
    they are of."""
    axis, value = rows["what"].str.rsplit(n=1).str[0], rows["what"].str.rsplit(n=1).str[1].astype(int)
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 2.9), layout="constrained")
        for ax, (name, label) in zip(figure.subplots(2, 2, sharey=True).ravel(), SWEPT.items(), strict=True):
            for precision, (colour, marker) in PRECISIONS.items():
                own = rows[(axis == name) & (rows["precision"] == precision)]
                look = {"marker": marker, "color": colour, "markersize": 3.5, "linewidth": 0.9}
                ax.plot(value[own.index], own["ratio"], **look)
            ticks = sorted(set(value[axis == name]))
            if name != "grid":
                ax.set_xscale("log", base=2)
            ax.set_xticks(ticks, ticks)
            ax.minorticks_off()
            ax.set_xlabel(label)
            ax.grid(color="0.93", linewidth=0.6)
        figure.supylabel("Ratio to the bound", fontsize=8)
        figure.suptitle(title, fontsize=7)
        figure.legend(handles=_legend(rows), loc="outside lower center", ncols=3)
    return figure


def _legend(rows: pd.DataFrame) -> list[Line2D]:
    return [
        Line2D([], [], color=colour, marker=marker, linestyle="", markersize=4, label=precision)
        for precision, (colour, marker) in PRECISIONS.items()
        if (rows["precision"] == precision).any()
    ]
