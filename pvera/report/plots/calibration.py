"""Calibration: errors per method (the paper's Figure 4), reliability diagrams, errors beside accuracies."""

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pvera.metrics import Reliability
from pvera.report.plots import COLUMN, RC, method_rows, style
from pvera.report.scores import Scores
from pvera.report.statistics import mean_and_std
from pvera.report.tables.layout import signed

FEW = 10  # images; the accuracy of fewer would be noise


def errors(ax: Axes, means: pd.DataFrame) -> Axes:
    """Geometric means in percent (`tables.calibration.geometric_means`): marker, interval, a dot per seed.

    Methods stand from top to bottom in the paper's order; the line marks PVeRA's mean.
    """
    seeds = [column for column in means if column.startswith("seed")]
    for row, (key, own) in enumerate(means.iterrows()):
        look, mean = style(key), 100 * own["mean"]
        if key == "pvera":
            ax.axvline(mean, color=look.colour, linewidth=0.8, alpha=0.6, zorder=1)
        ax.plot([100 * own["low"], 100 * own["high"]], [row, row], color=look.colour, linewidth=1.2)
        dots = 100 * own[seeds]
        ax.plot(dots, np.full(len(dots), row + 0.36), "o", color=look.colour, markersize=2, mew=0)
        ax.plot(mean, row, look.marker, color=look.colour, markersize=4.2, mec="white", mew=0.4, zorder=3)
    method_rows(ax, list(means.index))
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
    ax.set_xlim(left=0)
    return ax


def reliability(ax: Axes, found: Reliability, colour: str) -> Axes:
    """Accuracy against confidence per bin of equal width that has `FEW` images or more; bars: share of the
    images in each bin; the number: mean confidence minus accuracy, in points, positive if overconfident."""
    share = found.count / found.count.sum()
    edges = np.linspace(0, 1, len(share) + 1)
    ax.bar(edges[:-1], share, 1 / len(share), align="edge", color="0.85")
    enough = found.count >= FEW
    confidence, accuracy = found.confidence[enough], found.accuracy[enough]
    ax.plot([0, 1], [0, 1], color="0.5", linewidth=0.6, linestyle=(0, (4, 3)))
    ax.fill_between(confidence, confidence, accuracy, color=colour, alpha=0.25, linewidth=0)
    ax.plot(confidence, accuracy, color=colour, linewidth=1, marker="o", markersize=1.8, mew=0)
    over = 100 * np.nansum(share * (found.confidence - found.accuracy))
    ax.text(0.05, 0.95, signed(over, 1), transform=ax.transAxes, va="top")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks([0, 0.5, 1], ["0", ".5", "1"])
    return ax


def against_accuracy(ax: Axes, accuracy: Scores, error: Scores) -> Axes:
    """Error against accuracy in percent, a marker per method and data set (means over seeds)."""
    x, y = (100 * mean_and_std(scores.values, axis=1)[0] for scores in (accuracy, error))
    for row, key in enumerate(accuracy.methods):
        look = style(key)
        ax.plot(x[row], y[row], look.marker, color=look.colour, markersize=4, mec="white", mew=0.4,
                label=look.title)  # fmt: skip
    ax.set(xlabel="Test accuracy (%)", ylabel="ACE (%)")
    ax.set_ylim(bottom=0)
    ax.grid(color="0.9", linewidth=0.6)
    return ax


def per_method(ace: pd.DataFrame, ece: pd.DataFrame) -> Figure:
    """`errors` of ACE, and of ECE beside it, at column width."""
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 0.6 + 0.17 * len(ace)), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for ax, means, title in zip(axes, (ace, ece), ("ACE", "ECE"), strict=True):
            errors(ax, means).set_title(title)
        figure.supxlabel("Calibration error (%), lower is better", fontsize=8)
    return figure


def diagrams(found: dict[str, Reliability]) -> Figure:
    """`reliability` of each method, at column width."""
    rows = -(-len(found) // 4)
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 0.3 + 0.9 * rows), layout="constrained")
        axes = figure.subplots(rows, 4, sharex=True, sharey=True, squeeze=False).ravel()
        for ax, (key, of_method) in zip(axes, found.items(), strict=True):
            reliability(ax, of_method, style(key).colour).set_title(style(key).title, fontsize=7)
        for ax in axes[len(found) :]:
            ax.set_visible(False)
        figure.supxlabel("Confidence", fontsize=8)
        figure.supylabel("Accuracy", fontsize=8)
    return figure


def confound(accuracy: Scores, error: Scores) -> Figure:
    """`against_accuracy` at column width."""
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 2.6), layout="constrained")
        against_accuracy(figure.subplots(), accuracy, error)
        figure.legend(loc="outside upper center", ncols=4, handletextpad=0.2, columnspacing=0.8)
    return figure
