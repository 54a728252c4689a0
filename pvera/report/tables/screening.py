"""Task screening: data sets that cannot tell methods apart, at chance or saturated."""

from pathlib import Path

import numpy as np
import pandas as pd

from pvera.report.scores import Records, largest_class, score_frame
from pvera.report.table import Column, Table
from pvera.report.text import title
from pvera.study import results

#: The methods that say whether a data set can tell methods apart.
SCREENING = ("linear", "lora", "bottleneck")
#: Points above the share of the largest class; the best of `SCREENING` is at chance below it.
CHANCE_MARGIN = 5
#: Per cent; a data set is saturated where the worst of `SCREENING` is above it.
SATURATED = 95


def screen_datasets(root: Path, records: Records) -> pd.DataFrame:
    """Return the numbers that decide whether a data set can tell methods apart.

    Args:
        root: Folder of the results, with the predictions whose labels are counted.
        records: The runs of the benchmark.

    Returns:
        Rows data sets; columns test accuracies (%) of `SCREENING` with the first seed, "largest
        class", its share (%), and "left out": "chance", "saturated" or ""; their names are those of
        the committed CSV file. Without a row where one of them is not trained. Without predictions
        the largest class is NaN, and only a saturated data set is left out.
    """
    first_seed = min(record["seed"] for record in records)
    records = [record for record in records if record["seed"] == first_seed]
    # Labels are stored with the predictions, which a clone may lack.
    with_labels = [
        record
        for record in records
        if results.path_of(root, record).with_suffix(results.ARRAYS_SUFFIX).exists()
    ]

    accuracies = 100 * score_frame(records).droplevel(["category", "seed"])
    accuracies = accuracies.reindex(columns=SCREENING).dropna()
    shares = 100 * pd.Series(largest_class(root, with_labels), dtype=float, name="largest class")
    scores = accuracies.join(shares)
    chance = accuracies.max(axis=1) < scores["largest class"] + CHANCE_MARGIN
    saturated = accuracies.min(axis=1) > SATURATED
    scores["left out"] = np.select([chance, saturated], ["chance", "saturated"], "")
    return scores


def left_out_datasets(root: Path, records: Records) -> set[str]:
    """Return the data sets that `screen_datasets` leaves out.

    Whether one is at chance is known only where predictions of the benchmark are stored.
    """
    reasons = screen_datasets(root, records)["left out"]
    return set(reasons[reasons != ""].index)


def screening_table(scores: pd.DataFrame) -> Table:
    """Build the table of `screen_datasets`."""
    columns = {
        "largest class": Column("Largest class", 1),
        **{name: Column(title(name), 1) for name in SCREENING},
        "left out": Column("Left out", lambda row: row["left out"] or "no"),
    }
    caption = (
        "Task screening: test accuracy (%) with the lowest seed, and the share (%) of the largest "
        "class."
    )
    notes = (
        f"A data set is left out at chance, where the best is less than {CHANCE_MARGIN} points "
        f"above that share, and saturated, where the worst is above {SATURATED} %."
    )
    return Table("screening", caption, scores, columns=columns, notes=notes)
