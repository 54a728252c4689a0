"""Effects of the differences between the protocols."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pvera.report.effects import METRICS, per_pair, summary
from pvera.report.plots import PAGE, Style, entry, forest, key, panels, style
from pvera.report.tables.names import switch_title
from pvera.study.protocol import one_at_a_time


def look(switch: str) -> Style:
    """Return the looks of a switch: the colour of its method, black for all methods."""
    method = one_at_a_time()[switch].method
    return Style(switch_title(switch), style(method).colour if method else "black", "D")


def effects(pairs: pd.DataFrame) -> Figure:
    """Draw a `forest` of the effects (`effects.differences`) on every metric: switches of all methods first.

    Dots are pairs of data set and seed, averaged over methods. A loss on another scale is left out.
    """
    rows, variants = summary(pairs), one_at_a_time()
    names = sorted(pairs["switch"].unique(), key=lambda name: variants[name].method is not None)
    figure, axes = panels(len(METRICS), len(METRICS), PAGE, 0.16 * len(names), 1.0, sharey=True)
    for ax, (metric, (title, unit, _)) in zip(axes, METRICS.items(), strict=True):
        of_metric = rows[rows["metric"] == metric].set_index("switch").loc[names]
        values = {name: pd.Series(per_pair(pairs[pairs["switch"] == name], metric)) for name in names}
        frame = pd.DataFrame(values).T.add_prefix("seed").assign(mean=of_metric["mean"])
        frame[~of_metric["comparable"]] = np.nan
        chance = of_metric["noise"]
        ax.use_sticky_edges = False
        ax.barh(range(len(names)), 2 * chance, left=-chance, height=0.7, color="0.9", zorder=0.5)
        forest(ax, frame, look).set_title(f"{title} ({unit})", fontsize=7)
        ax.axvline(0, color="0.4", linewidth=0.6, zorder=1)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    figure.supxlabel("Published program minus corrected; colour: of the one method concerned", fontsize=7)
    key(figure, [entry("one data set and seed", "o", colour="black", markersize=2),
                 entry("mean over them", "D", colour="black"), Patch(color="0.9", label="chance")])  # fmt: skip
    return figure
