"""Figures of the last layer's latents: detection of other data sets, and maps over patches (Section 4.4)."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pvera.adapters import METHODS
from pvera.data.tasks import class_name
from pvera.report.plots import COLUMN, note, picture, style
from pvera.report.plots.uncertainty import STARS, bracket, stars, violins
from pvera.report.statistics import rank_sum
from pvera.report.table import title
from pvera.report.tables.out_of_distribution import KINDS, Values

OUT = "#BBBBBB"


def values(ax: Axes, run: Values, kind: str, tested: Sequence[str]) -> Axes:
    """Draw violins of one adapter's values on its own data set (in colour) and on the others of `tested`.

    Brackets show the significance that the values are lower on its own.
    """
    home, colour = tested.index(run.trained_on), style(run.record["method"]).colour
    violins(
        ax,
        [run.values[name, kind] for name in tested],
        [title(name) for name in tested],
        [colour if name == run.trained_on else OUT for name in tested],
    )
    for level, place in enumerate(sorted((i for i in range(len(tested)) if i != home), key=lambda i: abs(i - home))):
        test = rank_sum(run.values[tested[place], kind], run.values[run.trained_on, kind])
        bracket(ax, home, place, 1.02 + 0.11 * level, stars(test.p_value))
    for label in ax.get_xticklabels():
        label.set(rotation=30, ha="right", rotation_mode="anchor", fontsize=6)
    return ax


def out_of_distribution(runs: Sequence[Values], kind: str) -> Figure:
    """Draw a row per method and a column per model, for the first seed and the first data set of each category.

    Other seeds have other random matrices, and so other values. The paper shows three models.
    """
    seed, first = min(run.record["seed"] for run in runs), {}
    for run in runs:
        first.setdefault(run.record["category"], run.trained_on)
    models = list(first.values())
    runs_of_seed = {(run.record["method"], run.trained_on): run for run in runs if run.record["seed"] == seed}
    methods = list(dict.fromkeys(method for method, _ in runs_of_seed))
    figure = Figure(figsize=(COLUMN, 0.45 + 1.65 * len(methods)))
    grid = figure.subplots(len(methods), len(models), squeeze=False)
    for row, method in enumerate(methods):
        for ax, model in zip(grid[row], models, strict=True):
            if (method, model) in runs_of_seed:
                values(ax, runs_of_seed[method, model], kind, models)
            name, pad = (title(model), 24) if row == 0 else ("", 18)
            ax.set_title(name, pad=pad, fontsize=7)
            if row < len(methods) - 1:
                ax.set_xticklabels([])
        grid[row, 0].set_ylabel(METHODS[method].title, color=style(method).colour, fontweight="bold")
    figure.suptitle("Model trained on", fontsize=7)
    note(figure, f"colour: the model's own data set; grey: others\n{STARS}: lower on its own")
    figure.supylabel(rf"{KINDS[kind].capitalize()} of $\mu_q + \mu_v$")
    return figure


def maps(latents: Sequence[tuple[dict, dict[str, np.ndarray]]]) -> Figure:
    """Draw a column per image; below it each method's latent: PVeRA's mean, two draws, and these draws minus the mean.

    latents: of `load_analyses`. A cell is a patch, as it is. Draws have the scale of their mean, as in the paper's
    Figure 7; the differences have one that is centred at zero.
    """
    latents = sorted(latents, key=lambda analysis: analysis[0]["method"] != "vera")
    record, arrays = latents[0]
    pixels, rows = arrays["pixels"], 1 + sum(1 + 2 * len(arrays["draws"][:2]) for _, arrays in latents)
    size = (COLUMN - 1.2) / len(pixels)
    figure = Figure(figsize=(COLUMN, 0.75 + (size + 0.03) * rows))
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.02, wspace=0.02, hspace=0.02)
    grid = iter(figure.subplots(rows, len(pixels), squeeze=False))
    axes = _row(next(grid), "Image", pixels)
    for ax, label in zip(axes, arrays["labels"], strict=True):
        ax.set_title(class_name(record["dataset"], int(label)), fontsize=6.5, pad=2)
    for record, arrays in latents:
        look, mean, draws = style(record["method"]), arrays["mu"], arrays["draws"][:2]
        scale = {"cmap": "viridis", "vmin": mean.min(), "vmax": mean.max()}
        rows = [_row(next(grid), f"{look.title},\nmean" if len(draws) else look.title, mean, look.colour, **scale)]
        for i, draw in enumerate(draws):
            rows.append(_row(next(grid), f"draw {i + 1}", draw, look.colour, **scale))
        _colour_bar(figure, np.ravel(rows))
        if len(draws):
            most = np.abs(draws - mean).max()
            scale = {"cmap": "BrBG", "vmin": -most, "vmax": most}
            rows = [
                _row(next(grid), f"draw {i + 1}\n− mean", draw - mean, look.colour, **scale)
                for i, draw in enumerate(draws)
            ]
            _colour_bar(figure, np.ravel(rows))
    note(figure, "One cell per patch: its query latent in the last layer, on the first\n"
                 "principal component of the mean (no unit); draws, and draws minus the mean")  # fmt: skip
    return figure


def _row(axes: Sequence[Axes], title: str, pictures: np.ndarray, colour: str = "black", **scale) -> Sequence[Axes]:
    """Draw pictures (images, height, width[, 3]) side by side, with a title at the left."""
    for ax, pixels in zip(axes, pictures, strict=True):
        picture(ax, pixels, **scale)
    axes[0].set_ylabel(title, rotation=0, ha="right", va="center", fontsize=6.5, labelpad=3, color=colour)
    return axes


def _colour_bar(figure: Figure, axes: Sequence[Axes]) -> None:
    bar = figure.colorbar(axes[0].images[0], ax=axes, pad=0.01, fraction=0.06, aspect=6 * len(axes) / 5)
    bar.ax.tick_params(labelsize=5.5, length=2)
    bar.ax.yaxis.set_major_locator(MaxNLocator(3))
    bar.outline.set_linewidth(0.4)
