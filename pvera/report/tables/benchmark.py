"""The benchmark's tables: what stands in them is computed first, then rendered as Markdown, LaTeX and CSV.

`main` is the paper's Table 1, `detailed` its appendix with standard deviations and stars, `grid` its table of
chosen hyperparameters, `claims` its statements about them held against these results.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby, product
from operator import itemgetter

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.report.scores import Scores, chosen_member
from pvera.report.statistics import LEVEL, binomial_p_value, mean_and_std
from pvera.report.tables.claims import Claim, held
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, dataset_title, lettered, number, percent

REFERENCE = "pvera"

#: Hyperparameter of a grid -> panel of the grid table, and whether its values descend there. Others follow
#: these under their own names.
PANELS = {
    "rank": ("Rank", False),
    "ratio": ("Reduction ratio", True),
    "learning_rate": ("Learning rate", True),
    "beta": ("KL weight β", True),
}


# Computing


def accuracies(scores: Scores) -> pd.DataFrame:
    """Mean over seeds in percent: rows methods; columns data sets, "average", then the categories there are.

    An average is NaN where a data set of it has no run at all, for then it would average something else.
    """
    per_dataset = 100 * mean_and_std(scores.values, axis=1)[0]  # (methods, data sets)
    columns = dict(zip(scores.datasets, per_dataset.T, strict=True))
    columns |= {name: per_dataset[:, members].mean(1) for name, members in groups(scores).items()}
    return pd.DataFrame(columns, index=pd.Index(scores.methods, name="method"))


def groups(scores: Scores) -> dict[str, list[int]]:
    """Positions of the data sets behind each average: "average" (all), then each category."""
    found = {"average": list(range(len(scores.datasets)))}
    for position, category in enumerate(scores.categories):
        found.setdefault(category, []).append(position)
    return found


def marks(values: Iterable[float], decimals: int = 1) -> list[str]:
    """Of each value "best", "second" or "", as the paper marks them: by what is printed; equals share marks.

    Two best leave no second; NaN gets none.
    """
    printed = [np.nan if np.isnan(value) else float(f"{round(value, 9):.{decimals}f}") for value in values]
    above = [sum(other > value for other in printed) for value in printed]
    return ["" if np.isnan(v) else {0: "best", 1: "second"}.get(n, "") for v, n in zip(printed, above, strict=True)]


def _marked(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({name: marks(column) for name, column in table.items()}, table.index)


def comparisons(runs: list[dict]) -> pd.DataFrame:
    """One row per data set and method: mean and standard deviation of the accuracy (%), test against PVeRA.

    The test pools the seeds that both methods have; p_value is NaN for PVeRA itself and where there are none.
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
    """(methods, data sets) each: a method's right answers, of how many, and PVeRA's, over seeds both have."""
    correct, images = (Scores.of(runs, metric) for metric in ("correct", "images"))
    both = ~np.isnan(correct.values)
    reference = np.full_like(correct.values, np.nan)
    if REFERENCE in correct.methods:
        reference[:] = correct.values[correct.methods.index(REFERENCE)]
    both &= ~np.isnan(reference)
    own, n, reference = (np.where(both, counts, 0).sum(1) for counts in (correct.values, images.values, reference))
    return own, n, reference


def lower_p_values(own: np.ndarray, n: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """`binomial_p_value` of each cell; NaN where n is zero."""
    test = np.vectorize(lambda *counts: binomial_p_value(*counts) if counts[1] else np.nan, otypes=[float])
    return test(own, n, reference)


def grid_choices(runs: list[dict]) -> pd.DataFrame:
    """How often each grid value was chosen: one row per method, hyperparameter and value of its grid.

    runs: how many chose among these values; fixed: there was one value only, so nothing to choose.
    """
    rows = []
    keys = dict.fromkeys([*PANELS, *(key for run in runs for member in run["members"] for key in member["grid"])])
    for method, key in product(METHODS, keys):
        own = [run for run in runs if run["method"] == method and run["chosen"] and key in run["chosen"]["grid"]]
        chosen = [run["chosen"]["grid"][key] for run in own]
        values = {member["grid"][key] for run in own for member in run["members"]}
        for value in sorted(values, reverse=_panel(key)[1]):
            row = {"method": method, "hyperparameter": key, "value": value, "chosen": chosen.count(value)}
            rows.append(row | {"runs": len(own), "fixed": len(values) == 1})
    table = pd.DataFrame(rows, columns=["method", "hyperparameter", "value", "chosen", "runs", "fixed"])
    return table.assign(share=table["chosen"] / table["runs"])


def panels(choices: pd.DataFrame) -> list[tuple[str, str, bool]]:
    """(hyperparameter, title, whether its values descend) of the panels of a grid table."""
    found = choices["hyperparameter"].unique()
    keys = [*(key for key in PANELS if key in found), *(key for key in found if key not in PANELS)]
    return [(key, *_panel(key)) for key in keys]


def _panel(hyperparameter: str) -> tuple[str, bool]:
    return PANELS.get(hyperparameter, (hyperparameter, False))


Statement = tuple[str, str, Callable[[Scores], float]]  # what is said, the unit and what must be positive


def claims(scores: Scores, statements: Iterable[Statement]) -> list[Claim]:
    """Hold what the paper says, e.g. of its Table 1 (`CLAIMS`), against these scores of its methods."""
    scores = scores.of_paper()
    of_seeds = [replace(scores, values=scores.values[:, [s]], seeds=(k,)) for s, k in enumerate(scores.seeds)]
    return [
        Claim(text, unit, difference(scores), [difference(one) for one in of_seeds],
              digits=0 if unit.startswith("data sets") else 1)
        for text, unit, difference in statements
    ]  # fmt: skip


def _lead(of: str, over: str | None = None) -> Callable[[Scores], float]:
    """Average accuracy of a method above that of another, or above the best of all others, in points."""

    def difference(scores: Scores) -> float:
        average = accuracies(scores)["average"]
        others = average.drop(of, errors="ignore") if over is None else average.reindex([over])
        return float(average.get(of, np.nan) - others.max(skipna=False))

    return difference


def _linear_last(scores: Scores) -> float:
    average = accuracies(scores)["average"]
    return float(average.drop("linear", errors="ignore").min(skipna=False) - average.get("linear", np.nan))


def _dora_wins_most(scores: Scores) -> float:
    table = accuracies(scores)[list(scores.datasets)]
    if "dora" not in table.index or table.isna().any(axis=None):
        return np.nan
    wins = _marked(table).eq("best").sum(axis=1)
    return float(wins["dora"] - wins.drop("dora").max())


CLAIMS: tuple[Statement, ...] = (
    ("PVeRA has the highest average", "points above the best other method", _lead("pvera")),
    ("PVeRA is better than VeRA on average", "points above VeRA", _lead("pvera", over="vera")),
    ("Linear probing has the lowest average", "points below the lowest other method", _linear_last),
    ("DoRA is best on more data sets than any other", "data sets more than the next method", _dora_wins_most),
)


# The tables


def main(runs: list[dict]) -> Table:
    """The paper's Table 1, with the average of each category added."""
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
        "Test accuracy (%), mean over seeds, per data set, then averaged over all data sets and over those "
        "of each category. Best in bold, second best underlined; what prints the same shares the mark."
    )
    panel = Panel("", tuple(header), tuple(rows))
    return Table("main", caption, about(runs), (panel,), values.reset_index(), upright=False)


def detailed(runs: list[dict]) -> Table:
    """The paper's detailed tables: data sets × methods, mean ± standard deviation over seeds, stars."""
    scores = Scores.of(runs)
    data = comparisons(runs)
    cells = pd.DataFrame(index=scores.methods, columns=scores.datasets, dtype=object)
    for row in data.itertuples():
        cells.at[row.method, row.dataset] = spread(row.mean, row.std, row.significantly_lower)
    caption = (
        "Test accuracy (%), mean ± sample standard deviation (n − 1) over seeds. A star marks accuracies "
        f"significantly below PVeRA's (one-sided binomial test of the pooled seeds, p < {LEVEL})."
    )
    return Table("detailed", caption, about(runs), (by_dataset(cells, scores.categories),), data)


def spread(mean: float, std: float, star: bool) -> Cell:
    """ "71.4* ± 0.3"; without the second part for a single run."""
    text = percent(mean) + "*" * bool(star)
    return Cell(text if np.isnan(std) else f"{text} ± {std:.1f}")


def by_dataset(cells: pd.DataFrame, categories: Sequence[str], title: str = "") -> Panel:
    """A panel with a row per data set and a line between categories, of cells: methods × data sets."""
    rows = [
        Row(dataset_title(name), tuple(cells[name]), d > 0 and categories[d] != categories[d - 1])
        for d, name in enumerate(cells)
    ]
    return Panel(title, tuple(METHODS[method].title for method in cells.index), tuple(rows))


def grid(runs: list[dict], searches: list[dict] = ()) -> Table:
    """The paper's table of grid choices: per method, the share of runs that chose each value.

    searches: the runs that chose PVeRA's β before the benchmark, if there were any.
    """
    choices = grid_choices([*runs, *searches])
    found = []
    for key, title, descending in panels(choices):
        part = choices[choices["hyperparameter"] == key]
        columns = sorted(set(part["value"]), reverse=descending)
        rows = []
        for method, own in part.groupby("method", sort=False):
            text = {row.value: "fixed" if row.fixed else f"{100 * row.share:.0f}%" for row in own.itertuples()}
            cells = tuple(Cell(text.get(value, NOTHING)) for value in columns)
            rows.append(Row(METHODS[method].title, cells))
        found.append(Panel(title, tuple(map(number, columns)), tuple(rows)))
    caption = "Share of runs in which each value of a method's grid had the lowest validation loss."
    if searches:
        caption += f" β was searched once per data set (seed {searches[0]['seed']}), before the other grids."
    without = [METHODS[m].title for m in Scores.of(runs).methods if m not in set(choices["method"])]
    if without:
        caption += f" Without a grid: {', '.join(without)}."
    return Table("grid", caption, about(runs), lettered(found), choices)


def held_claims(runs: list[dict]) -> Table:
    """What the paper says of its Table 1, and whether it holds here."""
    caption = "Statements of the paper about its main table, and whether they hold here."
    return verdicts("claims", caption, runs, Scores.of(runs), CLAIMS)


def verdicts(name: str, caption: str, runs: list[dict], scores: Scores, statements: Iterable[Statement]) -> Table:
    """`claims` as a table, each with its verdict; `scores` of the `runs`."""
    return held(name, caption, about(runs), claims(scores, statements), scores.seeds)


def about(runs: list[dict]) -> str:
    """What made these runs, which grids were fixed, and which runs are missing."""
    scores, config = Scores.of(runs), runs[0]["config"]
    profile, protocol, backbone = (runs[0][key] for key in ("profile", "protocol", "backbone"))
    text = (
        f"Profile {profile}, {protocol} protocol, backbone {backbone}, "
        f"seeds {', '.join(map(str, scores.seeds))}, at most {config['max_epochs']} epochs"
    )
    if config["precision"] != "float32":
        text += f", {config['precision']}"
    if copies := sorted({run["data_copy"] for run in runs if run.get("data_copy")}):
        text += f", copy of the data: {copies[0]}"
    if config.get("images"):
        things = "texts" if runs[0]["category"] == "language" else "images"
        text += f", a trial on the first {config['images']} {things} of each split"
    chosen = [chosen_member(run) for run in runs if run["chosen"]]
    capped = sum(member["status"] == "epoch limit" for member in chosen)
    if capped:
        text += f" (which ended {capped} of {len(chosen)} chosen trainings before patience did)"
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
    """A sentence for a caption where `Scores.complete` leaves data sets out, else nothing."""
    n, every = len(scores.complete().datasets), len(scores.datasets)
    return f" Over the {n} of {every} data sets of which every method has a run." * (n < every)


def _listed(runs: list[tuple[str, str, int]]) -> str:
    """(method, data set, seed) in words, grouped by method and data set."""
    return "; ".join(
        f"{METHODS[method].title} on "
        + ", ".join(
            f"{dataset_title(dataset)} (seed {', '.join(str(seed) for *_, seed in same)})"
            for dataset, same in groupby(own, key=itemgetter(1))
        )
        for method, own in groupby(sorted(runs, key=lambda run: list(METHODS).index(run[0])), key=itemgetter(0))
    )
