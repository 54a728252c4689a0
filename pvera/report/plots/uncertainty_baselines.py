"""Estimates of uncertainty: risk and coverage, scores by passes, calibration by severity, and scores along β."""

from collections.abc import Iterable, Sequence
from itertools import product

from matplotlib.figure import Figure

from pvera.report.plots import PAGE, doubling, entry, key, note, panels, style
from pvera.report.table import number
from pvera.report.tables import beta_effects
from pvera.report.tables import uncertainty_baselines as tables
from pvera.report.tables.uncertainty_baselines import KEY, Baselines, over_tasks

#: Way -> name, line and marker; the colour is the method's, lighter with dropout.
LOOKS = {
    "pass": ("one pass", "-", "o"),
    "laplace": ("Laplace", "-.", "s"),
    "draws": ("draws (pale: of dropout)", "--", "^"),
    "ensemble": ("ensemble of seeds", ":", "D"),
}
#: Way -> factor of its place on the axis of passes, so that ways of one pass stand side by side.
SIDE = {"pass": 0.93, "laplace": 1.07}
#: What the figures leave out.
LEFT_OUT = "of the methods with dropout only the draws are shown; the tables have all ways"


def look(method: str, source: str, way: str) -> dict:
    """Return the looks of a way in every figure."""
    _, line, marker = LOOKS[way]
    alpha = 1.0 if source == "rivals" else 0.5
    return {"color": style(method).colour, "linestyle": line, "marker": marker, "alpha": alpha, "mew": 0}


def shown(keys: Iterable[tuple]) -> list[tuple]:
    """Return each way with the most passes that it has, without those of `LEFT_OUT`."""
    most = {key[1:]: key for key in sorted(keys) if key[2] == "rivals" or key[3] == "draws"}
    return tables.ordered(most.values())


def _key_of_ways(figure: Figure, keys: Sequence[tuple]) -> None:
    """Add a key: a colour for each method, a line and a marker for each way."""
    methods = (style(method) for method in dict.fromkeys(method for _, method, _, _ in keys))
    entries = [entry(of_method.title, "s", colour=of_method.colour) for of_method in methods]
    there = {way for *_, way in keys}
    entries += [entry(name, marker, line) for way, (name, line, marker) in LOOKS.items() if way in there]
    key(figure, entries, columns=len(entries))


def risk_coverage(baselines: Baselines) -> Figure:
    """Draw the selective risk by coverage, mean over data sets and seeds: all ways of PVeRA, and of the other methods
    one pass and their draws."""
    risk = over_tasks(baselines.coverage, "risk", [*KEY, "coverage"])
    keys = shown({index[:4] for index in risk.index})
    keys = [way for way in keys if way[1] == "pvera" or way[3] in ("pass", "draws")]
    figure, (ax,) = panels(1, 1, PAGE, 3.0)
    for way in keys:
        curve = 100 * risk[way].sort_index()
        ax.plot(100 * curve.index, curve, linewidth=1, markersize=3, markevery=3, **look(*way[1:]))
    ax.set_xlabel("Coverage (%): images with the highest scores first")
    ax.set_ylabel("Selective risk (%)")
    ax.grid()
    ax.set_ylim(bottom=0)
    _key_of_ways(figure, keys)
    note(figure, f"of the other methods neither ensembles nor Laplace are shown; {LEFT_OUT}")
    return figure


#: Title of a panel -> column of `tables.COMPARED`.
COST_PANELS = {"NLL (nats)": "NLL", "ACE (%)": "ACE (points)", "AUROC of errors": "AUROC of errors"}


def scores_against_cost(baselines: Baselines) -> Figure:
    """Draw scores by forward passes per image: markers for means over data sets and seeds; lines join draws."""
    figure, axes = panels(len(COST_PANELS), len(COST_PANELS), PAGE, 2.4)
    for ax, (name, column) in zip(axes, COST_PANELS.items(), strict=True):
        means = {way: tables.average(table) for way, table in tables.compared(baselines, column).items()}
        keys = shown(means)
        for _, *way in keys:
            passes = sorted(key for key in means if list(key[1:]) == way)
            places = [key[0] * SIDE.get(way[-1], 1) for key in passes]
            ax.plot(places, [means[key] for key in passes], linewidth=0.8, **look(*way))
        doubling(ax, sorted({key[0] for key in means}), "Forward passes per image")
        ax.set_title(name)
    _key_of_ways(figure, keys)
    note(figure, f"ways of one pass stand side by side; {LEFT_OUT}")
    return figure


def calibration_by_severity(baselines: Baselines) -> Figure:
    """Draw the ACE by severity, mean over corruptions, data sets and seeds: a column of panels per adapter, above as
    trained and below after temperature scaling. The other adapters stand behind in grey."""
    ace = 100 * over_tasks(baselines.shift, "ace", ["scaled", *KEY, "severity"])
    keys = shown({index[1:5] for index in ace.index})
    methods = list(dict.fromkeys(method for _, method, _, _ in keys))
    figure, axes = panels(2 * len(methods), len(methods), PAGE, 1.65, sharex=True, sharey=True)
    for ax, (scaled, method) in zip(axes, product((False, True), methods), strict=True):
        for way in keys:
            curve = ace[(scaled, *way)].sort_index()
            if way[1] == method:
                ax.plot(curve.index, curve, linewidth=1, markersize=3.5, **look(*way[1:]))
            else:
                ax.plot(curve.index, curve, linewidth=0.6, color="0.88", zorder=1)
        ax.grid(axis="y")
        ax.set_xticks(range(6))
        if not scaled:
            ax.set_title(style(method).title)
        if method == methods[0]:
            ax.set_ylabel("With a temperature" if scaled else "As trained")
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
    place = {beta: i for i, beta in enumerate(sorted(means["beta"]))}
    looks = [{"color": "0.25", "marker": "s"}, {"color": style("pvera").colour, "marker": "o"}]
    figure, axes = panels(len(BETA_PANELS), len(BETA_PANELS), PAGE, 2.1, 0)
    for ax, (name, columns) in zip(axes, BETA_PANELS.items(), strict=True):
        for column, of_column in zip(columns, looks, strict=True):
            if column is None:
                continue
            value, factor = column
            ax.plot(seeds["beta"].map(place), factor * seeds[value], ".", color=of_column["color"], markersize=2,
                    alpha=0.5)  # fmt: skip
            ax.plot(means["beta"].map(place), factor * means[value], markersize=3, linewidth=1, **of_column)
        if beta_effects.PUBLISHED in place:
            ax.axvline(place[beta_effects.PUBLISHED], color="0.6", linestyle=":", linewidth=0.8)
        ax.set_xticks(range(len(place)), map(number, place), rotation=45)
        ax.set_xlabel("β")
        ax.set_title(name, fontsize=7)
        ax.grid(axis="y")
    key(figure, [entry("one pass with the mean", "s", "-", "0.25"),
                 entry("draws", "o", "-", looks[1]["color"]),
                 entry("β = 10⁻⁶, the published program's, of an average", line=":")])  # fmt: skip
    note(figure, "dots: seeds; AUROC of one pass by its highest score, of draws by their spread")
    return figure
