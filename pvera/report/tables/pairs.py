"""PVeRA's lead over each method on each data set, with its interval over test images, beside the paper's stars."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pvera import metrics
from pvera.report.scores import predictions
from pvera.report.statistics import cluster_interval
from pvera.report.table import STAR, Table, crossed, interval, signed, title
from pvera.report.tables.benchmark import REFERENCE, about, comparisons


def image_leads_table(root, runs: list[dict], units: Mapping[str, np.ndarray]) -> Table:
    """Build the table of PVeRA against every method on the test images of every data set.

    units: data set -> (n,), the unit that each test image comes from; without it, each image is one. In the data, lead,
    low, high: accuracy of PVeRA minus the method's in points, mean over the seeds that both have, and its interval from
    resampled units (`cluster_interval`), with the trained adapters fixed; star: that of the paper's test. InputError
    where predictions are missing.
    """
    stars = comparisons(runs).set_index(["dataset", "method"])["significantly_lower"]
    correct: dict[tuple, dict] = {}  # (data set, method) -> seed -> whether each image is answered correctly
    for run in runs:
        if run["test"]:
            of_seeds = correct.setdefault((run["dataset"], run["method"]), {})
            of_seeds[run["seed"]] = metrics.top_label(*predictions(root, run))[1]
    rows = []
    for dataset, method in stars.drop(REFERENCE, level="method", errors="ignore").index:
        ours, theirs = (correct.get((dataset, name), {}) for name in (REFERENCE, method))
        differences = [100.0 * ours[seed] - 100.0 * theirs[seed] for seed in theirs if seed in ours]
        if differences:
            lead = np.mean(differences, axis=0)
            # A trial has the first images alone.
            of_images = units.get(dataset, np.arange(len(lead)))[: len(lead)]
            low, high = cluster_interval(lead, of_images)
            counts = (len(differences), len(lead), len(np.unique(of_images)))
            rows.append((dataset, method, *counts, lead.mean(), low, high, bool(stars[dataset, method])))
    columns = ["dataset", "method", "seeds", "images", "units", "lead", "low", "high", "star"]
    data = pd.DataFrame(rows, columns=columns)

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
