"""The paper's Figure 3: accuracy against the cost of the adapters."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pvera.cost import GIGA
from pvera.report.plots import PAGE, break_between, entry, key, ranges, spaced, style

#: Per panel: title, label, and columns of `efficiency.of_runs`: in training, with the mean, merged.
PANELS = (
    ("(a) Adapters", "Trained numbers", ("adapter_parameters",)),
    ("(b) Whole model", "Parameters (million)", ("parameters",)),
    ("(c) One layer's adapter", "Multiply-adds", ("layer_training", "layer_inference", "layer_merged")),
    ("(d) Whole model", "Multiply-adds", ("training", "inference", "merged")),
)


def accuracy_against(ax: Axes, points: pd.DataFrame, columns: tuple[str, ...], scale: float = 1) -> Axes:
    """Draw the accuracy (%) of each method against a cost, in units of `scale`.

    With three columns, a line leads from the cost in training, where PVeRA samples, past that of the mean (a stroke,
    where it differs) to the merged model (hollow), for methods that can be merged.
    """
    for method, row in points.iterrows():
        shown, y = style(method), row["accuracy"]
        values = [row[column] / scale for column in columns]
        look = {"color": shown.colour, "markersize": 4.2, "zorder": 3}
        if len(values) == 3 and values[2] < values[0]:
            ax.plot([values[2], values[0]], [y, y], color=shown.colour, linewidth=0.6)
            ax.plot(values[2], y, shown.marker, **look | {"mfc": "none", "mew": 0.6, "markersize": 3.2})
            if values[1] < values[0]:
                ax.plot(values[1], y, "|", **look)
        ax.plot(values[0], y, shown.marker, **look, mec="white", mew=0.4)
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    ax.margins(x=0.12)
    ax.grid()
    return ax


def efficiency(points: pd.DataFrame) -> Figure:
    """Draw the four panels of `efficiency.of_paper` or `of_runs` in a strip, with the methods' names at its right.

    The axis of accuracy is broken where a method lies far from the others. The axis of trained numbers is logarithmic,
    but linear below its first power of ten: linear probing has zero.
    """
    parts = ranges(points["accuracy"])[::-1]  # from the top
    heights = [max(high - low, 0.18 * (parts[0][1] - parts[0][0])) for low, high in parts]
    figure = Figure(figsize=(PAGE, 2.3))
    figure.get_layout_engine().set(hspace=0.02, h_pad=0.02)
    grid = figure.subplots(len(parts), len(PANELS), sharey="row", sharex="col", squeeze=False,
                           height_ratios=heights)  # fmt: skip
    for axes, (title, label, columns) in zip(grid.T, PANELS, strict=True):
        scale = 1
        if columns[0] == "parameters":
            scale = 1e6
        elif len(columns) == 3:
            scale, unit = (GIGA, "GMAC") if points[columns[0]].max() >= GIGA / 10 else (1e6, "MMAC")
            label = f"{label} ({unit})"
        for ax, limits in zip(axes, parts, strict=True):
            accuracy_against(ax, points, columns, scale).set_ylim(limits)
            bins = 5 if limits == parts[0] else 1
            ax.yaxis.set_major_locator(MaxNLocator(bins, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
            ax.spines["bottom"].set_visible(ax is axes[-1])
            ax.tick_params(axis="x", bottom=ax is axes[-1])
        if columns == ("adapter_parameters",):
            _from_zero(axes[-1], points[columns[0]])
        if len(parts) == 2:
            break_between(axes[1], axes[0], "y")
        axes[0].set_title(title)
        axes[-1].set_xlabel(label)
    for ax, (low, high) in zip(grid[:, -1], parts, strict=True):
        _name(ax, points[points["accuracy"].between(low, high)])
    figure.supylabel("Test accuracy (%)")
    key(figure, [
        entry("training (PVeRA: sampled)", "o"), entry("mean", "|", markersize=6),
        entry("merged", "o", mfc="white", markersize=3.5),
    ], place="lower")  # fmt: skip
    return figure


def _name(ax: Axes, points: pd.DataFrame) -> None:
    """Write the methods' names right of the axes, as near to their accuracies as the other names allow."""
    low, high = ax.get_ylim()
    gap = 0.085 * (high - low) if len(points) > 1 else 0
    right = ax.get_yaxis_transform()
    for (method, row), place in zip(points.iterrows(), spaced(points["accuracy"], gap, low, high), strict=True):
        look = style(method)
        ax.plot([1.0, 1.06], [row["accuracy"], place], color=look.colour, linewidth=0.5, transform=right,
                clip_on=False)  # fmt: skip
        ax.plot(1.1, place, look.marker, color=look.colour, markersize=3.5, mec="white", mew=0.3, transform=right,
                clip_on=False)  # fmt: skip
        ax.text(1.15, place, look.title, transform=right, va="center", fontsize=6, color=look.colour,
                fontweight="bold" if method == "pvera" else "normal")  # fmt: skip


def _from_zero(ax: Axes, values: pd.Series) -> None:
    """Set a logarithmic axis, linear from zero to the power of ten below the smallest positive value."""
    powers = np.log10(values[values > 0])
    first, last = int(np.floor(powers.min())), int(np.floor(powers.max()))
    ax.set_xscale("symlog", linthresh=10**first)
    ax.set_xlim(-(10**first) / 4, 2 * values.max())
    ax.set_xticks([0, *(10**power for power in range(first, last + 1))])
    ax.minorticks_off()
