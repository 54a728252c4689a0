"""The ablations of rank and position (Tables 2 and 3)."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pvera.report.plots import COLUMN, RC, entry, key, style
from pvera.report.published import Published
from pvera.report.tables.ablations import Ablation, published


def losses(ax: Axes, labels: list[str], mean: np.ndarray, by_seed: np.ndarray | None = None) -> Axes:
    """Draw the mean loss (values,) of each labelled value at equal distances, the lowest filled.

    by_seed: (values, seeds), a grey line per seed.
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
    """Draw `losses` of our values and of the paper's (label -> loss), each on its own axis, at column width."""
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 1.8), layout="constrained")
        here, there = figure.subplots(1, 2)
        losses(here, labels, mean, by_seed).set_title("Here")
        losses(there, list(paper), np.array(list(paper.values()))).set_title("Paper")
        here.set_ylabel("Validation loss (nats)")
        figure.supxlabel(name, fontsize=8)
        marker, colour = style("pvera").marker, style("pvera").colour
        entries = [entry("one seed", "o", "-", "0.7", markersize=2), entry("mean", marker, colour=colour, mfc="white")]
        key(figure, [*entries, entry("lowest mean", marker, colour=colour)])
    return figure


def of_runs(runs: Sequence[dict], hyperparameter: str, paper: Published, name: str) -> Figure:
    """Draw `ablation` of one experiment's runs and the paper's table; name: the label of the values."""
    ours, theirs = Ablation.of(runs, hyperparameter), published(paper, hyperparameter)["loss"]
    paper_losses = {str(value).upper(): loss for value, loss in theirs.items()}
    return ablation([str(value).upper() for value in ours.values], ours.mean(), ours.by_seed(), paper_losses, name)
