"""Our numbers against the paper's, with the difference (ours minus the paper's).

Runs on a published backbone and its data sets are compared cell by cell. Other runs are compared with ViT-B/14 on
VTAB-1k by averages, ranks and shares alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from pvera.adapters import METHODS, PAPER_METHODS
from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.report.published import BACKBONES, DATASETS, TABLES, Published
from pvera.report.scores import Scores
from pvera.report.tables import benchmark
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, lettered, number, percent, plain, signed
from pvera.report.tables.names import dataset_title
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
    scores, other = Scores.of(runs), Counterpart.of(runs)
    ours = benchmark.accuracies(scores)[list(other.datasets if other.matched else scores.datasets)]
    theirs = paper.main_table() if other.backbone == "dinov2_b" else paper.accuracies(other.backbone)
    theirs = theirs.loc[list(scores.methods), list(other.datasets)]
    category = dict(zip(scores.datasets, scores.categories, strict=True)) | {
        name: TASKS[name].category for name in DATASETS
    }
    there = _summary(theirs, category, other.matched)
    here = _summary(ours, category, other.matched).reindex(columns=there.columns)
    shown = {"Here": _marked(here), "Paper": _marked(there), "Difference": (here - there).map(_points)}
    header = tuple(_column(name) for name in there)
    panels = [
        Panel(title, header, tuple(Row(METHODS[m].title, tuple(row)) for m, *row in cells.itertuples()))
        for title, cells in shown.items()
    ]
    caption = (
        "Test accuracy (%) here and in the paper. Mean rank: over data sets, 1 is best. Bold: best. Underlined: second "
        f"best. The paper's averages are computed from its cells. {other.about} Agreement of the two orders by "
        f"average: Kendall's τ = {_agreement(here['average'], there['average'])}."
    )
    data = _long("method", "column", here=here, paper=there)
    return Table("main_paper", caption, benchmark.about(runs), lettered(panels), data, upright=not other.matched)


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


def _column(name: str) -> str:
    special = {"average": "Average", "rank": "Mean rank"} | {c: f"Avg. {c}" for c in CATEGORIES}
    return special.get(name) or dataset_title(name)


def _marked(table: pd.DataFrame) -> pd.DataFrame:
    """Return cells with the best and second best of each column marked; low ranks are good."""
    cells = {}
    for name, column in table.items():
        marks = benchmark.marks(-column if name == "rank" else column)
        cells[name] = [Cell(percent(value), mark) for value, mark in zip(column, marks, strict=True)]
    return pd.DataFrame(cells, table.index)


def _points(value: float) -> Cell:
    return Cell(signed(value, 1))


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
    accuracy, std, star = (paper.accuracies(backbone, column) for column in ("accuracy", "std", "star"))
    cells = pd.DataFrame(
        {d: list(map(benchmark.spread, accuracy[d], std[d], star[d])) for d in accuracy}, accuracy.index
    )
    panel = benchmark.by_dataset(cells, [TASKS[dataset].category for dataset in accuracy])
    data = paper.detailed[paper.detailed["backbone"] == backbone]
    caption = "Test accuracy (%), mean ± standard deviation over seeds, as published. Star: significantly below PVeRA."
    about = f"{TABLES[backbone]} of the paper, {BACKBONES[backbone]}."
    return Table(f"published_{backbone}", caption, about, (panel,), data)


def detailed(runs: list[dict], paper: Published) -> Table:
    """Compare the detailed table with the paper's: mean standard deviation and share of stars per method, and the
    accuracies of shared data sets."""
    runs = of_paper(runs)
    scores, other = Scores.of(runs), Counterpart.of(runs)
    methods, names = list(scores.methods), list(other.datasets)
    rows = benchmark.comparisons(runs)
    rows = rows[rows["dataset"].isin(names)] if other.matched else rows
    ours, theirs = {}, {}
    for column, name in (("mean", "accuracy"), ("std", "std"), ("significantly_lower", "star")):
        ours[name] = rows.pivot(index="method", columns="dataset", values=column).loc[methods].astype(float)
        theirs[name] = paper.accuracies(other.backbone, name).loc[methods, names].astype(float)
    panels = []
    if other.matched:
        gaps = (ours["accuracy"][names] - theirs["accuracy"]).map(_points)
        panels.append(benchmark.by_dataset(gaps, [TASKS[d].category for d in names], "Difference of accuracies"))
    here, there = (
        pd.DataFrame({"std": side["std"].mean(axis=1, skipna=False), "stars": 100 * side["star"].mean(axis=1)})
        for side in (ours, theirs)
    )
    lines = []
    for name, title, digits in (("std", "Standard deviation", 2), ("stars", "Stars, % of data sets", 0)):
        for side, values in (
            ("here", here[name]),
            ("paper", there[name]),
            ("difference", here[name] - there[name]),
        ):
            text = [signed(v, digits) if side == "difference" else plain(v, digits) for v in values]
            lines.append(Row(f"{title}, {side}", tuple(map(Cell, text)), side == "here" and name == "stars"))
    panels.append(Panel("Spread over seeds, and stars (significantly below PVeRA)",
                        tuple(METHODS[m].title for m in methods), tuple(lines)))  # fmt: skip
    caption = (
        f"Mean standard deviation over seeds (points) and share of data sets with a star, here and in "
        f"{TABLES[other.backbone]} of the paper. {other.about} Ours divides by n − 1; the paper does not "
        "say, and the audit finds signs of n."
    )
    data = _long("method", "what", here=here, paper=there)
    if other.matched:
        data = pd.concat([_long("method", "what", here=ours["accuracy"][names], paper=theirs["accuracy"]), data])
    return Table("detailed_paper", caption, benchmark.about(runs), lettered(panels), data)


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
    panels, rows = [], []
    for key, title, descending in benchmark.panels(choices):
        published = paper.grid[paper.grid["hyperparameter"] == key]
        shared = choices[(choices["hyperparameter"] == key) & choices["method"].isin(published["method"])]
        theirs = sorted(set(published["value"]), reverse=descending)
        ours = theirs if shared["fixed"].all() else sorted(set(shared["value"]), reverse=descending)
        pairs = counterparts(ours, theirs)
        lines = []
        for method, part in shared.groupby("method", sort=False):
            here = 100 * part.set_index("value")["share"].reindex(ours)
            if part["fixed"].all():
                here[:] = np.nan
            percents = published[published["method"] == method].set_index("value")["percent"]
            there = pd.Series([percents.get(pairs.get(value), np.nan) for value in ours], ours)
            sides = {"here": here, "paper": there, "difference": here - there}
            most = {"here": here.max(), "paper": percents.max(), "difference": None}
            lines += [
                _shares(f"{METHODS[method].title}, {side}", values, most[side], bool(lines) and side == "here")
                for side, values in sides.items()
            ]
            rows += [
                {"method": method, "hyperparameter": key, "value": value, "published_value": pairs.get(value)}
                | {side: values[value] for side, values in sides.items()}
                for value in ours
            ]
        header = [number(v) if pairs.get(v, v) == v else f"{number(v)} ({number(pairs[v])})" for v in ours]
        panels += [Panel(title, tuple(header), tuple(lines))] * bool(lines)
    caption = (
        "Share of runs (%) that chose each value of a method's grid, here and in Table 4 of the paper. Bold: the most "
        "chosen. Brackets: the paper's value at the same place of its grid, where it differs. A grid that was fixed "
        "here has no share."
    )
    columns = ["method", "hyperparameter", "value", "published_value", "here", "paper", "difference"]
    data = pd.DataFrame(rows, columns=columns)
    return Table("grid_paper", caption, benchmark.about(runs), lettered(panels), data)


def _shares(label: str, values: pd.Series, most: float | None, rule: bool) -> Row:
    """Build a row of shares with `most` in bold, or of differences where `most` is None."""
    if most is None:
        return Row(label, tuple(Cell(signed(value, 0)) for value in values))
    return Row(label, tuple(Cell(plain(value, 0), "best" if value == most else "") for value in values), rule)


def grid_summary(shares: pd.DataFrame) -> str:
    """Count in one sentence the methods whose most chosen value is the paper's; shares: the data of `grid`."""
    searched = shares.dropna(subset=["here", "paper"])
    agree = {
        METHODS[method].title: values["here"].idxmax() == values["paper"].idxmax()
        for method, values in searched.groupby("method", sort=False)
    }
    same = [title for title, equal in agree.items() if equal]
    if not agree:
        return "**Answer.** No grid of the paper was searched here."
    return (
        f"**Answer.** {len(same)} of {len(agree)} methods most often chose the place of the grid that the paper's runs "
        f"chose{': ' * bool(same)}{', '.join(same)}."
    )
