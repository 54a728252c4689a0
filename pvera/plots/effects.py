"""What each difference between the protocols does."""

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..effects import METRICS
from ..protocol import one_at_a_time
from . import METHODS, RC

WIDTH = 7  # inches, across both columns of a paper


def effect(ax: Axes, summary: pd.DataFrame, metric: str) -> Axes:
    """Mean effect on `metric` of each switch (rows of `effects.summary`, from top to bottom) with its interval.

    The grey band is what chance alone can do; a filled marker is outside band and interval. Without a marker: not
    comparable. The colour is that of the method concerned, black where it is all.
    """
    rows = summary[summary["metric"] == metric].reset_index(drop=True)
    for place, row in rows.iterrows():
        concerned = one_at_a_time()[row["switch"]][1]
        colour = METHODS[concerned].colour if concerned else "black"
        if not row["comparable"] or np.isnan(row["mean"]):
            continue
        if not np.isnan(row["noise"]):
            ax.barh(place, 2 * row["noise"], left=-row["noise"], height=0.7, color="0.9", zorder=1)
        ax.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=1, zorder=2)
        face = colour if row["beyond"] else "white"
        ax.plot(row["mean"], place, "o", color=colour, mfc=face, markersize=3.5, mew=0.9, zorder=3)
    ax.axvline(0, color="0.4", linewidth=0.6, zorder=1.5)
    ax.set_yticks(range(len(rows)), rows["switch"])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="0.9", linewidth=0.6)
    title, unit, _ = METRICS[metric]
    ax.set_title(title)
    ax.set_xlabel(f"Difference ({unit})")
    return ax


def effects(summary: pd.DataFrame) -> Figure:
    """`effect` on every metric, side by side."""
    with matplotlib.rc_context(RC):
        count = summary["switch"].nunique()
        figure = Figure(figsize=(WIDTH, 0.7 + 0.16 * count), layout="constrained")
        for ax, metric in zip(figure.subplots(1, len(METRICS), sharey=True), METRICS):
            effect(ax, summary, metric)
    return figure
