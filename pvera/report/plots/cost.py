"""The paper's Figure 3: accuracy against the cost of the adapters."""

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pvera.cost import GIGA
from pvera.report.plots import COLUMN, RC, style

#: Per panel: title, label, and columns of `efficiency.of_runs`: in training, with the mean, merged.
PANELS = (
    ("(a) Adapters", "Trained numbers", ("adapter_parameters",)),
    ("(b) Whole model", "Parameters (million)", ("parameters",)),
    ("(c) One layer's adapter", "Multiply-adds", ("layer_training", "layer_inference", "layer_merged")),
    ("(d) Whole model", "Multiply-adds", ("training", "inference", "merged")),
)


def accuracy_against(ax: Axes, points: pd.DataFrame, columns: tuple[str, ...], scale: float = 1) -> Axes:
    """Draw the accuracy (%) of each method against a cost, in units of `scale`.

    With three columns, a line leads from the cost in training past that of the mean (a stroke, where it differs) to the
    merged model (hollow), for methods that can be merged.
    """
    for method, row in points.iterrows():
        shown, y = style(method), row["accuracy"]
        values = [row[column] / scale for column in columns]
        look = {"color": shown.colour, "markersize": 4.2, "zorder": 3}
        if len(values) == 3 and values[2] < values[0]:
            ax.plot([values[2], values[0]], [y, y], color=shown.colour, linewidth=0.6)
            ax.plot(values[2], y, shown.marker, **look | {"mfc": "white", "mew": 0.6, "markersize": 3.2})
            if values[1] < values[0]:
                ax.plot(values[1], y, "|", **look)
        ax.plot(values[0], y, shown.marker, **look, mec="white", mew=0.4)
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    ax.margins(x=0.1, y=0.12)
    ax.grid(color="0.9", linewidth=0.6)
    return ax


def efficiency(points: pd.DataFrame) -> Figure:
    """Draw the four panels of `efficiency.of_paper` or `of_runs`, at column width.

    The axis of trained numbers is logarithmic, but linear below its first power of ten: linear probing has zero.
    """
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 4.8), layout="constrained")
        axes = figure.subplots(2, 2, sharey=True).ravel()
        for ax, (title, label, columns) in zip(axes, PANELS, strict=True):
            scale = 1
            if columns[0] == "parameters":
                scale = 1e6
            elif len(columns) == 3:
                scale, unit = (GIGA, "GMAC") if points[columns[0]].max() >= GIGA / 10 else (1e6, "MMAC")
                label = f"{label} ({unit})"
            accuracy_against(ax, points, columns, scale)
            if columns == ("adapter_parameters",):
                _from_zero(ax, points[columns[0]])
            ax.set_title(title)
            ax.set_xlabel(label)
        figure.supylabel("Test accuracy (%)", fontsize=8)
        figure.legend(handles=_legend(points.index), loc="outside lower center", ncols=4, fontsize=6.5,
                      handletextpad=0.2, columnspacing=1.0)  # fmt: skip
    return figure


def _from_zero(ax: Axes, values: pd.Series) -> None:
    """Set a logarithmic axis, linear from zero to the power of ten below the smallest positive value."""
    powers = np.log10(values[values > 0])
    first, last = int(np.floor(powers.min())), int(np.floor(powers.max()))
    ax.set_xscale("symlog", linthresh=10**first)
    ax.set_xlim(left=-(10**first) / 4)
    ax.set_xticks([0, *(10**power for power in range(first, last + 1))])
    ax.minorticks_off()


def _legend(methods) -> list[Line2D]:
    look = {"linestyle": "", "markersize": 4.2}
    handles = [
        Line2D([], [], color=style(method).colour, marker=style(method).marker, mec="white", mew=0.4,
               label=style(method).title, **look)
        for method in methods
    ]  # fmt: skip
    full = Line2D([], [], color="0.3", marker="o", mec="white", mew=0.4, label="in training", **look)
    merged = Line2D([], [], color="0.3", marker="o", mfc="white", mew=0.7, label="merged", **look)
    return [*handles, full, merged, Line2D([], [], color="0.3", marker="|", label="pass with the mean", **look)]
