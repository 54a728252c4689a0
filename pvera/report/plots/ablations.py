"""The ablations of rank and position (Tables 2 and 3): losses above that of the paper's choice."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pvera.report.plots import COLUMN, entry, key, panels, style
from pvera.report.tables.ablations import above, by_seed, counterparts, failed, losses

FAILED = "#BB0000"


def differences(ax: Axes, values: Sequence, mean: np.ndarray) -> Axes:
    """Draw the mean difference (values,) of each value at equal distances, the lowest filled."""
    look = style("pvera")
    for place, height in enumerate(mean):
        face = look.colour if height == np.nanmin(mean) else "white"
        ax.plot(place, height, look.marker, color=look.colour, mfc=face, markersize=4.5, mew=1, zorder=3)
    ax.axhline(0, color="0.5", linewidth=0.6, zorder=0)
    ax.set_xticks(range(len(mean)), [str(value).upper() for value in values], fontsize=6)
    ax.margins(x=0.1, y=0.15)
    ax.grid(axis="y")
    return ax


def of_runs(runs: Sequence[dict], hyperparameter: str, theirs: pd.Series, name: str) -> Figure:
    """Draw the differences of one experiment's runs beside the paper's, each on its own axis.

    theirs: the paper's losses by value. name: the axis of values. Both are differences from the paper's best value, or
    from our lowest where it has no counterpart. Ours have the interval over data sets, the number of trainings that
    learned nothing and, of several seeds, a dot for each.
    """
    ours = losses(runs, hyperparameter)
    of_seeds, useless = by_seed(ours), failed(ours).sum()
    base = counterparts(ours, hyperparameter).get(theirs.idxmin(), of_seeds.mean().idxmin())
    gaps, several = above(ours, base), len(of_seeds) > 1
    look = style("pvera")
    figure, (here, there) = panels(2, 2, COLUMN, 1.7)
    differences(there, theirs.index, theirs.to_numpy() - theirs.min()).set_title("Paper", pad=10)
    differences(here, list(ours), gaps["mean"].to_numpy())
    here.set_title(f"Here, {len(of_seeds)} seeds" if several else "Here, one seed", pad=10)
    here.vlines(range(len(list(ours))), gaps["low"], gaps["high"], color=look.colour, linewidth=1)
    here.set_ylabel("Validation loss above that of\nthe paper's choice (nats)", fontsize=6.5)
    for place, count in enumerate(useless):
        if count:
            here.text(place, 1, f"{count}×", color=FAILED, fontsize=6, ha="center", va="bottom",
                      transform=here.get_xaxis_transform())  # fmt: skip
    figure.supxlabel(name)
    entries = [entry("mean, 95 % interval over data sets", look.marker, "-", look.colour, mfc="white"),
               entry("lowest mean", look.marker, colour=look.colour)]  # fmt: skip
    if several:
        shift = np.linspace(0.24, 0.46, len(of_seeds))  # clear of the mean's marker
        here.plot(np.arange(len(list(ours))) + shift[:, None], of_seeds.sub(of_seeds[base], axis=0), "o", color="0.5",
                  markersize=2, mew=0)  # fmt: skip
        entries.append(entry("one seed", "o", colour="0.5", markersize=2))
    if useless.any():
        entries.append(entry("n learned nothing", "$n×$", colour=FAILED, markersize=7))
    key(figure, entries, columns=2)
    return figure
