"""Effects of the differences between the protocols."""

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pvera.report.effects import METRICS, per_pair, summary
from pvera.report.plots import RC, entry, key, style
from pvera.report.tables.names import switch_title
from pvera.study.protocol import one_at_a_time

WIDTH = 7  # inches, across both columns of a paper


def effect(ax: Axes, pairs: pd.DataFrame, metric: str) -> Axes:
    """Draw the effect of each switch on `metric`, from top to bottom; pairs: `effects.differences`.

    Dots are pairs of data set and seed, averaged over methods; diamonds are their means, filled beyond the grey band of
    chance. A switch without comparable runs has an empty row. The colour is that of the method concerned, black for all
    methods.
    """
    rows = summary(pairs)
    rows = rows[rows["metric"] == metric].reset_index(drop=True)
    for place, row in rows.iterrows():
        if not row["comparable"] or np.isnan(row["mean"]):
            continue
        concerned = one_at_a_time()[row["switch"]].method
        colour = style(concerned).colour if concerned else "black"
        if not np.isnan(row["noise"]):
            ax.barh(place, 2 * row["noise"], left=-row["noise"], height=0.7, color="0.9", zorder=1)
        values = per_pair(pairs[pairs["switch"] == row["switch"]], metric)
        ax.plot(values, np.full(len(values), place), ".", color=colour, alpha=0.7, markersize=4, mew=0, zorder=2)
        face = colour if row["beyond"] else "white"
        ax.plot(row["mean"], place, "D", color=colour, mfc=face, markersize=3.2, mew=0.8, zorder=3)
    ax.use_sticky_edges = False
    ax.axvline(0, color="0.4", linewidth=0.6, zorder=1.5)
    ax.set_yticks(range(len(rows)), map(switch_title, rows["switch"]))
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="0.9", linewidth=0.6)
    title, unit, _ = METRICS[metric]
    ax.set_title(title)
    ax.set_xlabel(f"Difference ({unit})")
    return ax


def effects(pairs: pd.DataFrame) -> Figure:
    """Draw `effect` on every metric, side by side."""
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(WIDTH, 0.9 + 0.16 * pairs["switch"].nunique()), layout="constrained")
        for ax, metric in zip(figure.subplots(1, len(METRICS), sharey=True), METRICS, strict=True):
            effect(ax, pairs, metric)
        figure.supxlabel("Published program minus corrected, one difference at a time", fontsize=8)
        diamond = {"marker": "D", "markersize": 3.2, "colour": "black"}
        entries = [entry("one data set and seed", ".", colour="black"), entry("mean, beyond chance", **diamond)]
        entries += [entry("mean, within chance", mfc="white", **diamond), Patch(color="0.9", label="chance")]
        key(figure, entries, columns=4)
    return figure
