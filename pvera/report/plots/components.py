"""The components of PVeRA: differences of accuracy by task and seed."""

from textwrap import fill

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from pvera.report.plots import COLUMN, RC, SEED, entry, key, note, style
from pvera.report.statistics import smallest
from pvera.report.tables.components import CONTRASTS, Runs, values
from pvera.report.tables.names import dataset_title


def contrasts(runs: Runs) -> Figure:
    """Draw each contrast of `runs` in a panel: tasks from top to bottom, dots for seeds, markers for their means.

    The last row is the mean over tasks with its 95 % interval by Student's t over tasks. All panels share one scale.
    """
    accuracies = values(runs)
    datasets = accuracies.index.unique("dataset")
    there = {name: pair for name, pair in CONTRASTS.items() if pair[0] in runs and pair[1] in runs}
    look = style("pvera")
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(2 * COLUMN, 0.9 + 0.17 * len(datasets)), layout="constrained")
        panels = figure.subplots(1, len(there), sharex=True, sharey=True, squeeze=False)[0]
        for ax, (name, (one, other)) in zip(panels, there.items(), strict=True):
            gaps = (accuracies[one] - accuracies[other]).unstack("seed", sort=False).to_numpy()  # (tasks, seeds)
            for row, of_task in enumerate(gaps):
                ax.plot(of_task, np.full(len(of_task), row + 0.25), "o", color="0.6", markersize=2, mew=0)
                ax.plot(np.nanmean(of_task), row, look.marker, color=look.colour, markersize=4, mew=0)
            effect = smallest({name: gaps})
            ax.plot([effect.low, effect.high], 2 * [len(datasets)], color="black", linewidth=1)
            ax.plot(effect.mean, len(datasets), "D", color="black", markersize=3.5, mew=0)
            ax.axvline(0, color="0.5", linewidth=0.6, zorder=0)
            ax.axhline(len(datasets) - 0.5, color="0.8", linewidth=0.6)
            ax.set_title(fill(name, 18), fontsize=7)
            ax.grid(axis="x", color="0.92", linewidth=0.6)
            ax.tick_params(axis="y", length=0)
        panels[0].set_yticks(range(len(datasets) + 1), [*map(dataset_title, datasets), "Mean over tasks"])
        panels[0].set_ylim(len(datasets) + 0.5, -0.6)
        note(figure, "Difference of test accuracy (points); right of zero, the first is better")
        key(figure, [SEED, entry("mean over seeds", look.marker, colour=look.colour),
                     entry("mean over tasks, 95 % interval", "D", "-", colour="black")])  # fmt: skip
    return figure
