"""Calibration: errors per method (the paper's Figure 4), reliability diagrams, errors against accuracies."""

from collections.abc import Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pvera.metrics import Reliability
from pvera.report.plots import COLUMN, PAGE, PVERA_MEAN, RC, SEED, entry, key, method_rows, style
from pvera.report.scores import over_seeds
from pvera.report.tables import calibration as tables
from pvera.report.tables.layout import NOTHING, signed
from pvera.report.tables.names import dataset_title

FEW = 10  # images; a bin with fewer has no point


def errors(ax: Axes, means: pd.DataFrame) -> Axes:
    """Draw geometric means in percent (`tables.calibration.geometric_means`): marker, interval, a dot per seed.

    Methods stand from top to bottom in the paper's order; the line marks PVeRA's mean.
    """
    seeds = [column for column in means if column.startswith("seed")]
    for row, (method, values) in enumerate(means.iterrows()):
        look, mean = style(method), 100 * values["mean"]
        if method == "pvera":
            ax.axvline(mean, color=look.colour, linewidth=0.8, alpha=0.6, zorder=1)
        ax.plot([100 * values["low"], 100 * values["high"]], [row, row], color=look.colour, linewidth=1.2)
        dots = 100 * values[seeds]
        ax.plot(dots, np.full(len(dots), row + 0.36), "o", color=look.colour, markersize=2, mew=0)
        ax.plot(mean, row, look.marker, color=look.colour, markersize=4.2, mec="white", mew=0.4, zorder=3)
    method_rows(ax, list(means.index))
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
    ax.set_xlim(left=0)
    return ax


def reliability(ax: Axes, bins: Reliability, colour: str) -> Axes:
    """Draw accuracy against confidence for bins of equal width with at least `FEW` images.

    Bars: share of the images in each bin. Number: mean confidence minus accuracy (points), positive if overconfident.
    """
    share = bins.count / bins.count.sum()
    edges = np.linspace(0, 1, len(share) + 1)
    ax.bar(edges[:-1], share, 1 / len(share), align="edge", color="0.85")
    enough = bins.count >= FEW
    confidence, accuracy = bins.confidence[enough], bins.accuracy[enough]
    ax.plot([0, 1], [0, 1], color="0.5", linewidth=0.6, linestyle=(0, (4, 3)))
    ax.fill_between(confidence, confidence, accuracy, color=colour, alpha=0.25, linewidth=0)
    ax.plot(confidence, accuracy, color=colour, linewidth=1, marker="o", markersize=1.8, mew=0)
    over = 100 * np.nansum(share * (bins.confidence - bins.accuracy))
    ax.text(0.05, 0.95, signed(over, 1), transform=ax.transAxes, va="top")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks([0, 0.5, 1], ["0", ".5", "1"])
    return ax


def against_accuracy(ax: Axes, accuracy: np.ndarray, error: np.ndarray, methods: Sequence[str]) -> Axes:
    """Draw error against accuracy in percent on one data set, (methods,), a marker per method."""
    for x, y, look in zip(accuracy, error, map(style, methods), strict=True):
        ax.plot(x, y, look.marker, color=look.colour, markersize=4, mec="white", mew=0.4, label=look.title)
    ax.margins(0.1)
    ax.set_ylim(0, 1.12 * np.nanmax(error))
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.grid(color="0.9", linewidth=0.6)
    return ax


def per_method(ace: pd.DataFrame, ece: pd.DataFrame) -> Figure:
    """Draw `errors` of ACE and of ECE side by side, at column width."""
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 0.8 + 0.17 * len(ace)), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for ax, means, title in zip(axes, (ace, ece), ("ACE", "ECE"), strict=True):
            errors(ax, means).set_title(title)
        figure.supxlabel("Calibration error (%), lower is better", fontsize=8)
        key(figure, [SEED, entry("mean, 95 % interval over data sets", "o", "-"), PVERA_MEAN], columns=2)
    return figure


def diagrams(bins: dict[str, Reliability]) -> Figure:
    """Draw `reliability` of each method, at column width."""
    rows = -(-len(bins) // 4)
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 0.65 + 0.9 * rows), layout="constrained")
        axes = figure.subplots(rows, 4, sharex=True, sharey=True, squeeze=False).ravel()
        for ax, (method, of_method) in zip(axes, bins.items(), strict=False):
            reliability(ax, of_method, style(method).colour).set_title(style(method).title, fontsize=7)
        for ax in axes[len(bins) :]:
            ax.set_visible(False)
        figure.supxlabel("Confidence (number: mean confidence − accuracy, points)", fontsize=7)
        entries = [entry("accuracy per bin", "o", "-", markersize=2), entry("calibrated", line="--", colour="0.5")]
        key(figure, [*entries, Patch(color="0.85", label="share of images")])
        figure.supylabel("Accuracy", fontsize=8)
    return figure


def confound(accuracy: pd.DataFrame, error: pd.DataFrame) -> Figure:
    """Draw `against_accuracy` for each data set (means over seeds), three in a row at page width."""
    means = [100 * over_seeds(scores).to_numpy() for scores in (accuracy, error)]
    correlations = tables.confound(accuracy, error)
    columns = min(3, len(correlations))
    rows = -(-len(correlations) // columns)
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(PAGE * columns / 3, 0.9 + 1.35 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for ax, (name, rho), x, y in zip(axes, correlations.items(), *means, strict=False):
            rank = NOTHING if np.isnan(rho) else signed(rho, 2)
            against_accuracy(ax, x, y, list(accuracy)).set_title(f"{dataset_title(name)}   ρ = {rank}", fontsize=7)
        for ax in axes[len(correlations) :]:
            ax.set_visible(False)
        figure.supxlabel("Test accuracy (%); each panel has its own axes", fontsize=8)
        figure.supylabel("ACE (%), lower is better", fontsize=8)
        looks = [style(method) for method in accuracy]
        spearman = entry("ρ: Spearman's correlation over the methods")
        key(figure, [*(entry(look.title, look.marker, colour=look.colour) for look in looks), spearman], columns=5)
    return figure
