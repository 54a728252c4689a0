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


def critical_difference(ax: Axes, methods: list[str], found: Friedman) -> Axes:
    """Average ranks, the best at the left; bars join what Nemenyi's test cannot tell apart (Demšar, 2006)."""
    k, order = len(methods), np.argsort(found.ranks, kind="stable")
    first_row = 0.6 + 0.35 * len(found.cliques)
    half = (k + 1) // 2
    for place, m in enumerate(order):
        look, rank = style(methods[m]), found.ranks[m]
        left = place < half
        row = first_row + 0.62 * (place if left else k - 1 - place)
        side = 0.9 if left else k + 0.1
        ax.plot([rank, rank, side], [0, row, row], color=look.colour, linewidth=0.9, clip_on=False)
        ax.plot(rank, 0, look.marker, color=look.colour, markersize=4, mec="white", mew=0.4, zorder=3,
                clip_on=False)  # fmt: skip
        ax.text(side + (-0.08 if left else 0.08), row, f"{look.title} {rank:.2f}", va="center",
                ha="right" if left else "left", color=look.colour if methods[m] == "pvera" else "black",
                fontweight="bold" if methods[m] == "pvera" else "normal")  # fmt: skip
    for i, clique in enumerate(found.cliques):
        ends = found.ranks[list(clique)].min(), found.ranks[list(clique)].max()
        ax.plot(ends, [0.4 + 0.35 * i] * 2, color="0.25", linewidth=2.2, solid_capstyle="round")
    width = min(found.critical_difference, k - 1)
    ax.plot([1, 1 + width], [-1.1, -1.1], color="black", linewidth=1, marker="|", markersize=4)
    text = f"critical difference {found.critical_difference:.2f}"
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
    """PVeRA's lead over each method in points (`tables.comparison.compare`), with its 95 % intervals: thin
    over data sets and seeds, thick over seeds alone (none where it is not known)."""
    others = table.drop("pvera")
    for row, (key, own) in enumerate(others.iterrows()):
        look = style(key)
        ax.plot([own["lead_low"], own["lead_high"]], [row, row], color=look.colour, linewidth=0.9)
        seeds = own["lead"] + own["lead_seeds"] * np.array([-1, 1])
        ax.plot(seeds, [row, row], color=look.colour, linewidth=3, alpha=0.5, solid_capstyle="butt")
        ax.plot(own["lead"], row, look.marker, color=look.colour, markersize=4.2, mec="white", mew=0.4,
                zorder=3)  # fmt: skip
    ax.axvline(0, color="0.3", linewidth=0.6, zorder=1)
    method_rows(ax, list(others.index))
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.set_xlabel("PVeRA's lead (points)")
    return ax


def improvement(ax: Axes, table: pd.DataFrame) -> Axes:
    """Probability in percent that the row's method is better than the column's."""
    titles = [style(key).title for key in table]
    seaborn.heatmap(
        100 * table.to_numpy(), mask=np.eye(len(table), dtype=bool), vmin=0, vmax=100, cmap="PuOr_r", annot=True,
        fmt=".0f", annot_kws={"fontsize": 6}, linewidths=0.6, square=True, cbar=False, xticklabels=titles,
        yticklabels=titles, ax=ax,
    )  # fmt: skip
    ax.tick_params(length=0)
    ax.tick_params(axis="y", rotation=0)
    emphasise(ax, list(table))
    return ax


def comparison(compared: Comparison) -> Figure:
    """`critical_difference`, `leads` and `improvement`, one above the other at column width."""
    methods = list(compared.methods.index)
    with matplotlib.rc_context(RC):
        heights = [0.75 + 0.1 * len(methods), 0.5 + 0.14 * (len(methods) - 1), 0.8 + 0.22 * len(methods)]
        figure = Figure(figsize=(COLUMN, sum(heights) + 0.6), layout="constrained")
        axes = [part.subplots() for part in figure.subfigures(3, 1, height_ratios=heights)]
        critical_difference(axes[0], methods, compared.ranks).set_title("Average rank")
        leads(axes[1], compared.methods)
        improvement(axes[2], compared.improvement).set_title("P(row better than column), %")
    return figure
