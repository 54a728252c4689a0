"""Figures that are forests: the components of PVeRA, the text tasks (Appendix D), the protocols' differences."""

from collections.abc import Iterable, Mapping
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from pvera.data import glue
from pvera.data.tasks import TASKS
from pvera.report.plots import PAGE, PLAIN, PVERA_MEAN, SEED, Style, entry, forest, key, note, panels, style
from pvera.report.statistics import mean_interval, weakest_contrast
from pvera.report.table import title
from pvera.report.tables.components import CONTRASTS, Runs, values
from pvera.report.tables.protocol import METRICS, per_pair, summary
from pvera.report.tables.verdicts import pooled
from pvera.study.protocol import VARIANTS

MEAN = "Mean over tasks"


def contrasts(sets: Mapping[str, Runs], names: Iterable[str] = CONTRASTS) -> Figure:
    """Draw contrasts of PVeRA's components in a panel each: a row per task, dots for seeds, markers for their means.

    sets: name of a set of tasks -> its runs. A set has a scale of its own, and ends in its mean over tasks with the
    95 % interval for other seeds; a thin one, which takes three units, is for other tasks. names: of `CONTRASTS`, at
    most four for several sets; those are drawn that a set has runs of.
    """
    accuracies = [values(runs) for runs in sets.values()]
    there = [name for name in names if any({*CONTRASTS[name]} <= runs.keys() for runs in sets.values())]
    rows = [
        [*map(title, frame.index.unique("dataset")), f"{MEAN}{name}"]
        for name, frame in zip(sets, accuracies, strict=True)
    ]
    lines = [len(labels) for labels in rows for _ in range(-(-len(there) // 4))]  # of each row of panels
    height, several = 0.3 + 0.17 * np.mean(lines), len(sets) > 1
    figure, axes = panels(
        len(there) * len(sets), min(len(there), 4), PAGE, height, 0.6, sharex="row" if several else "all", sharey="row",
        height_ratios=lines,
    )  # fmt: skip
    pvera = style("pvera")
    task = Style("", pvera.colour, pvera.marker)
    for ax, (place, name) in zip(axes, product(range(len(sets)), there), strict=True):
        frame, labels, (first, second) = accuracies[place], rows[place], CONTRASTS[name]
        scores = frame.reindex(columns=[first, second])
        gaps = (scores[first] - scores[second]).unstack("seed", sort=False)
        tasks = gaps.add_prefix("seed").assign(mean=gaps.mean(axis=1)).set_axis(labels[:-1])
        if tasks["mean"].isna().all():
            ax.text(0.5, 0.5, "not run", transform=ax.transAxes, fontsize=6, color="0.4", ha="center")
            mean = {}
        else:
            effect = weakest_contrast({"": gaps.to_numpy()})
            mean = {"mean": effect.mean, "low": effect.these.low, "high": effect.these.high}
            units = pooled(gaps).dropna(how="all")
            if len(units) > 2:  # of two the interval for other tasks spans the figure
                sample = mean_interval(units)
                ax.plot([sample["low"], sample["high"]], [len(labels) - 1] * 2, color="black", linewidth=0.5)
        forest(
            ax,
            pd.concat([tasks, pd.DataFrame(mean, labels[-1:])]),
            lambda label: PLAIN if label.startswith(MEAN) else task,
        )
        ax.axvline(0, color="0.5", linewidth=0.6, zorder=0)
        ax.axhline(len(labels) - 1.5, color="0.8", linewidth=0.6)
        if place == 0:
            ax.set_title(name, fontsize=7)
    scales = "; each set has a scale of its own" * several
    note(figure, f"Difference of test accuracy (points); right of zero, the first is better{scales}")
    key(figure, [entry("one seed", "o", colour=pvera.colour, markersize=2, markeredgewidth=0),
                 entry("mean over seeds", pvera.marker, colour=pvera.colour),
                 entry("mean over tasks; 95 %: new seeds (thin: new tasks)", "D", "-", colour="black")])  # fmt: skip
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
