"""Estimates of uncertainty: risk and coverage, scores by passes, calibration by severity, and scores along β."""

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from pvera.report.plots import PAGE, entry, key, note, panels, style
from pvera.report.table import number
from pvera.report.tables import beta_effects
from pvera.report.tables import uncertainty_baselines as tables
from pvera.report.tables.uncertainty_baselines import KEY, Baselines, over_tasks

#: Way -> line and marker; the colour is the method's, lighter with dropout.
LOOKS = {"pass": ("-", "o"), "laplace": ("-.", "s"), "draws": ("--", "^"), "ensemble": (":", "D")}
#: Way -> factor of its place on the axis of passes, so that ways of one pass stand side by side.
SIDE = {"pass": 0.93, "laplace": 1.07}


def look(method: str, source: str, way: str) -> dict:
    """Return the looks of a way in every figure."""
    line, marker = LOOKS[way]
    faint = source != "rivals"
    return {"color": style(method).colour, "linestyle": line, "marker": marker, "alpha": 0.5 if faint else 1.0}


#: What the figures leave out.
LEFT_OUT = "of the methods with dropout only the draws are shown; the tables have all ways"


def shown(keys: Iterable[tuple]) -> list[tuple]:
    """Return each way with the most passes that it has, without those of `LEFT_OUT`."""
    most: dict[tuple, int] = {}
    for passes, method, source, way in keys:
        if source == "rivals" or way == "draws":
            most[method, source, way] = max(passes, most.get((method, source, way), 0))
    return tables.ordered((passes, *rest) for rest, passes in most.items())


def _key_of_ways(figure: Figure, keys: Sequence[tuple], markers: bool = True) -> None:
    """Add a key: a colour for each method, a line, and a marker if drawn, for each way."""
    names = {
        "pass": "one pass",
        "laplace": "Laplace",
        "draws": "draws (pale: of dropout)",
        "ensemble": "ensemble of seeds",
    }
    methods = (style(method) for method in dict.fromkeys(method for _, method, _, _ in keys))
    entries = [entry(look.title, "s", colour=look.colour) for look in methods]
    there = {way for *_, way in keys}
    entries += [entry(names[way], marker * markers, line) for way, (line, marker) in LOOKS.items() if way in there]
    key(figure, entries, columns=len(entries))


def risk_coverage(rivals: Baselines) -> Figure:
    """Draw the selective risk by coverage, mean over data sets and seeds: all ways of PVeRA, and of the other methods
    one pass and their draws."""
    risk = over_tasks(rivals.coverage, "risk", [*KEY, "coverage"])
    keys = shown({index[:4] for index in risk.index})
    keys = [way for way in keys if way[1] == "pvera" or way[3] in ("pass", "draws")]
    figure, (ax,) = panels(1, 1, PAGE, 3.0)
    for way in keys:
        curve = risk[way].sort_index()
        ax.plot(100 * curve.index, 100 * curve, linewidth=1, **look(*way[1:]) | {"marker": ""})
    ax.set_xlabel("Coverage (%): images with the highest scores first")
    ax.set_ylabel("Selective risk (%)")
    ax.grid()
    ax.set_ylim(bottom=0)
    _key_of_ways(figure, keys, markers=False)
    note(figure, f"of the other methods neither ensembles nor Laplace are shown; {LEFT_OUT}")
    return figure


#: Title of a panel -> column of `tables.COMPARED`.
COST_PANELS = {"NLL (nats)": "NLL", "ACE (%)": "ACE (points)", "AUROC of errors": "AUROC of errors"}


def scores_against_cost(rivals: Baselines) -> Figure:
    """Draw scores by forward passes per image: markers for means over data sets and seeds; lines join draws."""
    figure, axes = panels(len(COST_PANELS), len(COST_PANELS), PAGE, 2.4)
    for ax, (name, column) in zip(axes, COST_PANELS.items(), strict=True):
        means = {k: tables.average(table) for k, table in tables.compared(rivals, column).items()}
        keys = shown(means)
        for _, method, source, way in keys:
            passes = (k for k in means if k[1:] == (method, source, way))
            of_way = sorted((k[0] * SIDE.get(way, 1), means[k]) for k in passes)
            ax.plot(*zip(*of_way, strict=True), linewidth=0.8, mew=0, **look(method, source, way))
        _axis_of_passes(ax, sorted({k[0] for k in means}))
        ax.set_title(name)
    _key_of_ways(figure, keys)
    note(figure, f"ways of one pass stand side by side; {LEFT_OUT}")
    return figure


def _axis_of_passes(ax: Axes, passes: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(passes, list(map(str, passes)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("Forward passes per image")
    ax.grid(axis="y")


def calibration_by_severity(rivals: Baselines) -> Figure:
    """Draw the ACE by severity, mean over corruptions, data sets and seeds: a column of panels per adapter, above as
    trained and below after temperature scaling. The other adapters stand behind in grey."""
    ace = over_tasks(rivals.shift, "ace", ["scaled", *KEY, "severity"])
    keys = shown({index[1:5] for index in ace.index})
    methods = list(dict.fromkeys(method for _, method, _, _ in keys))
    figure = Figure(figsize=(PAGE, 3.8))
    grid = figure.subplots(2, len(methods), sharex=True, sharey=True, squeeze=False)
    for row, scaled in zip(grid, (False, True), strict=True):
        for ax, method in zip(row, methods, strict=True):
            for way in sorted(keys, key=lambda way: way[1] == method):
                curve = 100 * ace[(scaled, *way)].sort_index()
                front = {"linewidth": 1, "markersize": 3.5, "mew": 0} | look(*way[1:])
                behind = {"linewidth": 0.6, "color": "0.88"}
                ax.plot(curve.index, curve, **(front if way[1] == method else behind))
            ax.grid(axis="y")
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
    figure, axes = panels(len(BETA_PANELS), len(BETA_PANELS), PAGE, 2.1, 0)
    for ax, (name, columns) in zip(axes, BETA_PANELS.items(), strict=True):
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
        ax.grid(axis="y")
    key(figure, [entry("one pass with the mean", "s", "-", "0.25"), entry("draws", "o", "-", pvera),
                 entry("β = 10⁻⁶, the published program's, of an average", line=":")])  # fmt: skip
    note(figure, "dots: seeds; AUROC of one pass by its highest score, of draws by their spread")
    return figure
