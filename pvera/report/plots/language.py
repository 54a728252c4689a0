"""The language table (Appendix D) as a figure."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pvera.data import glue
from pvera.data.tasks import TASKS
from pvera.report.plots import PAGE, PVERA_MEAN, SEED, entry, forest, key, panels, style

METRICS = {"accuracy": "Accuracy (%)", "matthews": "Matthews correlation (%)"}


def language(scores: pd.DataFrame, majority: Mapping[str, float], published: pd.DataFrame) -> Figure:
    """Draw the scores of each text task in percent, three tasks in a row at page width: a `forest` of methods each.

    scores: `tables.language.reported`. majority: `tables.language.majority_class`, shares. published:
    `Published.language`, whose scores are hollow, since they are of a larger encoder.
    """
    datasets, methods = scores.index.unique("dataset"), list(scores)
    figure, axes = panels(len(datasets), 3, PAGE * min(len(datasets), 3) / 3, 0.5 + 0.14 * len(methods), sharey=True)
    for ax, name in zip(axes, datasets, strict=True):
        seeds = 100 * scores.xs(name, level="dataset").droplevel("category").T.add_prefix("seed")
        forest(ax, seeds.assign(mean=seeds.mean(axis=1)))
        printed = published[(published["task"] == TASKS[name].title) & published["method"].isin(methods)]
        for method, score in zip(printed["method"], printed["score"], strict=True):
            look, row = style(method), methods.index(method)
            ax.plot(score, row, look.marker, color=look.colour, mfc="white", markersize=3.5, mew=0.7)
        ax.axvline(100 * majority.get(name, np.nan), color="0.3", linewidth=0.8, linestyle="--", zorder=1)
        ax.set_title(TASKS[name].title)
        ax.set_xlabel(METRICS[glue.TASKS[name].metric], fontsize=7)
    entries = [SEED, entry("mean over seeds", "o"), PVERA_MEAN, entry("the paper, DeBERTa-V3-base", "o", mfc="white")]
    key(figure, [*entries, entry("majority class", line="--")], columns=5)
    return figure
