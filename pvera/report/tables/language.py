"""The language table (Appendix D): our scores and the paper's."""

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.data import glue
from pvera.report.scores import largest_class, score_frame
from pvera.report.statistics import half_width_over_seeds
from pvera.report.table import MARKED, Table, marks, pivot_text, plain, title
from pvera.report.tables.benchmark import comparisons, describe_runs, spread
from pvera.report.tables.verdicts import PairedDifferences, Untestable, contrast, lead

UNITS = {"accuracy": "acc.", "matthews": "MCC"}


def language(root, runs: list[dict], published: pd.DataFrame) -> Table:
    """Build the table of a language experiment on one encoder, whose predictions lie below `root`.

    published: `Published.language`.
    """
    data = comparisons(runs, score)
    data["metric"] = [glue.GLUE[name].metric for name in data["dataset"]]
    data["majority"] = 100 * data["dataset"].map(majority_class(root, runs))
    paper = published.assign(
        dataset=published["task"].map({task.title: name for name, task in glue.GLUE.items()})
    )
    printed = paper.set_index(["dataset", "method"])[["score", "star"]].add_prefix("paper_")
    data = data.join(printed, on=["dataset", "method"])
    lowest = 100 * score_frame(runs, score).groupby(level="dataset").min().stack().rename("lowest")
    beats = data.join(lowest, on=["dataset", "method"])["lowest"] > data["majority"]
    best = data.groupby("dataset")["mean"].transform(
        lambda means: pd.Series(marks(means), means.index)
    )
    marked = data.assign(mark=best.where(beats, ""), star=data["significantly_lower"])
    cells = pivot_text(marked, "method", "dataset", _text)
    floor = data.groupby("dataset")["majority"].first().map(lambda value: plain(value, 1))
    panels = {"Here": pd.concat([floor.to_frame("Majority class").T, cells])[list(cells)]}
    shared = data[data["method"].isin(PAPER_METHODS) & data["dataset"].isin(paper["dataset"])]
    if len(shared):
        theirs = paper.dropna(subset="dataset").rename(columns={"score": "mean"}).assign(std=np.nan)
        cells = pivot_text(theirs, "method", "dataset", _text)
        panels["The paper, DeBERTa-V3-base"] = cells.loc[
            shared["method"].unique(), shared["dataset"].unique()
        ]
    caption = (
        "Test scores (%), mean ± sample standard deviation over seeds: accuracy (acc.) or Matthews correlation (MCC). "
        "Bold: best. Underlined: second best. A method is marked only where each of its seeds beats the majority "
        "class. Star: accuracy significantly below PVeRA's (one-sided binomial test of the pooled seeds). The star "
        "refers to the accuracy also where the correlation is shown, as in the paper."
    )
    titles = {name: f"{task.title} ({UNITS[task.metric]})" for name, task in glue.GLUE.items()}
    panels = {name: cells.rename(columns=titles) for name, cells in panels.items()}
    name = "language" if runs[0]["experiment"] == "benchmark" else "language_full_sets"
    return Table(name, caption, panels, data=data, source=describe_runs(runs), in_paper=True)


def _text(row: pd.Series) -> str:
    """Return a score as text, with its star, spread and mark."""
    return MARKED[row["mark"]].format(spread(row["mean"], row["std"], row["star"]))


def score(run: dict) -> float:
    """Return the score that the paper reports for a run's task: accuracy or Matthews correlation."""
    return run["test"][glue.GLUE[run["dataset"]].metric]


def _tasks(scores: pd.DataFrame, which: str) -> pd.DataFrame:
    """Return the scores on one task, or on all of "GLUE". `Untestable` without any."""
    if which != "GLUE":
        scores = scores[scores.index.isin([which], level="dataset")]
    if scores.empty:
        raise Untestable(f"no runs on {title(which)}")
    return scores


@contrast
def ahead(scores: pd.DataFrame, which: str, *over: str) -> PairedDifferences:
    """Return PVeRA's leads (points of the reported score) on one task or all, over methods with runs there.

    A task that LoRA has not learned is left out: its interval over seeds reaches the majority class. `Untestable`
    without any.
    """
    tasks = _tasks(scores, which)

    if "lora" in tasks:
        above = (tasks["lora"] - tasks["majority"]).groupby(level="dataset", sort=False)
        tasks = tasks[
            above.transform(
                lambda of_seeds: (
                    not half_width_over_seeds(of_seeds.to_numpy()[None]) >= of_seeds.mean()
                )
            )
        ]
        if tasks.empty:
            raise Untestable("nothing was learned: LoRA cannot be told from the majority class")
    return lead("pvera", *over)(tasks.dropna(axis=1, how="all"))


def majority_class(root, runs: list[dict]) -> dict[str, float]:
    """Return, per task, the `score` of always predicting the test set's most frequent class: a correlation of 0."""
    return {
        name: share * (glue.GLUE[name].metric == "accuracy")
        for name, share in largest_class(root, runs).items()
    }
