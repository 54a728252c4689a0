"""Scores of many runs as one frame, from result files to every table and figure."""

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.study.results import KINDS, path_of, read_predictions

ROWS = ["category", "dataset", "seed"]  # the index of scores


def by_backbone(results: Iterable) -> dict[str, list]:
    """Group results by backbone; a result is a record, or a tuple that begins with one."""
    parts: dict[str, list] = {}
    for result in results:
        parts.setdefault(record_of(result)["backbone"], []).append(result)
    return parts


def record_of(result: dict | tuple) -> dict:
    """Return the record of a result."""
    return result if isinstance(result, dict) else result[0]


def place(record: dict) -> tuple:
    """Return the place of a record's data set among others: by category, then in the paper's order, then by name."""
    known, name = list(TASKS), record["dataset"]
    return KINDS.index(record["category"]), known.index(name) if name in TASKS else len(known), name


def capped(runs: Iterable[dict]) -> int:
    """Count the runs whose chosen training was ended by the limit on epochs, before its patience was."""
    return sum(chosen_member(run)["status"] == "epoch limit" for run in runs if run["chosen"])


def largest_class(root, runs: Iterable[dict]) -> dict[str, float]:
    """Return, per data set, the share of the test set's most frequent class, from the labels beside a run."""
    shares = {}
    for run in runs:
        if run["dataset"] not in shares and run["test"]:
            _, labels = read_predictions(path_of(root, run))
            shares[run["dataset"]] = np.bincount(labels).max() / len(labels)
    return shares


def chosen_member(run: dict) -> dict:
    """Return the entry of the tested grid member in the record of a run that did not diverge."""
    return run["members"][run["chosen"]["member"]]


def score_frame(
    runs: Iterable[dict], metric: str | Callable[[dict], float] = "accuracy"
) -> pd.DataFrame:
    """Return one score per run on one backbone: rows (category, dataset, seed), columns methods in their usual order.

    metric: a key of the record's "test", or a function of the record. Rows stand by category, then in the paper's order
    of data sets, and each data set has every seed. NaN where a run is missing or diverged.
    """
    runs = list(runs)
    value = metric if callable(metric) else lambda run: run["test"][metric]
    keys = [*ROWS, "method"]
    of_runs = {
        tuple(run[key] for key in keys): value(run) if run["test"] else np.nan for run in runs
    }
    scores = pd.Series(of_runs, dtype=float).rename_axis(keys).unstack()
    datasets = dict.fromkeys((run["category"], run["dataset"]) for run in sorted(runs, key=place))
    seeds = sorted({run["seed"] for run in runs})
    index = pd.MultiIndex.from_tuples(
        [(*dataset, seed) for dataset in datasets for seed in seeds], names=ROWS
    )
    return scores.reindex(index=index, columns=[key for key in METHODS if key in scores])


def over_seeds(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over seeds of a frame of `score_frame`: rows (category, dataset)."""
    return scores.groupby(level=ROWS[:2], sort=False).mean()


def complete(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the data sets on which every method has a run. InputError if there are none."""
    whole = scores.groupby(level="dataset").transform("count").all(axis=1)
    if not whole.any():
        raise InputError("there is no data set on which every method has a run")
    return scores[whole]
