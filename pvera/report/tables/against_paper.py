"""Our numbers against the paper's, with the difference (ours minus the paper's).

Runs on a published backbone and its data sets are compared cell by cell. Other runs are compared with ViT-B/14 on
VTAB-1k by averages, ranks and shares alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from pvera.adapters import PAPER_METHODS
from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.report.published import BACKBONES, DATASETS, TABLES, Published
from pvera.report.scores import over_seeds, wide
from pvera.report.table import NOTHING, Table, crossed, number, plain, signed, texts, title
from pvera.report.tables import benchmark
from pvera.study.results import CATEGORIES


@dataclass(frozen=True)
class Counterpart:
    """The published table that runs are compared with.

    backbone: the published one. datasets: its data sets that are compared. matched: whether backbone and data sets
    are those of the runs.
    """

    backbone: str
    datasets: tuple[str, ...]
    matched: bool

    @classmethod
    def of(cls, runs: list[dict]) -> "Counterpart":
        """Find the published table nearest to the runs."""
        backbone, ours = runs[0]["backbone"], {run["dataset"] for run in runs}
        common = tuple(name for name in DATASETS if name in ours)
        if backbone in BACKBONES and common:
            return cls(backbone, common, True)
        return cls("dinov2_b", tuple(DATASETS), False)

    @property
    def about(self) -> str:
        """Describe the published table for a caption."""
        title, count = BACKBONES[self.backbone], len(self.datasets)
        if self.matched:
            return f"The paper's numbers are those of {title} on the same {count} data sets."
        return (
            f"The paper's numbers are those of {title} on its {count} data sets. Backbone and data differ here, so "
            "the differences do not test the paper's numbers."
        )


def of_paper(runs: list[dict]) -> list[dict]:
    """Return the runs of the paper's methods, the only ones with published numbers. InputError without any."""
    if not (known := [run for run in runs if run["method"] in PAPER_METHODS]):
        raise InputError(f"nothing to hold against the paper: train one of its methods, {', '.join(PAPER_METHODS)}")
    return known


# Accuracy


def accuracies(runs: list[dict], paper: Published) -> Table:
    """Build the main table here, in the paper, and their difference: averages, mean ranks, and shared data sets."""
    runs = of_paper(runs)
    scores, other = wide(runs), Counterpart.of(runs)
    category = {dataset: name for name, dataset in over_seeds(scores).index}
    ours = benchmark.accuracies(scores)[list(other.datasets if other.matched else category)]
    theirs = paper.main_table() if other.backbone == "dinov2_b" else paper.accuracies(other.backbone)
    theirs = theirs.loc[list(scores), list(other.datasets)]
    category |= {name: TASKS[name].category for name in DATASETS}
    there = _summary(theirs, category, other.matched)
    here = _summary(ours, category, other.matched).reindex(columns=there.columns)
    titles = {"average": "Average", "rank": "Mean rank"} | {name: f"Avg. {name}" for name in CATEGORIES}
    spec = {name: (titles.get(name, name), 1, "min" if name == "rank" else "max") for name in there}
    signs = {name: (heading, "+1") for name, (heading, *_) in spec.items()}
    panels = {"Here": texts(here, spec), "Paper": texts(there, spec), "Difference": texts(here - there, signs)}
    caption = (
        "Test accuracy (%) here and in the paper. Mean rank: over data sets, 1 is best. Bold: best. Underlined: second "
        f"best. The paper's averages are computed from its cells. {other.about} Agreement of the two orders by "
        f"average: Kendall's τ = {_agreement(here['average'], there['average'])}."
    )
    data = _long("method", "column", here=here, paper=there)
    return Table("main_paper", caption, panels, data=data, about=benchmark.about(runs))


def _summary(table: pd.DataFrame, category: dict[str, str], datasets: bool) -> pd.DataFrame:
    """Summarise accuracies (methods × data sets): the averages over all and per category, and the mean rank, after
    the data sets themselves if `datasets`."""
    columns = dict(table.items()) if datasets else {}
    columns["average"] = table.mean(axis=1, skipna=False)
    for name in CATEGORIES:
        members = [dataset for dataset in table if category[dataset] == name]
        if members:
            columns[name] = table[members].mean(axis=1, skipna=False)
    complete = table.notna().all(axis=None)
    columns["rank"] = table.rank(ascending=False).mean(axis=1) if complete else np.nan
    return pd.DataFrame(columns, table.index)


def _agreement(one: pd.Series, other: pd.Series) -> str:
    if len(one) < 2 or one.isna().any():
        return NOTHING
    return signed(float(kendalltau(one, other).statistic), 2)


def _long(index: str, column: str, **tables: pd.DataFrame) -> pd.DataFrame:
    """Return one row per cell: the two tables' values and their difference."""
    long = pd.DataFrame({name: table.stack(future_stack=True) for name, table in tables.items()})
    one, other = tables
    long["difference"] = long[one] - long[other]
    return long.rename_axis([index, column]).reset_index()


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
    other, rows = Counterpart.of(runs), benchmark.comparisons(runs)
    names, methods = list(other.datasets), list(rows["method"].unique())
    rows = rows[rows["dataset"].isin(names)] if other.matched else rows
    ours, theirs = {}, {}
    for column, name in (("mean", "accuracy"), ("std", "std"), ("significantly_lower", "star")):
        ours[name] = rows.pivot(index="method", columns="dataset", values=column).loc[methods].astype(float)
        theirs[name] = paper.accuracies(other.backbone, name).loc[methods, names].astype(float)
    here, there = (
        pd.DataFrame({"std": side["std"].mean(axis=1, skipna=False), "stars": 100 * side["star"].mean(axis=1)})
        for side in (ours, theirs)
    )
    data = _long("method", "what", here=here, paper=there)
    panels = {}
    if other.matched:
        accuracy = ours["accuracy"][names]
        gaps = (accuracy - theirs["accuracy"]).T
        panels["Difference of accuracies"] = texts(gaps, {method: (method, "+1") for method in methods})
        data = pd.concat([_long("method", "what", here=accuracy, paper=theirs["accuracy"]), data])
    lines = {}
    for name, heading, digits in (("std", "Standard deviation", 2), ("stars", "Stars, % of data sets", 0)):
        lines[f"{heading}, here"] = [plain(value, digits) for value in here[name]]
        lines[f"{heading}, paper"] = [plain(value, digits) for value in there[name]]
        lines[f"{heading}, difference"] = [signed(value, digits) for value in here[name] - there[name]]
    spreads = pd.DataFrame.from_dict(lines, orient="index", columns=methods)
    panels["Spread over seeds, and stars (significantly below PVeRA)"] = spreads
    caption = (
        f"Mean standard deviation over seeds (points) and share of data sets with a star, here and in "
        f"{TABLES[other.backbone]} of the paper. {other.about} Ours divides by n − 1; the paper does not "
        "say, and the audit finds signs of n."
    )
    return Table("detailed_paper", caption, panels, data=data, about=benchmark.about(runs))


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
    choices = benchmark.grid_choices(runs)
    panels, frames = {}, []
    for key, heading, descending in benchmark.panels(choices):
        published = paper.grid[paper.grid["hyperparameter"] == key]
        shared = choices[(choices["hyperparameter"] == key) & choices["method"].isin(published["method"])]
        theirs = sorted(set(published["value"]), reverse=descending)
        ours = theirs if shared["fixed"].all() else sorted(set(shared["value"]), reverse=descending)
        pairs, lines = counterparts(ours, theirs), {}
        for method, part in shared.groupby("method", sort=False):
            percents = published[published["method"] == method].set_index("value")["percent"]
            data = pd.DataFrame({"method": method, "hyperparameter": key, "value": ours})
            data["published_value"] = list(map(pairs.get, ours))
            here = 100 * part.set_index("value")["share"].reindex(ours)
            data["here"] = np.nan if part["fixed"].all() else here.to_numpy()
            data["paper"] = [percents.get(value, np.nan) for value in data["published_value"]]
            data["difference"] = data["here"] - data["paper"]
            frames.append(data)
            lines[f"{title(method)}, here"] = _shares(data["here"], data["here"].max())
            lines[f"{title(method)}, paper"] = _shares(data["paper"], percents.max())
            lines[f"{title(method)}, difference"] = [signed(value, 0) for value in data["difference"]]
        header = [number(v) if pairs.get(v, v) == v else f"{number(v)} ({number(pairs[v])})" for v in ours]
        if lines:
            panels[heading] = pd.DataFrame.from_dict(lines, orient="index", columns=header)
    caption = (
        "Share of runs (%) that chose each value of a method's grid, here and in Table 4 of the paper. Bold: the most "
        "chosen. Brackets: the paper's value at the same place of its grid, where it differs. A grid that was fixed "
        "here has no share."
    )
    columns = ["method", "hyperparameter", "value", "published_value", "here", "paper", "difference"]
    data = pd.concat(frames) if frames else pd.DataFrame(columns=columns)
    return Table("grid_paper", caption, panels, data=data, about=benchmark.about(runs))


def _shares(values: pd.Series, most: float) -> list[str]:
    """Return shares in Markdown, `most` in bold."""
    return [f"**{plain(value, 0)}**" if value == most else plain(value, 0) for value in values]
