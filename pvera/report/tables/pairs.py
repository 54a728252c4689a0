"""PVeRA's lead over each method on each data set, with its interval over test images, beside the paper's stars."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pvera import metrics
from pvera.errors import InputError
from pvera.report.statistics import cluster_interval
from pvera.report.table import STAR, Table, crossed, interval, signed, title
from pvera.report.tables.benchmark import REFERENCE, about, comparisons
from pvera.study import results


def answers(root, run: dict) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels (n,) of a run's test images and whether it answered each correctly (n,)."""
    path = results.run_path(root, *(run[key] for key in results.IDENTITY))
    probabilities, labels = results.read_predictions(path)
    return labels, metrics.top_label(probabilities, labels)[1]


def image_leads(root, runs: list[dict], units: Mapping[str, np.ndarray] | None = None) -> pd.DataFrame:
    """Compare PVeRA with every method on the test images of every data set: one row per data set and method.

    units: data set -> (n,), the unit that each test image comes from; without it, each image is one. lead, low, high:
    accuracy of PVeRA minus the method's in points, mean over the seeds that both have, and its interval from resampled
    units (`cluster_interval`), with the trained adapters fixed. units: their number. star: that of the paper's test.
    InputError where predictions are missing, or two runs were tested on other images.
    """
    units = units or {}
    stars = comparisons(runs).set_index(["dataset", "method"])["significantly_lower"]
    correct = {}
    for run in runs:
        if run["test"]:
            correct[run["dataset"], run["method"], run["seed"]] = answers(root, run)
    rows = []
    for dataset, method in stars.index:
        seeds = [s for d, m, s in correct if (d, m) == (dataset, REFERENCE) and (dataset, method, s) in correct]
        if method == REFERENCE or not seeds:
            continue
        differences = []
        for seed in seeds:
            (labels, ours), (others, theirs) = (correct[dataset, m, seed] for m in (REFERENCE, method))
            if not np.array_equal(labels, others):
                raise InputError(f"{dataset}, seed {seed}: {method} and {REFERENCE} were tested on other images")
            differences.append(100.0 * ours - 100.0 * theirs)
        lead = np.mean(differences, axis=0)
        of_images = units[dataset][: len(lead)] if dataset in units else None  # a trial has the first images alone
        low, high = cluster_interval(lead, of_images)
        rows.append(
            {
                "dataset": dataset, "method": method, "seeds": len(seeds), "images": len(lead),
                "units": len(lead) if of_images is None else len(np.unique(of_images)),
                "lead": lead.mean(), "low": low, "high": high, "star": bool(stars[dataset, method]),
            }
        )  # fmt: skip
    columns = ["dataset", "method", "seeds", "images", "units", "lead", "low", "high", "star"]
    return pd.DataFrame(rows, columns=columns)


def image_leads_table(root, runs: list[dict], units: Mapping[str, np.ndarray] | None = None) -> Table:
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
    cells = crossed(data, "dataset", "method", cell)
    return Table("detailed_leads", caption, {"": cells}, data=data, about=f"{_units(data)} {about(runs)}")


def _units(data: pd.DataFrame) -> str:
    """Say where images share units, in a sentence for a caption."""
    fewer = data[data["units"] < data["images"]].drop_duplicates("dataset")
    listed = ", ".join(f"{row.dataset} ({row.units} of {row.images} images)" for row in fewer.itertuples())
    return f"Units that several images share: {listed}." if listed else "Each test image counts as a unit of its own."
