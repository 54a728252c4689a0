"""PVeRA's lead over each method on each data set, with its interval over test images, beside the paper's stars."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pvera import metrics
from pvera.errors import InputError
from pvera.report.scores import predictions
from pvera.report.statistics import cluster_interval
from pvera.report.table import STAR, Table, crossed, interval, signed, title
from pvera.report.tables.benchmark import REFERENCE, about, comparisons


def image_leads(root, runs: list[dict], units: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Compare PVeRA with every method on the test images of every data set: one row per data set and method.

    units: data set -> (n,), the unit that each test image comes from; without it, each image is one. lead, low, high:
    accuracy of PVeRA minus the method's in points, mean over the seeds that both have, and its interval from resampled
    units (`cluster_interval`), with the trained adapters fixed. units: their number. star: that of the paper's test.
    InputError where predictions are missing, or two runs were tested on other images.
    """
    stars = comparisons(runs).set_index(["dataset", "method"])["significantly_lower"]
    answers = {}
    for run in runs:
        if run["test"]:
            probabilities, labels = predictions(root, run)
            correct = metrics.top_label(probabilities, labels)[1]
            answers[run["dataset"], run["method"], run["seed"]] = labels, correct
    rows = []
    for dataset, method in stars.drop(REFERENCE, level="method", errors="ignore").index:
        differences = []
        for (name, other, seed), (labels, theirs) in answers.items():
            if (name, other) != (dataset, method) or (dataset, REFERENCE, seed) not in answers:
                continue
            of_reference, ours = answers[dataset, REFERENCE, seed]
            if not np.array_equal(labels, of_reference):
                raise InputError(f"{dataset}, seed {seed}: {method} and {REFERENCE} were tested on other images")
            differences.append(100.0 * ours - 100.0 * theirs)
        if differences:
            lead = np.mean(differences, axis=0)
            # A trial has the first images alone.
            of_images = units.get(dataset, np.arange(len(lead)))[: len(lead)]
            low, high = cluster_interval(lead, of_images)
            counts = (len(differences), len(lead), len(np.unique(of_images)))
            rows.append((dataset, method, *counts, lead.mean(), low, high, bool(stars[dataset, method])))
    columns = ["dataset", "method", "seeds", "images", "units", "lead", "low", "high", "star"]
    return pd.DataFrame(rows, columns=columns)


def image_leads_table(root, runs: list[dict], units: Mapping[str, np.ndarray]) -> Table:
    """Build the table of `image_leads`."""
    data = image_leads(root, runs, units)

    def cell(row: pd.Series) -> str:
        text = f"{signed(row.lead, 1)}{STAR if row.star else ''} {interval(None, row.low, row.high)}"
        return f"**{text}**" if row.low > 0 or row.high < 0 else text

    caption = (
        f"PVeRA's lead in test accuracy (points) over {', '.join(map(title, data['method'].unique()))}, mean over "
        "seeds. Brackets: 95 % interval over other test images, from a paired bootstrap of their units, with the "
        "trained adapters fixed; it covers neither other seeds nor other data sets. Bold: the interval excludes zero. "
        "Star: the paper's, significantly below PVeRA by the binomial test that takes PVeRA's accuracy as known."
    )
    shared = data[data["units"] < data["images"]].drop_duplicates("dataset")
    if len(shared):
        listed = ", ".join(f"{title(row.dataset)} ({row.units} of {row.images})" for row in shared.itertuples())
        caption += f" Data sets whose images share units: {listed}."
    cells = crossed(data, "dataset", "method", cell)
    return Table("detailed_leads", caption, {"": cells}, data=data, about=about(runs))
