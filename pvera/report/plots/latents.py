"""Figures of the last layer's latents: in and out of distribution, and over patches (Section 4.4)."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pvera.adapters import METHODS
from pvera.data.tasks import class_name
from pvera.report.plots import COLUMN, RC, note, style
from pvera.report.plots.uncertainty import STARS, bracket, stars, violins
from pvera.report.statistics import rank_sum
from pvera.report.tables.names import dataset_title
from pvera.report.tables.out_of_distribution import KINDS, Values

OUT = "#BBBBBB"


def values(ax: Axes, run: Values, kind: str) -> Axes:
    """Draw violins of one adapter's values on its own data set (in colour) and on the others.

    Brackets show the significance that the values are lower on its own.
    """
    tested = run.record["config"]["tested"]
    home, colour = tested.index(run.trained_on), style(run.record["method"]).colour
    violins(
        ax,
        [run.values[name, kind] for name in tested],
        [dataset_title(name) for name in tested],
        [colour if name == run.trained_on else OUT for name in tested],
    )
    for level, place in enumerate(sorted((i for i in range(len(tested)) if i != home), key=lambda i: abs(i - home))):
        test = rank_sum(run.values[tested[place], kind], run.values[run.trained_on, kind])
        bracket(ax, home, place, 1.02 + 0.11 * level, stars(test.p_value))
    for label in ax.get_xticklabels():
        label.set(rotation=30, ha="right", rotation_mode="anchor", fontsize=6)
    return ax


def out_of_distribution(runs: Sequence[Values], kind: str) -> Figure:
    """Draw a row per method and a column per model, for the first seed.

    Other seeds have other random matrices, and so other values.
    """
    runs = [run for run in runs if run.record["seed"] == min(run.record["seed"] for run in runs)]
    methods = list(dict.fromkeys(run.record["method"] for run in runs))
    models = list(dict.fromkeys(run.trained_on for run in runs))
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(COLUMN, 0.45 + 1.65 * len(methods)), layout="constrained")
        grid = figure.subplots(len(methods), len(models), squeeze=False)
        for row, method in enumerate(methods):
            for ax, model in zip(grid[row], models, strict=True):
                for run in runs:
                    if (run.record["method"], run.trained_on) == (method, model):
                        values(ax, run, kind)
                title, pad = (f"{dataset_title(model)} model", 24) if row == 0 else ("", 18)
                ax.set_title(title, pad=pad, fontsize=7)
                if row < len(methods) - 1:
                    ax.set_xticklabels([])
            grid[row, 0].set_ylabel(METHODS[method].title, color=style(method).colour, fontweight="bold")
        note(figure, f"colour: the model's own data set; grey: others\n{STARS}: lower on its own")
        figure.supylabel(rf"{KINDS[kind].capitalize()} of $\mu_q + \mu_v$", fontsize=8)
    return figure


def maps(latents: Sequence[tuple[dict, dict[str, np.ndarray]]]) -> Figure:
    """Draw a column per image; below it VeRA's latent, PVeRA's mean and its draws (`readings.load`), where present.

    Maps are upsampled smoothly. Each method has one colour scale, from the lowest to the highest value of its mean and
    draws.
    """
    rows = [("Image", None, None, None)]
    for record, arrays in sorted(latents, key=lambda one: one[0]["method"] != "vera"):
        title, every = METHODS[record["method"]].title, np.concatenate([arrays["mu"][None], arrays["draws"]])
        limits = every.min(), every.max()
        rows.append((f"{title}\nmean" if len(arrays["draws"]) else title, arrays["mu"], limits, record["method"]))
        rows += [(f"{title}\ndraw {i + 1}", draw, limits, record["method"]) for i, draw in enumerate(arrays["draws"])]
    record, arrays = latents[0]
    pixels, side = arrays["pixels"], arrays["pixels"].shape[1]
    with matplotlib.rc_context(RC):
        width = (COLUMN - 0.5) / len(pixels)
        figure = Figure(figsize=(COLUMN, 0.4 + width * len(rows)))
        grid = figure.subplots(len(rows), len(pixels), squeeze=False)
        height = figure.get_figheight()
        figure.subplots_adjust(0.5 / COLUMN, 0.25 / height, 0.998, 1 - 0.15 / height, 0.04, 0.04)
        note(figure, "First principal component over the patches\nYellow: high, blue: low; one scale per method")
        for axes, (title, shown, limits, method) in zip(grid, rows, strict=True):
            for i, ax in enumerate(axes):
                if shown is None:
                    ax.imshow(pixels[i], interpolation="nearest")
                    ax.set_title(class_name(record["dataset"], int(arrays["labels"][i])), fontsize=6.5, pad=2)
                else:
                    ax.imshow(shown[i], "viridis", vmin=limits[0], vmax=limits[1], interpolation="bicubic",
                              extent=(0, side, side, 0))  # fmt: skip
                ax.set_xticks([])
                ax.set_yticks([])
                ax.spines[:].set_visible(False)
            axes[0].set_ylabel(title, rotation=0, ha="right", va="center", fontsize=6.5, labelpad=3,
                               color=style(method).colour if method else "black")  # fmt: skip
    return figure
