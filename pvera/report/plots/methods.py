"""Figures of the methods' trainings: accuracy against cost, calibration, ablations."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pvera.cost import GIGA
from pvera.report.plots import COLUMN, PAGE, PVERA_MEAN, SEED, dot, entry, forest, key, looks_key, panels, style
from pvera.report.tables.ablations import above, by_seed, counterparts, failed, losses

# Accuracy against cost (Figure 3)

#: Per panel: title, label, and columns of `tables.cost.of_runs`: in training, with the mean, merged.
COSTS = (
    ("(a) Adapters", "Trainable parameters", ["adapter_parameters"]),
    ("(b) Whole model", "Parameters (million)", ["parameters"]),
    ("(c) One layer's adapter", "Multiply-adds ({})", ["layer_training", "layer_inference", "layer_merged"]),
    ("(d) Whole model", "Multiply-adds ({})", ["training", "inference", "merged"]),
)


def efficiency(points: pd.DataFrame) -> Figure:
    """Draw the accuracy (%) of each method against its costs, `tables.cost.of_paper` or `of_runs`, in four panels.

    A line leads from the operations in training, where PVeRA samples, past those of the mean (a stroke, where they
    differ) to those of the merged model (hollow), for methods that can be merged. The axis of trainable parameters is
    logarithmic, but linear below its first power of ten: linear probing has zero.
    """
    figure, axes = panels(len(COSTS), len(COSTS), PAGE, 2.6, sharey=True)
    for ax, (heading, label, columns) in zip(axes, COSTS, strict=True):
        scale, unit = (1 if columns == ["adapter_parameters"] else 1e6), "MMAC"
        if len(columns) > 1 and points[columns[0]].max() >= GIGA / 10:
            scale, unit = GIGA, "GMAC"
        for method, row in points.iterrows():
            look, y, values = style(method), row["accuracy"], row[columns].to_numpy() / scale
            if values[-1] < values[0]:
                ax.plot([values[-1], values[0]], [y, y], color=look.colour, linewidth=0.6)
                ax.plot(values[-1], y, look.marker, color=look.colour, markersize=3.2, mfc="none", mew=0.6, zorder=3)
                if values[1] < values[0]:
                    ax.plot(values[1], y, "|", color=look.colour, markersize=4.2, zorder=3)
            dot(ax, values[0], y, look)
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        ax.margins(x=0.12)
        ax.grid()
        ax.set_title(heading)
        ax.set_xlabel(label.format(unit))
    trained = points["adapter_parameters"]
    powers = np.log10(trained[trained > 0])
    first, last = int(np.floor(powers.min())), int(np.floor(powers.max()))
    axes[0].set_xscale("symlog", linthresh=10**first)
    axes[0].set_xlim(-(10**first) / 4, 2 * trained.max())
    axes[0].set_xticks([0, *(10**power for power in range(first, last + 1))])
    axes[0].minorticks_off()
    figure.supylabel("Test accuracy (%)")
    key(figure, [
        *looks_key(map(style, points.index)), entry("training (PVeRA: sampled)", "o"), entry("mean", "|", markersize=6),
        entry("merged", "o", mfc="white", markersize=3.5),
    ], columns=6)  # fmt: skip
    return figure


# Calibration (Figure 4)


def per_method(ace: pd.DataFrame, ece: pd.DataFrame) -> Figure:
    """Draw the geometric means of ACE and of ECE (`tables.calibration.geometric_means`) side by side."""
    figure, axes = panels(2, 2, COLUMN, 0.17 * len(ace), 0.8, sharey=True)
    for ax, means, name in zip(axes, (100 * ace, 100 * ece), ("ACE", "ECE"), strict=True):
        forest(ax, means).set_title(name)
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
        ax.set_xlim(left=0)
    figure.supxlabel("Calibration error (%), lower is better")
    key(figure, [SEED, PVERA_MEAN, entry("mean, 95 % interval", "o", "-")])
    return figure


# Ablations (Tables 2 and 3)

FAILED = "#BB0000"


def ablation(runs: Sequence[dict], hyperparameter: str, theirs: pd.Series, name: str) -> Figure:
    """Draw the differences of one experiment's runs beside the paper's, each on its own axis, the lowest mean filled.

    theirs: the paper's losses by value. name: the axis of values. Both are differences from the paper's best value, or
    from our lowest where it has no counterpart. Ours have the interval over data sets, the number of trainings that
    learned nothing, and a dot for each seed.
    """
    ours, look = losses(runs, hyperparameter), style("pvera")
    of_seeds, useless = by_seed(ours), failed(ours).sum()
    base = counterparts(ours, hyperparameter).get(theirs.idxmin(), of_seeds.mean().idxmin())
    gaps = above(ours, base)
    figure, axes = panels(2, 2, COLUMN, 1.7)
    here = f"Here, {len(of_seeds)} seed{'s' * (len(of_seeds) > 1)}"
    for ax, means, heading in zip(axes, (gaps["mean"], theirs - theirs.min()), (here, "Paper"), strict=True):
        for place, height in enumerate(means):
            face = look.colour if height == means.min() else "white"
            ax.plot(place, height, look.marker, color=look.colour, mfc=face, markersize=4.5, mew=1, zorder=3)
        ax.axhline(0, color="0.5", linewidth=0.6, zorder=0)
        ax.set_xticks(range(len(means)), [str(value).upper() for value in means.index], fontsize=6)
        ax.margins(x=0.1, y=0.15)
        ax.grid(axis="y")
        ax.set_title(heading, pad=10)
    ax = axes[0]
    ax.vlines(range(len(gaps)), gaps["low"], gaps["high"], color=look.colour, linewidth=1)
    ax.set_ylabel("Validation loss above that of\nthe paper's choice (nats)", fontsize=6.5)
    for place, count in enumerate(useless):
        if count:
            ax.text(place, 1, f"{count}×", color=FAILED, fontsize=6, ha="center", va="bottom",
                    transform=ax.get_xaxis_transform())  # fmt: skip
    figure.supxlabel(name)
    places = np.arange(len(gaps)) + np.linspace(0.24, 0.46, len(of_seeds))[:, None]  # clear of the mean's marker
    ax.plot(places, of_seeds.sub(of_seeds[base], axis=0), "o", color="0.5", markersize=2, mew=0)
    entries = [entry("mean, 95 % interval over data sets", look.marker, "-", look.colour, mfc="white"),
               entry("lowest mean", look.marker, colour=look.colour),
               entry("one seed", "o", colour="0.5", markersize=2)]  # fmt: skip
    if useless.any():
        entries.append(entry("n learned nothing", "$n×$", colour=FAILED, markersize=7))
    key(figure, entries, columns=2)
    return figure
