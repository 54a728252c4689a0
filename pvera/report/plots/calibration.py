"""Calibration: errors per method (the paper's Figure 4), reliability diagrams, errors against accuracies."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pvera.metrics import Reliability
from pvera.report.plots import COLUMN, PVERA_MEAN, SEED, entry, forest, key, panels, style
from pvera.report.table import signed

FEW = 10  # images; a bin with fewer has no point


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
    ticks = [0, 0.5, 1], ["0", ".5", "1"]
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xticks(*ticks)
    ax.set_yticks(*ticks)
    return ax


def per_method(ace: pd.DataFrame, ece: pd.DataFrame) -> Figure:
    """Draw the geometric means of ACE and of ECE (`tables.calibration.geometric_means`) side by side."""
    figure, axes = panels(2, 2, COLUMN, 0.17 * len(ace), 0.8, sharey=True)
    for ax, means, name in zip(axes, (100 * ace, 100 * ece), ("ACE", "ECE"), strict=True):
        forest(ax, means).set_title(name)
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
        ax.set_xlim(left=0)
    figure.supxlabel("Calibration error (%), lower is better")
    key(figure, [SEED, PVERA_MEAN, entry("mean, 95 % interval", "o", "-")])
    return figure


def diagrams(bins: dict[str, Reliability]) -> Figure:
    """Draw `reliability` of each method, at column width."""
    figure, axes = panels(len(bins), 4, COLUMN, 0.9, 0.65, sharex=True, sharey=True)
    for ax, (method, of_method) in zip(axes, bins.items(), strict=True):
        reliability(ax, of_method, style(method).colour).set_title(style(method).title, fontsize=7)
    figure.supxlabel("Confidence (number: mean confidence − accuracy, points)", fontsize=7)
    figure.supylabel("Accuracy")
    bars = Patch(color="0.85", label="share of images")
    key(figure, [entry("accuracy per bin", "o", "-", markersize=2), entry("calibrated", line="--", colour="0.5"), bars])
    return figure
