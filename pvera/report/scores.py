"""From records to frames of scores, the one shape behind every table and figure."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.data.tasks import ALL_CATEGORIES, TASKS
from pvera.errors import InputError
from pvera.study.results import path_of, read_predictions

#: The records of runs on one backbone, see `study.records.Record`.
Records: TypeAlias = Sequence[dict]
#: What is loaded of one run: its record, or a tuple that begins with it.
Result: TypeAlias = dict | tuple[Any, ...]
#: A key of a record's "test", or a function of the record.
Scorer: TypeAlias = str | Callable[[dict], float]

#: The index of scores.
ROWS = ["category", "dataset", "seed"]


def record_of(result: Result) -> dict:
    """Return the record of a result."""
    return result if isinstance(result, dict) else result[0]


def dataset_order(record: dict) -> tuple[int, int, str]:
    """Return a key that sorts records by category, then in the paper's order, then by name."""
    name = record["dataset"]
    # Data sets of one's own follow those of the paper, by name.
    order = [*TASKS, name]
    return ALL_CATEGORIES.index(record["category"]), order.index(name), name


def diverged(record: dict) -> bool:
    """Return whether every grid member of a training diverged: it has no choice and no scores."""
    return record["chosen"] is None


def chosen_member(record: dict) -> dict:
    """Return the outcome of the grid member that was tested, of a run that did not diverge."""
    return record["members"][record["chosen"]["member"]]


def member_hyperparameters(record: dict, index: int) -> dict:
    """Return the hyperparameters of the method with which a grid member trained."""
    return record["config"]["members"][index]["method"]


def largest_class(root: Path, records: Records) -> dict[str, float]:
    """Return the share of the test set's most frequent class, by data set."""
    shares: dict[str, float] = {}
    for record in records:
        if record["dataset"] not in shares and not diverged(record):
            _, labels = read_predictions(path_of(root, record))
            shares[record["dataset"]] = np.bincount(labels).max() / len(labels)
    return shares


def score_frame(records: Records, metric: Scorer = "accuracy") -> pd.DataFrame:
    """Return one score per run on one backbone.

    Args:
        records: The runs; of one that diverged, or is missing, the score is NaN.
        metric: What is scored.

    Returns:
        Rows `ROWS`: by category, then data sets in the paper's order, each with every seed. Columns
        methods in their usual order.
    """
    scores = {}
    for record in records:
        row = tuple(record[name] for name in (*ROWS, "method"))
        if diverged(record):
            scores[row] = np.nan
        elif callable(metric):
            scores[row] = metric(record)
        else:
            scores[row] = record["test"][metric]
    # From one row per run to a column per method.
    frame = pd.Series(scores, dtype=float).rename_axis([*ROWS, "method"]).unstack()

    # Every data set has every seed, so that missing runs are NaN.
    ordered = sorted(records, key=dataset_order)
    datasets = dict.fromkeys((record["category"], record["dataset"]) for record in ordered)
    seeds = sorted({record["seed"] for record in records})
    rows = [(*dataset, seed) for dataset in datasets for seed in seeds]
    methods = [name for name in METHODS if name in frame]
    return frame.reindex(index=pd.MultiIndex.from_tuples(rows, names=ROWS), columns=methods)


def score_columns(groups: Mapping[Any, Records], metric: Scorer = "accuracy") -> pd.DataFrame:
    """Return the scores of groups of runs, each of one method: a column per group.

    Args:
        groups: Name of a group -> its runs.
        metric: As in `score_frame`, whose rows these are.
    """
    # One method makes a frame of one column.
    columns = {name: score_frame(records, metric).iloc[:, 0] for name, records in groups.items()}
    return pd.concat(columns, axis=1, sort=False)


def mean_over_seeds(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the means over seeds of a frame of `score_frame`: rows (category, dataset)."""
    return scores.groupby(level=["category", "dataset"], sort=False).mean()


def complete_datasets(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the data sets on which every method has a run.

    Raises:
        InputError: There are none.
    """
    # Runs of each data set and method, (rows, methods); zero where a method has none.
    counts = scores.groupby(level="dataset").transform("count")
    whole = counts.all(axis=1)
    if not whole.any():
        raise InputError("there is no data set on which every method has a run")
    return scores[whole]
