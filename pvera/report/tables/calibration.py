"""Calibration of the methods (Section 4.3, Figure 4), from result files.

Errors are averaged by the geometric mean over data sets, as in the paper, and over seeds. Their intervals are those of
a mean of logarithms.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from pvera import metrics
from pvera.report.analyses import Uncertainty
from pvera.report.scores import complete, over_seeds, score_frame
from pvera.report.statistics import over_datasets
from pvera.report.table import Table, interval
from pvera.report.tables.benchmark import REFERENCE, describe_runs


def geometric_means(errors: pd.DataFrame) -> pd.DataFrame:
    """Compute the geometric mean of an error (a share) over data sets and seeds; rows methods.

    errors: `scores.score_frame`, complete. mean, low, high: over data sets and seeds, with its 95 % interval
    (`statistics.half_width_over_units`). seed<k>: of one seed. ratio, ratio_low, ratio_high: the mean to PVeRA's, paired; NaN
    without PVeRA.
    """
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # an error of exactly zero makes the mean zero
        logs = np.log(errors)
        ratios = over_datasets(logs.sub(logs.get(REFERENCE, np.nan), axis=0)).add_prefix("ratio_")
        means = over_datasets(logs).join(ratios.rename(columns={"ratio_mean": "ratio"}))
    seeds = logs.groupby(level="seed").mean(skipna=False).T.add_prefix("seed")
    return np.exp(means.join(seeds))


def expected(samples: Iterable[Uncertainty]) -> float:
    """Return the ACE (%) expected under perfect calibration: of labels drawn from PVeRA's own scores, of one pass.

    Geometric mean over data sets and seeds.
    """
    aces = [metrics.calibrated_errors(run.single_pass)["ace"] for run in samples]
    logs = [np.log(of_draws).mean() for of_draws in aces]
    return 100 * float(np.exp(np.mean(logs)))


def calibration(runs: list[dict]) -> Table:
    """Build the table of calibration errors and proper scores per method."""
    scores = {
        metric: complete(score_frame(runs, metric))
        for metric in ("ace", "ece", "nll", "brier", "accuracy")
    }
    parts = [geometric_means(scores[metric]).add_prefix(f"{metric}_") for metric in ("ace", "ece")]
    data = pd.concat(parts, axis=1)
    for metric in ("nll", "brier", "accuracy"):
        data[metric] = over_seeds(scores[metric]).mean()

    percents = ["accuracy", "ace_mean", "ace_low", "ace_high", "ece_mean"]
    panel = data.assign(**100 * data[percents])
    if REFERENCE in panel.index:
        panel.loc[REFERENCE, ["ace_ratio", "ace_ratio_low", "ace_ratio_high"]] = np.nan
    spec = {
        "ace_mean": ("ACE", 1, "min"),
        "ace_low": ("95 % interval", lambda row: interval(None, row["ace_low"], row["ace_high"])),
        "ace_ratio": (
            "Ratio to PVeRA's", lambda row: interval(row["ace_ratio"], row["ace_ratio_low"], row["ace_ratio_high"], 2),
        ),
        "ece_mean": ("ECE", 1, "min"),
        "nll": ("NLL", 3, "min"),
        "brier": ("Brier", 3, "min"),
        "accuracy": ("Accuracy", 1),
    }  # fmt: skip
    caption = (
        f"Calibration and proper scores of each method. ACE and ECE: % in {metrics.BINS} bins, geometric means over "
        "data sets and seeds. NLL: negative log-likelihood (nats). NLL, Brier score and accuracy (%): means. Brackets: "
        "95 % intervals over data sets. Bold: lowest. Underlined: second lowest."
    )
    shared, every = (
        len(part.index.unique("dataset")) for part in (scores["ace"], score_frame(runs))
    )
    if shared < every:
        caption += f" Over the {shared} of {every} data sets of which every method has a run."
    return Table("calibration", caption, {"": panel}, spec, data.reset_index(), describe_runs(runs))
