"""Learning curves of trainings that their patience ends (`tables.duration`)."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pvera.adapters import METHODS
from pvera.report.plots import COLUMN, RC, style
from pvera.report.tables.layout import dataset_title


def curves(ax: Axes, losses: dict[str, np.ndarray], cap: int) -> Axes:
    """Lowest validation loss up to each epoch, (epochs,) per method, on a logarithmic axis; a marker where the longest
    of its trainings ended. The dashed line: `cap`, where a shorter profile ends them."""
    ax.axvline(cap, color="0.5", linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
    for key in (key for key in METHODS if key in losses):
        look, loss = style(key), losses[key]
        ax.plot(np.arange(1, len(loss) + 1), loss, color=look.colour, linewidth=1.4 if key == "pvera" else 0.9)
        ax.plot(len(loss), loss[-1], look.marker, color=look.colour, markersize=4, mec="white", mew=0.4, zorder=3,
                label=look.title)  # fmt: skip
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.grid(color="0.93", linewidth=0.6)
    return ax


def learning(losses: dict[str, dict[str, np.ndarray]], cap: int) -> Figure:
    """`curves` of each data set, a panel each, three in a row, at the width of two columns, a single one at that of
    one."""
    columns = min(len(losses), 3)
    rows = -(-len(losses) // columns)
    with matplotlib.rc_context(RC):
        width = COLUMN if columns == 1 else 2 * COLUMN
        figure = Figure(figsize=(width, 0.8 + 1.5 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for ax, (dataset, own) in zip(axes, losses.items(), strict=True):
            curves(ax, own, cap).set_title(dataset_title(dataset))
        for ax in axes[len(losses) :]:
            ax.set_visible(False)
        figure.supylabel("Best validation loss (nats)", fontsize=8)
        figure.supxlabel("Epochs", fontsize=8)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4 if columns == 1 else 8, columnspacing=1,
                      handletextpad=0.2)  # fmt: skip
    return figure
