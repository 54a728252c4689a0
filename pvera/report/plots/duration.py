"""Learning curves of trainings that run until their patience ends (`tables.duration`)."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pvera.adapters import METHODS
from pvera.report.plots import COLUMN, PAGE, entry, key, panels, spaced, style
from pvera.report.table import title
from pvera.report.tables.duration import Curve

GAP = 0.105  # least distance of two labels, a share of the axes' height


def curves(ax: Axes, losses: dict[str, Curve], cap: int) -> Axes:
    """Draw the lowest validation loss up to each epoch on a logarithmic axis of epochs, and name each curve.

    Band: range over seeds. A marker stands at the chosen epoch (median over seeds). The dashed line is the limit `cap`.
    """
    ax.axvline(cap, color="0.5", linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
    methods = [method for method in METHODS if method in losses]
    for method in methods:
        look, curve, front = style(method), losses[method], method == "pvera"
        epochs = np.arange(1, len(curve.mean) + 1)
        ax.fill_between(epochs, curve.low, curve.high, color=look.colour, alpha=0.25 if front else 0.1, linewidth=0)
        ax.plot(epochs, curve.mean, color=look.colour, linewidth=1.4 if front else 0.9)
        at_chosen = np.interp(curve.chosen, epochs, curve.mean)
        ax.plot(curve.chosen, at_chosen, look.marker, color=look.colour, markersize=4, mec="white", mew=0.4, zorder=3)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.margins(x=0.02)
    ax.grid()
    _name(ax, {method: losses[method] for method in methods})
    return ax


def _name(ax: Axes, losses: dict[str, Curve]) -> None:
    """Write each method's name right of the axes, as near to its last loss as the other names allow."""
    low, high = ax.get_ylim()
    ends = [curve.mean[-1] for curve in losses.values()]
    places = spaced([(end - low) / (high - low) for end in ends], GAP, 0, 1)
    for (method, curve), end, place in zip(losses.items(), ends, places, strict=True):
        ax.annotate(
            style(method).title, (len(curve.mean), end), (1.03, place), "data", "axes fraction", fontsize=5.5,
            color=style(method).colour, va="center", fontweight="bold" if method == "pvera" else "normal",
            arrowprops={"arrowstyle": "-", "color": style(method).colour, "linewidth": 0.3, "alpha": 0.6,
                        "relpos": (0, 0.5), "patchA": None, "shrinkA": 1, "shrinkB": 0},
        )  # fmt: skip


def learning(losses: dict[str, dict[str, Curve]], cap: int) -> Figure:
    """Draw `curves`, a panel per data set: three in a row at page width, or a single one at column width."""
    single = len(losses) == 1
    figure, axes = panels(len(losses), 3, COLUMN if single else PAGE, 1.6, 0.8)
    for ax, (dataset, of_dataset) in zip(axes, losses.items(), strict=True):
        curves(ax, of_dataset, cap).set_title(title(dataset))
    figure.supylabel("Lowest validation loss so far (nats)")
    figure.supxlabel("Epochs")
    entries = [
        entry("mean over seeds", line="-"),
        Patch(color="0.8", label="range of seeds"),
        entry("chosen epoch (median over seeds)", "o"),
        entry(f"limit of {cap} epochs", line="--", colour="0.5"),
    ]
    key(figure, entries, columns=2 if single else 4)
    return figure
