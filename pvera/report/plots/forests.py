"""Figures that are forests: differences of methods and variants, and the protocols' differences."""

from collections.abc import Iterable, Mapping
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pvera.report.plots import PAGE, Style, entry, forest, key, note, panels, style
from pvera.report.statistics import half_width_over_seeds, mean_interval
from pvera.report.table import title
from pvera.report.tables.components import CONTRASTS, Runs, are_two, values
from pvera.report.tables.protocol import METRICS, per_pair, summary
from pvera.report.tables.verdicts import pooled
from pvera.study.protocol import VARIANTS

MEAN = "Mean"
#: The mean's marker is a stroke, which hides no interval.
STROKE = Style("", "black", "|")


def contrasts(sets: Mapping[str, Runs], names: Iterable[str] = CONTRASTS) -> Figure:
    """Draw contrasts of methods and variants: a column each, a block of rows per setting, a row per data set.

    Small dots are seeds, large ones their means. A block ends in the mean over data sets, with its 95 % intervals:
    thick over seeds and, of three data sets or more, thin over data sets.

    Args:
        sets: Title of a setting -> its runs.
        names: Of `CONTRASTS`; those are drawn that every setting has runs of.
    """
    accuracies = [values(runs) for runs in sets.values()]
    there = [
        name for name in names if all(are_two(runs, *CONTRASTS[name]) for runs in sets.values())
    ]
    columns = min(len(there), 4)
    rows = [[*map(title, frame.index.unique("dataset")), MEAN] for frame in accuracies]
    lines = [
        len(labels) for labels in rows for _ in range(-(-len(there) // columns))
    ]  # of each row of panels
    figure, axes = panels(
        len(there) * len(sets), columns, PAGE, 0.5 + 0.12 * np.mean(lines), 0.6, sharex="all", sharey="row",
        height_ratios=lines,
    )  # fmt: skip

    pvera = style("pvera")
    task = Style("", pvera.colour, pvera.marker)
    for place, (ax, (block, name)) in enumerate(
        zip(axes, product(range(len(sets)), there), strict=True)
    ):
        frame, labels, (first, second) = accuracies[block], rows[block], CONTRASTS[name]
        gaps = (frame[first] - frame[second]).unstack("seed", sort=False)
        tasks = gaps.add_prefix("seed").assign(mean=gaps.mean(axis=1)).set_axis(labels[:-1])
        mean = pd.DataFrame(mean_interval(gaps, half_width_over_seeds), labels[-1:])

        units = pooled(gaps).dropna(how="all")
        if len(units) > 2:  # of two the interval over data sets spans the figure
            sample = mean_interval(units)
            ax.plot(
                [sample["low"], sample["high"]], [len(labels) - 1] * 2, color="black", linewidth=0.5
            )
        forest(ax, pd.concat([tasks, mean]), lambda label: STROKE if label == MEAN else task)
        ax.axvline(0, color="0.3", linewidth=0.6, zorder=1)
        ax.axhline(len(labels) - 1.5, color="0.8", linewidth=0.6)
        if block == 0:
            ax.set_title(
                name.replace(" with latent", "\nwith latent").replace(" (β", "\n(β"), fontsize=7
            )
        if place % columns == 0:
            heading = list(sets)[block].replace(", ", ",\n", 1)
            ax.annotate(heading, (0, 1), (-4, 0), "axes fraction", textcoords="offset points", ha="right", va="bottom",
                        fontsize=6.5, fontweight="bold")  # fmt: skip
    for ax in axes[-columns:]:
        ax.set_xlabel("Difference of accuracy (points)", fontsize=6.5)
    note(figure, "right of zero, the first of the two is better")
    key(figure, [entry("one seed", "o", colour=pvera.colour, markersize=2, markeredgewidth=0),
                 entry("mean over seeds", pvera.marker, colour=pvera.colour),
                 entry("mean over data sets; 95 % interval: thick over seeds, thin over data sets", "|", "-", "black",
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
        of_pairs = {
            name: pd.Series(per_pair(pairs[pairs["switch"] == name], metric)) for name in names
        }
        frame = pd.DataFrame(of_pairs).T.add_prefix("seed").assign(mean=of_metric["mean"])
        frame[~of_metric["comparable"]] = np.nan
        chance = of_metric["noise"]
        ax.use_sticky_edges = False
        ax.barh(range(len(names)), 2 * chance, left=-chance, height=0.7, color="0.9", zorder=0.5)
        forest(ax, frame, look).set_title(f"{heading} ({unit})", fontsize=7)
        ax.axvline(0, color="0.4", linewidth=0.6, zorder=1)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    figure.supxlabel(
        "Official code minus corrected; colour: of the one method concerned", fontsize=7
    )
    key(figure, [entry("one data set and seed", "o", colour="black", markersize=2),
                 entry("mean over them", "D", colour="black"), Patch(color="0.9", label="chance")])  # fmt: skip
    return figure
