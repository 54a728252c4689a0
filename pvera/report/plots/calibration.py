"""Calibration: errors per method (the paper's Figure 4), reliability diagrams, errors against accuracies."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pvera.metrics import Reliability
from pvera.report.plots import COLUMN, PVERA_MEAN, SEED, entry, forest, key, panels, style
from pvera.report.table import signed

FEW = 10  # images; a bin with fewer has no point


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
    """Draw accuracy against confidence of each method, for bins of equal width with at least `FEW` images.

    Bars: share of the images in each bin. Number: mean confidence minus accuracy (points), positive if overconfident.
    """
    figure, axes = panels(len(bins), 4, COLUMN, 0.9, 0.65, sharex=True, sharey=True)
    for ax, (method, of_method) in zip(axes, bins.items(), strict=True):
        look, share = style(method), of_method.count / of_method.count.sum()
        ax.bar(np.linspace(0, 1, len(share) + 1)[:-1], share, 1 / len(share), align="edge", color="0.85")
        enough = of_method.count >= FEW
        confidence, accuracy = of_method.confidence[enough], of_method.accuracy[enough]
        ax.plot([0, 1], [0, 1], color="0.5", linewidth=0.6, linestyle=(0, (4, 3)))
        ax.fill_between(confidence, confidence, accuracy, color=look.colour, alpha=0.25, linewidth=0)
        ax.plot(confidence, accuracy, color=look.colour, linewidth=1, marker="o", markersize=1.8, mew=0)
        over = 100 * np.nansum(share * (of_method.confidence - of_method.accuracy))
        ax.text(0.05, 0.95, signed(over, 1), transform=ax.transAxes, va="top")
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        ax.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
        ax.set_yticks([0, 0.5, 1], ["0", ".5", "1"])
        ax.set_title(look.title, fontsize=7)
    figure.supxlabel("Confidence (number: mean confidence − accuracy, points)", fontsize=7)
    figure.supylabel("Accuracy")
    bars = Patch(color="0.85", label="share of images")
    key(figure, [entry("accuracy per bin", "o", "-", markersize=2), entry("calibrated", line="--", colour="0.5"), bars])
    return figure
