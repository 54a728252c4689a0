"""Our numbers against the paper's, with the difference (ours minus the paper's).

Runs on a published backbone and its data sets are compared cell by cell. Other runs are compared with ViT-B/14 on
VTAB-1k by averages, ranks and shares alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from pvera.adapters import PAPER_METHODS
from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.report.published import BACKBONES, DATASETS, TABLES, Published
from pvera.report.scores import wide
from pvera.report.table import NOTHING, Table, crossed, number, signed, texts, title
from pvera.report.tables import benchmark
from pvera.study.results import CATEGORIES


class Counterpart(NamedTuple):
    """A published backbone, those of its data sets that are compared, and whether both are those of the runs."""

    backbone: str
    datasets: list[str]
    matched: bool

    @property
    def about(self) -> str:
        """Describe the published table for a caption."""
        text = f"The paper's numbers are those of {BACKBONES[self.backbone]} on {len(self.datasets)} data sets"
        if self.matched:
            return f"{text}, the same as here."
        return f"{text}. Backbone and data differ here, so the differences do not test the paper's numbers."


def counterpart(runs: list[dict]) -> Counterpart:
    """Find the published table nearest to the runs."""
    backbone, ours = runs[0]["backbone"], {run["dataset"] for run in runs}
    common = [name for name in DATASETS if name in ours]
    if backbone in BACKBONES and common:
        return Counterpart(backbone, common, True)
    return Counterpart("dinov2_b", DATASETS, False)


def of_paper(runs: list[dict]) -> list[dict]:
    """Return the runs of the paper's methods, the only ones with published numbers. InputError without any."""
    if not (known := [run for run in runs if run["method"] in PAPER_METHODS]):
        raise InputError(f"nothing to hold against the paper: train one of its methods, {', '.join(PAPER_METHODS)}")
    return known


def beside(heading: str, digits: int) -> dict[str, tuple]:
    """Return the specification of the columns here, paper and difference."""
    columns = {"here": digits, "paper": digits, "difference": f"+{digits}"}
    return {name: (f"{heading}, {name}", form) for name, form in columns.items()}


def _long(index: str, column: str, here: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Return one row per cell of two tables: their values and the difference."""
    long = pd.DataFrame({"here": here.stack(future_stack=True), "paper": paper.stack(future_stack=True)})
    return long.assign(difference=long["here"] - long["paper"]).rename_axis([index, column]).reset_index()


# Accuracy


def accuracies(runs: list[dict], paper: Published) -> Table:
    """Build the main table here, in the paper, and their difference: averages, mean ranks, and shared data sets."""
    runs = of_paper(runs)
    scores, other = wide(runs), counterpart(runs)
    category = {name: TASKS[name].category for name in DATASETS}
    category |= {dataset: name for name, dataset, _ in scores.index}
    ours = benchmark.accuracies(scores)[other.datasets if other.matched else scores.index.unique("dataset")]
    theirs = paper.main_table() if other.backbone == "dinov2_b" else paper.accuracies(other.backbone)
    there = _summary(theirs.loc[list(scores), other.datasets], category, other.matched)
    here = _summary(ours, category, other.matched).reindex(columns=there.columns)
    titles = {"average": "Average", "rank": "Mean rank"} | {name: f"Avg. {name}" for name in CATEGORIES}
    spec = {name: (titles.get(name, name), 1, "min" if name == "rank" else "max") for name in there}
    signs = {name: (heading, "+1") for name, (heading, *_) in spec.items()}
    panels = {"Here": texts(here, spec), "Paper": texts(there, spec), "Difference": texts(here - there, signs)}
    agreement = NOTHING
    if len(here) > 1 and here["average"].notna().all():
        agreement = signed(float(kendalltau(here["average"], there["average"]).statistic), 2)
    caption = (
        "Test accuracy (%) here and in the paper. Mean rank: over data sets, 1 is best. Bold: best. Underlined: second "
        f"best. The paper's averages are computed from its cells. {other.about} Agreement of the two orders by "
        f"average: Kendall's τ = {agreement}."
    )
    data = _long("method", "column", here, there)
    return Table("main_paper", caption, panels, data=data, about=benchmark.about(runs))


def _summary(table: pd.DataFrame, category: dict[str, str], datasets: bool) -> pd.DataFrame:
    """Return the averages over all data sets and per category, and the mean rank, of accuracies (methods × data sets),
    after the accuracies themselves if `datasets`."""
    columns = {"average": table.mean(axis=1, skipna=False)}
    for name in CATEGORIES:
        members = table.loc[:, [category[dataset] == name for dataset in table]]
        if len(members.columns):
            columns[name] = members.mean(axis=1, skipna=False)
    complete = table.notna().all(axis=None)
    columns["rank"] = table.rank(ascending=False).mean(axis=1) if complete else np.nan
    return pd.DataFrame((dict(table.items()) if datasets else {}) | columns, table.index)


# The detailed tables


def published_detailed(paper: Published, backbone: str) -> Table:
    """Build the paper's own detailed table of a backbone (Tables 6 to 8), as printed."""
    data = paper.detailed[paper.detailed["backbone"] == backbone]
    cells = crossed(data, "dataset", "method", lambda row: benchmark.spread(row["accuracy"], row["std"], row["star"]))
    caption = "Test accuracy (%), mean ± standard deviation over seeds, as published. Star: significantly below PVeRA."
    about = f"{TABLES[backbone]} of the paper, {BACKBONES[backbone]}."
    return Table(f"published_{backbone}", caption, {"": cells.reindex(DATASETS)}, data=data, about=about)


def detailed(runs: list[dict], paper: Published) -> Table:
    """Compare the detailed table with the paper's: mean standard deviation and share of stars per method, and the
    accuracies of shared data sets."""
    runs = of_paper(runs)
    other = counterpart(runs)
    ours = benchmark.comparisons(runs).rename(columns={"mean": "accuracy", "significantly_lower": "star"})
    if other.matched:
        ours = ours[ours["dataset"].isin(other.datasets)]
    theirs = paper.detailed[paper.detailed["backbone"] == other.backbone]
    theirs = theirs[theirs["dataset"].isin(other.datasets) & theirs["method"].isin(ours["method"])]
    data = _long("method", "what", _spreads(ours), _spreads(theirs).loc[ours["method"].unique()])
    lines = [
        texts(data[data["what"] == what].set_index("method"), beside(heading, digits)).T
        for what, heading, digits in (("std", "Standard deviation", 2), ("stars", "Stars, % of data sets", 0))
    ]
    panels = {"Spread over seeds, and stars (significantly below PVeRA)": pd.concat(lines)}
    if other.matched:
        here, there = (part.pivot(index="method", columns="dataset", values="accuracy") for part in (ours, theirs))
        place = list(ours["method"].unique()), other.datasets
        cells = _long("method", "what", here.loc[place], there.loc[place])
        gaps = crossed(cells, "what", "method", lambda row: signed(row["difference"], 1))
        panels, data = {"Difference of accuracies": gaps} | panels, pd.concat([cells, data])
    caption = (
        f"Mean standard deviation over seeds (points) and share of data sets with a star, here and in "
        f"{TABLES[other.backbone]} of the paper. {other.about} Ours divides by n − 1; the paper does not "
        "say, and the audit finds signs of n."
    )
    return Table("detailed_paper", caption, panels, data=data, about=benchmark.about(runs))


def _spreads(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the mean standard deviation and the share of stars (%) per method."""
    of_methods = cells.groupby("method", sort=False)
    return pd.DataFrame({"std": of_methods["std"].mean(skipna=False), "stars": 100 * of_methods["star"].mean()})


# Grid choices


def counterparts(ours: Sequence, theirs: Sequence) -> dict:
    """Map our grid values to the paper's: equal values, else equal places in grids of one length, else none.

    Small backbones have scaled ranks, so their grids share places instead of values.
    """
    if set(ours) <= set(theirs):
        return {value: value for value in ours}
    return dict(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) else {}


def grid(runs: list[dict], paper: Published) -> Table:
    """Build the share of runs that chose each grid value, here and in Table 4, and the difference."""
    runs = of_paper(runs)
    rows = []
    for key, choices in benchmark.panels(benchmark.grid_choices(runs)).items():
        published = paper.grid[paper.grid["hyperparameter"] == key]
        shared = choices[choices["method"].isin(published["method"])]
        theirs = benchmark.ordered(key, set(published["value"]))
        ours = theirs if shared["fixed"].all() else benchmark.ordered(key, set(shared["value"]))
        pairs = counterparts(ours, theirs)
        shares = shared[~shared["fixed"]].set_index(["method", "value"])["share"]
        percents = published.set_index(["method", "value"])["percent"]
        for method in shared["method"].unique():
            for value in ours:
                there = pairs.get(value)
                share, percent = shares.get((method, value), np.nan), percents.get((method, there), np.nan)
                rows.append((method, key, value, there, 100 * share, percent))
    columns = ["method", "hyperparameter", "value", "published_value", "here", "paper"]
    data = pd.DataFrame(rows, columns=columns).assign(difference=lambda data: data["here"] - data["paper"])
    panels = {}
    for key, part in data.groupby("hyperparameter", sort=False):
        lines = [
            texts(shares.set_index(shares.apply(_place, axis=1)), beside(title(method), 0)).T
            for method, shares in part.groupby("method", sort=False)
        ]
        panels[benchmark.PANELS.get(key, key)] = pd.concat(lines)
    caption = (
        "Share of runs (%) that chose each value of a method's grid, here and in Table 4 of the paper. Brackets: the "
        "paper's value at the same place of its grid, where it differs. A grid that was fixed here has no share."
    )
    return Table("grid_paper", caption, panels, data=data, about=benchmark.about(runs))


def _place(row: pd.Series) -> str:
    """Return the grid value of a row, with the paper's in brackets where it is another."""
    here, there = row["value"], row["published_value"]
    return number(here) if pd.isna(there) or there == here else f"{number(here)} ({number(there)})"
