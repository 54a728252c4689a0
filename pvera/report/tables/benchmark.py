"""Tables of the benchmark: accuracies (Table 1), standard deviations and stars (Tables 6 to 8), grid choices (Table 4),
and verdicts on the paper's claims about its Table 1."""

from collections.abc import Iterable, Sequence
from itertools import groupby, product
from operator import itemgetter

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from pvera.adapters import METHODS
from pvera.report.scores import Scores, capped
from pvera.report.statistics import LEVEL, binomial_p_value, mean_and_std
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, lettered, number, percent
from pvera.report.tables.names import dataset_title, origin
from pvera.report.tables.verdicts import Statement, Untestable, Values, by_method, judge, leads, verdict_table

REFERENCE = "pvera"

#: Hyperparameter of a grid -> title of its panel in the grid table, and whether values descend there. Other
#: hyperparameters follow under their own names.
PANELS = {
    "rank": ("Rank", False),
    "ratio": ("Reduction ratio", True),
    "learning_rate": ("Learning rate", True),
    "beta": ("KL weight β", True),
}


# Computing


def accuracies(scores: Scores) -> pd.DataFrame:
    """Return means over seeds in percent: rows methods; columns data sets, "average", then each category.

    An average is NaN where one of its data sets has no run.
    """
    per_dataset = 100 * mean_and_std(scores.values, axis=1)[0]  # (methods, data sets)
    columns = dict(zip(scores.datasets, per_dataset.T, strict=True))
    columns |= {name: per_dataset[:, members].mean(1) for name, members in groups(scores).items()}
    return pd.DataFrame(columns, index=pd.Index(scores.methods, name="method"))


def groups(scores: Scores) -> dict[str, list[int]]:
    """Return the positions of the data sets behind each average: "average" (all), then each category."""
    members = {"average": list(range(len(scores.datasets)))}
    for position, category in enumerate(scores.categories):
        members.setdefault(category, []).append(position)
    return members


def marks(values: Iterable[float], decimals: int = 1) -> list[str]:
    """Mark each value "best", "second" or "", as the paper does: values that print alike share a mark.

    Two best leave no second; NaN has no mark.
    """
    printed = [np.nan if np.isnan(value) else float(f"{round(value, 9):.{decimals}f}") for value in values]
    above = [sum(other > value for other in printed) for value in printed]
    return ["" if np.isnan(v) else {0: "best", 1: "second"}.get(n, "") for v, n in zip(printed, above, strict=True)]


def _marked(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({name: marks(column) for name, column in table.items()}, table.index)


def comparisons(runs: list[dict]) -> pd.DataFrame:
    """Compare every method with PVeRA, one row per data set and method: mean, standard deviation (%) and p-value.

    The test pools the seeds that both methods have. p_value is NaN for PVeRA itself and without common seeds.
    """
    accuracy = Scores.of(runs)
    mean, std = mean_and_std(100 * accuracy.values, axis=1)
    p_values = lower_p_values(*pooled_counts(runs))
    rows = []
    for d, dataset in enumerate(accuracy.datasets):
        for m, method in enumerate(accuracy.methods):
            p_value = np.nan if method == REFERENCE else p_values[m, d]
            rows.append(
                {
                    "dataset": dataset,
                    "category": accuracy.categories[d],
                    "method": method,
                    "seeds": int((~np.isnan(accuracy.values[m, :, d])).sum()),
                    "mean": mean[m, d],
                    "std": std[m, d],
                    "p_value": p_value,
                    "significantly_lower": bool(p_value < LEVEL),
                }
            )
    return pd.DataFrame(rows)


def pooled_counts(runs: list[dict]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (methods, data sets) counts over the seeds that a method shares with PVeRA: the method's correct images,
    all images, PVeRA's correct images."""
    correct, images = (Scores.of(runs, metric) for metric in ("correct", "images"))
    both = ~np.isnan(correct.values)
    reference = np.full_like(correct.values, np.nan)
    if REFERENCE in correct.methods:
        reference[:] = correct.values[correct.methods.index(REFERENCE)]
    both &= ~np.isnan(reference)
    counts = (correct.values, images.values, reference)
    return tuple(np.where(both, one, 0).sum(1) for one in counts)


def lower_p_values(correct: np.ndarray, n: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return `binomial_p_value` of each cell; NaN where n is zero."""
    test = np.vectorize(lambda *counts: binomial_p_value(*counts) if counts[1] else np.nan, otypes=[float])
    return test(correct, n, reference)


def grid_choices(runs: list[dict]) -> pd.DataFrame:
    """Count how often each grid value was chosen: one row per method, hyperparameter and value of its grid.

    runs: how many runs chose among these values; a run that took the value of another one's search does not count.
    fixed: the grid has a single value.
    """
    rows = []
    keys = dict.fromkeys([*PANELS, *(key for run in runs for member in run["members"] for key in member["grid"])])
    for method, key in product(METHODS, keys):
        searches = [run for run in runs if run["method"] == method and run["chosen"] and key in run["chosen"]["grid"]]
        values = {member["grid"][key] for run in searches for member in run["members"]}
        if len(values) > 1:
            searches = [run for run in searches if len(run["members"]) > 1]
        chosen = [run["chosen"]["grid"][key] for run in searches]
        for value in sorted(values, reverse=_panel(key)[1]):
            row = {"method": method, "hyperparameter": key, "value": value, "chosen": chosen.count(value)}
            rows.append(row | {"runs": len(searches), "fixed": len(values) == 1})
    table = pd.DataFrame(rows, columns=["method", "hyperparameter", "value", "chosen", "runs", "fixed"])
    return table.assign(share=table["chosen"] / table["runs"])


def panels(choices: pd.DataFrame) -> list[tuple[str, str, bool]]:
    """List the panels of a grid table: (hyperparameter, title, whether its values descend)."""
    searched = choices["hyperparameter"].unique()
    keys = [*(key for key in PANELS if key in searched), *(key for key in searched if key not in PANELS)]
    return [(key, *_panel(key)) for key in keys]


def _panel(hyperparameter: str) -> tuple[str, bool]:
    return PANELS.get(hyperparameter, (hyperparameter, False))


def _ranks(values: Values) -> dict[str, np.ndarray]:
    """Return minus each method's rank on every data set and seed (1 is best); NaN where a method lacks a run."""
    table = np.stack(list(values.values()))
    ranks = np.where(np.isnan(table).any(0), np.nan, rankdata(-table, axis=0))
    return dict(zip(values, -ranks, strict=True))


def _wins(values: Values) -> dict[str, np.ndarray]:
    """Return the number of data sets times whether a method is best there; NaN where a method lacks a run."""
    table = np.stack(list(values.values()))
    best = table.round(1) == table.round(1).max(0)
    wins = np.where(np.isnan(table).any(0), np.nan, len(table[0]) * best)
    return dict(zip(values, wins, strict=True))


def _steadiness(values: Values) -> dict[str, np.ndarray]:
    """Return minus each method's standard deviation over seeds, (data sets, 1). `Untestable` for a single seed."""
    if min(part.shape[1] for part in values.values()) < 2:
        raise Untestable("a single seed has no standard deviation")
    return {method: -mean_and_std(part, axis=1)[1][:, None] for method, part in values.items()}


def _dora_is_second(scores: Scores) -> dict[str, np.ndarray]:
    values = by_method(scores)
    ahead = leads(values, "pvera", ["dora"])
    behind = leads(values, "dora", [method for method in values if method not in ("pvera", "dora")])
    return {"PVeRA": ahead["DoRA"]} | behind


ABOVE, BELOW = "{size} points above {name}", "{size} points below {name}"

#: The first is the primary question; the paper's text and its Table 1 make the others.
CLAIMS: tuple[Statement, ...] = (
    Statement(
        "PVeRA is better than VeRA on average", ABOVE, BELOW, lambda scores: leads(by_method(scores), "pvera", ["vera"])
    ),
    Statement("PVeRA has the highest average", ABOVE, BELOW, lambda scores: leads(by_method(scores), "pvera")),
    Statement("DoRA has the second highest average", ABOVE, BELOW, _dora_is_second, turned=("PVeRA",)),
    Statement(
        "DoRA is best on more data sets than any other",
        "best on {size} more data sets than {name}",
        "best on {size} fewer data sets than {name}",
        lambda scores: leads(_wins(by_method(scores)), "dora"),
    ),
    Statement(
        "Linear probing has the lowest average",
        "{size} points below {name}",
        "{size} points above {name}",
        lambda scores: {name: -lead for name, lead in leads(by_method(scores), "linear").items()},
    ),
    Statement(
        "PVeRA is the most stable: lowest standard deviation over seeds",
        "{size} points lower than that of {name}",
        "{size} points higher than that of {name}",
        lambda scores: leads(_steadiness(by_method(scores)), "pvera"),
        digits=2,
        units="data sets, over all seeds",
    ),
    Statement(
        "PVeRA is the most stable: lowest mean rank",
        "{size} ranks ahead of {name}",
        "{size} ranks behind {name}",
        lambda scores: leads(_ranks(by_method(scores)), "pvera"),
        digits=2,
    ),
)


# The tables


def main(runs: list[dict]) -> Table:
    """Build the paper's Table 1, with the average of each category added."""
    scores = Scores.of(runs)
    values = accuracies(scores)
    marked = _marked(values)
    categories = list(groups(scores))[1:]
    header = [*map(dataset_title, scores.datasets), "Average", *(f"Avg. {name}" for name in categories)]
    rows = [
        Row(METHODS[m].title, tuple(Cell(percent(values.at[m, c]), marked.at[m, c]) for c in values))
        for m in scores.methods
    ]
    caption = (
        "Test accuracy (%) of each method, mean over seeds. Average: over all data sets; Avg.: over those of one "
        "category. Bold: best. Underlined: second best. Values that print alike share a mark."
    )
    above = [name.capitalize() for name in scores.categories] + ["Averages"] * (1 + len(categories))
    panel = Panel("", tuple(header), tuple(rows), tuple(above))
    return Table("main", caption, about(runs), (panel,), values.reset_index(), upright=False)


def detailed(runs: list[dict]) -> Table:
    """Build the paper's detailed table: data sets × methods, mean ± standard deviation over seeds, stars."""
    scores = Scores.of(runs)
    data = comparisons(runs)
    cells = pd.DataFrame(index=scores.methods, columns=scores.datasets, dtype=object)
    for row in data.itertuples():
        cells.at[row.method, row.dataset] = spread(row.mean, row.std, row.significantly_lower)
    caption = (
        "Test accuracy (%), mean ± sample standard deviation (n − 1) over seeds. Star: significantly below PVeRA "
        f"(one-sided binomial test of the pooled seeds, p < {LEVEL}, uncorrected)."
    )
    return Table("detailed", caption, about(runs), (by_dataset(cells, scores.categories),), data)


def spread(mean: float, std: float, star: bool) -> Cell:
    """Return the cell "71.4* ± 0.3"; a single run has no standard deviation."""
    text = percent(mean) + "*" * bool(star)
    return Cell(text if np.isnan(std) else f"{text} ± {std:.1f}")


def by_dataset(cells: pd.DataFrame, categories: Sequence[str], title: str = "") -> Panel:
    """Build a panel of cells (methods × data sets): a row per data set, a line between categories."""
    rows = [
        Row(dataset_title(name), tuple(cells[name]), d > 0 and categories[d] != categories[d - 1])
        for d, name in enumerate(cells)
    ]
    return Panel(title, tuple(METHODS[method].title for method in cells.index), tuple(rows))


def grid(runs: list[dict], searches: list[dict] = ()) -> Table:
    """Build the paper's table of grid choices: per method, the share of runs that chose each value.

    searches: the runs that chose PVeRA's β before the benchmark, if any.
    """
    choices = grid_choices([*runs, *searches])
    built = []
    for key, title, descending in panels(choices):
        part = choices[choices["hyperparameter"] == key]
        columns = sorted(set(part["value"]), reverse=descending)
        rows = []
        for method, values in part.groupby("method", sort=False):
            text = {row.value: "fixed" if row.fixed else f"{100 * row.share:.0f}" for row in values.itertuples()}
            cells = tuple(Cell(text.get(value, NOTHING)) for value in columns)
            rows.append(Row(METHODS[method].title, cells))
        built.append(Panel(title, tuple(map(number, columns)), tuple(rows)))
    caption = (
        "Share of runs (%) with each value of a method's grid, chosen by the lowest validation loss. A seed that did "
        "not search counts with the choice of the one that did."
    )
    if searches:
        caption += f" β: searched before the other grids, once per data set (seed {searches[0]['seed']})."
    without = [METHODS[m].title for m in Scores.of(runs).methods if m not in set(choices["method"])]
    if without:
        caption += f" Without a grid: {', '.join(without)}."
    return Table("grid", caption, about(runs), lettered(built), choices)


def main_verdicts(runs: list[dict]) -> Table:
    """Build the verdicts on the paper's claims about its Table 1."""
    caption = (
        "The paper's claims about its main table. The paper does not say how it measures stability; here methods are "
        "ranked on each data set and seed, where other tables rank means over seeds."
    )
    return verdicts_on("main_claims", caption, runs, Scores.of(runs), CLAIMS)


def verdicts_on(name: str, caption: str, runs: list[dict], scores: Scores, statements: Iterable[Statement]) -> Table:
    """Build the verdicts on statements about `scores`, those of the `runs`."""
    return verdict_table(name, caption, about(runs), judge(scores, statements), scores.seeds)


def about(runs: list[dict]) -> str:
    """Describe the runs for a caption: their profile, fixed grids, missing and diverged runs."""
    scores, config = Scores.of(runs), runs[0]["config"]
    text = f"{origin(runs[0], scores.seeds)}, at most {config['max_epochs']} epochs"
    if config["precision"] != "float32":
        text += f", {config['precision']}"
    if copies := sorted({run["data_copy"] for run in runs if run.get("data_copy")}):
        text += f", copy of the data: {copies[0]}"
    if config.get("images"):
        things = "texts" if runs[0]["category"] == "language" else "images"
        text += f", a trial on the first {config['images']} {things} of each split"
    if cut := capped(runs):
        chosen = sum(bool(run["chosen"]) for run in runs)
        text += f" (this limit ended {cut} of {chosen} chosen trainings, patience the others)"
    choices = grid_choices(runs)
    fixed = [
        f"{METHODS[row.method].title} {_panel(row.hyperparameter)[0].lower()} {number(row.value)}"
        for row in choices[choices["fixed"]].itertuples()
    ]
    if fixed:
        text += f". Grids fixed: {', '.join(fixed)}"
    there = {(run["method"], run["dataset"], run["seed"]) for run in runs}
    absent = [run for run in scores.missing() if run not in there]
    diverged = [run for run in scores.missing() if run in there]
    if not absent:
        text += f". All {len(runs)} runs"
    else:
        text += f". {len(runs)} of {scores.values.size} runs; missing: {_listed(absent)}"
    if diverged:
        text += f". Diverged, and left out: {_listed(diverged)}"
    return f"{text}."


def left_out(scores: Scores) -> str:
    """Return a sentence for a caption where `Scores.complete` leaves data sets out, else an empty text."""
    n, every = len(scores.complete().datasets), len(scores.datasets)
    return f" Over the {n} of {every} data sets of which every method has a run." * (n < every)


def _listed(runs: list[tuple[str, str, int]]) -> str:
    """List runs (method, data set, seed) in words, grouped by method and data set."""
    return "; ".join(
        f"{METHODS[method].title} on "
        + ", ".join(
            f"{dataset_title(dataset)} (seed {', '.join(str(seed) for *_, seed in same)})"
            for dataset, same in groupby(of_method, key=itemgetter(1))
        )
        for method, of_method in groupby(sorted(runs, key=lambda run: list(METHODS).index(run[0])), key=itemgetter(0))
    )


def stars_summary(runs: list[dict]) -> str:
    """Count the stars of the detailed table in one sentence."""
    tested = comparisons(runs).dropna(subset="p_value")
    stars = int(tested["significantly_lower"].sum())
    return f"**Answer.** PVeRA is significantly better in {stars} of {len(tested)} comparisons with another method."
