"""Learning curves of trainings that run until their patience ends (`tables.duration`)."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pvera.adapters import METHODS
from pvera.report.plots import COLUMN, PAGE, entry, key, name_at_right, panels, style
from pvera.report.table import title
from pvera.report.tables.duration import Curve


def curves(ax: Axes, losses: dict[str, Curve], cap: int) -> Axes:
    """Draw the lowest validation loss up to each epoch on a logarithmic axis of epochs, and name each curve.

    Band: range over seeds. A marker stands at the chosen epoch (median over seeds). The dashed line is the limit `cap`.
    """
    ax.axvline(cap, color="0.5", linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
    losses = {method: losses[method] for method in METHODS if method in losses}
    for method, curve in losses.items():
        look, front = style(method), method == "pvera"
        epochs = np.arange(1, len(curve.mean) + 1)
        ax.fill_between(epochs, curve.low, curve.high, color=look.colour, alpha=0.25 if front else 0.1, linewidth=0)
        ax.plot(epochs, curve.mean, color=look.colour, linewidth=1.4 if front else 0.9)
        at_chosen = np.interp(curve.chosen, epochs, curve.mean)
        ax.plot(curve.chosen, at_chosen, look.marker, color=look.colour, markersize=4, mec="white", mew=0.4, zorder=3)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.margins(x=0.02)
    ax.grid()
    name_at_right(ax, {method: (len(curve.mean), curve.mean[-1]) for method, curve in losses.items()}, 0.105)
    return ax


def learning(losses: dict[str, dict[str, Curve]], cap: int) -> Figure:
    """Draw `curves`, a panel per data set: three in a row at page width, or a single one at column width."""
    single = len(losses) == 1
    figure, axes = panels(len(losses), 3, COLUMN if single else PAGE, 1.6, 0.8)
    for ax, (dataset, of_dataset) in zip(axes, losses.items(), strict=True):
        curves(ax, of_dataset, cap).set_title(title(dataset))
    figure.supylabel("Lowest validation loss so far (nats)")
    figure.supxlabel("Epochs")
    key(figure, [
        entry("mean over seeds", line="-"),
        Patch(color="0.8", label="range of seeds"),
        entry("chosen epoch (median over seeds)", "o"),
        entry(f"limit of {cap} epochs", line="--", colour="0.5"),
    ], columns=2 if single else 4)  # fmt: skip
    return figure
