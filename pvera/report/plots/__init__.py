"""Figures. Each function draws on the Axes that it is given and returns it; `save` writes PNG and PDF."""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pvera.adapters import METHODS, PAPER_METHODS
from pvera.files import write_atomically
from pvera.report.scores import Scores
from pvera.report.statistics import mean_and_std
from pvera.report.tables import groups

COLUMN = 3.4  # inches, the width of a column of a two-column paper


@dataclass(frozen=True)
class Style:
    """The looks of a method in every figure: colours for colour-blind readers too, markers for grey print."""

    title: str
    colour: str
    marker: str


#: For methods without a colour or marker of their own; no method of the paper has one of these.
COLOURS, MARKERS = ("#882255", "#999933", "#44AA99", "#DDCC77", "#117733"), ("p", "*", "<", ">", "d")


def style(key: str) -> Style:
    """Return the looks of a method: its own, or, where it has none, those of its place after the paper's methods."""
    method, place = METHODS[key], list(METHODS).index(key) - len(PAPER_METHODS)
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


def accuracy(ax: Axes, scores: Scores, group: str = "average") -> Axes:
    """Accuracy averaged over the data sets of `group` (`tables.groups`): dots per seed, a marker at the mean.

    Methods stand from top to bottom in the paper's order; the line marks PVeRA's mean. A seed with a missing
    run has no dot, a method with a missing data set no mean.
    """
    members = groups(scores)[group]
    for row, key in enumerate(scores.methods):
        look = style(key)
        values = 100 * scores.values[row][:, members]  # (seeds, data sets)
        mean = mean_and_std(values)[0].mean()
        if key == "pvera":
            ax.axvline(mean, color=look.colour, linewidth=0.8, alpha=0.6, zorder=1)
        seeds = values.mean(1)
        ax.plot(seeds, np.full(len(seeds), row + 0.36), "o", color=look.colour, markersize=2, mew=0)
        ax.plot(mean, row, look.marker, color=look.colour, markersize=4.2, mec="white", mew=0.4, zorder=3)
    method_rows(ax, list(scores.methods))
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], integer=True))
    ax.margins(x=0.1)
    ax.set_title(group.capitalize())
    return ax


def method_rows(ax: Axes, methods: list[str]) -> Axes:
    """One row per method, from top to bottom."""
    ax.set_yticks(range(len(methods)), [style(key).title for key in methods])
    emphasise(ax, methods)
    ax.set_ylim(len(methods) - 0.4, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="0.9", linewidth=0.6)
    return ax


def emphasise(ax: Axes, methods: list[str]) -> None:
    """Set the label of PVeRA's row in bold and in its colour."""
    for key, label in zip(methods, ax.get_yticklabels(), strict=True):
        label.set_color(style(key).colour if key == "pvera" else "black")
        label.set_fontweight("bold" if key == "pvera" else "normal")


def benchmark(scores: Scores) -> Figure:
    """`accuracy` over all data sets and per category, at column width."""
    names = list(groups(scores))
    rows = -(-len(names) // 2)
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 0.2 + rows * (0.4 + 0.14 * len(scores.methods))), layout="constrained")
        axes = figure.subplots(rows, 2, sharey=True, squeeze=False).ravel()
        for ax, name in zip(axes, names, strict=True):
            accuracy(ax, scores, name)
        for ax in axes[len(names) :]:
            ax.set_visible(False)
        figure.supxlabel("Test accuracy (%)", fontsize=8)
    return figure


def save(figure: Figure, folder, name: str, formats: Iterable[str] = ("png", "pdf")) -> list[Path]:
    """Writes <folder>/<name>.{png,pdf}, without dates so that the same figure gives the same file."""
    paths = []
    for ending in formats:
        content = io.BytesIO()
        metadata = {"Software": None} if ending == "png" else {"CreationDate": None}
        with matplotlib.rc_context(RC):
            figure.savefig(content, format=ending, dpi=300, metadata=metadata)
        paths.append(Path(folder) / f"{name}.{ending}")
        write_atomically(paths[-1], content.getvalue())
    return paths
