"""The language table (Appendix D) as a figure."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pvera.data import glue
from pvera.data.tasks import TASKS
from pvera.report.plots import PAGE, SEED, entry, forest, key, panels, style
from pvera.report.statistics import mean_and_std

METRICS = {"accuracy": "accuracy (%)", "matthews": "Matthews correlation (%)"}


def task(ax: Axes, scores: np.ndarray, methods: list[str], majority: float, paper: Mapping[str, float]) -> Axes:
    """Draw the scores (methods, seeds) of one task in percent, as a `forest` of methods.

    Dashed: the majority class. Hollow: the paper's score of the method, with its larger encoder.
    """
    frame = pd.DataFrame(scores, methods).add_prefix("seed")
    frame["mean"] = mean_and_std(scores, axis=1)[0]
    forest(ax, frame)
    for method, score in paper.items():
        if method in methods:
            look, row = style(method), methods.index(method)
            ax.plot(score, row, look.marker, color=look.colour, mfc="white", markersize=3.5, mew=0.7)
    ax.axvline(majority, color="0.3", linewidth=0.8, linestyle="--", zorder=1)
    return ax


def language(scores: pd.DataFrame, majority: Mapping[str, float], published: pd.DataFrame) -> Figure:
    """Draw `task` for each text task, three in a row at page width.

    scores: `tables.language.reported`. majority: `tables.language.majority_class`, shares. published:
    `Published.language`.
    """
    datasets, methods = scores.index.unique("dataset"), list(scores)
    figure, axes = panels(len(datasets), 3, PAGE * min(len(datasets), 3) / 3, 0.5 + 0.14 * len(methods), sharey=True)
    for ax, name in zip(axes, datasets, strict=True):
        values = scores.xs(name, level="dataset").to_numpy().T  # (methods, seeds)
        printed = published[published["task"] == TASKS[name].title].set_index("method")["score"].to_dict()
        task(ax, 100 * values, methods, 100 * majority.get(name, np.nan), printed)
        ax.set_title(TASKS[name].title)
        ax.set_xlabel(METRICS[glue.TASKS[name].metric].capitalize(), fontsize=7)
    entries = [SEED, entry("mean over seeds", "o"), entry("the paper, DeBERTa-V3-base", "o", mfc="white")]
    key(figure, [*entries, entry("majority class", line="--")], columns=4)
    return figure
