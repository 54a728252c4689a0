"""Learning curves of trainings that run until their patience ends (`tables.duration`)."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pvera.adapters import METHODS
from pvera.report.plots import COLUMN, RC, entry, key, style
from pvera.report.tables.names import dataset_title


def curves(ax: Axes, losses: dict[str, np.ndarray], cap: int) -> Axes:
    """Draw the lowest validation loss up to each epoch, (epochs,) per method, on a logarithmic axis of epochs.

    A marker stands where the longest training of a method ended. The dashed line is `cap`, the shorter profile's last
    epoch.
    """
    ax.axvline(cap, color="0.5", linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
    for method in (method for method in METHODS if method in losses):
        look, loss = style(method), losses[method]
        ax.plot(np.arange(1, len(loss) + 1), loss, color=look.colour, linewidth=1.4 if method == "pvera" else 0.9)
        ax.plot(len(loss), loss[-1], look.marker, color=look.colour, markersize=4, mec="white", mew=0.4, zorder=3,
                label=look.title)  # fmt: skip
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.grid(color="0.93", linewidth=0.6)
    return ax


def learning(losses: dict[str, dict[str, np.ndarray]], cap: int) -> Figure:
    """Draw `curves`, a panel per data set: three in a row at page width, or a single one at column width."""
    columns = min(len(losses), 3)
    rows = -(-len(losses) // columns)
    with matplotlib.rc_context(RC):
        width = COLUMN if columns == 1 else 2 * COLUMN
        figure = Figure(figsize=(width, 1.0 + 1.5 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for ax, (dataset, of_dataset) in zip(axes, losses.items(), strict=False):
            curves(ax, of_dataset, cap).set_title(dataset_title(dataset))
        for ax in axes[len(losses) :]:
            ax.set_visible(False)
        figure.supylabel("Best validation loss (nats)", fontsize=8)
        figure.supxlabel("Epochs", fontsize=8)
        handles, _ = axes[0].get_legend_handles_labels()
        limit = entry("last epoch of the shorter profile", line="--", colour="0.5")
        key(figure, [*handles, entry("end of training", "o"), limit], columns=3 if columns == 1 else 5)
    return figure
