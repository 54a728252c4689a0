"""Figures. Functions that take Axes draw on them and return them; `save` writes PNG and PDF."""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from scipy.optimize import isotonic_regression

from pvera.adapters import METHODS, PAPER_METHODS
from pvera.files import write_atomically
from pvera.report.scores import over_seeds

COLUMN = 3.4  # inches, the width of a column of a two-column paper
PAGE = 7.0  # inches, the width of both columns


@dataclass(frozen=True)
class Style:
    """The looks of a method in every figure: a colour that colour-blind readers can tell, a marker for grey print."""

    title: str
    colour: str
    marker: str


#: For methods that define no colour or marker; no method of the paper has one of these.
COLOURS, MARKERS = ("#882255", "#999933", "#44AA99", "#DDCC77", "#117733"), ("p", "*", "<", ">", "d")


def style(name: str) -> Style:
    """Return the looks of a method: those that it defines, else those of its place after the paper's methods."""
    method, place = METHODS[name], list(METHODS).index(name) - len(PAPER_METHODS)
    return Style(
        method.title, method.colour or COLOURS[place % len(COLOURS)], method.marker or MARKERS[place % len(MARKERS)]
    )


RC = {
    "font.size": 7,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.linewidth": 0.6,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text
}


def accuracy(ax: Axes, scores: pd.DataFrame, group: str = "average") -> Axes:
    """Draw the accuracy (`scores.wide`) averaged over all data sets or those of the category `group`: dots for seeds,
    markers for means.

    Methods stand from top to bottom in the paper's order; the line marks PVeRA's mean. A seed with a missing run has no
    dot, a method with a missing data set no mean.
    """
    members = 100 * (scores if group == "average" else scores.xs(group, level="category", drop_level=False))
    seeds = members.groupby(level="seed").mean(skipna=False)
    for row, (method, mean) in enumerate(over_seeds(members).mean(skipna=False).items()):
        look = style(method)
        if method == "pvera":
            ax.axvline(mean, color=look.colour, linewidth=0.8, alpha=0.6, zorder=1)
        ax.plot(seeds[method], np.full(len(seeds), row + 0.36), "o", color=look.colour, markersize=2, mew=0)
        ax.plot(mean, row, look.marker, color=look.colour, markersize=4.2, mec="white", mew=0.4, zorder=3)
    method_rows(ax, list(scores))
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], integer=True))
    ax.margins(x=0.1)
    ax.set_title(group.capitalize())
    return ax


def method_rows(ax: Axes, methods: list[str]) -> Axes:
    """Set up one row per method, from top to bottom."""
    ax.set_yticks(range(len(methods)), [style(method).title for method in methods])
    emphasise(ax, methods)
    ax.set_ylim(len(methods) - 0.4, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="0.9", linewidth=0.6)
    return ax


def emphasise(ax: Axes, methods: list[str]) -> None:
    """Set the label of PVeRA's row in bold and in its colour."""
    for method, label in zip(methods, ax.get_yticklabels(), strict=False):  # axes that share labels have none
        label.set_color(style(method).colour if method == "pvera" else "black")
        label.set_fontweight("bold" if method == "pvera" else "normal")


def entry(label: str, marker: str = "", line: str = "", colour: str = "0.3", **look) -> Line2D:
    """Return an entry of a figure's key."""
    look = {"markersize": 4, "linewidth": 0.8} | look
    return Line2D([], [], color=colour, marker=marker, linestyle=line, label=label, **look)


def key(figure: Figure, entries: Iterable[Artist], columns: int = 3, place: str = "upper") -> None:
    """Add the key of a figure above or below ("upper", "lower") its axes."""
    figure.legend(handles=list(entries), loc=f"outside {place} center", ncols=columns, fontsize=6.5,
                  handletextpad=0.3, columnspacing=1.0)  # fmt: skip


#: Entries that several figures share.
SEED = entry("one seed", "o", markersize=2, markeredgewidth=0)
PVERA_MEAN = entry("PVeRA's mean", line="-", colour=style("pvera").colour, alpha=0.6)


def note(figure: Figure, text: str) -> None:
    """Add a small line below the axes that explains what a key cannot show."""
    figure.supxlabel(text, fontsize=6, color="0.3")


def spaced(places: Iterable[float], gap: float, low: float = -np.inf, high: float = np.inf) -> np.ndarray:
    """Move places apart, so that neighbours keep their order and are at least `gap` apart, between `low` and `high`.

    The moves are as small as they can be (least squares).
    """
    places = np.asarray(list(places), dtype=float)
    order, steps = np.argsort(places, kind="stable"), gap * np.arange(len(places))
    moved = np.empty_like(places)
    if len(places):
        moved[order] = np.clip(isotonic_regression(places[order] - steps).x, low, high - steps[-1]) + steps
    return moved


def ranges(values: Iterable[float], gap: float = 0.4) -> list[tuple[float, float]]:
    """Return the limits of an axis that shows `values`, with margins.

    These are two ranges, for a broken axis, where the widest empty stretch takes more than `gap` of the whole.
    """
    values = np.sort(np.asarray(list(values), dtype=float))
    parts, steps = [values], np.diff(values)
    if steps.max(initial=0) > gap * np.ptp(values):
        parts = np.split(values, [steps.argmax() + 1])
    margin = 0.06 * sum(map(np.ptp, parts)) or 1.0
    return [(part[0] - margin, part[-1] + margin) for part in parts]


def break_between(one: Axes, other: Axes, axis: str = "x") -> None:
    """Mark the break of an axis: `one` is the left or lower part, `other` the part right of it or above."""
    look = {"linestyle": "", "color": "black", "clip_on": False, "markersize": 5, "mew": 0.6}
    ends = ((one, (1, 0)), (other, (0, 0))) if axis == "x" else ((one, (0, 1)), (other, (0, 0)))
    for ax, (x, y) in ends:
        slash = [(-0.4, -1), (0.4, 1)] if axis == "x" else [(-1, -0.4), (1, 0.4)]
        ax.plot(x, y, marker=slash, transform=ax.transAxes, **look)
    other.spines["left" if axis == "x" else "bottom"].set_visible(False)
    other.tick_params(**{"left" if axis == "x" else "bottom": False})


def benchmark(scores: pd.DataFrame) -> Figure:
    """Draw `accuracy` over all data sets and per category, at column width."""
    names = ["average", *scores.index.unique("category")]
    rows = -(-len(names) // 2)
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 0.4 + rows * (0.4 + 0.14 * len(scores.columns))), layout="constrained")
        axes = figure.subplots(rows, 2, sharey=True, squeeze=False).ravel()
        for ax, name in zip(axes, names, strict=False):
            accuracy(ax, scores, name)
        for ax in axes[len(names) :]:
            ax.set_visible(False)
        figure.supxlabel("Test accuracy (%)", fontsize=8)
        key(figure, [SEED, entry("mean", "o"), PVERA_MEAN])
    return figure


def save(figure: Figure, folder, name: str, formats: Iterable[str] = ("png", "pdf")) -> list[Path]:
    """Write <folder>/<name>.{png,pdf} and return the paths."""
    paths = []
    for ending in formats:
        paths.append(Path(folder) / f"{name}.{ending}")
        write_atomically(paths[-1], content(figure, ending))
    return paths


def content(figure: Figure, ending: str) -> bytes:
    """Return a figure as the content of a file, "png" or "pdf", without dates: equal figures give equal files."""
    file = io.BytesIO()
    metadata = {"Software": None} if ending == "png" else {"CreationDate": None}
    with matplotlib.rc_context(RC):
        figure.savefig(file, format=ending, dpi=300, metadata=metadata)
    return file.getvalue()
