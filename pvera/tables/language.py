"""The language table (Appendix D): our scores beside the paper's."""

import numpy as np
import pandas as pd

from .. import glue, results
from ..adapters import METHODS
from ..data import TASKS
from ..results import Scores
from ..statistics import mean_and_std
from .benchmark import about, comparisons, marks
from .layout import Cell, Panel, Row, Table, percent, signed

UNITS = {"accuracy": "acc.", "matthews": "MCC"}


def language(runs: list[dict], majority: dict[str, float], published: pd.DataFrame) -> Table:
    """Of the runs of one encoder. majority: per task the accuracy (in [0, 1]) of its test set's most frequent
    class, whose Matthews correlation is 0; published: `published.Published.language`."""
    data = scores(runs)
    data["majority"] = [
        100 * majority[name] if metric == "accuracy" else 0.0
        for name, metric in zip(data["dataset"], data["metric"])
    ]
    names = {task.title: name for name, task in glue.TASKS.items()}
    paper = published.assign(dataset=published["task"].map(names)).set_index(["dataset", "method"])
    data = data.join(paper[["score", "star"]].add_prefix("paper_"), on=["dataset", "method"])
    data["difference"] = data["mean"] - data["paper_score"]
    datasets = list(dict.fromkeys(data["dataset"]))
    common = [name for name in datasets if name in set(published["task"].map(names))]
    cells = data.set_index(["method", "dataset"])
    methods = [m for m in METHODS if m in set(data["method"])]

    marked = {
        name: dict(zip(methods, marks(cells["mean"].get((method, name), np.nan) for method in methods)))
        for name in datasets
    }
    floor = data.groupby("dataset")["majority"].first()
    ours = [Row("Majority class", tuple(Cell(percent(floor[name])) for name in datasets))]
    for method in methods:
        row = []
        for name in datasets:
            mean, std = (cells[column].get((method, name), np.nan) for column in ("mean", "std"))
            text = percent(mean) + "*" * int(cells["significantly_lower"].get((method, name), False))
            row.append(Cell(text if np.isnan(std) else f"{text} ± {std:.1f}", marked[name][method]))
        ours.append(Row(METHODS[method].title, tuple(row), rule=method == methods[0]))
    panels = [Panel("(a) Here", tuple(map(_header, datasets)), tuple(ours))]
    if common:
        header = tuple(map(_header, common))
        printed, differences = [], []
        for method in methods:
            rows = [paper.loc[(name, method)] for name in common]
            row = [Cell(percent(x["score"]) + "*" * bool(x["star"]), x["mark"]) for x in rows]
            printed.append(Row(METHODS[method].title, tuple(row)))
            row = [Cell(signed(cells["difference"].get((method, name), np.nan), 1)) for name in common]
            differences.append(Row(METHODS[method].title, tuple(row)))
        panels += [Panel("(b) The paper, DeBERTa-V3-base", header, tuple(printed)),
                   Panel("(c) Here minus the paper", header, tuple(differences))]
    caption = (
        "Test scores in percent, mean ± sample standard deviation over seeds: accuracy (acc.) or Matthews "
        "correlation (MCC). Best in bold, second best underlined. A star marks an accuracy significantly below "
        "PVeRA's (one-sided binomial test of the pooled seeds), also where the correlation is shown."
    )
    if "images" in runs[0]["config"]:
        caption += f" Of each split the first {runs[0]['config']['images']} texts at most."
    return Table("language", caption, about(runs), tuple(panels), data)


def scores(runs: list[dict]) -> pd.DataFrame:
    """One row per task and method: `comparisons`, with mean and std (%) of what the paper reports of the task."""
    data = comparisons(runs)
    for metric in UNITS:
        found = Scores.of(runs, metric)
        mean, std = mean_and_std(100 * found.values, axis=1)
        for i, row in data.iterrows():
            if glue.TASKS[row["dataset"]].metric == metric:
                place = found.methods.index(row["method"]), found.datasets.index(row["dataset"])
                data.loc[i, ["mean", "std"]] = mean[place], std[place]
    return data.assign(metric=[glue.TASKS[name].metric for name in data["dataset"]])


def language_of_profile(root, profile: str, published: pd.DataFrame) -> dict[str, Table]:
    """Encoder -> its table, of the profile's results; empty where there are none."""
    runs = results.load_runs(root, profile, "language", optional=True)
    tables = {}
    for encoder in dict.fromkeys(run["backbone"] for run in runs):
        own = [run for run in runs if run["backbone"] == encoder]
        majority = {}
        for run in own:
            if run["dataset"] not in majority and run["test"]:
                path = results.run_path(root, *(run[key] for key in results.IDENTITY))
                labels = results.read_predictions(path)[1]
                majority[run["dataset"]] = np.bincount(labels).max() / len(labels)
        tables[encoder] = language(own, majority, published)
    return tables


def _header(name: str) -> str:
    return f"{TASKS[name].title} ({UNITS[glue.TASKS[name].metric]})"
