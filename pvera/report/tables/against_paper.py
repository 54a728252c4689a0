"""Our accuracies against the paper's, with the difference (ours minus the paper's), and the paper's own tables.

Runs on a published backbone and its data sets are compared cell by cell. Other runs are compared with ViT-B/14 on
VTAB-1k by averages and ranks alone.
"""

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from pvera.adapters import PAPER_METHODS
from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.report.published import BACKBONES, DATASETS, TABLES, Published
from pvera.report.scores import score_frame
from pvera.report.statistics import weakest_contrast
from pvera.report.table import NOTHING, Table, interval, pivot_text, plain, signed, texts
from pvera.report.tables import benchmark
from pvera.study.results import CATEGORIES


def accuracies(runs: list[dict], paper: Published) -> Table:
    """Build the main table here, in the paper, and their difference: averages, mean ranks, and shared data sets.

    InputError without runs of the paper's methods.
    """
    runs = [run for run in runs if run["method"] in PAPER_METHODS]
    if not runs:
        raise InputError(f"nothing to hold against the paper: train one of its methods, {', '.join(PAPER_METHODS)}")
    scores, backbone = score_frame(runs), runs[0]["backbone"]
    shared = [name for name in DATASETS if name in scores.index.unique("dataset")]
    matched = backbone in BACKBONES and bool(shared)
    if not matched:
        backbone, shared = "dinov2_b", DATASETS
    category = {name: TASKS[name].category for name in DATASETS}
    category |= {dataset: name for name, dataset, _ in scores.index}
    ours = benchmark.accuracies(scores)[shared if matched else scores.index.unique("dataset")]
    theirs = paper.main_table() if backbone == "dinov2_b" else paper.accuracies(backbone)
    there = _summary(theirs.loc[list(scores), shared], category, matched)
    here = _summary(ours, category, matched).reindex(columns=there.columns)
    titles = {"average": "Average", "rank": "Mean rank"} | {name: f"Avg. {name}" for name in CATEGORIES}
    spec = {name: (titles.get(name, name), 1, "min" if name == "rank" else "max") for name in there}
    signs = {name: (heading, "+1") for name, (heading, *_) in spec.items()}
    panels = {"Here": texts(here, spec), "Paper": texts(there, spec), "Difference": texts(here - there, signs)}
    agreement = NOTHING
    if len(here) > 1 and here["average"].notna().all():
        agreement = signed(float(kendalltau(here["average"], there["average"]).statistic), 2)
    source = f"The paper's numbers are those of {BACKBONES[backbone]} on {len(shared)} data sets"
    if matched:
        source += ", the same as here."
    else:
        source += ". Backbone and data differ here, so the differences do not test the paper's numbers."
    caption = (
        "Test accuracy (%) here and in the paper. Mean rank: over data sets, 1 is best. Bold: best. Underlined: second "
        f"best. The paper's averages are computed from its cells. {source} "
        f"Agreement of the two orders by average: Kendall's τ = {agreement}."
    )
    data = pd.DataFrame({"here": here.stack(future_stack=True), "paper": there.stack(future_stack=True)})
    data = data.assign(difference=data["here"] - data["paper"]).rename_axis(["method", "column"]).reset_index()
    return Table("main_paper", caption, panels, data=data, source=benchmark.describe_runs(runs))


def _summary(table: pd.DataFrame, category: dict[str, str], datasets: bool) -> pd.DataFrame:
    """Return the averages over all data sets and per category, and the mean rank, of accuracies (methods × data sets),
    after the accuracies themselves if `datasets`."""
    complete = table.notna().all(axis=None)
    rank = table.rank(ascending=False).mean(axis=1) if complete else np.nan
    return table[list(table) if datasets else []].join(benchmark.averages(table, category)).assign(rank=rank)


# The paper's own tables


def published_leads(paper: Published) -> Table:
    """Build the table of PVeRA's leads in the paper's detailed tables, with intervals over their data sets."""
    rows = []
    for backbone in TABLES:
        table = paper.accuracies(backbone)
        for method, accuracies in table.drop("pvera").iterrows():
            effect = weakest_contrast({"": (table.loc["pvera"] - accuracies).to_numpy()[:, None]})
            rows.append((backbone, method, effect.mean, effect.others.low, effect.others.high))
    data = pd.DataFrame(rows, columns=["backbone", "method", "lead", "low", "high"])
    cells = pivot_text(data, "method", "backbone", lambda row: interval(row["lead"], row["low"], row["high"]))
    caption = (
        "PVeRA's lead in average accuracy (points) over each method, in the paper's tables. Brackets: 95 % interval if "
        f"other data sets were drawn, by Student's t over the {len(DATASETS)} data sets."
    )
    return Table("published_leads", caption, {"": cells.rename(columns=BACKBONES)}, data=data)


def published_grid(paper: Published) -> Table:
    """Build the paper's own table of grid choices (Table 4)."""
    panels = benchmark.panels(paper.grid, lambda row: plain(row["percent"], 0))
    caption = "Share of runs (%) that chose each value of a method's grid, as published."
    return Table("published_grid", caption, panels, data=paper.grid, source="Table 4 of the paper.")
