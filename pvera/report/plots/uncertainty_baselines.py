"""Estimates of uncertainty: scores by the passes that they take."""

from matplotlib.figure import Figure

from pvera.report.plots import PAGE, doubling, entry, key, note, panels, style
from pvera.report.tables.uncertainty_baselines import COMPARED, Baselines, means, ordered

#: Way -> name, line and marker; the colour is the method's, lighter with dropout.
LOOKS = {
    "pass": ("one pass", "-", "o"),
    "laplace": ("Laplace", "-.", "s"),
    "draws": ("draws (pale: of dropout)", "--", "^"),
    "ensemble": ("ensemble of seeds", ":", "D"),
}
#: Way -> factor of its place on the axis of passes, so that ways of one pass stand side by side.
SIDE = {"pass": 0.93, "laplace": 1.07}
#: Title of a panel -> column of `COMPARED`.
PANELS = {"NLL (nats)": "NLL", "ACE (%)": "ACE (points)", "AUROC of errors": "AUROC of errors"}


def scores_against_cost(baselines: Baselines) -> Figure:
    """Draw scores by forward passes per image: markers for means over data sets and seeds; lines join draws."""
    scores = means(baselines, COMPARED)
    scores = scores[[source == "rivals" or way == "draws" for _, _, source, way in scores.index]]
    scores = scores.loc[ordered(scores.index)]
    methods = [style(method) for method in scores.index.unique("method")]
    figure, axes = panels(len(PANELS), len(PANELS), PAGE, 2.4)
    for ax, (name, column) in zip(axes, PANELS.items(), strict=True):
        for (method, source, way), part in scores[column].groupby(level=["method", "source", "way"], sort=False):
            places = part.index.get_level_values("passes") * SIDE.get(way, 1)
            _, line, marker = LOOKS[way]
            ax.plot(places, part, linestyle=line, marker=marker, color=style(method).colour, linewidth=0.8, mew=0,
                    alpha=1.0 if source == "rivals" else 0.5)  # fmt: skip
        doubling(ax, sorted(scores.index.unique("passes")), "Forward passes per image")
        ax.set_title(name)
    entries = [entry(of_method.title, "s", colour=of_method.colour) for of_method in methods]
    there = scores.index.unique("way")
    entries += [entry(name, marker, line) for way, (name, line, marker) in LOOKS.items() if way in there]
    key(figure, entries, columns=len(entries))
    note(figure, "ways of one pass stand side by side; of the methods with dropout only the draws are shown; the "
                 "tables have all ways")  # fmt: skip
    return figure
