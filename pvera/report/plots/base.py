"""What figures share: sizes, styles, forests, legends and files.

Most figures are forests: a row per method or data set, and one shape of frame, see `forest`.
Functions that take Axes draw on them; `save` writes PNG and PDF.
"""

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pvera.adapters import METHODS, Method
from pvera.files import write_atomically

COLUMN_WIDTH = 3.4  # inches, the width of a column of a two-column paper
PAGE_WIDTH = 7.0  # inches, the width of both columns


#: matplotlib's defaults for figures of the paper's widths.
DEFAULTS = {
    "font.size": 7,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.linewidth": 0.6,
    "figure.constrained_layout.use": True,
    "figure.labelsize": 8,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "legend.columnspacing": 1.0,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handletextpad": 0.5,
    "lines.markersize": 4,
    "lines.solid_capstyle": "butt",  # an interval ends where its line ends
    "pdf.fonttype": 42,  # text stays text
}


class PlainStyle(NamedTuple):
    """The style of what is no method; methods have these attributes."""

    title: str
    #: Colour-blind readers can tell the methods' colours.
    colour: str
    #: The marker tells methods apart in grey print.
    marker: str


#: The style of a row or a point.
Style: TypeAlias = PlainStyle | type[Method]
PVERA = METHODS["pvera"]
#: The style of data sets.
DATASET = PlainStyle("", PVERA.colour, PVERA.marker)


def axes_grid(
    n: int, columns: int, width: float, height: float, extra: float = 0.5, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure with n axes in rows, and the axes.

    Args:
        n: The number of axes.
        columns: The most axes in a row.
        width: The width of the figure, in inches.
        height: The height of a row, in inches.
        extra: The height of what stands around the rows, in inches.
        options: Options of `Figure.subplots`.
    """
    columns = min(n, columns)
    rows = -(-n // columns)
    figure = Figure(figsize=(width, extra + height * rows))
    axes = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    # The last row may have fewer axes; those above the gap show their labels.
    for unused, above in zip(axes[n:], axes[n - columns :], strict=False):
        unused.set_visible(False)
        above.tick_params(labelbottom=True)
    return figure, list(axes[:n])


def forest(
    ax: Axes, frame: pd.DataFrame, style_of: Callable[[str], Style] = METHODS.__getitem__
) -> Axes:
    """Draw a row per line of a frame, from top to bottom, with a line through PVeRA's mean.

    Args:
        ax: The axes.
        frame: Columns mean, a marker; low and high, the ends of a line; seed<k>, a dot each. It may
            lack all but mean. Its index holds methods, or labels that `style_of` knows.
        style_of: From a label to its style, without a title where the label stays as it is.

    Returns:
        The axes.
    """
    seeds = [column for column in frame if str(column).startswith("seed")]
    for y, (name, row) in enumerate(frame.iterrows()):
        style = style_of(name)
        if "low" in frame:
            ax.plot([row["low"], row["high"]], [y, y], color=style.colour, linewidth=1.8)
        # Seeds lie below the mean and hide no interval.
        below = np.full(len(seeds), y + 0.36)
        ax.plot(row[seeds], below, "o", color=style.colour, markersize=2, mew=0)
        dot(ax, row["mean"], y, style)

    ax.set_yticks(range(len(frame)), [style_of(name).title or name for name in frame.index])
    # The first line is on top.
    ax.set_ylim(len(frame) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    if "pvera" in frame.index:
        colour = style_of("pvera").colour
        ax.axvline(frame.at["pvera", "mean"], color=colour, linewidth=0.8, alpha=0.6, zorder=1)
        labels = ax.get_yticklabels()
        if labels:  # axes that share labels have none
            labels[frame.index.get_loc("pvera")].set(color=colour, fontweight="bold")
    return ax


def dot(ax: Axes, x: float, y: float, style: Style) -> None:
    """Draw the marker of `style` with a white edge."""
    ax.plot(x, y, style.marker, color=style.colour, markersize=4.2, mec="white", mew=0.4, zorder=3)


def picture(ax: Axes, pixels: np.ndarray, **scale: Any) -> None:
    """Draw a picture (height, width[, 3]) without axes; scale: colours of `Axes.imshow`."""
    ax.imshow(pixels, interpolation="nearest", **scale)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def legend_entry(
    label: str, marker: str = "", line: str = "", colour: str = "0.3", **options: Any
) -> Line2D:
    """Return an entry of a figure's legend; options: of `Line2D.set`."""
    handle = Line2D([], [], color=colour, label=label, linewidth=0.8)
    handle.set(marker=marker, linestyle=line, **options)
    return handle


def add_legend(figure: Figure, entries: Iterable[Artist], columns: int = 3) -> None:
    """Add the legend of a figure above its axes."""
    figure.legend(handles=list(entries), loc="outside upper center", ncols=columns)


#: Entries that several figures share.
SEED = legend_entry("one seed", "o", markersize=2, markeredgewidth=0)
PVERA_MEAN = legend_entry("PVeRA's mean", line="-", colour=PVERA.colour, alpha=0.6)


def note(figure: Figure, text: str) -> None:
    """Add a small line below the axes that explains what a legend cannot show."""
    figure.supxlabel(text, fontsize=6, color="0.3")


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write <folder>/<name>.png and .pdf and return the paths.

    Files have no dates: equal figures give equal files.
    """
    paths = []
    for suffix, undated in (("png", "Software"), ("pdf", "CreationDate")):
        file = io.BytesIO()
        figure.savefig(file, format=suffix, dpi=300, metadata={undated: None})
        path = Path(folder) / f"{name}.{suffix}"
        write_atomically(path, file.getvalue())
        paths.append(path)
    return paths
