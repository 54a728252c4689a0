"""The ablations of rank and position (Tables 2 and 3): losses above that of the paper's choice."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pvera.report.plots import COLUMN, entry, key, panels, style
from pvera.report.published import Published
from pvera.report.tables.ablations import above, by_seed, failed, interval, losses, published, references

FAILED = "#BB0000"


def differences(ax: Axes, labels: Sequence[str], mean: np.ndarray) -> Axes:
    """Draw the mean difference (values,) of each labelled value at equal distances, the lowest filled."""
    look = style("pvera")
    for place, value in enumerate(mean):
        face = look.colour if value == np.nanmin(mean) else "white"
        ax.plot(place, value, look.marker, color=look.colour, mfc=face, markersize=4.5, mew=1, zorder=3)
    ax.axhline(0, color="0.5", linewidth=0.6, zorder=0)
    ax.set_xticks(range(len(mean)), labels, fontsize=6)
    ax.margins(x=0.1, y=0.15)
    ax.grid(axis="y")
    return ax


def measured(ax: Axes, labels: Sequence[str], ours: pd.DataFrame, base) -> Axes:
    """Draw `differences` from the value `base`, with the interval over data sets, the number of trainings that learned
    nothing and, where there are several seeds, a dot for each."""
    gaps, of_seeds = above(ours, base), by_seed(ours)
    differences(ax, labels, gaps.mean().to_numpy())
    ax.vlines(range(len(labels)), *interval(gaps), color=style("pvera").colour, linewidth=1)
    if len(of_seeds) > 1:
        shift = np.linspace(0.24, 0.46, len(of_seeds))  # clear of the mean's marker
        for place, seeds in enumerate(of_seeds.sub(of_seeds[base], axis=0).to_numpy().T):
            ax.plot(place + shift, seeds, "o", color="0.5", markersize=2, mew=0)
    for place, count in enumerate(failed(ours).sum()):
        if count:
            ax.text(place, 1, f"{count}×", color=FAILED, fontsize=6, ha="center", va="bottom",
                    transform=ax.get_xaxis_transform())  # fmt: skip
    return ax


def of_runs(runs: Sequence[dict], hyperparameter: str, paper: Published, name: str) -> Figure:
    """Draw the differences of one experiment's runs beside the paper's, each on its own axis; name: the axis of values.

    Both are differences from the paper's best value, or from our lowest where it has no counterpart.
    """
    ours, theirs = losses(runs, hyperparameter), published(paper, hyperparameter)["loss"]
    base, best = references(list(ours), theirs.to_frame())
    base = by_seed(ours).mean().idxmin() if base is None else base
    seeds = len(by_seed(ours))
    figure, (here, there) = panels(2, 2, COLUMN, 1.7)
    labels, paper_labels = ([str(value).upper() for value in values] for values in (ours, theirs.index))
    measured(here, labels, ours, base).set_title("Here, one seed" if seeds == 1 else f"Here, {seeds} seeds", pad=10)
    differences(there, paper_labels, theirs.to_numpy() - theirs[best]).set_title("Paper", pad=10)
    here.set_ylabel("Validation loss above that of\nthe paper's choice (nats)", fontsize=6.5)
    figure.supxlabel(name)
    marker, colour = style("pvera").marker, style("pvera").colour
    entries = [
        entry("mean, 95 % interval over data sets", marker, "-", colour, mfc="white"),
        entry("lowest mean", marker, colour=colour),
    ]
    if seeds > 1:
        entries.append(entry("one seed", "o", colour="0.5", markersize=2))
    if failed(ours).any(axis=None):
        entries.append(entry("n learned nothing", "$n×$", colour=FAILED, markersize=7))
    key(figure, entries, columns=2)
    return figure
