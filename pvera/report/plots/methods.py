"""Figures of the methods: accuracy against cost, and calibration."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pvera.adapters import METHODS
from pvera.cost import GIGA
from pvera.report.contrasts import LATENT_DROPOUT
from pvera.report.plots.base import (
    COLUMN_WIDTH,
    PAGE_WIDTH,
    PVERA_MEAN,
    SEED,
    PlainStyle,
    Style,
    add_legend,
    axes_grid,
    dot,
    forest,
    legend_entry,
)

MEGA = 10**6
#: Variants in the figure of parameters.
VARIANT_STYLES = {
    LATENT_DROPOUT: PlainStyle("VeRA, latent dropout", "#000000", "h"),
    "no_noise": PlainStyle("PVeRA, no noise", "#8c3a00", "o"),
}
#: What that figure is about -> the alignments of its name with its marker.
NAMED = {
    "vera": ("right", "center"),
    LATENT_DROPOUT: ("right", "center"),
    "pvera": ("left", "bottom"),
    "no_noise": ("left", "top"),
}


# Accuracy against cost (Figure 3)


@dataclass(frozen=True)
class CostPanel:
    """A panel of the figure of costs."""

    title: str
    label: str
    #: Columns of `tables.cost.run_accuracy_and_cost`: one, or those in training, with the mean, and
    #: merged.
    columns: tuple[str, ...]

    def unit(self, points: pd.DataFrame) -> tuple[float, str]:
        """Return the unit that suits the numbers, and its name."""
        if self.columns == ("adapter_parameters",):
            return 1, ""
        largest = points[self.columns[0]].max()
        if len(self.columns) > 1 and largest >= GIGA / 10:
            return GIGA, "GMAC"
        return MEGA, "MMAC"


COSTS = (
    CostPanel("(a) Adapters", "Trainable parameters", ("adapter_parameters",)),
    CostPanel("(b) Whole model", "Parameters (million)", ("parameters",)),
    CostPanel(
        "(c) One layer's adapter",
        "Multiply-adds ({})",
        ("layer_training", "layer_inference", "layer_merged"),
    ),
    CostPanel("(d) Whole model", "Multiply-adds ({})", ("training", "inference", "merged")),
)


def draw_efficiency(points: pd.DataFrame) -> Figure:
    """Draw the accuracy (%) of each method against its costs, in four panels.

    Args:
        points: A frame of `tables.cost.paper_accuracy_and_cost` or `run_accuracy_and_cost`.
    """
    figure, axes = axes_grid(len(COSTS), len(COSTS), PAGE_WIDTH, 2.6, sharey=True)
    for ax, panel in zip(axes, COSTS, strict=True):
        scale, unit = panel.unit(points)
        for method, row in points.iterrows():
            costs = row[list(panel.columns)].to_numpy() / scale
            _cost_line(ax, costs, row["accuracy"], METHODS[method])
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        ax.margins(x=0.12)
        ax.grid()
        ax.set_title(panel.title)
        ax.set_xlabel(panel.label.format(unit))
    _logarithmic(axes[0], points["adapter_parameters"])
    figure.supylabel("Test accuracy (%)")

    styles = [METHODS[method] for method in points.index]
    entries = [legend_entry(style.title, style.marker, colour=style.colour) for style in styles]
    entries += [
        legend_entry("training (PVeRA: sampled)", "o"),
        legend_entry("mean", "|", markersize=6),
        legend_entry("merged", "o", mfc="white", markersize=3.5),
    ]
    add_legend(figure, entries, columns=6)
    return figure


def draw_parameters(points: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the accuracy (%) of each method against its trainable parameters.

    Args:
        points: Title of a panel -> `tables.cost.parameters_and_accuracy`.
    """
    figure, axes = axes_grid(len(points), len(points), PAGE_WIDTH, 2.2)
    styles = METHODS | VARIANT_STYLES
    entries: dict[str, Line2D] = {}
    for ax, (title, frame) in zip(axes, points.items(), strict=True):
        for name, row in frame.iterrows():
            style = styles[name]
            x = row["parameters"]
            ax.plot([x, x], [row["low"], row["high"]], color=style.colour, linewidth=0.8)
            dot(ax, x, row["mean"], style)
            if name in NAMED:
                ha, va = NAMED[name]
                offset = (-4 if ha == "right" else 4, 0)
                lines = style.title.replace(", ", ",\n")
                label = ax.annotate(lines, (x, row["mean"]), offset, textcoords="offset points")
                label.set(ha=ha, va=va, color=style.colour)
            else:
                entries[name] = legend_entry(style.title, style.marker, colour=style.colour)
        _logarithmic(ax, frame["parameters"])
        ax.grid()
        ax.set_title(title.partition(" (")[0])
    axes[0].set_ylabel("Test accuracy (%)")
    figure.supxlabel("Trainable parameters of the adapter")

    entries["interval"] = legend_entry("95 % interval over seeds", line="-")
    add_legend(figure, entries.values(), columns=7)
    return figure


def _cost_line(ax: Axes, costs: np.ndarray, accuracy: float, style: Style) -> None:
    """Draw a method's costs: in training and, where they are less, with the mean and merged.

    Args:
        ax: The axes.
        costs: One, or those in training, where PVeRA samples, with the mean (a stroke), and of the
            merged model (hollow), NaN for a method that cannot be merged.
        accuracy: The height of the line.
        style: The style of the method.
    """
    # A single cost is both, and has no line.
    training, merged = costs[0], costs[-1]
    colour = style.colour
    if merged < training:
        ax.plot([merged, training], [accuracy, accuracy], color=colour, linewidth=0.6)
        (hollow,) = ax.plot(merged, accuracy, style.marker, color=colour, zorder=3)
        hollow.set(markersize=3.2, markerfacecolor="none", markeredgewidth=0.6)
        if costs[1] < training:
            ax.plot(costs[1], accuracy, "|", color=colour, markersize=4.2, zorder=3)
    dot(ax, training, accuracy, style)


def _logarithmic(ax: Axes, trained: pd.Series) -> None:
    """Make the axis of trainable parameters logarithmic above its first power of ten.

    Below it is linear: linear probing has no adapter parameters.
    """
    # Ticks at zero and at powers of ten.
    powers = np.log10(trained[trained > 0]).astype(int)
    decades = 10.0 ** np.arange(powers.min(), powers.max() + 1)
    ax.set_xscale("symlog", linthresh=decades[0])
    ax.set_xlim(-decades[0] / 4, 2 * trained.max())
    ax.set_xticks([0, *decades])
    ax.minorticks_off()


# Calibration (Figure 4)


def draw_calibration(errors: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the geometric means of ACE and of ECE side by side.

    Args:
        errors: The frames of `calibration.calibration_errors`.
    """
    methods = max(len(frame) for frame in errors.values())
    figure, axes = axes_grid(len(errors), 2, COLUMN_WIDTH, 0.17 * methods, 0.8, sharey=True)
    for ax, (name, frame) in zip(axes, errors.items(), strict=True):
        forest(ax, frame).set_title(name)
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
        ax.set_xlim(left=0)
    figure.supxlabel("Calibration error (%), lower is better")
    add_legend(figure, [SEED, PVERA_MEAN, legend_entry("mean, 95 % interval", "o", "-")])
    return figure
