"""Estimates of uncertainty: risk and coverage, scores by passes, calibration by severity, and scores along β."""

from collections.abc import Iterable, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from pvera.report.plots import COLUMN, RC, entry, key, note, style
from pvera.report.tables import beta_effects
from pvera.report.tables import uncertainty_baselines as tables
from pvera.report.tables.layout import number
from pvera.report.tables.uncertainty_baselines import KEY, Baselines, over_tasks, way_title

#: Way -> line and marker; the colour is the method's, lighter with dropout.
LOOKS = {"pass": ("-", "o"), "laplace": ("-.", "s"), "draws": ("--", "^"), "ensemble": (":", "D")}
#: Way -> factor of its place on the axis of passes, so that ways of one pass stand side by side.
SIDE = {"pass": 0.93, "laplace": 1.07}


def look(method: str, source: str, way: str) -> dict:
    """Return the looks of a way in every figure."""
    line, marker = LOOKS[way]
    faint = source != "rivals"
    return {"color": style(method).colour, "linestyle": line, "marker": marker, "alpha": 0.5 if faint else 1.0}


#: What figures with a line for each way leave out.
LEFT_OUT = "of the methods with dropout only the draws are shown; the tables have all ways"


def shown(keys: Iterable[tuple], every: bool = False) -> list[tuple]:
    """Return each way with the most passes that it has; not `every`: see `LEFT_OUT`."""
    most: dict[tuple, int] = {}
    for passes, method, source, way in keys:
        if every or source == "rivals" or way == "draws":
            most[method, source, way] = max(passes, most.get((method, source, way), 0))
    return tables.ordered((passes, *rest) for rest, passes in most.items())


def _key_of_ways(figure: Figure, keys: Sequence[tuple], markers: bool = True, along: bool = False) -> None:
    """Add a key with an entry per way, with its marker or with its line alone; along: a line joins numbers of draws."""
    entries = []
    for passes, method, source, way in keys:
        looks = look(method, source, way)
        name = way_title(method, source, way, passes)
        if along and way == "draws":
            name = f"{way_title(method, source, 'pass', 1)}, draws"
        marker = looks["marker"] if markers else ""
        entries.append(entry(name, marker, looks["linestyle"], looks["color"], alpha=looks["alpha"]))
    key(figure, entries)


def risk_coverage(rivals: Baselines) -> Figure:
    """Draw the selective risk by coverage, mean over data sets and seeds, for each way with the most passes."""
    risk = over_tasks(rivals.coverage, "risk", [*KEY, "coverage"])
    keys = shown({index[:4] for index in risk.index})
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(2 * COLUMN, 3.2), layout="constrained")
        ax = figure.subplots()
        for passes, method, source, way in keys:
            curve = risk[(passes, method, source, way)].sort_index()
            looks = look(method, source, way) | {"marker": ""}
            ax.plot(100 * curve.index, 100 * curve, linewidth=1, **looks)
        ax.set_xlabel("Coverage (%): images with the highest scores first")
        ax.set_ylabel("Selective risk (%)")
        ax.grid(color="0.92", linewidth=0.6)
        ax.set_ylim(bottom=0)
        _key_of_ways(figure, keys, markers=False)
        note(figure, LEFT_OUT)
    return figure


#: Title of a panel -> column of `tables.DIFFERENCES`.
COST_PANELS = {"NLL (nats)": "NLL", "ACE (%)": "ACE (points)", "AUROC of errors": "AUROC of errors"}


def scores_against_cost(rivals: Baselines) -> Figure:
    """Draw scores by forward passes per image: markers for means over data sets and seeds; lines join draws."""
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(2 * COLUMN, 2.9), layout="constrained")
        axes = figure.subplots(1, len(COST_PANELS))
        keys: list[tuple] = []
        for ax, (name, column) in zip(axes, COST_PANELS.items(), strict=True):
            means = {k: tables.average(table) for k, table in tables.compared(rivals, column).items()}
            keys = tables.ordered(means)
            for _, method, source, way in shown(keys, every=True):
                of_way = sorted(
                    (k[0] * SIDE.get(way, 1), mean) for k, mean in means.items() if k[1:] == (method, source, way)
                )
                ax.plot(*zip(*of_way, strict=True), linewidth=0.8, markersize=4, mew=0, **look(method, source, way))
            _axis_of_passes(ax, sorted({k[0] for k in keys}))
            ax.set_title(name)
        _key_of_ways(figure, shown(keys, every=True), along=True)
        note(figure, "ways of one pass stand side by side")
    return figure


def _axis_of_passes(ax: Axes, passes: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(passes, list(map(str, passes)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("Forward passes per image")
    ax.grid(axis="y", color="0.92", linewidth=0.6)


def calibration_by_severity(rivals: Baselines) -> Figure:
    """Draw the ACE by severity, mean over corruptions, data sets and seeds: a column of panels per adapter, above as
    trained and below after temperature scaling. The other adapters stand behind in grey."""
    ace = over_tasks(rivals.shift, "ace", ["scaled", *KEY, "severity"])
    keys = shown({index[1:5] for index in ace.index})
    methods = list(dict.fromkeys(method for _, method, _, _ in keys))
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(2 * COLUMN, 3.8), layout="constrained")
        grid = figure.subplots(2, len(methods), sharex=True, sharey=True, squeeze=False)
        for row, scaled in zip(grid, (False, True), strict=True):
            for ax, method in zip(row, methods, strict=True):
                for way in sorted(keys, key=lambda way: way[1] == method):
                    curve = 100 * ace[(scaled, *way)].sort_index()
                    front = {"linewidth": 1, "markersize": 3.5, "mew": 0} | look(*way[1:])
                    behind = {"linewidth": 0.6, "color": "0.88"}
                    ax.plot(curve.index, curve, **(front if way[1] == method else behind))
                ax.grid(axis="y", color="0.92", linewidth=0.6)
            row[0].set_ylabel("With a temperature" if scaled else "As trained")
        for ax, method in zip(grid[0], methods, strict=True):
            ax.set_title(style(method).title)
        for ax in grid[1]:
            ax.set_xticks(range(6))
        figure.supylabel("ACE (%)", fontsize=7)
        _key_of_ways(figure, keys)
        note(figure, f"severity of corruptions (0: none); grey: the other panels' lines\n{LEFT_OUT}")
    return figure


#: Title of a panel -> column of `beta_effects.along_beta` and factor, for one pass and for draws.
BETA_PANELS = {
    "Accuracy (%)": (("accuracy", 100), None),
    "ACE (%)": (("ace", 100), ("ace_draws", 100)),
    "AUROC of errors": (("auroc", 1), ("auroc_spread", 1)),
    "Mutual information (nats)": (None, ("mutual", 1)),
}


def along_beta(along: Baselines) -> Figure:
    """Draw scores along β: lines for means over data sets and seeds, dots for seeds; the line marks 10⁻⁶."""
    means, seeds = (beta_effects.along_beta(along, by) for by in (("beta",), ("beta", "seed")))
    betas = sorted(means["beta"])
    place = {beta: i for i, beta in enumerate(betas)}
    pvera = style("pvera").colour
    looks = {0: ("0.25", "s"), 1: (pvera, "o")}
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(2 * COLUMN, 2.1), layout="constrained")
        for ax, (name, columns) in zip(figure.subplots(1, len(BETA_PANELS)), BETA_PANELS.items(), strict=True):
            for i, column in enumerate(columns):
                if column is None:
                    continue
                (value, factor), (colour, marker) = column, looks[i]
                ax.plot(seeds["beta"].map(place), factor * seeds[value], ".", color=colour, markersize=2, alpha=0.5)
                ax.plot(means["beta"].map(place), factor * means[value], color=colour, marker=marker, markersize=3,
                        linewidth=1)  # fmt: skip
            if beta_effects.PUBLISHED in place:
                ax.axvline(place[beta_effects.PUBLISHED], color="0.6", linestyle=":", linewidth=0.8)
            ax.set_xticks(range(len(betas)), [number(beta) for beta in betas], rotation=45)
            ax.set_xlabel("β")
            ax.set_title(name, fontsize=7)
            ax.grid(axis="y", color="0.92", linewidth=0.6)
        key(figure, [entry("one pass with the mean", "s", "-", "0.25"), entry("draws", "o", "-", pvera),
                     entry("β = 10⁻⁶, the published program's, of an average", line=":")])  # fmt: skip
        note(figure, "dots: seeds; AUROC of one pass by its highest score, of draws by their spread")
    return figure
