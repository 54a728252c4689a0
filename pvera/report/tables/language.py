"""The language table (Appendix D): our scores and the paper's."""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import pandas as pd

from pvera.adapters import METHODS, PAPER_METHODS
from pvera.data import glue
from pvera.data.tasks import TASKS
from pvera.report.scores import Scores
from pvera.report.statistics import mean_and_std
from pvera.report.tables.benchmark import about, comparisons, marks, verdicts_on
from pvera.report.tables.layout import Cell, Panel, Row, Table, lettered, percent, signed
from pvera.report.tables.verdicts import Statement, Untestable, by_method, leads
from pvera.study import results

UNITS = {"accuracy": "acc.", "matthews": "MCC"}
SUITES = {"glue": "GLUE", "grammar": "our own grammar"}


def language(runs: list[dict], majority: dict[str, float], published: pd.DataFrame) -> Table:
    """Build the language table of one encoder.

    majority: from `majority_class`. published: `Published.language`.
    """
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

    ahead = beaten(runs, majority)
    marked = {}
    for name in datasets:
        of_task = marks(cells["mean"].get((method, name), np.nan) for method in methods)
        marked[name] = {m: mark * ((m, name) in ahead) for m, mark in zip(methods, of_task, strict=True)}
    floor = data.groupby("dataset")["majority"].first()

    def shown(method: str, name: str) -> Cell:
        mean, std = (cells[column].get((method, name), np.nan) for column in ("mean", "std"))
        text = percent(mean) + "*" * int(cells["significantly_lower"].get((method, name), False))
        return Cell(text if np.isnan(std) else f"{text} ± {std:.1f}", marked[name][method])

    panels = []
    for suite, names in by_suite(datasets).items():
        rows = [Row("Majority class", tuple(Cell(percent(floor[name])) for name in names))]
        for method in methods:
            row = tuple(shown(method, name) for name in names)
            rows.append(Row(METHODS[method].title, row, rule=method == methods[0]))
        panels.append(Panel(f"Here, {SUITES[suite]}", tuple(map(_header, names)), tuple(rows)))
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
            Panel("The paper, DeBERTa-V3-base", header, tuple(printed)),
            Panel("Here minus the paper", header, tuple(differences)),
        ]
    caption = (
        "Test scores (%), mean ± sample standard deviation over seeds: accuracy (acc.) or Matthews correlation (MCC). "
        "Bold: best. Underlined: second best. A method is marked only where each of its seeds beats the majority "
        "class. Star: accuracy significantly below PVeRA's (one-sided binomial test of the pooled seeds). The star "
        "refers to the accuracy also where the correlation is shown, as in the paper."
    )
    return Table("language", caption, about(runs), lettered(panels), data)


def reported(runs: list[dict]) -> Scores:
    """Return the score that the paper reports for each task: accuracy or Matthews correlation."""
    return Scores.of(runs, lambda run: run["test"][glue.TASKS[run["dataset"]].metric])


def scores(runs: list[dict]) -> pd.DataFrame:
    """Return `comparisons` of the accuracies, with mean and std (%) of the `reported` score."""
    task_scores = reported(runs)
    mean, std = mean_and_std(100 * task_scores.values, axis=1)
    metrics = [glue.TASKS[name].metric for name in task_scores.datasets]
    data = comparisons(runs)
    return data.assign(mean=mean.T.ravel(), std=std.T.ravel(), metric=np.repeat(metrics, len(task_scores.methods)))


def beaten(runs: list[dict], majority: dict[str, float]) -> set[tuple[str, str]]:
    """Return (method, task) of the methods of which every seed scores above the majority class."""
    task_scores = reported(runs)
    floor = np.array([majority.get(name, np.nan) for name in task_scores.datasets])
    above = np.nanmin(task_scores.values, axis=1, initial=np.inf) > floor
    return {(task_scores.methods[m], task_scores.datasets[d]) for m, d in np.argwhere(above)}


def by_suite(datasets: Iterable[str]) -> dict[str, list[str]]:
    """Group tasks by their suite, "glue" or "grammar"."""
    suites: dict[str, list[str]] = {}
    for name in datasets:
        suites.setdefault(glue.TASKS[name].suite, []).append(name)
    return suites


def statements(majority: dict[str, float], datasets: Sequence[str] = ()) -> list[Statement]:
    """Return the paper's claims about its language table, and what they presuppose, on the `reported` scores.

    datasets: the tasks of the runs. Averages are over the tasks of one suite, so that GLUE stands apart.
    """
    above, below = "{size} points above {name}", "{size} points below {name}"
    better = "PVeRA is better than VeRA on average"
    suites = by_suite(datasets)
    return [
        *(
            Statement(f"{better} over the tasks of {SUITES[suite]}", above, below,
                      partial(_ahead, over=["vera"], tasks=names))
            for suite, names in suites.items()
        ),
        *([] if suites else [Statement(better, above, below, partial(_ahead, over=["vera"]))]),
        *(
            Statement(
                f"PVeRA has the highest score on {TASKS[name].title}", above, below, partial(_ahead, tasks=[name]),
                units="seeds",
            )
            for name in ("rte", "cola")
        ),
        *(
            Statement(
                f"Presupposed: every method beats the majority class on average over the tasks of {SUITES[suite]}",
                "{name} lies {size} points above it",
                "{name} lies {size} points below it",
                partial(_above, majority, names),
            )
            for suite, names in suites.items()
        ),
    ]  # fmt: skip


def language_verdicts(runs: list[dict], majority: dict[str, float]) -> Table:
    """Build the verdicts on the paper's claims about its language table."""
    task_scores = reported(runs)
    caption = (
        "The paper's claims about its language table; those about one task are replicated by seeds alone. An average "
        "adds accuracies (%) and Matthews correlations (times 100)."
    )
    return verdicts_on("language_claims", caption, runs, task_scores, statements(majority, task_scores.datasets))


def _above(majority: dict[str, float], names: list[str], scores: Scores) -> dict[str, np.ndarray]:
    """Return each method's lead over the majority class on the tasks `names`, (tasks, seeds)."""
    rows = [scores.datasets.index(name) for name in names]
    floor = 100 * np.array([majority.get(name, np.nan) for name in names])[:, None]
    return {METHODS[method].title: values[rows] - floor for method, values in by_method(scores).items()}


def _ahead(
    scores: Scores, over: Sequence[str] | None = None, tasks: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """Return PVeRA's leads (points of the reported score) over `over`, by default all others, on `tasks` or all."""
    for name in tasks or ():
        if name not in scores.datasets:
            raise Untestable(f"no runs on {TASKS[name].title}")
    rows = slice(None) if tasks is None else [scores.datasets.index(name) for name in tasks]
    return {name: lead[rows] for name, lead in leads(by_method(scores), "pvera", over).items()}


def language_of_profile(root, profile: str, published: pd.DataFrame) -> dict[str, list[Table]]:
    """Build, per encoder, the language table and its verdicts; empty without results."""
    runs = results.load_runs(root, profile, "language", optional=True)
    tables = {}
    for encoder in dict.fromkeys(run["backbone"] for run in runs):
        of_encoder = [run for run in runs if run["backbone"] == encoder]
        majority = majority_class(root, of_encoder)
        tables[encoder] = [language(of_encoder, majority, published), language_verdicts(of_encoder, majority)]
    return tables


def majority_class(root, runs: list[dict]) -> dict[str, float]:
    """Return, per task, the `reported` score of always predicting the most frequent class of the test set.

    That is its share of the test set, or a Matthews correlation of 0.
    """
    majority = {}
    for run in runs:
        name = run["dataset"]
        if name not in majority and run["test"]:
            labels = results.read_predictions(results.run_path(root, *(run[key] for key in results.IDENTITY)))[1]
            accurate = glue.TASKS[name].metric == "accuracy"
            majority[name] = np.bincount(labels).max() / len(labels) if accurate else 0.0
    return majority


def above_majority(data: pd.DataFrame) -> Table:
    """Build the list of tasks on which each method beats the majority class; data: that of `language`."""

    def listed(rows: pd.DataFrame) -> str:
        return ", ".join(TASKS[name].title for name in rows["dataset"]) or "none"

    beats = data[data["mean"] > data["majority"]]
    rows = [
        Row(METHODS[method].title, (Cell(listed(beats[beats["method"] == method])),))
        for method in dict.fromkeys(data["method"])
    ]
    compared = data[(data["method"] != "pvera") & data["p_value"].notna()]
    caption = (
        "Tasks on which each method beats the majority class. Significantly less accurate than PVeRA: "
        f"{compared['significantly_lower'].sum()} of {len(compared)} comparisons."
    )
    return Table("language_majority", caption, "", (Panel("", ("Above the majority class on",), tuple(rows)),), data)


def _header(name: str) -> str:
    return f"{TASKS[name].title} ({UNITS[glue.TASKS[name].metric]})"
