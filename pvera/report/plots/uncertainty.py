"""Figures of the samples of PVeRA (Section 4.3, Appendix C).

They show predictive standard deviations, interval widths, and images with their intervals.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pvera.data.tasks import class_name
from pvera.report.analysis_results import Example
from pvera.report.plots.base import (
    COLUMN_WIDTH,
    DATASET,
    add_legend,
    axes_grid,
    forest,
    legend_entry,
    note,
    picture,
)
from pvera.report.plots.violins import STARS, bracket, stars, violins
from pvera.report.tables.uncertainty import ALL, split_by_correct
from pvera.report.text import signed, title

#: Colours of correct and incorrect predictions; no method has them, and colour-blind readers can
#: tell them.
CORRECT, INCORRECT = "#4D9221", "#762A83"
#: Classes that are numbers, in words.
NUMBERS = {"counting": "{} objects", "sprites": "at {} px", "azimuth": "{}°"}


def draw_correct_and_incorrect(
    images: pd.DataFrame, comparison: pd.DataFrame, label: str, definition: str
) -> Figure:
    """Draw violins of correct and incorrect images for each number of samples, on one scale.

    Args:
        images: A frame of `tables.uncertainty.predictive_sds` or `interval_widths`.
        comparison: The `compare_correct_and_incorrect` of these images.
        label: What the values are.
        definition: When an image counts as correct.
    """
    tests = comparison[comparison["group"] == ALL].set_index("samples")
    figure, axes = axes_grid(len(tests), len(tests), COLUMN_WIDTH, 2.5, 0, sharey=True)
    for ax, (k, test) in zip(axes, tests.iterrows(), strict=True):
        groups = split_by_correct(images[images["samples"] == k])
        violins(ax, groups, ("Correct", "Incorrect"), (CORRECT, INCORRECT))
        ax.set_title(f"{k} samples", pad=14)
        if np.isfinite(test["p_value"]):
            text = f"{stars(test['p_value'])}   δ = {signed(test['cliffs_delta'], 2)}"
            bracket(ax, 0, 1, 1.02, text)
    axes[0].set_ylabel(label)
    axes[0].set_ylim(bottom=0)
    signs = f"bar: quartiles; white: median; δ: Cliff's delta\n{STARS}: incorrect is higher"
    note(figure, f"{signs}\n{definition}")
    return figure


#: The paper's violins of the predictive standard deviation.
draw_predictive_sds = partial(
    draw_correct_and_incorrect,
    label="SD of the highest softmax score",
    definition="correct: more than half of the samples predict the true class",
)
#: The appendix's violins of the widths of intervals.
draw_interval_widths = partial(
    draw_correct_and_incorrect,
    label="Width of the 95 % interval of the mean\nscore of the predicted class",
    definition="correct: the class that most samples predict is the true one",
)


def draw_auroc_by_dataset(settings: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the AUROC of errors of each data set with its interval: a panel per setting.

    Args:
        settings: Title of a setting -> its `tables.uncertainty.auroc_by_dataset`.
    """
    lines = max(len(aurocs) for aurocs in settings.values())
    width, height = COLUMN_WIDTH * len(settings), 0.16 * lines + 0.3
    figure, axes = axes_grid(len(settings), len(settings), width, height, 0.3, sharex=True)
    for ax, (heading, aurocs) in zip(axes, settings.items(), strict=True):
        # The easiest data set is on top.
        labels = [f"{title(name)}, {error:.0f} %" for name, error in aurocs["error"].items()]
        forest(ax, aurocs[["mean", "low", "high"]].set_axis(labels), lambda _: DATASET)
        ax.axvline(0.5, color="0.3", linewidth=0.6, linestyle="--")
        ax.set_title(heading, fontsize=7)
    figure.supxlabel(
        "AUROC of errors by the predictive standard deviation (0.5: chance)", fontsize=7
    )
    axes[0].annotate(
        "rows: data set and its share of incorrect predictions; bar: 95 % interval over seeds",
        (0, 0),
        (0, -24),
        "axes fraction",
        textcoords="offset points",
        fontsize=5.5,
    )
    return figure


# Images


def draw_framed(ax: Axes, example: Example) -> None:
    """Draw an image in a frame that tells whether the prediction is correct."""
    picture(ax, example.pixels)
    colour = CORRECT if example.correct else INCORRECT
    ax.spines[:].set(visible=True, color=colour, linewidth=1.2)


def _class(example: Example, label: int) -> str:
    """Name a class of an example's data set, shortened."""
    text = NUMBERS.get(example.dataset, "{}").format(class_name(example.dataset, label))
    return text if len(text) <= 16 else f"{text[:15]}…"


def draw_examples(images: Sequence[Example]) -> Figure:
    """Draw the appendix's figure: images with their classes and intervals, the correct ones first.

    Args:
        images: The images of `tables.uncertainty.first_seed_examples`.
    """
    figure, axes = axes_grid(len(images), 6, 1.1 * min(6, len(images)), 1.6, 0.4)
    by_correct = sorted(images, key=lambda example: not example.correct)
    for ax, example in zip(axes, by_correct, strict=True):
        draw_framed(ax, example)
        ax.set_title(title(example.dataset), fontsize=6.5, pad=2)
        classes = [_class(example, label) for label in (example.label, example.predicted)]
        ax.set_xlabel("\n".join([*classes, example.interval]), fontsize=6, labelpad=3)
    explanation = (
        "true class, predicted class, 95 % interval of the mean score of the predicted class"
    )
    note(figure, f"below: {explanation}")
    add_legend(
        figure,
        [
            legend_entry("correct", "s", colour=CORRECT),
            legend_entry("incorrect", "s", colour=INCORRECT),
        ],
    )
    return figure


def draw_teaser(images: Sequence[Example]) -> Figure:
    """Draw panel (b) of the paper's first figure: the scores of the three most probable classes.

    Args:
        images: A row each.
    """
    figure = Figure(figsize=(COLUMN_WIDTH, 1.15 * len(images) + 0.85))
    grid = figure.subplots(len(images), 2, width_ratios=(1, 2.4), sharex="col", squeeze=False)
    for example, (left, right) in zip(images, grid, strict=True):
        draw_framed(left, example)
        left.set_xlabel(f"true: {_class(example, example.label)}", fontsize=6.5, labelpad=3)
        _probabilities(right, example)
    grid[-1, 1].set_xlabel("Softmax score")

    colours = {
        "sample, predicted class is correct": CORRECT,
        "sample, predicted class is incorrect": INCORRECT,
        "sample, another class": "0.55",
    }
    entries = [
        legend_entry(label, "o", colour=colour, markersize=2.6, markeredgewidth=0)
        for label, colour in colours.items()
    ]
    interval = "95 % interval of the mean, predicted class (bold)"
    entries.append(legend_entry(interval, "|", "-", "black", linewidth=1.6))
    add_legend(figure, entries, columns=1)
    return figure


def _probabilities(ax: Axes, example: Example) -> None:
    """Draw a dot per sample and class, and the interval above the predicted class, the first."""
    # (samples, classes) -> classes from the highest mean score to the lowest.
    ranked = np.argsort(-example.probabilities.mean(0), kind="stable")
    others = [label for label in ranked if label != example.predicted]
    classes = [example.predicted, *others[:2]]
    colours = [CORRECT if example.correct else INCORRECT, "0.55", "0.55"]
    # Samples lie side by side, so that equal scores can be seen.
    jitter = np.linspace(-0.16, 0.16, len(example.probabilities))
    for y, (label, colour) in enumerate(zip(classes, colours, strict=False)):
        probabilities = example.probabilities[:, label]
        ax.plot(probabilities, y + jitter, "o", color=colour, markersize=2.6, alpha=0.7, mew=0)

    bounds = [example.low, example.high]
    ax.plot(bounds, [-0.36, -0.36], "|-", color="black", linewidth=1.6, markersize=5)
    # The text stays within the axes.
    middle = np.clip(sum(bounds) / 2, 0.17, 0.83)
    ax.text(middle, -0.52, example.interval, ha="center", va="bottom", fontsize=6)

    ax.set_yticks(range(len(classes)), [_class(example, label) for label in classes])
    ax.get_yticklabels()[0].set_fontweight("bold")
    ax.set_ylim(len(classes) - 0.5, -0.95)
    ax.set_xlim(-0.02, 1.02)
    ax.set_xticks(np.linspace(0, 1, 5))
    ax.grid(axis="x")
