"""Forests of the differences between methods and variants."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from pvera.errors import InputError
from pvera.report.plots.base import (
    DATASET,
    PAGE_WIDTH,
    PVERA,
    PlainStyle,
    add_legend,
    axes_grid,
    forest,
    legend_entry,
    note,
)
from pvera.report.tables.components import MEAN
from pvera.report.text import signed, title

#: The most contrasts in a row.
MAX_COLUMNS = 4
#: The mean's marker is a stroke, which hides no interval.
STROKE = PlainStyle("", "black", "|")


def draw_contrasts(settings: Mapping[str, Mapping[str, pd.DataFrame]]) -> Figure:
    """Draw contrasts of methods and variants: a column each, a block of rows per setting.

    Small dots are seeds, large ones their means. A block ends in the mean over data sets, with its
    95 % intervals: thick over seeds and, of three data sets or more, thin over data sets.

    Args:
        settings: Title of a setting -> its `components.contrast_frames`; the contrasts are drawn
            that every setting has.

    Raises:
        InputError: There are none.
    """
    first, *others = settings.values()
    names = [name for name in first if all(name in frames for frames in others)]
    if not names:
        raise InputError("there is no contrast of which every setting has runs")
    figure, blocks = _blocks(settings, names)
    for (heading, frames), block in zip(settings.items(), blocks, strict=True):
        for i, name in enumerate(names):
            _contrast(block[i], frames[name])
            if frames is first:
                block[i].set_title(_in_lines(name), fontsize=7)
            if others and i % MAX_COLUMNS == 0:
                _block_title(block[i], heading)
        for unused in block[len(names) :]:
            unused.set_visible(False)
    # The lowest axes of each column.
    for ax in blocks[-1][: len(names)][-MAX_COLUMNS:]:
        ax.tick_params(labelbottom=True)
        ax.xaxis.set_major_locator(MultipleLocator(5))
        ax.set_xlabel("Difference of accuracy (points)", fontsize=6.5)
    note(figure, "right of zero, the first of the two is better")
    add_legend(figure, _contrast_legend())
    return figure


def _blocks(
    settings: Mapping[str, Mapping[str, pd.DataFrame]], names: Sequence[str]
) -> tuple[Figure, np.ndarray]:
    """Return a figure, and its axes (settings, contrasts); the last ones may be unused."""
    columns = min(len(names), MAX_COLUMNS)
    rows = -(-len(names) // columns)
    # A panel is as high as its forest has lines.
    lines = np.repeat([len(frames[names[0]]) for frames in settings.values()], rows)
    figure, axes = axes_grid(
        len(lines) * columns,
        columns,
        PAGE_WIDTH,
        0.5 + 0.12 * lines.mean(),
        extra=0.6,
        sharex="all",
        sharey="row",
        height_ratios=lines,
    )
    # Axes go row by row; each setting has a block of `rows`.
    return figure, np.array(axes).reshape(len(settings), -1)


def _contrast_legend() -> list[Line2D]:
    intervals = "mean over data sets; 95 % interval: thick over seeds, thin over data sets"
    return [
        legend_entry("one seed", "o", colour=PVERA.colour, markersize=2, markeredgewidth=0),
        legend_entry("mean over seeds", PVERA.marker, colour=PVERA.colour),
        legend_entry(intervals, "|", "-", "black", linewidth=1.8),
    ]


def _contrast(ax: Axes, frame: pd.DataFrame) -> None:
    """Draw the data sets of one contrast, and their mean in the last row."""
    last = len(frame) - 1
    if "tasks_low" in frame:
        sample = frame.loc[MEAN, ["tasks_low", "tasks_high"]]
        ax.plot(sample, [last, last], color="black", linewidth=0.5)
    forest(ax, frame.rename(index=title), lambda label: STROKE if label == MEAN else DATASET)
    ax.axvline(0, color="0.3", linewidth=0.6, zorder=1)
    ax.axhline(last - 0.5, color="0.8", linewidth=0.6)
    mean = signed(frame.at[MEAN, "mean"], 1)
    ax.text(1.01, last, mean, transform=ax.get_yaxis_transform(), va="center")


def _in_lines(name: str) -> str:
    """Break the name of a contrast into lines."""
    for end in (" VeRA with latent", " both with", " (β"):
        name = name.replace(end, "\n" + end.strip())
    return name


def _block_title(ax: Axes, heading: str) -> None:
    """Write the title of a setting at the upper left of its first panel."""
    ax.annotate(
        heading.replace(", ", ",\n", 1).replace(" (", "\n("),
        (0, 1),
        (-4, 0),
        "axes fraction",
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=6.5,
        fontweight="bold",
    )
