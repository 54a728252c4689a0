"""The paper's Figure 3: accuracy against the cost of the adapters."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
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


def accuracy_against(ax: Axes, points: pd.DataFrame, columns: tuple[str, ...], scale: float) -> Axes:
    """Draw the accuracy (%) of each method against a cost, in units of `scale`.

    With three columns, a line leads from the cost in training, where PVeRA samples, past that of the mean (a stroke,
    where it differs) to the merged model (hollow), for methods that can be merged.
    """
    for method, row in points.iterrows():
        shown, y = style(method), row["accuracy"]
        values = row[list(columns)].to_numpy() / scale
        look = {"color": shown.colour, "markersize": 4.2, "zorder": 3}
        if values[-1] < values[0]:
            ax.plot([values[-1], values[0]], [y, y], color=shown.colour, linewidth=0.6)
            ax.plot(values[-1], y, shown.marker, **look | {"mfc": "none", "mew": 0.6, "markersize": 3.2})
            if values[1] < values[0]:
                ax.plot(values[1], y, "|", **look)
        ax.plot(values[0], y, shown.marker, **look, mec="white", mew=0.4)
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    ax.margins(x=0.12)
    ax.grid()
    return ax


def efficiency(points: pd.DataFrame) -> Figure:
    """Draw the four panels of `tables.cost.of_paper` or `of_runs` in a strip.

    The axis of trainable parameters is logarithmic, but linear below its first power of ten: linear probing has zero.
    """
    figure, axes = panels(len(PANELS), len(PANELS), PAGE, 2.6, sharey=True)
    for ax, (title, label, columns) in zip(axes, PANELS, strict=True):
        scale = 1
        if columns[0] == "parameters":
            scale = 1e6
        elif len(columns) == 3:
            scale, unit = (GIGA, "GMAC") if points[columns[0]].max() >= GIGA / 10 else (1e6, "MMAC")
            label = f"{label} ({unit})"
        accuracy_against(ax, points, columns, scale).set_title(title)
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
