"""Comparisons over data sets: critical difference, leads with their intervals, probability of improvement."""

import matplotlib
import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pvera.report.plots import COLUMN, RC, emphasise, method_rows, style
from pvera.report.statistics import Friedman
from pvera.report.tables.comparison import Comparison


def critical_difference(ax: Axes, methods: list[str], friedman: Friedman) -> Axes:
    """Draw average ranks, the best at the left (Demšar, 2006).

    Bars join methods that Nemenyi's test does not separate.
    """
    k, order = len(methods), np.argsort(friedman.ranks, kind="stable")
    first_row = 0.6 + 0.35 * len(friedman.cliques)
    half = (k + 1) // 2
    for place, m in enumerate(order):
        look, rank = style(methods[m]), friedman.ranks[m]
        left = place < half
        row = first_row + 0.62 * (place if left else k - 1 - place)
        side = 0.9 if left else k + 0.1
        ax.plot([rank, rank, side], [0, row, row], color=look.colour, linewidth=0.9, clip_on=False)
        ax.plot(rank, 0, look.marker, color=look.colour, markersize=4, mec="white", mew=0.4, zorder=3,
                clip_on=False)  # fmt: skip
        ax.text(side + (-0.08 if left else 0.08), row, f"{look.title} {rank:.2f}", va="center",
                ha="right" if left else "left", color=look.colour if methods[m] == "pvera" else "black",
                fontweight="bold" if methods[m] == "pvera" else "normal")  # fmt: skip
    for i, clique in enumerate(friedman.cliques):
        ends = friedman.ranks[list(clique)].min(), friedman.ranks[list(clique)].max()
        ax.plot(ends, [0.4 + 0.35 * i] * 2, color="0.25", linewidth=2.2, solid_capstyle="round")
    width = min(friedman.critical_difference, k - 1)
    ax.plot([1, 1 + width], [-1.1, -1.1], color="black", linewidth=1, marker="|", markersize=4)
    text = f"critical difference {friedman.critical_difference:.2f}"
    ax.text(1 + width / 2, -1.2, text, ha="center", va="bottom")
    ax.set_xlim(1, k)
    ax.set_ylim(first_row + 0.62 * half, -1.6)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.spines["top"].set(visible=True, position=("data", 0))
    ax.tick_params(axis="x", top=True, bottom=False, labeltop=True, labelbottom=False, pad=2)
    ax.set_xticks(range(1, k + 1))
    ax.set_yticks([])
    return ax


def leads(ax: Axes, table: pd.DataFrame) -> Axes:
    """Draw PVeRA's lead over each method in points (`tables.comparison.compare`) with its 95 % intervals.

    Thin: over data sets. Thick: over seeds alone, where known.
    """
    others = table.drop("pvera")
    for row, (method, values) in enumerate(others.iterrows()):
        look = style(method)
        ax.plot([values["lead_low"], values["lead_high"]], [row, row], color=look.colour, linewidth=0.9)
        seeds = values["lead"] + values["lead_seeds"] * np.array([-1, 1])
        ax.plot(seeds, [row, row], color=look.colour, linewidth=3, alpha=0.5, solid_capstyle="butt")
        ax.plot(values["lead"], row, look.marker, color=look.colour, markersize=4.2, mec="white", mew=0.4,
                zorder=3)  # fmt: skip
    ax.axvline(0, color="0.3", linewidth=0.6, zorder=1)
    method_rows(ax, list(others.index))
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.set_xlabel("PVeRA's lead (points)")
    return ax


def improvement(ax: Axes, table: pd.DataFrame) -> Axes:
    """Draw the probability in percent that the row's method is better than the column's, in greys."""
    titles = [style(method).title for method in table]
    seaborn.heatmap(
        100 * table.to_numpy(), mask=np.eye(len(table), dtype=bool), vmin=0, vmax=100, cmap="Greys", annot=True,
        fmt=".0f", annot_kws={"fontsize": 6}, linewidths=0.6, square=True, cbar=False, xticklabels=titles,
        yticklabels=titles, ax=ax,
    )  # fmt: skip
    ax.tick_params(length=0)
    ax.tick_params(axis="y", rotation=0)
    emphasise(ax, list(table))
    return ax


def comparison(compared: Comparison) -> Figure:
    """Draw `critical_difference`, `leads` and `improvement`, one above the other, at column width."""
    methods = list(compared.methods.index)
    with matplotlib.rc_context(RC):
        heights = [0.75 + 0.1 * len(methods), 0.5 + 0.14 * (len(methods) - 1), 0.8 + 0.22 * len(methods)]
        figure = Figure(figsize=(COLUMN, sum(heights) + 0.6), layout="constrained")
        axes = [part.subplots() for part in figure.subfigures(3, 1, height_ratios=heights)]
        title = "Average rank (1 is best)\nBars join methods that Nemenyi's test does not separate"
        critical_difference(axes[0], methods, compared.ranks).set_title(title, fontsize=6.5)
        leads(axes[1], compared.methods)
        axes[1].set_title("95 % intervals: thin over data sets,\nthick over seeds alone", fontsize=6.5)
        title = "P(row better than column on a data set), %"
        improvement(axes[2], compared.improvement).set_title(title, fontsize=6.5)
    return figure
