"""The language table (Appendix D): our scores and the paper's."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pvera.adapters import METHODS, PAPER_METHODS
from pvera.data import glue
from pvera.data.tasks import TASKS
from pvera.report.scores import wide
from pvera.report.table import STAR, Table, crossed, marks, percent, signed, title
from pvera.report.tables.benchmark import about, comparisons
from pvera.report.tables.verdicts import Contrast, Untestable, lead
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
    paper = published.assign(dataset=published["task"].map(names))
    printed = paper.set_index(["dataset", "method"])[["score", "star"]].add_prefix("paper_")
    data = data.join(printed, on=["dataset", "method"])
    data["difference"] = data["mean"] - data["paper_score"]
    ahead = beaten(runs, majority)
    best = data.groupby("dataset")["mean"].transform(lambda means: pd.Series(marks(means), means.index))
    kept = [place in ahead for place in zip(data["method"], data["dataset"], strict=True)]
    shown = data.assign(mark=best.where(kept, ""))
    panels = {}
    for suite, part in shown.groupby(shown["dataset"].map(lambda name: glue.TASKS[name].suite), sort=False):
        cells = crossed(part, "method", "dataset", _score)
        floor = part.groupby("dataset")["majority"].first().map(percent)
        panels[f"Here, {SUITES[suite]}"] = pd.concat([floor.to_frame("Majority class").T, cells])[list(cells)]
    of_paper = data["method"].isin(PAPER_METHODS) & data["dataset"].isin(paper["dataset"])
    if of_paper.any():
        compared = crossed(data[of_paper], "method", "dataset", lambda row: signed(row["difference"], 1))
        scored = crossed(paper.dropna(subset="dataset"), "method", "dataset", _printed)
        panels["The paper, DeBERTa-V3-base"] = scored.loc[list(compared.index), list(compared)]
        panels["Here minus the paper"] = compared
    caption = (
        "Test scores (%), mean ± sample standard deviation over seeds: accuracy (acc.) or Matthews correlation (MCC). "
        "Bold: best. Underlined: second best. A method is marked only where each of its seeds beats the majority "
        "class. Star: accuracy significantly below PVeRA's (one-sided binomial test of the pooled seeds). The star "
        "refers to the accuracy also where the correlation is shown, as in the paper."
    )
    panels = {name: cells.rename(columns=_header) for name, cells in panels.items()}
    return Table("language", caption, panels, data=data, about=about(runs))


def _score(row: pd.Series) -> str:
    """Return one of our scores as text, with its star, spread and mark."""
    text = percent(row["mean"]) + (STAR if row["significantly_lower"] else "")
    return _marked(text if np.isnan(row["std"]) else f"{text} ± {row['std']:.1f}", row["mark"])


def _printed(row: pd.Series) -> str:
    """Return one of the paper's scores as text."""
    return _marked(percent(row["score"]) + (STAR if row["star"] else ""), row["mark"])


def _marked(text: str, mark: str) -> str:
    return {"best": f"**{text}**", "second": f"<ins>{text}</ins>"}.get(mark, text)


def reported(runs: list[dict]) -> pd.DataFrame:
    """Return the score that the paper reports for each task: accuracy or Matthews correlation."""
    return wide(runs, lambda run: run["test"][glue.TASKS[run["dataset"]].metric])


def scores(runs: list[dict]) -> pd.DataFrame:
    """Return `comparisons` of the accuracies, with mean and std (%) of the `reported` score."""
    of_seeds = (100 * reported(runs)).groupby(level="dataset", sort=False)
    mean, std = (part.stack(future_stack=True).to_numpy() for part in (of_seeds.mean(), of_seeds.std()))
    data = comparisons(runs)
    return data.assign(mean=mean, std=std, metric=[glue.TASKS[name].metric for name in data["dataset"]])


def beaten(runs: list[dict], majority: dict[str, float]) -> set[tuple[str, str]]:
    """Return (method, task) of the methods of which every seed scores above the majority class."""
    lowest = reported(runs).groupby(level="dataset").min()
    return {(m, name) for name, row in lowest.iterrows() for m, low in row.items() if low > majority.get(name, np.nan)}


def with_majority(runs: list[dict], majority: dict[str, float]) -> pd.DataFrame:
    """Return the `reported` scores in percent, and the column "majority"; majority: from `majority_class`."""
    found = 100 * reported(runs)
    return found.assign(majority=[100 * majority.get(name, np.nan) for name in found.index.get_level_values("dataset")])


def _tasks(found: pd.DataFrame, of: str) -> pd.DataFrame:
    """Return the scores on one task, or on those of one suite. `Untestable` without any."""
    names = [name for name in found.index.unique("dataset") if of in (name, glue.TASKS[name].suite)]
    if not names:
        raise Untestable(f"no runs on {SUITES.get(of) or TASKS[of].title}")
    return found[found.index.isin(names, level="dataset")]


def ahead(of: str, over: Sequence[str] = ()) -> Contrast:
    """Return the contrast of PVeRA's leads (points of the reported score) on one task or suite."""
    return lambda found: lead("pvera", *over)(_tasks(found, of))


def above_majority_class(of: str) -> Contrast:
    """Return the contrast of each method of the paper above the majority class on one task or suite."""

    def contrast(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
        tasks = _tasks(found, of)
        return {
            METHODS[name].title: (tasks[name] - tasks["majority"]).unstack("seed", sort=False)
            for name in tasks if name in PAPER_METHODS
        }  # fmt: skip

    return contrast


def language_of_profile(root, profile: str, published: pd.DataFrame) -> dict[str, list[Table]]:
    """Build, per encoder, the language table; empty without results."""
    runs = results.load_runs(root, profile, "language", optional=True)
    tables = {}
    for encoder in dict.fromkeys(run["backbone"] for run in runs):
        of_encoder = [run for run in runs if run["backbone"] == encoder]
        tables[encoder] = [language(of_encoder, majority_class(root, of_encoder), published)]
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
    beats = data[data["mean"] > data["majority"]]
    listed = beats["dataset"].map(title).groupby(beats["method"]).agg(", ".join)
    panel = listed.reindex(data["method"].unique()).fillna("none").to_frame("Above the majority class on")
    compared = data[(data["method"] != "pvera") & data["p_value"].notna()]
    caption = (
        "Tasks on which each method beats the majority class. Significantly less accurate than PVeRA: "
        f"{compared['significantly_lower'].sum()} of {len(compared)} comparisons."
    )
    return Table("language_majority", caption, {"": panel}, data=data)


def _header(name: str) -> str:
    return f"{TASKS[name].title} ({UNITS[glue.TASKS[name].metric]})"
