"""Figures. Functions that take Axes draw on them and return them; `save` writes PNG and PDF."""

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pvera.adapters import METHODS
from pvera.files import write_atomically
from pvera.report.scores import over_seeds

COLUMN = 3.4  # inches, the width of a column of a two-column paper
PAGE = 7.0  # inches, the width of both columns


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


class Style(NamedTuple):
    """The looks of a method in every figure: a colour that colour-blind readers can tell, a marker for grey print."""

    title: str
    colour: str
    marker: str


def style(name: str) -> Style:
    """Return the looks of a method."""
    return Style(METHODS[name].title, METHODS[name].colour, METHODS[name].marker)


def panels(
    n: int, columns: int, width: float, height: float, extra: float = 0.5, **options
) -> tuple[Figure, list]:
    """Return a figure of `width` inches with n axes in rows of `columns`, and the axes.

    height: inches of a row. extra: inches for what stands around the rows. options: of `Figure.subplots`.
    """
    columns = min(n, columns)
    rows = -(-n // columns)
    figure = Figure(figsize=(width, extra + height * rows))
    axes = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for ax, above in zip(axes[n:], axes[n - columns :], strict=False):
        ax.set_visible(False)
        above.tick_params(labelbottom=True)
    return figure, list(axes[:n])


def forest(ax: Axes, frame: pd.DataFrame, look: Callable[[str], Style] = style) -> Axes:
    """Draw a row per line of `frame`, from top to bottom: a marker at `mean`, a line from `low` to `high`, and a dot
    for each column seed<k>. A frame may lack all but `mean`.

    The index holds methods, or labels that `look` gives a style; a style without a title leaves the label as it is. A
    line goes through PVeRA's mean, and its name is bold.
    """
    seeds = [column for column in frame if str(column).startswith("seed")]
    for place, (name, row) in enumerate(frame.iterrows()):
        looks = look(name)
        if "low" in frame:
            ax.plot([row["low"], row["high"]], [place, place], color=looks.colour, linewidth=1.8)
        ax.plot(
            row[seeds],
            np.full(len(seeds), place + 0.36),
            "o",
            color=looks.colour,
            markersize=2,
            mew=0,
        )
        dot(ax, row["mean"], place, looks)
    ax.set_yticks(range(len(frame)), [look(name).title or name for name in frame.index])
    ax.set_ylim(len(frame) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    if "pvera" in frame.index:
        colour = look("pvera").colour
        ax.axvline(frame.at["pvera", "mean"], color=colour, linewidth=0.8, alpha=0.6, zorder=1)
        if labels := ax.get_yticklabels():  # axes that share labels have none
            labels[frame.index.get_loc("pvera")].set(color=colour, fontweight="bold")
    return ax


def dot(ax: Axes, x: float, y: float, look: Style) -> None:
    """Draw the marker of `look` with a white edge."""
    ax.plot(x, y, look.marker, color=look.colour, markersize=4.2, mec="white", mew=0.4, zorder=3)


def picture(ax: Axes, pixels: np.ndarray, **scale) -> None:
    """Draw a picture (height, width[, 3]) without axes; scale: colours of `Axes.imshow`."""
    ax.imshow(pixels, interpolation="nearest", **scale)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def entry(label: str, marker: str = "", line: str = "", colour: str = "0.3", **look) -> Line2D:
    """Return an entry of a figure's key."""
    return Line2D(
        [],
        [],
        color=colour,
        marker=marker,
        linestyle=line,
        label=label,
        **{"linewidth": 0.8} | look,
    )


def key(figure: Figure, entries: Iterable[Artist], columns: int = 3) -> None:
    """Add the key of a figure above its axes."""
    figure.legend(handles=list(entries), loc="outside upper center", ncols=columns)


#: Entries that several figures share.
SEED = entry("one seed", "o", markersize=2, markeredgewidth=0)
PVERA_MEAN = entry("PVeRA's mean", line="-", colour=style("pvera").colour, alpha=0.6)


def note(figure: Figure, text: str) -> None:
    """Add a small line below the axes that explains what a key cannot show."""
    figure.supxlabel(text, fontsize=6, color="0.3")


def benchmark(scores: pd.DataFrame) -> Figure:
    """Draw accuracies (`scores.score_frame`), over all data sets and per category, at column width: a `forest` each.

    A seed with a missing run has no dot, a method with a missing data set no mean.
    """
    groups = {
        "Average": scores,
        **{name.capitalize(): part for name, part in scores.groupby("category", sort=False)},
    }
    figure, axes = panels(
        len(groups), 2, COLUMN, 0.4 + 0.14 * len(scores.columns), 0.4, sharey=True
    )
    for ax, (name, part) in zip(axes, groups.items(), strict=True):
        seeds = 100 * part.groupby(level="seed").mean(skipna=False)
        frame = seeds.T.add_prefix("seed").assign(mean=100 * over_seeds(part).mean(skipna=False))
        forest(ax, frame).set_title(name)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], integer=True))
        ax.margins(x=0.1)
    figure.supxlabel("Test accuracy (%)")
    key(figure, [SEED, entry("mean", "o"), PVERA_MEAN])
    return figure


def save(figure: Figure, folder, name: str) -> list[Path]:
    """Write <folder>/<name>.{png,pdf} and return the paths. Files have no dates: equal figures give equal files."""
    paths = []
    for ending, undated in (("png", "Software"), ("pdf", "CreationDate")):
        file = io.BytesIO()
        figure.savefig(file, format=ending, dpi=300, metadata={undated: None})
        paths.append(Path(folder) / f"{name}.{ending}")
        write_atomically(paths[-1], file.getvalue())
    return paths
