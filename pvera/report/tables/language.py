"""The language table (Appendix D): our scores beside the paper's."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from pvera.adapters import METHODS, PAPER_METHODS
from pvera.data import glue
from pvera.data.tasks import TASKS
from pvera.report.scores import Scores
from pvera.report.statistics import mean_and_std
from pvera.report.tables.benchmark import Statement, about, accuracies, comparisons, marks, verdicts
from pvera.report.tables.layout import Cell, Panel, Row, Table, percent, signed
from pvera.study import results

UNITS = {"accuracy": "acc.", "matthews": "MCC"}


def language(runs: list[dict], majority: dict[str, float], published: pd.DataFrame) -> Table:
    """Of the runs of one encoder. majority: of `majority_class`; published: `published.Published.language`."""
    data = scores(runs)
    data["majority"] = 100 * data["dataset"].map(majority)
    names = {task.title: name for name, task in glue.TASKS.items()}
    paper = published.assign(dataset=published["task"].map(names)).set_index(["dataset", "method"])
    data = data.join(paper[["score", "star"]].add_prefix("paper_"), on=["dataset", "method"])
    data["difference"] = data["mean"] - data["paper_score"]
    datasets = list(dict.fromkeys(data["dataset"]))
    common = [name for name in datasets if name in set(published["task"].map(names))]
    cells = data.set_index(["method", "dataset"])
    methods = [m for m in METHODS if m in set(data["method"])]

    marked = {
        name: dict(zip(methods, marks(cells["mean"].get((method, name), np.nan) for method in methods), strict=True))
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
        for method in (m for m in methods if m in PAPER_METHODS):
            rows = [paper.loc[(name, method)] for name in common]
            row = [Cell(percent(x["score"]) + "*" * bool(x["star"]), x["mark"]) for x in rows]
            printed.append(Row(METHODS[method].title, tuple(row)))
            row = [Cell(signed(cells["difference"].get((method, name), np.nan), 1)) for name in common]
            differences.append(Row(METHODS[method].title, tuple(row)))
        panels += [
            Panel("(b) The paper, DeBERTa-V3-base", header, tuple(printed)),
            Panel("(c) Here minus the paper", header, tuple(differences)),
        ]
    caption = (
        "Test scores in percent, mean ± sample standard deviation over seeds: accuracy (acc.) or Matthews "
        "correlation (MCC). Best in bold, second best underlined. A star marks an accuracy significantly below "
        "PVeRA's (one-sided binomial test of the pooled seeds), also where the correlation is shown, as the paper's "
        "caption has it: a correlation is no count of right answers that the test could be of."
    )
    return Table("language", caption, about(runs), tuple(panels), data)


def reported(runs: list[dict]) -> Scores:
    """What the paper reports of each task."""
    return Scores.of(runs, lambda run: run["test"][glue.TASKS[run["dataset"]].metric])


def scores(runs: list[dict]) -> pd.DataFrame:
    """One row per task and method: `comparisons` of the accuracies, with mean and std (%) of what is `reported`."""
    found = reported(runs)
    mean, std = mean_and_std(100 * found.values, axis=1)
    metrics = [glue.TASKS[name].metric for name in found.datasets]
    data = comparisons(runs)
    return data.assign(mean=mean.T.ravel(), std=std.T.ravel(), metric=np.repeat(metrics, len(found.methods)))


def language_claims(runs: list[dict], majority: dict[str, float]) -> Table:
    """What the paper says of its language table, and whether the runs learned anything to say it of."""
    found = reported(runs)
    suites: dict[str, list[str]] = {}
    for name in found.datasets:
        suites.setdefault(glue.TASKS[name].suite, []).append(name)
    titles = {"glue": "of GLUE", "grammar": "of our own grammar"}
    statements: list[Statement] = [
        (f"Every method beats the majority class on a task {titles[suite]}", "points, the least of the methods",
         _above(majority, names))
        for suite, names in suites.items()
    ]  # fmt: skip
    statements += [
        (f"PVeRA has the highest score on {TASKS[name].title}", "points above the best other method", _lead(name))
        for name in ("rte", "cola")
        if name in found.datasets
    ]
    statements.append(("PVeRA is better than VeRA on average", "points above VeRA", _lead("average", over="vera")))
    caption = "Statements of the paper about its language table, after what they need, and whether they hold here."
    return verdicts("language_claims", caption, runs, found, statements)


def _above(majority: dict[str, float], names: list[str]) -> Callable[[Scores], float]:
    """How far each method is above the majority class where it is farthest; the least of the methods."""

    def difference(scores: Scores) -> float:
        above = accuracies(scores)[names] - 100 * pd.Series(majority, dtype=float).reindex(names)
        return float(above.max(axis=1).min(skipna=False))

    return difference


def _lead(column: str, over: str | None = None) -> Callable[[Scores], float]:
    """PVeRA above another method, or above the best of all others, in points of what is reported."""

    def difference(scores: Scores) -> float:
        values = accuracies(scores)[column]
        others = values.drop("pvera", errors="ignore") if over is None else values.reindex([over])
        return float(values.get("pvera", np.nan) - others.max(skipna=False))

    return difference


def language_of_profile(root, profile: str, published: pd.DataFrame) -> dict[str, list[Table]]:
    """Encoder -> its table and the claims, of the profile's results; empty where there are none."""
    runs = results.load_runs(root, profile, "language", optional=True)
    tables = {}
    for encoder in dict.fromkeys(run["backbone"] for run in runs):
        own = [run for run in runs if run["backbone"] == encoder]
        majority = majority_class(root, own)
        tables[encoder] = [language(own, majority, published), language_claims(own, majority)]
    return tables


def majority_class(root, runs: list[dict]) -> dict[str, float]:
    """Per task what is `reported` of always predicting the most frequent class of the test set, as a share: its
    accuracy, or a Matthews correlation of 0."""
    found = {}
    for run in runs:
        name = run["dataset"]
        if name not in found and run["test"]:
            labels = results.read_predictions(results.run_path(root, *(run[key] for key in results.IDENTITY)))[1]
            accurate = glue.TASKS[name].metric == "accuracy"
            found[name] = np.bincount(labels).max() / len(labels) if accurate else 0.0
    return found


def _header(name: str) -> str:
    return f"{TASKS[name].title} ({UNITS[glue.TASKS[name].metric]})"
