"""Whether another precision of the products changes the accuracy, beside what another seed changes."""

from operator import itemgetter

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.report.scores import Scores
from pvera.report.statistics import mean_and_std
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, dataset_title, signed


def changes(full: list[dict], other: list[dict]) -> pd.DataFrame:
    """One row per method and data set that both lists of runs have, of the seeds that both have.

    change: mean accuracy of `other` minus that of `full`, in points; spread: standard deviation over the seeds of
    `full`; within: whether the first is at most the second.
    """
    key = itemgetter("method", "dataset", "seed")
    known = set(map(key, full)) & set(map(key, other))
    own = [Scores.of([run for run in runs if key(run) in known]) for runs in (full, other)]
    (mean, spread), (others, _) = (mean_and_std(100 * scores.values, axis=1) for scores in own)
    rows = [
        (method, dataset, others[m, d] - mean[m, d], spread[m, d])
        for m, method in enumerate(own[0].methods)
        for d, dataset in enumerate(own[0].datasets)
    ]
    data = pd.DataFrame(rows, columns=["method", "dataset", "change", "spread"])
    return data.assign(within=data["change"].abs() <= data["spread"])


def table(full: list[dict], other: list[dict]) -> Table:
    """Of `changes`: a row per method, a column per data set."""
    data = changes(full, other)
    cells = data.set_index(["method", "dataset"])
    datasets = list(dict.fromkeys(data["dataset"]))
    rows = []
    for method in dict.fromkeys(data["method"]):
        own = cells.loc[method]
        texts = [
            NOTHING
            if np.isnan(own.at[name, "change"])
            else f"{signed(own.at[name, 'change'], 1)} ({own.at[name, 'spread']:.1f})"
            for name in datasets
        ]
        rows.append(Row(METHODS[method].title, tuple(map(Cell, texts))))
    first, second = (runs[0]["config"]["precision"] for runs in (full, other))
    caption = (
        f"Accuracy in {second} minus that in {first}, means over seeds, in points; in brackets the sample standard "
        f"deviation over seeds in {first}. {data['within'].sum()} of {len(data)} changes are within it; on average "
        f"the accuracy changes by {signed(data['change'].mean(), 2)} points."
    )
    return Table(
        "precision",
        caption,
        f"Profile {full[0]['profile']}.",
        (Panel("", tuple(map(dataset_title, datasets)), tuple(rows)),),
        data,
    )
