"""The ablations of rank and position (Tables 2 and 3)."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pvera.report.plots import COLUMN, RC, style


def losses(ax: Axes, labels: list[str], mean: np.ndarray, by_seed: np.ndarray | None = None) -> Axes:
    """Mean loss (values,) of each labelled value; by_seed: (values, seeds), one grey line per seed.

    Values stand at equal distances, in their own order. The lowest mean is filled.
    """
    look, places = style("pvera"), np.arange(len(mean))
    if by_seed is not None:
        ax.plot(places, by_seed, "-o", color="0.7", markersize=2, linewidth=0.6, mew=0)
    for place, value in zip(places, mean, strict=True):
        face = look.colour if value == np.nanmin(mean) else "white"
        ax.plot(place, value, look.marker, color=look.colour, mfc=face, markersize=4.5, mew=1, zorder=3)
    ax.set_xticks(places, labels)
    ax.margins(x=0.1, y=0.12)
    ax.grid(axis="y", color="0.9", linewidth=0.6)
    return ax


def ablation(labels: list[str], mean: np.ndarray, by_seed: np.ndarray, paper: dict[str, float], name: str) -> Figure:
    """`losses` of our values and of the paper's (label -> loss), at column width, each on an axis of its
    own."""
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 1.6), layout="constrained")
        here, there = figure.subplots(1, 2)
        losses(here, labels, mean, by_seed).set_title("Here")
        losses(there, list(paper), np.array(list(paper.values()))).set_title("Paper")
        here.set_ylabel("Validation loss (nats)")
        figure.supxlabel(name, fontsize=8)
    return figure
