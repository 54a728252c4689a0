"""Effects of the differences between the protocols."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pvera.adapters import METHODS
from pvera.report.effects import METRICS, per_pair, summary
from pvera.report.plots import PAGE, break_between, entry, ranges, style
from pvera.report.tables.names import switch_title
from pvera.study.protocol import one_at_a_time

LEAST = 0.3  # share of a broken axis that its smaller part takes at least


def effect(ax: Axes, pairs: pd.DataFrame, rows: pd.DataFrame, metric: str) -> Axes:
    """Draw effects on `metric`, from top to bottom; pairs: `effects.differences`, rows: their `summary` for it.

    Dots are pairs of data set and seed, averaged over methods; diamonds are their means, filled beyond the grey band of
    chance. A switch without comparable runs says so. The colour is that of the method concerned, black for all methods.
    """
    for place, row in rows.iterrows():
        if not row["comparable"] or np.isnan(row["mean"]):
            reason = "no finished pair" if row["comparable"] else "on another scale"
            white = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            ax.text(0, place, reason, color="0.5", fontsize=5.5, ha="center", va="center", clip_on=True, bbox=white)
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
    ax.grid(axis="x")
    return ax


def _drawn(pairs: pd.DataFrame, rows: pd.DataFrame, metric: str) -> np.ndarray:
    """Return every value that `effect` draws."""
    rows = rows[rows["comparable"]]
    dots = [per_pair(pairs[pairs["switch"] == switch], metric) for switch in rows["switch"]]
    chance = np.outer(rows["noise"], np.linspace(-1, 1, 9)).ravel()  # a band is no empty stretch
    values = np.concatenate([*dots, rows["mean"], chance, [0.0]])
    return values[np.isfinite(values)]


def effects(pairs: pd.DataFrame) -> Figure:
    """Draw `effect` on every metric, side by side: switches of all methods above, those of one method below.

    Each panel has its own axis, which is broken at a wide empty stretch.
    """
    names = list(dict.fromkeys(pairs["switch"]))
    groups = [[name for name in names if bool(one_at_a_time()[name].method) == single] for single in (False, True)]
    groups, rows = [group for group in groups if group], summary(pairs)
    height = 1.2 + 0.3 * len(groups) + 0.16 * len(names)
    figure = Figure(figsize=(PAGE, height), layout="none")
    grid = figure.add_gridspec(
        len(groups), len(METRICS), wspace=0.12, hspace=0.25, left=0.27, right=0.99, bottom=0.75 / height,
        top=1 - 0.45 / height, height_ratios=[len(group) + 1 for group in groups],
    )  # fmt: skip
    for row, switches in enumerate(groups):
        for column, (metric, (title, unit, _)) in enumerate(METRICS.items()):
            shown = rows[(rows["metric"] == metric) & rows["switch"].isin(switches)].reset_index(drop=True)
            axes = _panel(figure, grid[row, column], pairs, shown, metric)
            if row == 0:
                axes[0].set_title(f"{title} ({unit})", fontsize=7, loc="left")
            for ax in axes[column == 0 :]:
                ax.set_yticklabels([])
    figure.text(0.63, 0.38 / height, "Published program minus corrected", ha="center",
                fontsize=7)  # fmt: skip
    diamond = {"marker": "D", "markersize": 3.2, "colour": "black"}
    entries = [entry("one data set and seed", ".", colour="black"), entry("mean, beyond chance", **diamond)]
    entries += [entry("mean, within chance", mfc="white", **diamond), Patch(color="0.9", label="chance")]
    figure.legend(handles=entries, loc="upper center", ncols=4)
    concerned = {one_at_a_time()[name].method for name in names}
    looks = [style(method) for method in METHODS if method in concerned]
    colours = [entry("all methods", "s", colour="black"), *(entry(one.title, "s", colour=one.colour) for one in looks)]
    figure.legend(handles=colours, loc="lower center", ncols=len(colours))
    return figure


def _panel(figure: Figure, place: SubplotSpec, pairs: pd.DataFrame, rows: pd.DataFrame, metric: str) -> list[Axes]:
    """Draw `effect` at a place of a grid, on one axis or on the two parts of a broken one."""
    parts = ranges(_drawn(pairs, rows, metric), 0.2)
    whole = sum(high - low for low, high in parts)
    widths = [max(high - low, LEAST * whole) for low, high in parts]
    axes = [figure.add_subplot(part) for part in place.subgridspec(1, len(parts), width_ratios=widths, wspace=0.12)]
    for ax, limits, width in zip(axes, parts, widths, strict=True):
        effect(ax, pairs, rows, metric).set_xlim(limits)
        most, least = (4, 3) if width > whole / 2 else (1, 1)
        ax.xaxis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10], min_n_ticks=least))
        ax.tick_params(axis="x", labelsize=6)
    if len(parts) == 2:
        break_between(*axes)
    return axes
