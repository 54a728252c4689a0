"""Figures that are forests: differences of methods and variants, and the protocols' differences."""

from collections.abc import Iterable, Mapping
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pvera.report.plots import PAGE, PLAIN, SEED, Style, entry, forest, key, note, panels, style
from pvera.report.statistics import mean_interval, over_repeats
from pvera.report.table import title
from pvera.report.tables.components import CONTRASTS, Runs, values
from pvera.report.tables.protocol import METRICS, per_pair, summary
from pvera.report.tables.verdicts import pooled
from pvera.study.protocol import VARIANTS

MEAN = "Mean over tasks"


def contrasts(sets: Mapping[str, Runs], names: Iterable[str] = CONTRASTS) -> Figure:
    """Draw contrasts of methods and variants in a panel each: a row per task, dots for seeds, markers for their means.

    sets: name of a set of tasks -> its runs. A set ends in its mean over tasks with the 95 % interval for other seeds;
    a thin one, which takes three units, is for other tasks. names: of `CONTRASTS`, at most four for several sets;
    those are drawn that every set has runs of.
    """
    accuracies = [values(runs) for runs in sets.values()]
    there = [name for name in names if all({*CONTRASTS[name]} <= runs.keys() for runs in sets.values())]
    rows = [
        [*map(title, frame.index.unique("dataset")), f"{MEAN}{name}"]
        for name, frame in zip(sets, accuracies, strict=True)
    ]
    lines = [len(labels) for labels in rows for _ in range(-(-len(there) // 4))]  # of each row of panels
    figure, axes = panels(
        len(there) * len(sets), min(len(there), 4), PAGE, 0.25 + 0.12 * np.mean(lines), 0.6, sharex="all", sharey="row",
        height_ratios=lines,
    )  # fmt: skip
    pvera = style("pvera")
    task = Style("", pvera.colour, pvera.marker)
    for ax, (place, name) in zip(axes, product(range(len(sets)), there), strict=True):
        frame, labels, (first, second) = accuracies[place], rows[place], CONTRASTS[name]
        gaps = (frame[first] - frame[second]).unstack("seed", sort=False)
        tasks = gaps.add_prefix("seed").assign(mean=gaps.mean(axis=1)).set_axis(labels[:-1])
        mean = mean_interval(gaps, over_repeats)
        units = pooled(gaps).dropna(how="all")
        if len(units) > 2:  # of two the interval for new tasks spans the figure
            sample = mean_interval(units)
            ax.plot([sample["low"], sample["high"]], [len(labels) - 1] * 2, color="black", linewidth=0.5)
        forest(
            ax,
            pd.concat([tasks, pd.DataFrame(mean, labels[-1:])]),
            lambda label: PLAIN if label.startswith(MEAN) else task,
        )
        ax.axvline(0, color="0.3", linewidth=0.6, zorder=1)
        ax.axhline(len(labels) - 1.5, color="0.8", linewidth=0.6)
        if place == 0:
            ax.set_title(name, fontsize=7)
    note(figure, "Difference of test accuracy (points); right of zero, the first of the two is better")
    key(figure, [SEED, entry("mean over seeds", pvera.marker, colour=pvera.colour),
                 entry("mean over tasks; 95 % interval: thick for new seeds, thin for new tasks", "d", "-", "black",
                       linewidth=1.8),
                ])  # fmt: skip
    return figure


def look(switch: str) -> Style:
    """Return the looks of a switch (`protocol.VARIANTS`): the colour of its method, black for all methods."""
    method = VARIANTS[switch].method
    return Style("", style(method).colour if method else "black", "D")


def effects(pairs: pd.DataFrame) -> Figure:
    """Draw a `forest` of the effects (`tables.protocol.differences`) on every metric: switches of all methods first.

    Dots are pairs of data set and seed, averaged over methods. A loss on another scale is left out.
    """
    rows = summary(pairs)
    names = sorted(pairs["switch"].unique(), key=lambda name: VARIANTS[name].method is not None)
    figure, axes = panels(len(METRICS), len(METRICS), PAGE, 0.16 * len(names), 1.0, sharey=True)
    for ax, (metric, (heading, unit, _)) in zip(axes, METRICS.items(), strict=True):
        of_metric = rows[rows["metric"] == metric].set_index("switch").loc[names]
        of_pairs = {name: pd.Series(per_pair(pairs[pairs["switch"] == name], metric)) for name in names}
        frame = pd.DataFrame(of_pairs).T.add_prefix("seed").assign(mean=of_metric["mean"])
        frame[~of_metric["comparable"]] = np.nan
        chance = of_metric["noise"]
        ax.use_sticky_edges = False
        ax.barh(range(len(names)), 2 * chance, left=-chance, height=0.7, color="0.9", zorder=0.5)
        forest(ax, frame, look).set_title(f"{heading} ({unit})", fontsize=7)
        ax.axvline(0, color="0.4", linewidth=0.6, zorder=1)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    figure.supxlabel("Published program minus corrected; colour: of the one method concerned", fontsize=7)
    key(figure, [entry("one data set and seed", "o", colour="black", markersize=2),
                 entry("mean over them", "D", colour="black"), Patch(color="0.9", label="chance")])  # fmt: skip
    return figure
