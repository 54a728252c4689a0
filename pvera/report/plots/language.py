"""The language table (Appendix D) as a figure."""

from collections.abc import Mapping

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pvera.data import glue
from pvera.data.tasks import TASKS
from pvera.report.plots import PAGE, RC, SEED, entry, key, method_rows, style
from pvera.report.statistics import mean_and_std

METRICS = {"accuracy": "accuracy (%)", "matthews": "Matthews correlation (%)"}


def task(ax: Axes, scores: np.ndarray, methods: list[str], majority: float, paper: Mapping[str, float]) -> Axes:
    """Draw the scores (methods, seeds) of one task in percent: markers for means, dots for seeds.

    Dashed: the majority class. Hollow: the paper's score of the method, with its larger encoder.
    """
    for row, (method, seeds) in enumerate(zip(methods, scores, strict=True)):
        look = style(method)
        ax.plot(seeds, np.full(len(seeds), row + 0.36), "o", color=look.colour, markersize=2, mew=0)
        ax.plot(mean_and_std(seeds)[0], row, look.marker, color=look.colour, markersize=4.2, mec="white", mew=0.4,
                zorder=3)  # fmt: skip
        if method in paper:
            ax.plot(paper[method], row, look.marker, color=look.colour, mfc="white", markersize=3.5, mew=0.7)
    ax.axvline(majority, color="0.3", linewidth=0.8, linestyle="--", zorder=1)
    return method_rows(ax, methods)


def language(scores: pd.DataFrame, majority: Mapping[str, float], published: pd.DataFrame) -> Figure:
    """Draw `task` for each text task, three in a row at page width.

    scores: `tables.language.reported`. majority: `tables.language.majority_class`, shares. published:
    `Published.language`.
    """
    datasets, methods = scores.index.unique("dataset"), list(scores)
    columns = min(3, len(datasets))
    rows = -(-len(datasets) // columns)
    with matplotlib.rc_context(RC):
        size = PAGE * columns / 3, 0.5 + rows * (0.5 + 0.14 * len(methods))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for ax, name in zip(axes, datasets, strict=False):
            printed = published[published["task"] == TASKS[name].title].set_index("method")["score"].to_dict()
            task(
                ax,
                100 * scores.xs(name, level="dataset").to_numpy().T,
                methods,
                100 * majority.get(name, np.nan),
                printed,
            )
            ax.set_title(TASKS[name].title)
            ax.set_xlabel(METRICS[glue.TASKS[name].metric].capitalize(), fontsize=7)
        for ax in axes[len(datasets) :]:
            ax.set_visible(False)
        entries = [SEED, entry("mean over seeds", "o"), entry("the paper, DeBERTa-V3-base", "o", mfc="white")]
        key(figure, [*entries, entry("majority class", line="--")], columns=4)
    return figure
