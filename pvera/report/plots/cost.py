"""The paper's Figure 3: accuracy against the cost of the adapters."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pvera.cost import GIGA
from pvera.report.plots import PAGE, entry, key, methods_key, panels, style

#: Per panel: title, label, and columns of `tables.cost.of_runs`: in training, with the mean, merged.
PANELS = (
    ("(a) Adapters", "Trainable parameters", ("adapter_parameters",)),
    ("(b) Whole model", "Parameters (million)", ("parameters",)),
    ("(c) One layer's adapter", "Multiply-adds", ("layer_training", "layer_inference", "layer_merged")),
    ("(d) Whole model", "Multiply-adds", ("training", "inference", "merged")),
)


def efficiency(points: pd.DataFrame) -> Figure:
    """Draw the accuracy (%) of each method against its costs, `tables.cost.of_paper` or `of_runs`, in four panels.

    A line leads from the operations in training, where PVeRA samples, past those of the mean (a stroke, where they
    differ) to those of the merged model (hollow), for methods that can be merged. The axis of trainable parameters is
    logarithmic, but linear below its first power of ten: linear probing has zero.
    """
    figure, axes = panels(len(PANELS), len(PANELS), PAGE, 2.6, sharey=True)
    for ax, (title, label, columns) in zip(axes, PANELS, strict=True):
        scale = 1
        if columns[0] == "parameters":
            scale = 1e6
        elif len(columns) == 3:
            scale, unit = (GIGA, "GMAC") if points[columns[0]].max() >= GIGA / 10 else (1e6, "MMAC")
            label = f"{label} ({unit})"
        for method, row in points.iterrows():
            look, y, values = style(method), row["accuracy"], row[list(columns)].to_numpy() / scale
            if values[-1] < values[0]:
                ax.plot([values[-1], values[0]], [y, y], color=look.colour, linewidth=0.6)
                ax.plot(values[-1], y, look.marker, color=look.colour, markersize=3.2, mfc="none", mew=0.6, zorder=3)
                if values[1] < values[0]:
                    ax.plot(values[1], y, "|", color=look.colour, markersize=4.2, zorder=3)
            ax.plot(values[0], y, look.marker, color=look.colour, markersize=4.2, mec="white", mew=0.4, zorder=3)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        ax.margins(x=0.12)
        ax.grid()
        ax.set_title(title)
        ax.set_xlabel(label)
    trained = points["adapter_parameters"]
    powers = np.log10(trained[trained > 0])
    first, last = int(np.floor(powers.min())), int(np.floor(powers.max()))
    axes[0].set_xscale("symlog", linthresh=10**first)
    axes[0].set_xlim(-(10**first) / 4, 2 * trained.max())
    axes[0].set_xticks([0, *(10**power for power in range(first, last + 1))])
    axes[0].minorticks_off()
    figure.supylabel("Test accuracy (%)")
    key(figure, [
        *methods_key(points.index), entry("training (PVeRA: sampled)", "o"), entry("mean", "|", markersize=6),
        entry("merged", "o", mfc="white", markersize=3.5),
    ], columns=6)  # fmt: skip
    return figure
