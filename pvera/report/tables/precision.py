"""Change of accuracy under another precision, compared with the spread over seeds."""

from operator import itemgetter

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.errors import InputError
from pvera.report.scores import Scores
from pvera.report.statistics import mean_and_std
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, signed
from pvera.report.tables.names import dataset_title


def changes(full: list[dict], other: list[dict]) -> pd.DataFrame:
    """Compare two lists of runs on the seeds that both have: one row per method and data set.

    change: mean accuracy of `other` minus that of `full`, in points. spread: standard deviation over the seeds of
    `full`. within: whether the change is at most the spread.

    InputError where two runs differ in more than the precision and what a search chose.
    """
    key = itemgetter("method", "dataset", "seed")
    pairs = [{key(run): run for run in runs} for runs in (full, other)]
    known = pairs[0].keys() & pairs[1].keys()
    for place in known:
        one, two = (runs[place]["config"] for runs in pairs)
        differing = {name for name in one.keys() | two.keys() if one.get(name) != two.get(name)}
        if more := sorted(differing - {"precision", "members"}):
            raise InputError(f"{'/'.join(map(str, place))}: the runs differ in more than the precision: in {more[0]}")
    common = [Scores.of([run for run in runs if key(run) in known]) for runs in (full, other)]
    (mean, spread), (others, _) = (mean_and_std(100 * scores.values, axis=1) for scores in common)
    rows = [
        (method, dataset, others[m, d] - mean[m, d], spread[m, d])
        for m, method in enumerate(common[0].methods)
        for d, dataset in enumerate(common[0].datasets)
    ]
    data = pd.DataFrame(rows, columns=["method", "dataset", "change", "spread"])
    return data.assign(within=data["change"].abs() <= data["spread"])


def precision_table(full: list[dict], other: list[dict]) -> Table:
    """Build the table of `changes`: a row per method, a column per data set."""
    data = changes(full, other)
    cells = data.set_index(["method", "dataset"])
    datasets = list(dict.fromkeys(data["dataset"]))
    rows = []
    for method in dict.fromkeys(data["method"]):
        of_method = cells.loc[method]
        texts = [
            NOTHING
            if np.isnan(of_method.at[name, "change"])
            else f"{signed(of_method.at[name, 'change'], 1)} ({of_method.at[name, 'spread']:.1f})"
            for name in datasets
        ]
        rows.append(Row(METHODS[method].title, tuple(map(Cell, texts))))
    first, second = (runs[0]["config"]["precision"] for runs in (full, other))
    caption = (
        f"Accuracy in {second} minus that in {first} (points, means over seeds). Brackets hold the sample standard "
        f"deviation over seeds in {first}; {data['within'].sum()} of {len(data)} changes are within it. The mean "
        f"change is {signed(data['change'].mean(), 2)} points."
    )
    return Table(
        "precision",
        caption,
        f"Profile {full[0]['profile']}.",
        (Panel("", tuple(map(dataset_title, datasets)), tuple(rows)),),
        data,
    )
