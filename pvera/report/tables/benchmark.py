"""Tables of the benchmark: accuracies (Table 1), standard deviations and stars (Tables 6 to 8), grid choices (Table 4),
and the same beside the paper's."""

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from pvera.adapters import METHODS, PAPER_METHODS
from pvera.data import vtab
from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.report.published import BACKBONES, DATASETS, TABLES, Published
from pvera.report.scores import capped, over_seeds, score_frame
from pvera.report.statistics import LEVEL, binomial_p_value, over_datasets
from pvera.report.table import (
    NOTHING,
    STAR,
    Table,
    interval,
    number,
    origin,
    pivot_text,
    plain,
    signed,
    texts,
    title,
)
from pvera.study.results import CATEGORIES

REFERENCE = "pvera"

#: Hyperparameter of a grid -> title of its panel in the grid table. Others follow under their own names.
PANELS = {
    "rank": "Rank",
    "ratio": "Reduction ratio",
    "learning_rate": "Learning rate",
    "alpha": "Factor α",
    "beta": "KL weight β",
}
DESCENDING = ("ratio", "learning_rate", "beta")  # in the paper


def averages(table: pd.DataFrame, category: Mapping[str, str]) -> pd.DataFrame:
    """Return the averages of a table (methods × data sets): over all data sets, then over those of each category.

    An average is NaN where one of its data sets has no run.
    """
    parts = {"average": list(table)}
    for name in table:
        parts.setdefault(category[name], []).append(name)
    return pd.DataFrame(
        {part: table[names].mean(axis=1, skipna=False) for part, names in parts.items()},
        table.index,
    )


def accuracies(scores: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds in percent: rows methods; columns data sets, "average", then each category."""
    table = (
        (100 * over_seeds(scores)).droplevel("category").T.rename_axis(index="method", columns=None)
    )
    return table.join(averages(table, {dataset: name for name, dataset, _ in scores.index}))


def comparisons(
    runs: list[dict], metric: str | Callable[[dict], float] = "accuracy"
) -> pd.DataFrame:
    """Compare every method with PVeRA, one row per data set and method: mean, standard deviation (%) and p-value.

    Mean and standard deviation are of `metric`, as in `score_frame`. The test (`binomial_p_value`) is of accuracies and
    pools the seeds that both methods have. p_value is NaN for PVeRA itself and without common seeds.
    """
    of_seeds = (100 * score_frame(runs, metric)).groupby(level=["dataset", "category"], sort=False)
    parts = {"seeds": of_seeds.count(), "mean": of_seeds.mean(), "std": of_seeds.std()}
    data = pd.concat({name: part.stack(future_stack=True) for name, part in parts.items()}, axis=1)
    columns = ["dataset", "category", "method", "seed", "correct", "images"]
    answers = pd.DataFrame([run | run["test"] for run in runs if run["test"]], columns=columns)
    reference = answers.loc[answers["method"] == REFERENCE, ["dataset", "seed", "correct"]]
    both = answers[answers["method"] != REFERENCE].merge(
        reference, on=["dataset", "seed"], suffixes=("", "_reference")
    )
    pooled = both.groupby(["dataset", "category", "method"])[
        ["correct", "images", "correct_reference"]
    ].sum()
    pooled["p_value"] = binomial_p_value(
        pooled["correct"], pooled["images"], pooled["correct_reference"]
    )
    data = data.join(pooled["p_value"])
    return data.reset_index().assign(significantly_lower=data["p_value"].lt(LEVEL).to_numpy())


def grid_choices(runs: list[dict]) -> pd.DataFrame:
    """Count how often each grid value was chosen: one row per method, hyperparameter and value of its grid.

    runs: how many runs chose among these values; a run that took the value of another one's search does not count.
    fixed: the grid has a single value.
    """
    rows = []
    keys = dict.fromkeys(
        [*PANELS, *(key for run in runs for member in run["members"] for key in member["grid"])]
    )
    for method, key in product(METHODS, keys):
        searches = [
            run
            for run in runs
            if run["method"] == method and run["chosen"] and key in run["chosen"]["grid"]
        ]
        values = {member["grid"][key] for run in searches for member in run["members"]}
        if len(values) > 1:
            searches = [run for run in searches if len(run["members"]) > 1]
        chosen = [run["chosen"]["grid"][key] for run in searches]
        rows += [(method, key, value, chosen.count(value), len(searches), len(values) == 1)
                 for value in sorted(values, reverse=key in DESCENDING)]  # fmt: skip
    table = pd.DataFrame(
        rows, columns=["method", "hyperparameter", "value", "chosen", "runs", "fixed"]
    )
    return table.assign(share=table["chosen"] / table["runs"])


def panels(choices: pd.DataFrame, cell: Callable[[pd.Series], str]) -> dict[str, pd.DataFrame]:
    """Return a panel per hyperparameter, in the order of the paper's table; cell: the text of a row of choices."""
    parts, frames = dict(list(choices.groupby("hyperparameter", sort=False))), {}
    for key in sorted(parts, key=[*PANELS, *parts].index):
        cells = pivot_text(parts[key], "method", "value", cell)
        values = sorted(cells, reverse=key in DESCENDING)
        frames[PANELS.get(key, key)] = cells[values].rename(columns=number)
    return frames


# The tables


def main(runs: list[dict]) -> Table:
    """Build the paper's Table 1, with the average of each category added."""
    scores = score_frame(runs)
    values = accuracies(scores)
    category = {dataset: name for name, dataset in over_seeds(scores).index}
    titles = {"average": "Average"} | {name: f"Avg. {name}" for name in category.values()}
    spec = {
        name: ((category.get(name, "averages").capitalize(), titles.get(name, name)), 1, "max")
        for name in values
    }
    caption = (
        "Test accuracy (%) of each method, mean over seeds. Average: over all data sets; Avg.: over those of one "
        "category. Bold: best. Underlined: second best. Values that print alike share a mark."
    )
    return Table("main", caption, {"": values}, spec, source=describe_runs(runs), in_paper=True)


def detailed(runs: list[dict]) -> Table:
    """Build the paper's detailed table: data sets × methods, mean ± standard deviation over seeds, stars."""
    data = comparisons(runs)
    stars = data.rename(columns={"significantly_lower": "star"})
    cells = pivot_text(
        stars, "dataset", "method", lambda row: spread(row["mean"], row["std"], row["star"])
    )
    caption = (
        "Test accuracy (%), mean ± sample standard deviation (n − 1) over seeds. Star: significantly below PVeRA "
        f"(one-sided binomial test of the pooled seeds, p < {LEVEL}, uncorrected)."
    )
    return Table(
        "detailed", caption, {"": cells}, data=data, source=describe_runs(runs), in_paper=True
    )


def spread(mean: float, std: float, star: bool) -> str:
    """Return the cell "71.4* ± 0.3" in Markdown; a single run has no standard deviation."""
    text = plain(mean, 1) + (STAR if star else "")
    return text if np.isnan(std) else f"{text} ± {std:.1f}"


def grid(runs: list[dict], searches: list[dict] = ()) -> Table:
    """Build the paper's table of grid choices: per method, the share of runs that chose each value.

    searches: the runs that chose each method's own hyperparameter before, if any; those on other data sets do not
    count.
    """
    datasets = {run["dataset"] for run in runs}
    searches = [run for run in searches if run["dataset"] in datasets]
    choices = grid_choices([*runs, *searches])
    shares = panels(choices, lambda row: "fixed" if row.fixed else plain(100 * row.share, 0))
    caption = (
        "Share of runs (%) with each value of a method's grid, chosen by the lowest validation loss. A seed that did "
        "not search counts with the choice of the one that did."
    )
    if searches:
        caption += " Ranks, ratios, α and β: searched before the learning rates, on seed 0."
    without = [
        title(method) for method in score_frame(runs) if method not in set(choices["method"])
    ]
    if without:
        caption += f" Without a grid: {', '.join(without)}."
    return Table("grid", caption, shares, data=choices, source=describe_runs(runs), in_paper=True)


# Against the paper


def beside_paper(runs: list[dict], paper: Published) -> Table:
    """Build the main table here, in the paper, and their difference: averages, mean ranks, and shared data sets.

    Runs on a published backbone and VTAB-1k's own data are compared cell by cell. Others are compared with ViT-B/14 by
    averages and ranks alone, on the data sets that the two share, or on all where they share none.
    InputError without runs of the paper's methods.
    """
    runs = [run for run in runs if run["method"] in PAPER_METHODS]
    if not runs:
        raise InputError(
            f"nothing to hold against the paper: train one of its methods, {', '.join(PAPER_METHODS)}"
        )
    scores, backbone = score_frame(runs), runs[0]["backbone"]
    datasets = scores.index.unique("dataset")
    shared = [name for name in DATASETS if name in datasets]
    differs = any("data_differs" in run for run in runs)
    by_cell = backbone in BACKBONES and bool(shared) and not differs
    if not by_cell:
        backbone = "dinov2_b"
    printed = shared or DATASETS

    category = {name: TASKS[name].category for name in DATASETS}
    category |= {dataset: name for name, dataset, _ in scores.index}
    ours = accuracies(scores)[shared if by_cell else datasets]
    theirs = paper.accuracies("" if backbone == "dinov2_b" else backbone)
    there = _summary(theirs.loc[list(scores), printed], category, by_cell)
    here = _summary(ours, category, by_cell).reindex(columns=there.columns)

    titles = {"average": "Average", "rank": "Mean rank"} | {
        name: f"Avg. {name}" for name in CATEGORIES
    }
    spec = {name: (titles.get(name, name), 1, "min" if name == "rank" else "max") for name in there}
    signs = {name: (heading, "+1") for name, (heading, *_) in spec.items()}
    panels = {
        "Here": texts(here, spec),
        "Paper": texts(there, spec),
        "Difference": texts(here - there, signs),
    }
    agreement = NOTHING
    if len(here) > 1 and here["average"].notna().all():
        agreement = signed(float(kendalltau(here["average"], there["average"]).statistic), 2)

    source = f"The paper's numbers are those of {BACKBONES[backbone]} on {len(printed)} data sets"
    if shared:
        source += ", the same as here"
    source += "."
    if not by_cell:
        source += (
            " Backbone and images differ here, so the differences do not test the paper's numbers."
        )
    caption = (
        "Test accuracy (%) here and in the paper. Mean rank: over data sets, 1 is best. Bold: best. Underlined: second "
        f"best. The paper's averages are computed from its cells. {source} "
        f"Agreement of the two orders by average: Kendall's τ = {agreement}."
    )
    data = pd.DataFrame(
        {"here": here.stack(future_stack=True), "paper": there.stack(future_stack=True)}
    )
    data = (
        data.assign(difference=data["here"] - data["paper"])
        .rename_axis(["method", "column"])
        .reset_index()
    )
    return Table("main_paper", caption, panels, data=data, source=describe_runs(runs))


def _summary(table: pd.DataFrame, category: dict[str, str], datasets: bool) -> pd.DataFrame:
    """Return the averages over all data sets and per category, and the mean rank, of accuracies (methods × data sets),
    after the accuracies themselves if `datasets`."""
    complete = table.notna().all(axis=None)
    rank = table.rank(ascending=False).mean(axis=1) if complete else np.nan
    return table[list(table) if datasets else []].join(averages(table, category)).assign(rank=rank)


def published_leads(paper: Published) -> Table:
    """Build the table of PVeRA's leads in the paper's detailed tables, with intervals over their data sets."""
    leads = {}
    for backbone in TABLES:
        table = pd.concat({0: paper.accuracies(backbone).T}, names=["seed", "dataset"])
        leads[backbone] = over_datasets(-table.drop(columns="pvera").sub(table["pvera"], axis=0))
    data = (
        pd.concat(leads, names=["backbone", "method"])
        .rename(columns={"mean": "lead"})
        .reset_index()
    )
    cells = pivot_text(
        data, "method", "backbone", lambda row: interval(row["lead"], row["low"], row["high"])
    )
    caption = (
        "PVeRA's lead in average accuracy (points) over each method, in the paper's tables. Brackets: 95 % interval if "
        f"other data sets were drawn, by Student's t over the {len(DATASETS)} data sets."
    )
    return Table("published_leads", caption, {"": cells.rename(columns=BACKBONES)}, data=data)


def published_grid(paper: Published) -> Table:
    """Build the paper's own table of grid choices (Table 4)."""
    shares = panels(paper.grid, lambda row: plain(row["percent"], 0))
    caption = "Share of runs (%) that chose each value of a method's grid, as published."
    return Table("published_grid", caption, shares, data=paper.grid, source="Table 4 of the paper.")


def describe_runs(runs: list[dict]) -> str:
    """Describe the runs for a caption: their origin and limits, and which seeds are missing or diverged."""
    scores, config = score_frame(runs), runs[0]["config"]
    text = f"{origin(runs)}, at most {config['max_epochs']} epochs"
    if config["precision"] != "float32":
        text += f", {config['precision']}"
    if copies := sorted({run["data_copy"] for run in runs if run.get("data_copy")}):
        text += f", copy of the data: {copies[0]}"
    findings = (
        f"{title(run['dataset'])} {', '.join(run['data_differs'])}"
        for run in runs
        if "data_differs" in run
    )
    differing = dict.fromkeys(findings)
    if differing:
        text += f" ({'; '.join(differing)})"
    if config["images"]:
        text += f", a trial on the first {config['images']} samples of each split"
    if cut := capped(runs):
        chosen = sum(bool(run["chosen"]) for run in runs)
        text += f" (this limit ended {cut} of {chosen} chosen trainings, patience the others)"
    text += f". {len(runs)} runs."
    datasets = scores.index.unique("dataset")
    if datasets[0] in vtab.NAMES and not differing and len(datasets) < len(vtab.NAMES):
        text += f" Incomplete: {len(datasets)} of {len(vtab.NAMES)} data sets."
    there = {(run["method"], run["dataset"], run["seed"]) for run in runs}
    # The cell of another pair is empty, and a method may have fewer seeds than others.
    begun = {part for method, name, seed in there for part in ((method, name), (method, seed))}
    without = [
        (method, *row[1:]) for method in scores for row in scores.index[scores[method].isna()]
    ]
    without = [place for place in without if {place[:2], place[::2]} <= begun]
    for kind, diverged in (("Missing", False), ("Diverged, and left out", True)):
        places = [place for place in without if (place in there) == diverged]
        listed = ", ".join(
            f"{title(method)} on {title(name)} (seed {seed})" for method, name, seed in places
        )
        text += f" {kind}: {listed}." if listed else ""
    return text
