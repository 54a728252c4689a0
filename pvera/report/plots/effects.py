"""Effects of the differences between the protocols."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pvera.adapters import METHODS
from pvera.report.effects import METRICS, per_pair, summary
from pvera.report.plots import PAGE, entry, key, name_rows, panels, style
from pvera.report.tables.names import switch_title
from pvera.study.protocol import one_at_a_time


def effect(ax: Axes, pairs: pd.DataFrame, rows: pd.DataFrame, metric: str) -> Axes:
    """Draw effects on `metric`, from top to bottom; pairs: `effects.differences`, rows: their `summary` for it.

    Dots are pairs of data set and seed, averaged over methods; diamonds are their means, filled beyond the grey band of
    chance. A switch without comparable runs says so. The colour is that of the method concerned, black for all methods.
    """
    for place, row in enumerate(rows.itertuples()):
        if not row.comparable or np.isnan(row.mean):
            reason = "no finished pair" if row.comparable else "another scale"
            ax.text(0.02, place, reason, color="0.5", fontsize=5.5, va="center", transform=ax.get_yaxis_transform())
            continue
        method = one_at_a_time()[row.switch].method
        colour = style(method).colour if method else "black"
        if not np.isnan(row.noise):
            ax.barh(place, 2 * row.noise, left=-row.noise, height=0.7, color="0.9", zorder=1)
        values = per_pair(pairs[pairs["switch"] == row.switch], metric)
        ax.plot(values, np.full(len(values), place), ".", color=colour, alpha=0.7, markersize=4, mew=0, zorder=2)
        face = colour if row.beyond else "white"
        ax.plot(row.mean, place, "D", color=colour, mfc=face, markersize=3.2, mew=0.8, zorder=3)
    ax.use_sticky_edges = False
    ax.axvline(0, color="0.4", linewidth=0.6, zorder=1.5)
    name_rows(ax, list(map(switch_title, rows["switch"])))
    return ax


def effects(pairs: pd.DataFrame) -> Figure:
    """Draw `effect` on every metric, side by side: switches of all methods first, then those of one method."""
    rows = summary(pairs)
    of_one = {name: bool(one_at_a_time()[name].method) for name in dict.fromkeys(pairs["switch"])}
    rows = rows.sort_values("switch", key=lambda names: names.map(of_one), kind="stable")
    figure, axes = panels(len(METRICS), len(METRICS), PAGE, 0.16 * len(of_one), 1.2, sharey=True)
    for ax, (metric, (title, unit, _)) in zip(axes, METRICS.items(), strict=True):
        effect(ax, pairs, rows[rows["metric"] == metric], metric).set_title(f"{title} ({unit})", fontsize=7)
        ax.axhline(sum(not single for single in of_one.values()) - 0.5, color="0.8", linewidth=0.6)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    figure.supxlabel("Published program minus corrected", fontsize=7)
    diamond = {"marker": "D", "markersize": 3.2, "colour": "black"}
    concerned = {one_at_a_time()[name].method for name in of_one}
    looks = [style(method) for method in METHODS if method in concerned]
    key(figure, [
        entry("one data set and seed", ".", colour="black"), entry("mean, beyond chance", **diamond),
        entry("mean, within chance", mfc="white", **diamond), Patch(color="0.9", label="chance"),
        entry("all methods", "s", colour="black"), *(entry(look.title, "s", colour=look.colour) for look in looks),
    ], columns=6)  # fmt: skip
    return figure
