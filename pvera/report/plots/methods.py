"""Figures of the methods' trainings: accuracy against cost, and calibration."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pvera.cost import GIGA
from pvera.report.plots import (
    COLUMN,
    PAGE,
    PVERA_MEAN,
    SEED,
    dot,
    entry,
    forest,
    key,
    panels,
    style,
)

# Accuracy against cost (Figure 3)

#: Per panel: title, label, and columns of `tables.cost.of_runs`: in training, with the mean, merged.
COSTS = (
    ("(a) Adapters", "Trainable parameters", ["adapter_parameters"]),
    ("(b) Whole model", "Parameters (million)", ["parameters"]),
    (
        "(c) One layer's adapter",
        "Multiply-adds ({})",
        ["layer_training", "layer_inference", "layer_merged"],
    ),
    ("(d) Whole model", "Multiply-adds ({})", ["training", "inference", "merged"]),
)


def efficiency(points: pd.DataFrame) -> Figure:
    """Draw the accuracy (%) of each method against its costs, `tables.cost.of_paper` or `of_runs`, in four panels.

    A line leads from the operations in training, where PVeRA samples, past those of the mean (a stroke, where they
    differ) to those of the merged model (hollow), for methods that can be merged. The axis of trainable parameters is
    logarithmic, but linear below its first power of ten: linear probing has zero.
    """
    figure, axes = panels(len(COSTS), len(COSTS), PAGE, 2.6, sharey=True)
    for ax, (heading, label, columns) in zip(axes, COSTS, strict=True):
        scale, unit = (1 if columns == ["adapter_parameters"] else 1e6), "MMAC"
        if len(columns) > 1 and points[columns[0]].max() >= GIGA / 10:
            scale, unit = GIGA, "GMAC"
        for method, row in points.iterrows():
            look, y, values = style(method), row["accuracy"], row[columns].to_numpy() / scale
            if values[-1] < values[0]:
                ax.plot([values[-1], values[0]], [y, y], color=look.colour, linewidth=0.6)
                ax.plot(
                    values[-1],
                    y,
                    look.marker,
                    color=look.colour,
                    markersize=3.2,
                    mfc="none",
                    mew=0.6,
                    zorder=3,
                )
                if values[1] < values[0]:
                    ax.plot(values[1], y, "|", color=look.colour, markersize=4.2, zorder=3)
            dot(ax, values[0], y, look)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        ax.margins(x=0.12)
        ax.grid()
        ax.set_title(heading)
        ax.set_xlabel(label.format(unit))
    trained = points["adapter_parameters"]
    powers = np.log10(trained[trained > 0]).astype(int)
    decades = 10.0 ** np.arange(powers.min(), powers.max() + 1)
    axes[0].set_xscale("symlog", linthresh=decades[0])
    axes[0].set_xlim(-decades[0] / 4, 2 * trained.max())
    axes[0].set_xticks([0, *decades])
    axes[0].minorticks_off()
    figure.supylabel("Test accuracy (%)")
    key(figure, [
        *(entry(look.title, look.marker, colour=look.colour) for look in map(style, points.index)),
        entry("training (PVeRA: sampled)", "o"), entry("mean", "|", markersize=6),
        entry("merged", "o", mfc="white", markersize=3.5),
    ], columns=6)  # fmt: skip
    return figure


# Calibration (Figure 4)


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
