"""Calibration of the methods (Section 4.3, Figure 4).

Errors are averaged by the geometric mean over data sets, as in the paper, and over seeds. Their
intervals are those of a mean of logarithms.
"""

import numpy as np
import pandas as pd

from pvera import metrics
from pvera.report.captions import caption_source
from pvera.report.scores import Records, complete_datasets, mean_over_seeds, score_frame
from pvera.report.statistics import mean_intervals
from pvera.report.table import Column, Table
from pvera.report.text import bounds, interval

COLUMNS = {
    "ace_mean": Column("ACE", 1, best="min"),
    "ace_low": Column("95 % interval", lambda row: bounds(row["ace_low"], row["ace_high"])),
    "ace_ratio": Column(
        "Ratio to PVeRA's",
        lambda row: interval(row["ace_ratio"], row["ace_ratio_low"], row["ace_ratio_high"], 2),
    ),
    "ece_mean": Column("ECE", 1, best="min"),
    "nll": Column("NLL", 3, best="min"),
    "brier": Column("Brier", 3, best="min"),
    "accuracy": Column("Accuracy", 1),
}


def geometric_means(errors: pd.DataFrame) -> pd.DataFrame:
    """Compute the geometric mean of an error over data sets and seeds.

    Args:
        errors: Shares, a frame of `score_frame` whose data sets have every method.

    Returns:
        Rows methods. mean, low, high: the mean with its 95 % interval over data sets. seed<k>: of
        one seed. ratio, ratio_low, ratio_high: the mean to PVeRA's, paired; NaN without PVeRA.
    """
    # An error of exactly zero makes the mean zero.
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(errors)
        log_ratios = logs.sub(logs.get("pvera", np.nan), axis=0)
        means = mean_intervals(logs)
        ratios = mean_intervals(log_ratios)
    ratios.columns = ["ratio", "ratio_low", "ratio_high"]
    # Means over data sets, a column per seed.
    seeds = logs.groupby(level="seed").mean(skipna=False).T.add_prefix("seed")
    return np.exp(means.join(ratios).join(seeds))


def calibration_errors(records: Records) -> dict[str, pd.DataFrame]:
    """Return the `geometric_means` of "ACE" and "ECE" (%), in the shape that `forest` draws."""
    frames = {}
    for name in ("ACE", "ECE"):
        errors = complete_datasets(score_frame(records, name.lower()))
        frames[name] = 100 * geometric_means(errors)
    return frames


def calibration_table(records: Records) -> Table:
    """Build the table of calibration errors and proper scores per method."""
    scores = {
        metric: complete_datasets(score_frame(records, metric))
        for metric in ("ace", "ece", "nll", "brier", "accuracy")
    }
    errors = [geometric_means(scores[name]).add_prefix(f"{name}_") for name in ("ace", "ece")]
    data = pd.concat(errors, axis=1)
    for metric in ("nll", "brier", "accuracy"):
        data[metric] = mean_over_seeds(scores[metric]).mean()

    percent = ["accuracy", "ace_mean", "ace_low", "ace_high", "ece_mean"]
    panel = data.assign(**100 * data[percent])
    if "pvera" in panel.index:
        # Its ratio to itself is no result.
        panel.loc["pvera", ["ace_ratio", "ace_ratio_low", "ace_ratio_high"]] = np.nan

    caption = "Calibration and proper scores of each method."
    notes = (
        f"ACE and ECE: % in {metrics.BINS} bins, geometric means over data sets and seeds. NLL: "
        "negative log-likelihood (nats). NLL, Brier score and accuracy (%): means. Brackets: 95 "
        "% intervals over data sets. Bold: lowest. Underlined: second lowest."
    )
    # `complete_datasets` may have left out data sets.
    shared = len(scores["ace"].index.unique("dataset"))
    every = len(score_frame(records).index.unique("dataset"))
    if shared < every:
        notes += f" Over the {shared} of {every} data sets of which every method has a run."
    return Table(
        "calibration",
        caption,
        panel,
        columns=COLUMNS,
        data=data.reset_index(),
        source=caption_source(records),
        notes=notes,
    )
