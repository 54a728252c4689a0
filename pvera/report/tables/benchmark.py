"""Tables of the benchmark, and the same numbers in the paper.

They are accuracies (Table 1), standard deviations and stars (Tables 6 to 8), and grid choices
(Table 4).
"""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from pvera.adapters import METHODS, PAPER_METHODS
from pvera.data.tasks import CATEGORIES, TASKS
from pvera.errors import InputError
from pvera.report.captions import caption_source
from pvera.report.paper_numbers import PAPER_BACKBONES, PAPER_DATASETS, PaperNumbers
from pvera.report.scores import Records, Scorer, diverged, mean_over_seeds, score_frame
from pvera.report.statistics import LEVEL, binomial_p_value
from pvera.report.table import Column, Table, format_frame, pivot_text
from pvera.report.text import STAR, decimal, grid_value

#: Hyperparameter of a grid -> title of its panel. Others follow under their own names.
PANELS = {
    "rank": "Rank",
    "ratio": "Reduction ratio",
    "learning_rate": "Learning rate",
    "alpha": "Factor α",
    "beta": "KL weight β",
}
#: Hyperparameters whose values the paper lists from high to low.
DESCENDING = ("ratio", "learning_rate", "beta")

#: Data set -> its category.
CATEGORY_OF = {name: task.category for name, task in TASKS.items()}


def averages(table: pd.DataFrame, category: Mapping[str, str]) -> pd.DataFrame:
    """Return averages over all data sets, then over those of each category.

    Args:
        table: Rows methods, columns data sets.
        category: Data set -> its category.

    Returns:
        Rows methods, columns "average" and the categories; NaN where a run is missing.
    """
    groups = {"average": list(table)}
    for dataset in table:
        groups.setdefault(category[dataset], []).append(dataset)
    means = {name: table[datasets].mean(axis=1, skipna=False) for name, datasets in groups.items()}
    return pd.DataFrame(means, table.index)


def categories_of(scores: pd.DataFrame) -> dict[str, str]:
    """Return data set -> its category, of a frame of `score_frame`."""
    return {dataset: name for name, dataset, _ in scores.index}


def mean_accuracies(scores: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds (%): rows methods; columns data sets, "average", each category."""
    means = 100 * mean_over_seeds(scores).droplevel("category")
    table = means.T.rename_axis(index="method", columns=None)
    return table.join(averages(table, categories_of(scores)))


def compare_with_pvera(records: Records, metric: Scorer = "accuracy") -> pd.DataFrame:
    """Compare every method with PVeRA, one row per data set and method.

    Args:
        records: The runs.
        metric: The score of which mean and standard deviation (%) are, as in `score_frame`.

    Returns:
        Columns dataset, category, method, seeds, mean, std, p_value, significantly_lower. The test
        (`binomial_p_value`) is of accuracies and pools the seeds that both methods have; p_value is
        NaN for PVeRA itself and without common seeds.
    """
    scores = 100 * score_frame(records, metric)
    by_dataset = scores.groupby(level=["dataset", "category"], sort=False)
    # Each is (data sets, methods), and becomes a column.
    statistics = {"seeds": by_dataset.count(), "mean": by_dataset.mean(), "std": by_dataset.std()}
    stacked = {name: part.stack(future_stack=True) for name, part in statistics.items()}
    data = pd.concat(stacked, axis=1).join(_p_values(records))
    lower = data["p_value"].lt(LEVEL).to_numpy()
    return data.reset_index().assign(significantly_lower=lower)


def _p_values(records: Records) -> pd.Series:
    """Return the p-value of each data set, category and method but PVeRA."""
    columns = ["dataset", "category", "method", "seed", "correct", "images"]
    tested = [record | record["test"] for record in records if not diverged(record)]
    answers = pd.DataFrame(tested, columns=columns)
    is_pvera = answers["method"] == "pvera"
    pvera = answers.loc[is_pvera, ["dataset", "seed", "correct"]]

    # A row per run of another method whose seed PVeRA has too.
    pairs = answers[~is_pvera].merge(pvera, on=["dataset", "seed"], suffixes=("", "_pvera"))
    counts = ["correct", "images", "correct_pvera"]
    pooled = pairs.groupby(["dataset", "category", "method"])[counts].sum()
    p_values = binomial_p_value(
        pooled["correct"], n=pooled["images"], reference_correct=pooled["correct_pvera"]
    )
    return pd.Series(p_values, pooled.index, name="p_value")


def grid_choices(records: Records) -> pd.DataFrame:
    """Count how often each value of a grid was chosen.

    Returns:
        A row per method, hyperparameter and value of its grid. chosen: runs that chose the value.
        runs: those that chose among the values; one that inherits the value of another's search
        does not count. fixed: the grid has a single value. share: chosen of runs.
    """
    searched = [key for record in records for member in record["members"] for key in member["grid"]]
    # Those of the paper first.
    hyperparameters = dict.fromkeys([*PANELS, *searched])
    rows = []
    for method in METHODS:
        chosen = [run for run in records if run["method"] == method and not diverged(run)]
        for key in hyperparameters:
            searches = [run for run in chosen if key in run["chosen"]["grid"]]
            rows += _value_counts(method, key, searches)
    columns = ["method", "hyperparameter", "value", "chosen", "runs", "fixed"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(share=table["chosen"] / table["runs"])


def _value_counts(method: str, key: str, searches: Records) -> list[tuple]:
    """Return a row of `grid_choices` per value of one method's hyperparameter."""
    values = {member["grid"][key] for run in searches for member in run["members"]}
    # A run with one member inherits the value that another run's search chose.
    is_fixed = len(values) == 1
    if not is_fixed:
        searches = [run for run in searches if len(run["members"]) > 1]
    chosen = [run["chosen"]["grid"][key] for run in searches]
    return [
        (method, key, value, chosen.count(value), len(chosen), is_fixed)
        for value in sorted(values, reverse=key in DESCENDING)
    ]


def grid_panels(choices: pd.DataFrame, cell: Callable[[pd.Series], str]) -> dict[str, pd.DataFrame]:
    """Return a panel per hyperparameter, in the order of the paper's table.

    Args:
        choices: Rows with method, hyperparameter and value.
        cell: From a row of `choices` to its text.
    """
    parts = dict(list(choices.groupby("hyperparameter", sort=False)))
    panels = {}
    # The paper's hyperparameters first, then others as they come.
    for key in sorted(parts, key=[*PANELS, *parts].index):
        cells = pivot_text(parts[key], "method", "value", cell)
        values = sorted(cells, reverse=key in DESCENDING)
        panels[PANELS.get(key, key)] = cells[values].rename(columns=grid_value)
    return panels


# The tables


def main_table(records: Records) -> Table:
    """Build the paper's Table 1, with the average of each category added."""
    scores = score_frame(records)
    values = mean_accuracies(scores)
    category = categories_of(scores)
    titles = {name: f"Avg. {name}" for name in category.values()} | {"average": "Average"}
    columns = {}
    for name in values:
        # Data sets stand under their category, averages under a heading of their own. A data set's
        # key becomes its title where the table is printed.
        group = category.get(name, "averages").capitalize()
        columns[name] = Column((group, titles.get(name, name)), 1, best="max")
    caption = "Test accuracy (%) of each method, mean over seeds."
    notes = (
        "Average: over all data sets; Avg.: over those of one category. Bold: best. Underlined: "
        "second best. Values that print alike share a mark."
    )
    return Table(
        "main",
        caption,
        values,
        columns=columns,
        source=caption_source(records),
        has_latex=True,
        notes=notes,
    )


def detailed_table(records: Records) -> Table:
    """Build the paper's detailed table: mean ± standard deviation over seeds, and stars."""
    data = compare_with_pvera(records)

    def cell(row: pd.Series) -> str:
        return mean_and_std(row["mean"], row["std"], row["significantly_lower"])

    cells = pivot_text(data, "dataset", "method", cell)
    caption = "Test accuracy (%), mean ± sample standard deviation (n − 1) over seeds."
    notes = (
        "Star: significantly below PVeRA (one-sided binomial test of the pooled seeds, p < "
        f"{LEVEL}, uncorrected)."
    )
    source = caption_source(records)
    return Table("detailed", caption, cells, data=data, source=source, has_latex=True, notes=notes)


def mean_and_std(mean: float, std: float, star: bool = False) -> str:
    """Return the cell "71.4* ± 0.3" in Markdown; a single run has no standard deviation."""
    text = decimal(mean, 1) + (STAR if star else "")
    return text if np.isnan(std) else f"{text} ± {std:.1f}"


def grid_table(records: Records, searches: Records = ()) -> Table:
    """Build the paper's table of grid choices: per method, the share of runs with each value.

    Args:
        records: The runs of the benchmark.
        searches: Runs that chose each method's own hyperparameter before, if any; those on other
            data sets do not count.
    """
    datasets = {record["dataset"] for record in records}
    searches = [search for search in searches if search["dataset"] in datasets]
    choices = grid_choices([*records, *searches])
    shares = grid_panels(
        choices, lambda row: "fixed" if row["fixed"] else decimal(100 * row["share"], 0)
    )
    caption = (
        "Share of runs (%) with each value of a method's grid, chosen by the lowest validation "
        "loss."
    )
    notes = "Only runs that searched count; other seeds inherit their choice."
    if searches:
        notes += (
            " Ranks, ratios, α and β were searched on the lowest seed, before the learning rates; "
            "searches of the paper's tuning count too."
        )
    source = caption_source(records)
    return Table("grid", caption, shares, data=choices, source=source, has_latex=True, notes=notes)


# Against the paper


def main_paper_table(records: Records, paper: PaperNumbers) -> Table:
    """Build the main table here, in the paper, and their difference.

    Runs on a published backbone and VTAB-1k's own data are compared cell by cell. Others are
    compared with ViT-B/14 by averages and ranks alone, on the data sets that the two share, or on
    all where they share none.

    Raises:
        InputError: There is no run of the paper's methods.
    """
    records = [record for record in records if record["method"] in PAPER_METHODS]
    if not records:
        methods = ", ".join(PAPER_METHODS)
        raise InputError(f"nothing to compare with the paper: train one of its methods, {methods}")

    scores = score_frame(records)
    datasets = scores.index.unique("dataset")
    shared = [name for name in PAPER_DATASETS if name in datasets]
    by_cell = bool(shared) and _has_papers_setting(records)
    compared = shared or PAPER_DATASETS  # in the paper's averages and ranks
    backbone = records[0]["backbone"] if by_cell else "dinov2_b"

    # Ours may have data sets that the paper lacks.
    category = CATEGORY_OF | categories_of(scores)
    ours = mean_accuracies(scores)[shared if by_cell else datasets]
    theirs = paper.accuracies("" if backbone == "dinov2_b" else backbone)
    theirs = theirs.loc[list(scores), compared]
    printed = _averages_and_rank(theirs, category, by_cell)
    here = _averages_and_rank(ours, category, by_cell).reindex(columns=printed.columns)

    frames = {"here": here, "paper": printed, "difference": here - printed}
    # A row per method and column of the table.
    stacked = {name: frame.stack(future_stack=True) for name, frame in frames.items()}
    data = pd.DataFrame(stacked).rename_axis(["method", "column"]).reset_index()
    caption = "Test accuracy (%) here and in the paper."
    notes = _comparison_notes(backbone, len(compared), bool(shared), by_cell)
    panels = _comparison_panels(here, printed)
    source = caption_source(records)
    return Table("main_paper", caption, panels, data=data, source=source, notes=notes)


def _has_papers_setting(records: Records) -> bool:
    """Return whether the data and the backbone of runs are the paper's."""
    if any("data_differs" in record for record in records):
        return False
    return records[0]["backbone"] in PAPER_BACKBONES


def _averages_and_rank(
    table: pd.DataFrame, category: Mapping[str, str], with_datasets: bool
) -> pd.DataFrame:
    """Return averages and the mean rank of accuracies, after the accuracies if asked for."""
    rank: pd.Series | float = np.nan
    if table.notna().all(axis=None):
        # Ranks within each data set, then their mean.
        rank = table.rank(ascending=False).mean(axis=1)
    shown = table if with_datasets else table[[]]
    return shown.join(averages(table, category)).assign(rank=rank)


def _comparison_panels(here: pd.DataFrame, printed: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the panels of `main_paper_table` in Markdown."""
    titles = {name: f"Avg. {name}" for name in CATEGORIES}
    titles |= {"average": "Average", "rank": "Mean rank"}
    columns, differences = {}, {}
    for name in printed:
        heading = titles.get(name, name)
        columns[name] = Column(heading, 1, best="min" if name == "rank" else "max")
        differences[name] = Column(heading, 1, signed=True)
    return {
        "Here": format_frame(here, columns),
        "Paper": format_frame(printed, columns),
        "Difference": format_frame(here - printed, differences),
    }


def _comparison_notes(backbone: str, count: int, are_shared: bool, by_cell: bool) -> str:
    """Return the notes of `main_paper_table`, whose paper's numbers are over `count` data sets."""
    same = ", the same as here" if are_shared else ""
    notes = (
        "Mean rank: over data sets, 1 is best. Bold: best. Underlined: second best. The paper's "
        "averages are computed from its cells. The paper's numbers are those of "
        f"{PAPER_BACKBONES[backbone]} on {count} data sets{same}."
    )
    if not by_cell:
        notes += (
            " Backbone and images differ here, so the differences do not test the paper's numbers."
        )
    return notes


def paper_grid_table(paper: PaperNumbers) -> Table:
    """Build the paper's own table of grid choices (Table 4)."""
    shares = grid_panels(paper.grid, lambda row: decimal(row["percent"], 0))
    caption = "Share of runs (%) that chose each value of a method's grid, as published."
    return Table("published_grid", caption, shares, data=paper.grid, source="Table 4 of the paper.")
