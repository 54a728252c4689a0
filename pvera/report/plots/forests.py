"""Figures that are forests: differences of methods and variants, effects of the protocols."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pvera.report.plots import PAGE, Style, entry, forest, key, note, panels, style
from pvera.report.table import title
from pvera.report.tables.components import MEAN
from pvera.report.tables.protocol import METRICS
from pvera.study.protocol import VARIANTS

PVERA = style("pvera")
#: The looks of data sets.
DATASET = Style("", PVERA.colour, PVERA.marker)
#: The mean's marker is a stroke, which hides no interval.
STROKE = Style("", "black", "|")

CONTRAST_KEY = [
    entry("one seed", "o", colour=PVERA.colour, markersize=2, markeredgewidth=0),
    entry("mean over seeds", PVERA.marker, colour=PVERA.colour),
    entry(
        "mean over data sets; 95 % interval: thick over seeds, thin over data sets",
        "|",
        "-",
        "black",
        linewidth=1.8,
    ),
]


def contrasts(settings: Mapping[str, Mapping[str, pd.DataFrame]]) -> Figure:
    """Draw contrasts of methods and variants: a column each, a block of rows per setting.

    Small dots are seeds, large ones their means. A block ends in the mean over data
    sets, with its 95 % intervals: thick over seeds and, of three data sets or more,
    thin over data sets.

    Args:
        settings: Title of a setting -> its `components.contrast_frames`; the
            contrasts are drawn that every setting has.
    """
    first, *others = settings.values()
    names = [name for name in first if all(name in frames for frames in others)]
    columns = min(len(names), 4)
    rows = -(-len(names) // columns)
    # A panel is as high as its forest has lines.
    lines = []
    for frames in settings.values():
        lines += [len(frames[names[0]])] * rows
    figure, axes = panels(
        len(names) * len(settings),
        columns,
        PAGE,
        0.5 + 0.12 * sum(lines) / len(lines),
        extra=0.6,
        sharex="all",
        sharey="row",
        height_ratios=lines,
    )
    # Axes go row by row: the contrasts of the first setting, then those of the next.
    remaining = iter(axes)
    for heading, frames in settings.items():
        for i, name in enumerate(names):
            ax = next(remaining)
            _contrast(ax, frames[name])
            if frames is first:
                ax.set_title(_in_lines(name), fontsize=7)
            if i % columns == 0:
                _block_title(ax, heading)
    for ax in axes[-columns:]:
        ax.set_xlabel("Difference of accuracy (points)", fontsize=6.5)
    note(figure, "right of zero, the first of the two is better")
    key(figure, CONTRAST_KEY)
    return figure


def _contrast(ax: Axes, frame: pd.DataFrame) -> None:
    """Draw the data sets of one contrast, and their mean in the last row."""
    last = len(frame) - 1
    if "low_tasks" in frame:
        sample = frame.loc[MEAN, ["low_tasks", "high_tasks"]]
        ax.plot(sample, [last, last], color="black", linewidth=0.5)
    forest(ax, frame.rename(index=title), lambda label: STROKE if label == MEAN else DATASET)
    ax.axvline(0, color="0.3", linewidth=0.6, zorder=1)
    ax.axhline(last - 0.5, color="0.8", linewidth=0.6)


def _in_lines(name: str) -> str:
    """Break the name of a contrast into lines."""
    return name.replace(" with latent", "\nwith latent").replace(" (β", "\n(β")


def _block_title(ax: Axes, heading: str) -> None:
    """Write the title of a setting at the upper left of its first panel."""
    ax.annotate(
        heading.replace(", ", ",\n", 1),
        (0, 1),
        (-4, 0),
        "axes fraction",
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=6.5,
        fontweight="bold",
    )


def look(switch: str) -> Style:
    """Return the looks of a switch of the protocols: black where it concerns all methods."""
    method = VARIANTS[switch].method
    return Style("", style(method).colour if method else "black", "D")


def effects(frames: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the effects of the protocols' switches: a panel per metric.

    Dots are pairs of data set and seed, averaged over methods. A loss on another
    scale is left out.

    Args:
        frames: Of `protocol.effect_frames`.
    """
    switches = max(len(frame) for frame in frames.values())
    figure, axes = panels(len(frames), len(frames), PAGE, 0.16 * switches, 1.0, sharey=True)
    for ax, (name, frame) in zip(axes, frames.items(), strict=True):
        metric, chance = METRICS[name], frame["noise"]
        # Without this the axes would end where a bar ends.
        ax.use_sticky_edges = False
        rows = range(len(frame))
        ax.barh(rows, 2 * chance, left=-chance, height=0.7, color="0.9", zorder=0.5)
        forest(ax, frame, look).set_title(f"{metric.title} ({metric.unit})", fontsize=7)
        ax.axvline(0, color="0.4", linewidth=0.6, zorder=1)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    figure.supxlabel(
        "Official code minus corrected; colour: of the one method concerned", fontsize=7
    )
    entries = [
        entry("one data set and seed", "o", colour="black", markersize=2),
        entry("mean over them", "D", colour="black"),
        Patch(color="0.9", label="chance"),
    ]
    key(figure, entries)
    return figure
