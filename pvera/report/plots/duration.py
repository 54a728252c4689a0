"""Learning curves of trainings that run until their patience ends (`tables.duration`)."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pvera.report.plots import COLUMN, PAGE, entry, key, methods_key, panels, style
from pvera.report.table import title
from pvera.report.tables.duration import LIMIT


def learning(losses: dict[str, dict[str, tuple[pd.DataFrame, float]]]) -> Figure:
    """Draw the lowest validation loss up to each epoch on logarithmic axes of epochs, a panel per data set.

    losses: `tables.duration.curves`. Three panels stand in a row at page width, or a single one at column width. Band:
    range over seeds. A marker stands at the chosen epoch (median over seeds). The dashed line is `LIMIT`.
    """
    single = len(losses) == 1
    figure, axes = panels(len(losses), 3, COLUMN if single else PAGE, 1.6, 1.0)
    for ax, (dataset, of_dataset) in zip(axes, losses.items(), strict=True):
        ax.axvline(LIMIT, color="0.5", linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
        for method, (loss, chosen) in of_dataset.items():
            look, front, mean = style(method), method == "pvera", loss.mean(axis=1)
            ax.fill_between(loss.index, loss.min(axis=1), loss.max(axis=1), color=look.colour,
                            alpha=0.25 if front else 0.1, linewidth=0)  # fmt: skip
            ax.plot(loss.index, mean, color=look.colour, linewidth=1.4 if front else 0.9)
            ax.plot(chosen, np.interp(chosen, loss.index, mean), look.marker, color=look.colour, markersize=4,
                    mec="white", mew=0.4, zorder=3)  # fmt: skip
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.margins(x=0.02)
        ax.grid()
        ax.set_title(title(dataset))
    figure.supylabel("Lowest validation loss so far (nats)")
    figure.supxlabel("Epochs")
    methods = dict.fromkeys(method for of_dataset in losses.values() for method in of_dataset)
    key(figure, [*methods_key(methods), entry("mean over seeds", line="-"), Patch(color="0.8", label="range of seeds"),
                 entry("chosen epoch (median)", "o"), entry(f"limit of {LIMIT} epochs", line="--", colour="0.5"),
                 ], columns=2 if single else 6)  # fmt: skip
    return figure
