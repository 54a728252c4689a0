"""Comparisons over data sets: critical difference, leads with their intervals, probability of improvement."""

from collections.abc import Sequence
from textwrap import wrap

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pvera.report.plots import COLUMN, PAGE, emphasise, entry, forest, key, panels, spaced, style
from pvera.report.statistics import Friedman
from pvera.report.tables.comparison import Comparison


def critical_difference(ax: Axes, methods: Sequence[str], friedman: Friedman) -> Axes:
    """Draw average ranks on a vertical axis, the best at the top (Demšar, 2006), each with its method at the right.

    Bars join methods that Nemenyi's test does not separate. The bracket is its critical difference.
    """
    k = len(methods)
    for method, rank, place in zip(methods, friedman.ranks, spaced(friedman.ranks, 0.55), strict=True):
        look, bold = style(method), method == "pvera"
        ax.plot([0, 0.12, 0.4, 0.5], [rank, rank, place, place], color=look.colour, linewidth=0.8, clip_on=False)
        ax.plot(0.5, place, look.marker, color=look.colour, mec="white", mew=0.4, clip_on=False)
        ax.text(0.6, place, f"{look.title} {rank:.2f}", va="center", fontsize=6.5,
                color=look.colour if bold else "black", fontweight="bold" if bold else "normal")  # fmt: skip
    for i, clique in enumerate(friedman.cliques):
        ends = friedman.ranks[list(clique)].min(), friedman.ranks[list(clique)].max()
        ax.plot([-0.35 - 0.1 * i] * 2, ends, color="0.25", linewidth=2.2, solid_capstyle="butt")
    left = -0.48 - 0.1 * len(friedman.cliques)
    ax.plot([left] * 2, [1, 1 + min(friedman.critical_difference, k - 1)], color="black", linewidth=0.8, marker="_")
    ax.set_xlim(left - 0.1, 2.3)
    ax.set_ylim(k + 0.4, 0.6)
    ax.spines["left"].set_position(("data", 0))
    ax.spines["left"].set_bounds(1, k)
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(axis="y", labelsize=5.5, length=2, pad=1)
    ax.set_yticks(range(1, k + 1))
    ax.set_xticks([])
    return ax


def ranks(compared: Sequence[Comparison]) -> Figure:
    """Draw `critical_difference` of several comparisons side by side, on one scale of ranks."""
    figure, axes = panels(len(compared), len(compared), PAGE * max(len(compared), 2) / 4, 2.6, 0)
    for ax, one in zip(axes, compared, strict=True):
        source = [*wrap(one.name, 26), f"{one.datasets} data sets"]
        critical_difference(ax, list(one.methods.index), one.ranks).set_title("\n".join(source), fontsize=6.5)
    figure.supylabel("Average rank over data sets (top: 1, best)", fontsize=7)
    bar = entry("bar: not separated by Nemenyi's test", line="-", colour="0.25", linewidth=2.2)
    key(figure, [bar, entry("bracket: its critical difference", "_", "-", "black")], columns=2)
    return figure


def leads(ax: Axes, table: pd.DataFrame) -> Axes:
    """Draw PVeRA's lead over each method in points (`tables.comparison.compare`) with its 95 % intervals.

    Thin: over data sets. Thick: over seeds alone, where known.
    """
    others = table.drop("pvera")
    forest(ax, others[["lead", "lead_low", "lead_high"]].set_axis(["mean", "low", "high"], axis=1))
    for row, (method, values) in enumerate(others.iterrows()):
        seeds = values["lead"] + values["lead_seeds"] * np.array([-1, 1])
        ax.plot(seeds, [row, row], color=style(method).colour, linewidth=3, alpha=0.5, solid_capstyle="butt")
    ax.axvline(0, color="0.3", linewidth=0.6, zorder=1)
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.set_xlabel("PVeRA's lead (points)")
    return ax


def improvement(ax: Axes, table: pd.DataFrame) -> Axes:
    """Draw the probability in percent that the row's method is better than the column's, in greys.

    Each pair stands once, below the diagonal; the other half would be the rest to 100 %.
    """
    table = table.iloc[1:, :-1]
    seaborn.heatmap(
        100 * table.to_numpy(), mask=np.triu(np.ones(table.shape, dtype=bool), k=1), vmin=0, vmax=100, cmap="Greys",
        annot=True, fmt=".0f", annot_kws={"fontsize": 6}, linewidths=0.6, square=True, cbar=False,
        xticklabels=[style(method).title for method in table], ax=ax,
        yticklabels=[style(method).title for method in table.index],
    )  # fmt: skip
    ax.tick_params(length=0)
    ax.tick_params(axis="y", rotation=0)
    emphasise(ax, list(table.index))
    return ax


def comparison(compared: Comparison) -> Figure:
    """Draw `leads` above `improvement`, at column width."""
    methods = len(compared.methods)
    heights = [0.75 + 0.14 * (methods - 1), 0.8 + 0.22 * (methods - 1)]
    figure = Figure(figsize=(COLUMN, sum(heights) + 0.6))
    top, bottom = (part.subplots() for part in figure.subfigures(2, 1, height_ratios=heights))
    figure.suptitle(f"{compared.name}, {compared.datasets} data sets", fontsize=8)
    intervals = "95 % intervals: thin over data sets, thick over seeds"
    leads(top, compared.methods).set_title(f"PVeRA's average minus that of each method\n{intervals}", fontsize=6.5)
    title = "Probability that the row is better than the column on a data set (%)"
    improvement(bottom, compared.improvement).set_title(title, fontsize=6.5)
    return figure
