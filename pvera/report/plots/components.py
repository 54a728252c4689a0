"""The components of PVeRA: differences of accuracy by task and seed."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pvera.report.plots import PAGE, PLAIN, SEED, Style, entry, forest, key, note, panels, style
from pvera.report.statistics import smallest
from pvera.report.table import title
from pvera.report.tables.components import CONTRASTS, Runs, values

MEAN = "Mean over tasks"


def contrasts(runs: Runs) -> Figure:
    """Draw each contrast of `runs` in a panel: tasks from top to bottom, dots for seeds, markers for their means.

    The last row is the mean over tasks with its 95 % interval by Student's t over tasks. All panels share one scale.
    """
    accuracies = values(runs)
    datasets = accuracies.index.unique("dataset")
    there = {name: pair for name, pair in CONTRASTS.items() if pair[0] in runs and pair[1] in runs}
    pvera = style("pvera")
    task = Style("", pvera.colour, pvera.marker)
    figure, axes = panels(len(there), 4, PAGE, 0.3 + 0.17 * len(datasets), 0.6, sharex=True, sharey=True)
    for ax, (name, (one, other)) in zip(axes, there.items(), strict=True):
        gaps = (accuracies[one] - accuracies[other]).unstack("seed", sort=False).to_numpy()  # (tasks, seeds)
        frame = pd.DataFrame(gaps, list(map(title, datasets))).add_prefix("seed")
        frame["mean"] = np.nanmean(gaps, axis=1)
        effect = smallest({name: gaps})
        frame.loc[MEAN, ["mean", "low", "high"]] = effect.mean, effect.low, effect.high
        forest(ax, frame, lambda label: PLAIN if label == MEAN else task)
        ax.axvline(0, color="0.5", linewidth=0.6, zorder=0)
        ax.axhline(len(datasets) - 0.5, color="0.8", linewidth=0.6)
        ax.set_title(name, fontsize=7)
    note(figure, "Difference of test accuracy (points); right of zero, the first is better")
    key(figure, [SEED, entry("mean over seeds", pvera.marker, colour=pvera.colour),
                 entry("mean over tasks, 95 % interval", "D", "-", colour="black")])  # fmt: skip
    return figure
