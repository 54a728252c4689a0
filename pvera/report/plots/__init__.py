"""Figures. Functions that take Axes draw on them and return them; `save` writes PNG and PDF."""

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from scipy.optimize import isotonic_regression

from pvera.adapters import METHODS, PAPER_METHODS
from pvera.files import write_atomically
from pvera.report.scores import over_seeds

COLUMN = 3.4  # inches, the width of a column of a two-column paper
PAGE = 7.0  # inches, the width of both columns

RC = {
    "font.size": 7,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.linewidth": 0.6,
    "figure.constrained_layout.use": True,
    "figure.labelsize": 8,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "legend.columnspacing": 1.0,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handletextpad": 0.3,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # text stays text
}
matplotlib.rcParams.update(RC)


@dataclass(frozen=True)
class Style:
    """The looks of a method in every figure: a colour that colour-blind readers can tell, a marker for grey print."""

    title: str
    colour: str
    marker: str


#: For methods that define no colour or marker; no method of the paper has one of these.
COLOURS, MARKERS = ("#882255", "#999933", "#44AA99", "#DDCC77", "#117733"), ("p", "*", "<", ">", "d")
#: A row that is no method, e.g. a mean.
PLAIN = Style("", "black", "D")


def style(name: str) -> Style:
    """Return the looks of a method: those that it defines, else those of its place after the paper's methods."""
    method, place = METHODS[name], list(METHODS).index(name) - len(PAPER_METHODS)
    return Style(
        method.title, method.colour or COLOURS[place % len(COLOURS)], method.marker or MARKERS[place % len(MARKERS)]
    )


def panels(n: int, columns: int, width: float, height: float, extra: float = 0.5, **options) -> tuple[Figure, list]:
    """Return a figure of `width` inches with n axes in rows of `columns`, and the axes.

    height: inches of a row. extra: inches for what stands around the rows. options: of `Figure.subplots`.
    """
    columns = min(n, columns)
    rows = -(-n // columns)
    figure = Figure(figsize=(width, extra + height * rows))
    axes = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for ax in axes[n:]:
        ax.set_visible(False)
    return figure, list(axes[:n])


def forest(ax: Axes, frame: pd.DataFrame, look: Callable[[str], Style] = style) -> Axes:
    """Draw a row per line of `frame`, from top to bottom: a marker at `mean`, a line from `low` to `high`, and a dot
    for each column seed<k>. A frame may lack all but `mean`.

    The index holds methods, or labels that `look` gives a style; a style without a title leaves the label as it is.
    """
    seeds = [column for column in frame if str(column).startswith("seed")]
    for place, (name, row) in enumerate(frame.iterrows()):
        shown = look(name)
        if "low" in frame:
            ax.plot([row["low"], row["high"]], [place, place], color=shown.colour, linewidth=1.2)
        ax.plot(row[seeds], np.full(len(seeds), place + 0.36), "o", color=shown.colour, markersize=2, mew=0)
        ax.plot(row["mean"], place, shown.marker, color=shown.colour, markersize=4.2, mec="white", mew=0.4, zorder=3)
    names = list(frame.index)
    ax.set_yticks(range(len(names)), [look(name).title or name for name in names])
    emphasise(ax, names)
    ax.set_ylim(len(names) - 0.4, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    return ax


def emphasise(ax: Axes, methods: Sequence[str]) -> None:
    """Set the label of PVeRA's row in bold and in its colour."""
    for method, label in zip(methods, ax.get_yticklabels(), strict=False):  # axes that share labels have none
        if method == "pvera":
            label.set(color=style(method).colour, fontweight="bold")


def entry(label: str, marker: str = "", line: str = "", colour: str = "0.3", **look) -> Line2D:
    """Return an entry of a figure's key."""
    return Line2D([], [], color=colour, marker=marker, linestyle=line, label=label, **{"linewidth": 0.8} | look)


def methods_key(methods: Iterable[str]) -> list[Line2D]:
    """Return the entries of a key that name methods by marker and colour."""
    return [entry(look.title, look.marker, colour=look.colour) for look in map(style, methods)]


def key(figure: Figure, entries: Iterable[Artist], columns: int = 3, place: str = "upper") -> None:
    """Add the key of a figure above or below ("upper", "lower") its axes."""
    figure.legend(handles=list(entries), loc=f"outside {place} center", ncols=columns)


#: Entries that several figures share.
SEED = entry("one seed", "o", markersize=2, markeredgewidth=0)
PVERA_MEAN = entry("PVeRA's mean", line="-", colour=style("pvera").colour, alpha=0.6)


def note(figure: Figure, text: str) -> None:
    """Add a small line below the axes that explains what a key cannot show."""
    figure.supxlabel(text, fontsize=6, color="0.3")


def mark_pvera(ax: Axes, frame: pd.DataFrame) -> Axes:
    """Draw a line through PVeRA's mean in a `forest`, if it has one."""
    if "pvera" in frame.index:
        ax.axvline(frame.at["pvera", "mean"], color=style("pvera").colour, linewidth=0.8, alpha=0.6, zorder=1)
    return ax


def spaced(places: Iterable[float], gap: float, low: float = -np.inf, high: float = np.inf) -> np.ndarray:
    """Move places apart, so that neighbours keep their order and are at least `gap` apart, between `low` and `high`.

    The moves are as small as they can be (least squares).
    """
    places = np.asarray(list(places), dtype=float)
    order, steps = np.argsort(places, kind="stable"), gap * np.arange(len(places))
    moved = np.empty_like(places)
    if len(places):
        moved[order] = np.clip(isotonic_regression(places[order] - steps).x, low, high - steps[-1]) + steps
    return moved


def ranges(values: Iterable[float], gap: float = 0.4) -> list[tuple[float, float]]:
    """Return the limits of an axis that shows `values`, with margins.

    These are two ranges, for a broken axis, where the widest empty stretch takes more than `gap` of the whole.
    """
    values = np.sort(np.asarray(list(values), dtype=float))
    parts, steps = [values], np.diff(values)
    if steps.max(initial=0) > gap * np.ptp(values):
        parts = np.split(values, [steps.argmax() + 1])
    margin = 0.06 * sum(map(np.ptp, parts)) or 1.0
    return [(part[0] - margin, part[-1] + margin) for part in parts]


def break_between(one: Axes, other: Axes, axis: str = "x") -> None:
    """Mark the break of an axis: `one` is the left or lower part, `other` the part right of it or above."""
    along = axis == "x"
    slash = [(-0.4, -1), (0.4, 1)] if along else [(-1, -0.4), (1, 0.4)]
    for ax, place in ((one, (1, 0) if along else (0, 1)), (other, (0, 0))):
        ax.plot(*place, marker=slash, transform=ax.transAxes, color="black", clip_on=False, markersize=5, mew=0.6)
    edge = "left" if along else "bottom"
    other.spines[edge].set_visible(False)
    other.tick_params(**{edge: False})


def accuracy(ax: Axes, scores: pd.DataFrame, group: str = "average") -> Axes:
    """Draw the accuracy (`scores.wide`) averaged over all data sets or those of the category `group`, as a `forest`.

    A seed with a missing run has no dot, a method with a missing data set no mean.
    """
    members = 100 * (scores if group == "average" else scores.xs(group, level="category", drop_level=False))
    seeds = members.groupby(level="seed").mean(skipna=False).T.add_prefix("seed")
    frame = seeds.assign(mean=over_seeds(members).mean(skipna=False))
    mark_pvera(forest(ax, frame), frame)
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10], integer=True))
    ax.margins(x=0.1)
    ax.set_title(group.capitalize())
    return ax


def benchmark(scores: pd.DataFrame) -> Figure:
    """Draw `accuracy` over all data sets and per category, at column width."""
    names = ["average", *scores.index.unique("category")]
    figure, axes = panels(len(names), 2, COLUMN, 0.4 + 0.14 * len(scores.columns), 0.4, sharey=True)
    for ax, name in zip(axes, names, strict=True):
        accuracy(ax, scores, name)
    figure.supxlabel("Test accuracy (%)")
    key(figure, [SEED, entry("mean", "o"), PVERA_MEAN])
    return figure


def save(figure: Figure, folder, name: str, formats: Iterable[str] = ("png", "pdf")) -> list[Path]:
    """Write <folder>/<name>.{png,pdf} and return the paths."""
    paths = []
    for ending in formats:
        paths.append(Path(folder) / f"{name}.{ending}")
        write_atomically(paths[-1], content(figure, ending))
    return paths


def content(figure: Figure, ending: str) -> bytes:
    """Return a figure as the content of a file, "png" or "pdf", without dates: equal figures give equal files."""
    file = io.BytesIO()
    metadata = {"Software": None} if ending == "png" else {"CreationDate": None}
    figure.savefig(file, format=ending, dpi=300, metadata=metadata)
    return file.getvalue()
