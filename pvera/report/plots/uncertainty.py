"""Figures of the samples: violins of their spread and of interval widths, both by number of samples, images with their
intervals (Section 4.3, Appendix C); and of the last layer's latents: detection of other data sets, and maps over
patches (Section 4.4)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pvera.adapters import METHODS
from pvera.data.tasks import class_name
from pvera.report.analyses import Example
from pvera.report.plots import COLUMN, Style, entry, forest, key, note, panels, picture, style
from pvera.report.statistics import rank_sum
from pvera.report.table import signed, title
from pvera.report.tables import uncertainty as tables
from pvera.report.tables.out_of_distribution import KINDS, Analysed

#: Colours of correct and incorrect predictions; no method has them, and colour-blind readers can tell them.
CORRECT, INCORRECT = "#4D9221", "#762A83"
#: Classes that are numbers, in words.
NUMBERS = {"counting": "{} objects", "sprites": "at {} px", "azimuth": "{}°"}
STARS = "**** p ≤ 0.0001 … * p ≤ 0.05"


def stars(p: float) -> str:
    """Return the stars of the paper's figures: **** to 0.0001, *** to 0.001, ** to 0.01, * to 0.05, else "ns"."""
    return "*" * sum(p <= level for level in (1e-4, 1e-3, 1e-2, 0.05)) or "ns"


def violins(
    ax: Axes, samples: Sequence[np.ndarray], labels: Sequence[str], colours: Sequence[str]
) -> None:
    """Draw a violin per sample, from its lowest to its highest value, with a box plot inside; none for an empty one."""
    names = np.repeat(labels, [len(values) for values in samples])
    seaborn.violinplot(
        x=names, y=np.concatenate(samples), order=labels, hue=names, palette=dict(zip(labels, colours, strict=True)),
        legend=False, cut=0, density_norm="width", linewidth=0.5, saturation=1, alpha=0.7,
        inner_kws={"box_width": 3, "whis_width": 0.7, "solid_capstyle": "butt"}, ax=ax,
    )  # fmt: skip
    ax.tick_params(axis="x", length=0)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.grid(axis="y")


def bracket(ax: Axes, left: float, right: float, height: float, text: str) -> None:
    """Draw a line between two violins at `height`, a share of the axes' height, with `text` above."""
    at = ax.get_xaxis_transform()
    low = height - 0.02
    ax.plot([left, left, right, right], [low, height, height, low], color="0.3", linewidth=0.6, transform=at,
            clip_on=False)  # fmt: skip
    ax.text(
        (left + right) / 2, height + 0.01, text, transform=at, ha="center", va="bottom", fontsize=6
    )


def pairs(runs: tables.Runs, values_of: Callable, label: str, definition: str) -> Figure:
    """Draw violins of correct and incorrect images for each of the paper's numbers of samples, on one scale, with the
    significance that incorrect images have the higher values.

    values_of: `tables.spread_of` or `tables.width_of`. definition: when an image counts as correct.
    """
    figure, axes = panels(len(tables.DRAWS), len(tables.DRAWS), COLUMN, 2.5, 0, sharey=True)
    for ax, k in zip(axes, tables.DRAWS, strict=True):
        correct, incorrect = tables.parted(values_of(runs, k))
        violins(ax, (correct, incorrect), ("Correct", "Incorrect"), (CORRECT, INCORRECT))
        ax.set_title(f"{k} samples", pad=14)
        test = rank_sum(incorrect, correct)
        if np.isfinite(test.p_value):
            bracket(ax, 0, 1, 1.02, f"{stars(test.p_value)}   δ = {signed(test.cliffs_delta, 2)}")
    axes[0].set_ylabel(label)
    axes[0].set_ylim(bottom=0)
    note(
        figure,
        f"bar: quartiles; white: median; δ: Cliff's delta\n{STARS}: incorrect is higher\n{definition}",
    )
    return figure


#: The paper's violins of the standard deviation of the softmax scores, and the appendix's of the interval widths.
spread = partial(
    pairs, values_of=tables.spread_of, label="SD of the highest softmax score",
    definition="correct: more than half of the samples predict the true class",
)  # fmt: skip
widths = partial(
    pairs, values_of=tables.width_of, label="Width of the 95 % interval of the mean\nscore of the predicted class",
    definition="correct: the class that most samples predict is the true one",
)  # fmt: skip


def detection(runs: tables.Runs) -> Figure:
    """Draw the AUROC for detecting incorrect predictions by number of samples: mean, and a band over seeds."""
    of_seeds = tables.detection(runs).groupby(["way", "draws", "seed"])["auroc"].mean()
    figure, (ax,) = panels(1, 1, COLUMN, 2.1, 0)
    for way, colour, marker in (
        (tables.SCORE, "0.25", "s"),
        (tables.SD, style("pvera").colour, "o"),
    ):
        by_draws = of_seeds[way].groupby("draws").agg(["min", "mean", "max"])
        ax.fill_between(by_draws.index, by_draws["min"], by_draws["max"], color=colour, alpha=0.2)
        ax.plot(by_draws["mean"], color=colour, marker=marker, markersize=4.5, mec="white", mew=0.75,
                linewidth=1.2, label=way)  # fmt: skip
    ax.axhline(
        of_seeds[tables.SINGLE].mean(),
        color="0.25",
        linestyle="--",
        linewidth=0.8,
        label=tables.SINGLE,
    )
    ax.axhline(0.5, color="0.6", linestyle=":", linewidth=0.8, label="chance")
    ax.set_xscale("log", base=2)
    ax.set_xticks(counts := list(runs[0].estimates), map(str, counts))
    ax.minorticks_off()
    ax.set_xlabel("Samples")
    ax.grid(axis="y")
    ax.set_ylabel("AUROC, incorrect predictions")
    figure.legend(loc="outside upper center", ncols=2, fontsize=6, handlelength=2.4)
    note(figure, "line: mean over data sets and seeds; band: range of seeds")
    return figure


def framed(ax: Axes, example: Example) -> None:
    """Draw an image in a frame that tells whether the prediction is correct."""
    picture(ax, example.pixels)
    ax.spines[:].set(visible=True, color=CORRECT if example.right else INCORRECT, linewidth=1.2)


def by_task(sets: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the AUROC of errors of each data set (`tables.by_task`) with its interval: a panel per setting."""
    counts = [len(tasks) for tasks in sets.values()]
    height = 0.16 * max(counts) + 0.3
    figure, axes = panels(len(sets), len(sets), COLUMN * len(sets), height, 0.3, sharex=True)
    pvera = style("pvera")
    for ax, (heading, tasks) in zip(axes, sets.items(), strict=True):
        labels = [f"{title(name)}, {error:.0f} %" for name, error in tasks["error"].items()]
        forest(
            ax,
            tasks[["mean", "low", "high"]].set_axis(labels),
            lambda _: Style("", pvera.colour, pvera.marker),
        )
        ax.axvline(0.5, color="0.3", linewidth=0.6, linestyle="--")
        ax.set_title(heading, fontsize=7)
    figure.supxlabel(
        "AUROC of errors by the predictive standard deviation (0.5: chance)", fontsize=7
    )
    note_text = (
        "rows: data set and its share of incorrect predictions; bar: 95 % interval over seeds"
    )
    axes[0].annotate(
        note_text, (0, 0), (0, -24), "axes fraction", textcoords="offset points", fontsize=5.5
    )
    return figure


def _class(example: Example, label: int) -> str:
    """Name a class of an example's data set, shortened."""
    text = NUMBERS.get(example.dataset, "{}").format(class_name(example.dataset, label))
    return text if len(text) <= 16 else f"{text[:15]}…"


def examples(runs: tables.Runs) -> Figure:
    """Draw the appendix's figure: per data set one correct and one incorrect image, of the first seed.

    Each has the interval of median width.
    """
    seed = min(run.record["seed"] for run in runs)
    every = [
        example
        for run in tables.ordered(runs)
        if run.record["seed"] == seed
        for example in run.examples
    ]
    figure, axes = panels(len(every), 6, 1.1 * min(6, len(every)), 1.6, 0.4)
    for ax, example in zip(axes, sorted(every, key=lambda example: not example.right), strict=True):
        framed(ax, example)
        ax.set_title(title(example.dataset), fontsize=6.5, pad=2)
        below = (
            _class(example, example.label),
            _class(example, example.predicted),
            example.interval,
        )
        ax.set_xlabel("\n".join(below), fontsize=6, labelpad=3)
    note(
        figure,
        "below: true class, predicted class, 95 % interval of the mean score of the predicted class",
    )
    key(figure, [entry("correct", "s", colour=CORRECT), entry("incorrect", "s", colour=INCORRECT)])
    return figure


def teaser(images: Sequence[Example]) -> Figure:
    """Draw panel (b) of the paper's first figure: per image the scores of its three most probable classes.

    A dot is a draw, and a bar the interval of the predicted class's mean score. That class stands first.
    """
    figure = Figure(figsize=(COLUMN, 1.15 * len(images) + 0.85))
    grid = figure.subplots(len(images), 2, width_ratios=(1, 2.4), sharex="col", squeeze=False)
    for example, (left, ax) in zip(images, grid, strict=True):
        framed(left, example)
        left.set_xlabel(f"true: {_class(example, example.label)}", fontsize=6.5, labelpad=3)
        mean = example.scores.mean(0)
        others = [c for c in np.argsort(-mean, kind="stable") if c != example.predicted]
        classes = [example.predicted, *others[:2]]
        jitter = np.linspace(-0.16, 0.16, len(example.scores))
        for row, c in enumerate(classes):
            colour = "0.55" if row else CORRECT if example.right else INCORRECT
            ax.plot(
                example.scores[:, c],
                row + jitter,
                "o",
                color=colour,
                markersize=2.6,
                alpha=0.7,
                mew=0,
            )
        ax.plot(
            [example.low, example.high],
            [-0.36, -0.36],
            "|-",
            color="black",
            linewidth=1.6,
            markersize=5,
        )
        middle = np.clip((example.low + example.high) / 2, 0.17, 0.83)
        ax.text(middle, -0.52, example.interval, ha="center", va="bottom", fontsize=6)
        ax.set_yticks(range(len(classes)), [_class(example, c) for c in classes])
        ax.get_yticklabels()[0].set_fontweight("bold")
        ax.set_ylim(len(classes) - 0.5, -0.95)
        ax.set_xlim(-0.02, 1.02)
        ax.set_xticks(np.linspace(0, 1, 5))
        ax.grid(axis="x")
    grid[-1, 1].set_xlabel("Softmax score")
    look = {"markersize": 2.6, "markeredgewidth": 0}
    key(figure, [
        entry("sample, predicted class is correct", "o", colour=CORRECT, **look),
        entry("sample, predicted class is incorrect", "o", colour=INCORRECT, **look),
        entry("sample, another class", "o", colour="0.55", **look),
        entry("95 % interval of the mean, predicted class (bold)", "|", "-", "black", linewidth=1.6),
    ], columns=1)  # fmt: skip
    return figure


# The last layer's latents

OUT = "#BBBBBB"


def out_of_distribution(runs: Sequence[Analysed], kind: str) -> Figure:
    """Draw violins of the values on a model's own data set (in colour) and on others: a row per method, a column per
    model, for the first seed and the first data set of each category.

    Brackets show the significance that the values are lower on the model's own. Other seeds have other random matrices,
    and so other values. The paper shows three models.
    """
    seed, first = min(record["seed"] for record, _ in runs), {}
    for record, _ in runs:
        first.setdefault(record["category"], record["dataset"])
    models = list(first.values())
    of_seed = {
        (record["method"], record["dataset"]): arrays
        for record, arrays in runs
        if record["seed"] == seed
    }
    methods = list(dict.fromkeys(method for method, _ in of_seed))
    figure = Figure(figsize=(COLUMN, 0.45 + 1.65 * len(methods)))
    grid = figure.subplots(len(methods), len(models), squeeze=False)
    for (row, method), (home, model) in product(enumerate(methods), enumerate(models)):
        ax, colour = grid[row, home], style(method).colour
        if (method, model) in of_seed:
            samples = [of_seed[method, model][f"{name}_{kind}"] for name in models]
            violins(
                ax,
                samples,
                list(map(title, models)),
                [colour if name == model else OUT for name in models],
            )
            others = sorted(
                (i for i in range(len(models)) if i != home), key=lambda i: abs(i - home)
            )
            for level, place in enumerate(others):
                test = rank_sum(samples[place], samples[home])
                bracket(ax, home, place, 1.02 + 0.11 * level, stars(test.p_value))
            for label in ax.get_xticklabels():
                label.set(rotation=30, ha="right", rotation_mode="anchor", fontsize=6)
        ax.set_title("" if row else title(model), pad=18 if row else 24, fontsize=7)
        if row < len(methods) - 1:
            ax.set_xticklabels([])
        if not home:
            ax.set_ylabel(METHODS[method].title, color=colour, fontweight="bold")
    figure.suptitle("Model trained on", fontsize=7)
    note(figure, f"colour: the model's own data set; grey: others\n{STARS}: lower on its own")
    figure.supylabel(rf"{KINDS[kind].capitalize()} of $\mu_q + \mu_v$")
    return figure


def maps(latents: Sequence[tuple[dict, dict[str, np.ndarray]]]) -> Figure:
    """Draw a column per image; below it each method's latent: PVeRA's mean, two samples, and both minus the mean.

    latents: of `load_analyses`. A cell is a patch, as it is. Draws have the scale of their mean, as in the paper's
    Figure 7; the differences have one that is centred at zero.
    """
    latents = sorted(latents, key=lambda analysis: analysis[0]["method"] != "vera")
    record, arrays = latents[0]
    pixels, names = (
        arrays["pixels"],
        [class_name(record["dataset"], int(label)) for label in arrays["labels"]],
    )
    groups: list[tuple] = [
        ({"Image": pixels}, "black", {})
    ]  # rows of one colour scale: label -> pictures
    for record, arrays in latents:
        look, mean, draws = style(record["method"]), arrays["mu"], arrays["draws"][:2]
        as_drawn = {f"{look.title},\nmean" if len(draws) else look.title: mean}
        as_drawn |= {f"sample {i + 1}": draw for i, draw in enumerate(draws)}
        groups.append(
            (as_drawn, look.colour, {"cmap": "viridis", "vmin": mean.min(), "vmax": mean.max()})
        )
        if len(draws):
            from_mean = {f"sample {i + 1}\n− mean": draw - mean for i, draw in enumerate(draws)}
            most = np.abs(draws - mean).max()
            groups.append((from_mean, look.colour, {"cmap": "BrBG", "vmin": -most, "vmax": most}))
    rows, size = sum(len(rows) for rows, *_ in groups), (COLUMN - 1.4) / len(pixels)
    figure = Figure(figsize=(COLUMN, 0.75 + (size + 0.03) * rows))
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.02)
    grid = figure.subplots(rows, len(pixels), squeeze=False)
    for ax, name in zip(grid[0], names, strict=True):
        ax.set_title(name, fontsize=6.5, pad=2)
    below = iter(grid)
    for group, colour, scale in groups:
        axes = []
        for label, pictures in group.items():
            row = next(below)
            for ax, cells in zip(row, pictures, strict=True):
                picture(ax, cells, **scale)
            row[0].set_ylabel(
                label, rotation=0, ha="right", va="center", fontsize=6.5, labelpad=3, color=colour
            )
            axes.extend(row)
        if scale:
            bar = figure.colorbar(
                axes[0].images[0], ax=axes, pad=0.01, fraction=0.06, aspect=6 * len(axes) / 5
            )
            bar.ax.tick_params(labelsize=5.5)
            bar.ax.yaxis.set_major_locator(MaxNLocator(3))
    text = "One cell per patch: its query latent in the last layer,\non the first principal component of the mean\n"
    note(figure, text + "(no unit); samples, and samples minus the mean")
    return figure
