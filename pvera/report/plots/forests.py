"""Figures that are forests: the components of PVeRA, the text tasks (Appendix D), the protocols' differences."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pvera.data import glue
from pvera.data.tasks import TASKS
from pvera.report.plots import PAGE, PLAIN, PVERA_MEAN, SEED, Style, entry, forest, key, note, panels, style
from pvera.report.statistics import mean_interval
from pvera.report.table import title
from pvera.report.tables.components import CONTRASTS, Runs, values
from pvera.report.tables.protocol import METRICS, per_pair, summary
from pvera.report.tables.verdicts import pooled
from pvera.study.protocol import VARIANTS

MEAN = "Mean over tasks"


def contrasts(sets: Mapping[str, Runs], names: Iterable[str] = CONTRASTS) -> Figure:
    """Draw contrasts of PVeRA's components in a panel each: a row per task, dots for seeds, markers for their means.

    sets: name of a set of tasks -> its runs. Each set ends in its mean over tasks with the 95 % interval for other
    tasks. All panels share one scale. names: of `CONTRASTS`; those are drawn that a set has runs of.
    """
    accuracies = {name: values(runs) for name, runs in sets.items()}
    there = [name for name in names if any({*CONTRASTS[name]} <= runs.keys() for runs in sets.values())]
    rows = [[*map(title, frame.index.unique("dataset")), f"{MEAN}{name}"] for name, frame in accuracies.items()]
    pvera = style("pvera")
    task = Style("", pvera.colour, pvera.marker)
    figure, axes = panels(
        len(there), 4, PAGE, 0.3 + 0.17 * sum(len(labels) - 1 for labels in rows), 0.6, sharex=True, sharey=True
    )
    for ax, name in zip(axes, there, strict=True):
        first, second = CONTRASTS[name]
        frames = []
        for labels, frame in zip(rows, accuracies.values(), strict=True):
            scores = frame.reindex(columns=[first, second])
            gaps = (scores[first] - scores[second]).unstack("seed", sort=False)
            means = gaps.mean(axis=1)
            if means.isna().all():
                middle = 0.5, sum(map(len, frames)) + len(labels) / 2
                ax.text(*middle, "not run", transform=ax.get_yaxis_transform(), fontsize=6, color="0.4", ha="center")
            frames.append(gaps.add_prefix("seed").assign(mean=means).set_axis(labels[:-1]))
            frames.append(pd.DataFrame([mean_interval(pooled(gaps)) | {"mean": means.mean()}], labels[-1:]))
        forest(ax, pd.concat(frames), lambda label: PLAIN if label.startswith(MEAN) else task)
        ax.axvline(0, color="0.5", linewidth=0.6, zorder=0)
        below = np.cumsum([len(labels) for labels in rows])
        for place, grey in [*((end - 1.5, "0.8") for end in below), *((end - 0.5, "0.5") for end in below[:-1])]:
            ax.axhline(place, color=grey, linewidth=0.6)
        ax.set_title(name, fontsize=7)
    note(figure, "Difference of test accuracy (points); right of zero, the first is better")
    key(figure, [SEED, entry("mean over seeds", pvera.marker, colour=pvera.colour),
                 entry("mean over tasks, 95 % interval", "D", "-", colour="black")])  # fmt: skip
    return figure


SCORES = {"accuracy": "Accuracy (%)", "matthews": "Matthews correlation (%)"}


def language(scores: pd.DataFrame, majority: Mapping[str, float], published: pd.DataFrame) -> Figure:
    """Draw the scores of each text task in percent, three tasks in a row at page width: a `forest` of methods each.

    scores: `scores.score_frame` of `tables.language.score`. majority: `tables.language.majority_class`, shares.
    published: `Published.language`, whose scores are hollow, since they are of a larger encoder.
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
        ax.set_xlabel(SCORES[glue.GLUE[name].metric], fontsize=7)
    entries = [SEED, entry("mean over seeds", "o"), PVERA_MEAN, entry("the paper, DeBERTa-V3-base", "o", mfc="white")]
    key(figure, [*entries, entry("majority class", line="--")], columns=5)
    return figure


#: Switch (`protocol.VARIANTS`) -> what the published program does there.
SWITCHES = {
    "published": "all differences at once",
    "softmax_in_loss": "softmax taken twice",
    "shuffle": "images never shuffled",
    "own_draws": "other random numbers",
    "joint_stop": "grid stops together",
    "bottleneck_near_identity": "default start",
    "adaptformer_near_identity": "default start",
    "adaptformer_inside_layer_scale": "inside the layer scale",
    "dora_norm": "norm per input column",
    "dora_train_magnitude": "frozen magnitude",
    "dora_scaled": "no α/r",
    "dora_transpose": "update not transposed",
    "lora_same_draw": "same start in every layer",
    "vera_init": "uniform A and B",
    "pvera_init": "uniform A and B",
    "pvera_kl": "KL term as a mean",
}


def look(switch: str) -> Style:
    """Return the looks of a switch: the colour of its method, black for all methods."""
    method = VARIANTS[switch].method
    if method is None:
        return Style(SWITCHES[switch].capitalize(), "black", "D")
    return Style(f"{title(method)}: {SWITCHES[switch]}", style(method).colour, "D")


def effects(pairs: pd.DataFrame) -> Figure:
    """Draw a `forest` of the effects (`tables.protocol.differences`) on every metric: switches of all methods first.

    Dots are pairs of data set and seed, averaged over methods. A loss on another scale is left out.
    """
    rows = summary(pairs)
    names = sorted(pairs["switch"].unique(), key=lambda name: VARIANTS[name].method is not None)
    figure, axes = panels(len(METRICS), len(METRICS), PAGE, 0.16 * len(names), 1.0, sharey=True)
    for ax, (metric, (heading, unit, _)) in zip(axes, METRICS.items(), strict=True):
        of_metric = rows[rows["metric"] == metric].set_index("switch").loc[names]
        of_pairs = {name: pd.Series(per_pair(pairs[pairs["switch"] == name], metric)) for name in names}
        frame = pd.DataFrame(of_pairs).T.add_prefix("seed").assign(mean=of_metric["mean"])
        frame[~of_metric["comparable"]] = np.nan
        chance = of_metric["noise"]
        ax.use_sticky_edges = False
        ax.barh(range(len(names)), 2 * chance, left=-chance, height=0.7, color="0.9", zorder=0.5)
        forest(ax, frame, look).set_title(f"{heading} ({unit})", fontsize=7)
        ax.axvline(0, color="0.4", linewidth=0.6, zorder=1)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    figure.supxlabel("Published program minus corrected; colour: of the one method concerned", fontsize=7)
    key(figure, [entry("one data set and seed", "o", colour="black", markersize=2),
                 entry("mean over them", "D", colour="black"), Patch(color="0.9", label="chance")])  # fmt: skip
    return figure
