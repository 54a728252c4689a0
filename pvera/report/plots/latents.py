"""Figures of the last layer's latents: values on other data sets, and maps over patches.

Section 4.4.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from pvera.adapters import METHODS
from pvera.data.tasks import class_name
from pvera.report.analysis_results import Analyses
from pvera.report.plots.base import COLUMN_WIDTH, note, picture
from pvera.report.plots.violins import STARS, bracket, stars, violins
from pvera.report.tables.out_of_distribution import MEAN_AND_NORM
from pvera.report.text import title

#: The colour of data sets that a model was not trained on.
OTHER = "#BBBBBB"


def draw_out_of_distribution(values: pd.DataFrame, comparisons: pd.DataFrame, kind: str) -> Figure:
    """Draw violins of the values on a model's own data set (in colour) and on others.

    A row per method, a column per model. Brackets show the significance that the values are lower
    on the model's own.

    Args:
        values: A row per image, of `tables.out_of_distribution.image_values`.
        comparisons: The comparisons of the same adapters, of one seed.
        kind: A key of `MEAN_AND_NORM`.
    """
    methods = list(values["method"].unique())
    models = list(values["tested"].unique())
    comparisons = comparisons[comparisons["kind"] == kind]
    p_values = comparisons.set_index(["method", "model", "tested"])["p_value"].sort_index()
    # (method, model, tested data set) -> a value per image.
    samples = dict(list(values.groupby(["method", "model", "tested"])["value"]))

    figure = Figure(figsize=(COLUMN_WIDTH, 0.45 + 1.65 * len(methods)))
    grid = figure.subplots(len(methods), len(models), squeeze=False)
    for i, method in enumerate(methods):
        is_first, is_last = i == 0, i == len(methods) - 1
        colour = METHODS[method].colour
        grid[i, 0].set_ylabel(METHODS[method].title, color=colour, fontweight="bold")
        for model, ax in zip(models, grid[i], strict=True):
            if (method, model, model) in samples:
                groups = {name: samples[method, model, name] for name in models}
                _own_and_others(ax, groups, model, colour, p_values[method, model])
            ax.set_title(title(model) if is_first else "", pad=24 if is_first else 18, fontsize=7)
            # The last row names the data sets of all.
            if not is_last:
                ax.set_xticklabels([])
    figure.suptitle("Model trained on", fontsize=7)
    note(figure, f"colour: the model's own data set; grey: others\n{STARS}: lower on its own")
    figure.supylabel(rf"{MEAN_AND_NORM[kind].capitalize()} of $\mu_q + \mu_v$")
    return figure


def _own_and_others(
    ax: Axes, groups: Mapping[str, pd.Series], own: str, colour: str, p_values: pd.Series
) -> None:
    """Draw a violin per data set, and a bracket from the model's own to each other one."""
    names = list(groups)
    colours = [colour if name == own else OTHER for name in names]
    violins(ax, list(groups.values()), [title(name) for name in names], colours)

    home = names.index(own)
    others = [name for name in names if name != own]
    # The nearest has the lowest bracket.
    others.sort(key=lambda name: abs(names.index(name) - home))
    for level, name in enumerate(others):
        bracket(ax, home, names.index(name), 1.02 + 0.11 * level, stars(p_values[name]))
    for label in ax.get_xticklabels():
        label.set(rotation=30, ha="right", rotation_mode="anchor", fontsize=6)


class PictureRows(NamedTuple):
    """Rows of pictures that share a scale of colours."""

    #: Label of a row -> a picture per column.
    rows: dict[str, np.ndarray]
    #: The colour of the labels.
    colour: str
    #: Options of `Axes.imshow`; without any there is no colour bar.
    scale: dict[str, Any]


def draw_maps(analyses: Analyses) -> Figure:
    """Draw a column per image; below it each method's latent, a cell per patch.

    PVeRA has its mean, two samples, and both minus the mean.
    """
    first, shown = analyses[0]
    groups = [PictureRows({"Image": shown["pixels"]}, "black", {})]
    # VeRA first, then PVeRA.
    for record, arrays in sorted(analyses, key=lambda run: run[0]["method"] != "vera"):
        groups += _latent_rows(record["method"], arrays["mu"], arrays["draws"][:2])

    images = len(shown["pixels"])
    rows = sum(len(group.rows) for group in groups)
    # Square pictures beside labels and colour bars of 1.4 inches.
    size = (COLUMN_WIDTH - 1.4) / images
    layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.02)
    figure = Figure(figsize=(COLUMN_WIDTH, 0.75 + (size + 0.03) * rows), layout=layout)
    grid = figure.subplots(rows, images, squeeze=False)
    for ax, label in zip(grid[0], shown["labels"], strict=True):
        ax.set_title(class_name(first["dataset"], int(label)), fontsize=6.5, pad=2)
    remaining = iter(grid)
    for group in groups:
        _pictures(figure, remaining, group)
    text = "One cell per patch: its query latent in the last layer,\non the first principal"
    note(figure, f"{text} component of the mean\n(no unit); samples, and samples minus the mean")
    return figure


def _latent_rows(method: str, mean: np.ndarray, samples: np.ndarray) -> list[PictureRows]:
    """Return the rows of a method.

    Samples have the scale of their mean, as in the paper's Figure 7; samples minus the mean have
    one that is centred at zero.

    Args:
        method: The key of the method.
        mean: (images, height, width).
        samples: (samples, images, height, width); there may be none.
    """
    style = METHODS[method]
    scale = {"cmap": "viridis", "vmin": mean.min(), "vmax": mean.max()}
    if not len(samples):
        return [PictureRows({style.title: mean}, style.colour, scale)]

    values, differences = {f"{style.title},\nmean": mean}, {}
    for i, sample in enumerate(samples, 1):
        values[f"sample {i}"] = sample
        differences[f"sample {i}\n− mean"] = sample - mean
    # Zero is in the middle of the colours.
    most = np.abs(samples - mean).max()
    centred = {"cmap": "BrBG", "vmin": -most, "vmax": most}
    return [
        PictureRows(values, style.colour, scale),
        PictureRows(differences, style.colour, centred),
    ]


def _pictures(figure: Figure, grid: Iterable[np.ndarray], group: PictureRows) -> None:
    """Draw the rows of a group on the next rows of axes, with their colour bar."""
    drawn: list[Axes] = []
    for (label, pictures), axes in zip(group.rows.items(), grid, strict=False):
        for ax, pixels in zip(axes, pictures, strict=True):
            picture(ax, pixels, **group.scale)
        left = {"rotation": 0, "ha": "right", "va": "center", "labelpad": 3}
        axes[0].set_ylabel(label, fontsize=6.5, color=group.colour, **left)
        drawn.extend(axes)
    # One bar beside all rows of the group.
    if group.scale:
        aspect = 6 * len(drawn) / 5
        bar = figure.colorbar(drawn[0].images[0], ax=drawn, pad=0.01, fraction=0.06, aspect=aspect)
        bar.ax.tick_params(labelsize=5.5)
        bar.ax.yaxis.set_major_locator(MaxNLocator(3))
