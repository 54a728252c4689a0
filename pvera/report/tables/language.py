"""The language table (Appendix D): our scores and the paper's."""

from pathlib import Path

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.data import glue
from pvera.report.captions import caption_source
from pvera.report.scores import Records, largest_class, score_frame
from pvera.report.settings import ResultFiles, Setting
from pvera.report.statistics import half_width_over_seeds
from pvera.report.table import MARKED, Table, marks, pivot_text
from pvera.report.tables.benchmark import compare_with_pvera, mean_and_std
from pvera.report.text import decimal

UNITS = {"accuracy": "acc.", "matthews": "MCC"}


def language_table(root: Path, records: Records, paper_table: pd.DataFrame) -> Table:
    """Build the table of a language experiment on one encoder.

    Args:
        root: Folder of the results, with the predictions whose labels are counted.
        records: The runs.
        paper_table: `PaperNumbers.language`.
    """
    keys = {task.title: name for name, task in glue.GLUE.items()}
    paper_table = paper_table.assign(dataset=paper_table["task"].map(keys))
    data = _data(root, records, paper_table)
    panels = {"Here": _marked_scores(data, records)}

    # The paper's panel shows the same methods and tasks as ours.
    shared = data[data["method"].isin(PAPER_METHODS) & data["dataset"].isin(paper_table["dataset"])]
    if len(shared):
        printed = paper_table.dropna(subset="dataset").rename(columns={"score": "mean"})
        cells = pivot_text(printed.assign(std=np.nan), "method", "dataset", _cell)
        methods, datasets = shared["method"].unique(), shared["dataset"].unique()
        panels["The paper, DeBERTa-V3-base"] = cells.loc[methods, datasets]

    titles = {name: f"{task.title} ({UNITS[task.metric]})" for name, task in glue.GLUE.items()}
    panels = {heading: cells.rename(columns=titles) for heading, cells in panels.items()}
    caption = (
        "Test scores (%), mean ± sample standard deviation over seeds: accuracy (acc.) or "
        "Matthews correlation (MCC)."
    )
    notes = (
        "Bold: best. Underlined: second best. A method is marked only where each of its seeds "
        "beats the majority class. Star: accuracy significantly below PVeRA's (one-sided "
        "binomial test of the pooled seeds). The star refers to the accuracy also where the "
        "correlation is shown, as in the paper."
    )
    name = "language" if records[0]["experiment"] == "benchmark" else "language_full_sets"
    source = caption_source(records)
    return Table(name, caption, panels, data=data, source=source, has_latex=True, notes=notes)


def _data(root: Path, records: Records, paper_table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per method and task: our scores, the majority class, the paper's scores."""
    data = compare_with_pvera(records, reported_score)
    data["metric"] = [glue.GLUE[name].metric for name in data["dataset"]]
    data["majority"] = 100 * data["dataset"].map(majority_class(root, records))
    printed = paper_table.set_index(["dataset", "method"])[["score", "star"]].add_prefix("paper_")
    return data.join(printed, on=["dataset", "method"])


def _marked_scores(data: pd.DataFrame, records: Records) -> pd.DataFrame:
    """Return our scores in Markdown: a row for the majority class, then one per method."""
    # The worst seed of each method, on each task.
    lowest = 100 * score_frame(records, reported_score).groupby(level="dataset").min()
    lowest = data.join(lowest.stack().rename("lowest"), on=["dataset", "method"])["lowest"]
    beats_majority = lowest > data["majority"]
    # The best two methods of each task.
    mark = data.groupby("dataset")["mean"].transform(
        lambda means: pd.Series(marks(means), means.index)
    )
    marked = data.assign(mark=mark.where(beats_majority, ""), star=data["significantly_lower"])
    cells = pivot_text(marked, "method", "dataset", _cell)

    majority = data.groupby("dataset")["majority"].first().map(lambda share: decimal(share, 1))
    return pd.concat([majority.to_frame("Majority class").T, cells])[list(cells)]


def _cell(row: pd.Series) -> str:
    """Return a score in Markdown, with its star, standard deviation and mark."""
    return MARKED[row["mark"]].format(mean_and_std(row["mean"], row["std"], row["star"]))


def reported_score(record: dict) -> float:
    """Return the score that the paper reports for a task: accuracy or Matthews correlation."""
    return record["test"][glue.GLUE[record["dataset"]].metric]


def majority_class(root: Path, records: Records) -> dict[str, float]:
    """Return the `reported_score` of always predicting the most frequent class, by task.

    It is that class's share of the test set; a correlation is 0.
    """
    shares = largest_class(root, records)
    return {
        name: share if glue.GLUE[name].metric == "accuracy" else 0.0
        for name, share in shares.items()
    }


# What claims compare


def read_scores(files: ResultFiles) -> dict[Setting, pd.DataFrame]:
    """Read the scores (%) of methods and of the "majority" class.

    Where a task has trainings on all its texts, they alone count.
    """
    full = files.read("full_sets", text=True)
    scores = {}
    for setting, benchmark in files.read("benchmark", text=True).items():
        records = full.get(setting, [])
        on_all_texts = {record["dataset"] for record in records}
        records = [run for run in benchmark if run["dataset"] not in on_all_texts] + records

        frame = 100 * score_frame(records, reported_score)
        majority = majority_class(files.root, records)
        datasets = frame.index.get_level_values("dataset")
        scores[setting] = frame.assign(majority=100 * datasets.map(majority))
    return scores


def learned_tasks(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the scores on the tasks that LoRA has learned.

    Its interval over seeds lies above the majority class there.

    Args:
        scores: Those of one setting of `read_scores`.
    """
    if "lora" not in scores:
        return scores
    above = scores["lora"] - scores["majority"]
    return scores[above.groupby(level="dataset", sort=False).transform(_above_zero)]


def _above_zero(differences: pd.Series) -> bool:
    """Return whether the interval over seeds lies above zero; one seed, without any, counts."""
    half_width = half_width_over_seeds(differences.to_numpy()[None])
    return bool(np.isnan(half_width) or half_width < differences.mean())
