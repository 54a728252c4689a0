"""Calibration of the methods (Section 4.3, Figure 4), from the records and the predictions beside them.

Errors are averaged by the geometric mean over data sets, as in the paper, and over their seeds as well, so
that their intervals are those of an average of logarithms.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from pvera import metrics
from pvera.adapters import METHODS, PAPER_METHODS
from pvera.report.scores import Scores
from pvera.report.statistics import averages, mean_and_std, percentile_interval, resample
from pvera.report.tables.benchmark import REFERENCE, Statement, about, left_out, marks, verdicts
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, dataset_title, interval, minus, percent
from pvera.study import results

LORA_BASED = ("lora", "vera", "pvera")  # as Section 4.3 counts them: not DoRA
SEED = 0  # of the bootstrap


# Computing


def geometric_means(errors: Scores) -> pd.DataFrame:
    """Geometric mean of an error over data sets and seeds; rows methods.

    mean, low and high: the mean, as the errors are (a share), and its 95 % bootstrap interval over data sets
    and seeds; seed<k>: that of one seed; ratio, ratio_low and ratio_high: to PVeRA's, paired over data sets,
    NaN without PVeRA. InputError where a method lacks a data set.
    """
    with np.errstate(divide="ignore"):  # one error of exactly zero makes the mean zero
        logs = np.log(errors.values)
    mean, drawn = averages(logs), averages(resample(logs, np.random.default_rng(SEED)))
    low, high = percentile_interval(drawn)
    columns = {"mean": mean, "low": low, "high": high}
    columns |= {f"seed{seed}": logs[:, s].mean(-1) for s, seed in enumerate(errors.seeds)}
    columns |= dict.fromkeys(("ratio", "ratio_low", "ratio_high"), np.nan)
    if REFERENCE in errors.methods:
        r = errors.methods.index(REFERENCE)
        low, high = percentile_interval(drawn - drawn[:, [r]])
        columns |= {"ratio": mean - mean[r], "ratio_low": low, "ratio_high": high}
    return np.exp(pd.DataFrame(columns, pd.Index(errors.methods, name="method")))


def predictions(root, runs: list[dict]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Per method the confidence and the correctness of each test image, pooled over data sets and seeds.

    InputError where the predictions of a run were not kept below `root`.
    """
    found = {method: [] for method in Scores.of(runs).methods}
    for run in runs:
        if run["test"]:
            path = results.run_path(root, *(run[key] for key in results.IDENTITY))
            found[run["method"]].append(metrics.top_label(*results.read_predictions(path)))
    return {method: tuple(map(np.concatenate, zip(*parts, strict=True))) for method, parts in found.items() if parts}


def confound(accuracy: Scores, error: Scores) -> pd.Series:
    """Spearman's correlation of accuracy and error over the methods (means over seeds), per data set.

    NaN where a method lacks the data set, or all are equal.
    """
    pairs = zip(*(mean_and_std(scores.values, axis=1)[0].T for scores in (accuracy, error)), strict=True)
    found = [spearmanr(*pair).statistic if (np.ptp(pair, axis=1) > 0).all() else np.nan for pair in pairs]
    return pd.Series(found, accuracy.datasets)


def confounded(accuracy: Scores, error: Scores) -> str:
    """`confound` in a sentence."""
    found = confound(accuracy, error).dropna()
    listed = ", ".join(f"{minus(f'{rho:+.2f}')} on {dataset_title(name)}" for name, rho in found.items())
    return (
        "Rank correlation of accuracy and ACE over the methods, positive where the more accurate are "
        f"calibrated worse: {listed or 'none can be told'}."
    )


def _lead(of: tuple[str, ...], over: tuple[str, ...]) -> Callable[[Scores], float]:
    """How much lower, in points, the worst of some methods is than the best of others; NaN if one lacks."""

    def difference(errors: Scores) -> float:
        logs = mean_and_std(np.log(errors.values), axis=1)[0].mean(-1)
        mean = 100 * np.exp(pd.Series(logs, errors.methods))
        worst, best = mean.reindex(of).max(skipna=False), mean.reindex(over).min(skipna=False)
        return float(best - worst)

    return difference


CLAIMS: tuple[Statement, ...] = (
    (
        "LoRA, VeRA and PVeRA are all better calibrated than the other adapters",
        "points between the highest ACE of theirs and the lowest of the others",
        _lead(LORA_BASED, tuple(m for m in PAPER_METHODS if m not in (*LORA_BASED, "linear"))),
    ),
    (
        "LoRA, VeRA and PVeRA are all better calibrated than linear probing",
        "points between the highest ACE of theirs and that of linear probing",
        _lead(LORA_BASED, ("linear",)),
    ),
    ("PVeRA is at least as well calibrated as VeRA", "points below VeRA's ACE", _lead(("pvera",), ("vera",))),
)


def kept(ace: pd.DataFrame) -> str:
    """Whether VeRA's calibration can be told from PVeRA's, in a sentence; `ace` by `geometric_means`."""
    if "vera" not in ace.index or REFERENCE not in ace.index:
        return "VeRA and PVeRA are not both among these runs."
    own = ace.loc["vera"]
    ratio = interval(own["ratio"], own["ratio_low"], own["ratio_high"], 2)
    told = "worse" if own["ratio_low"] > 1 else "better" if own["ratio_high"] < 1 else ""
    verdict = f"VeRA is calibrated {told} than PVeRA" if told else "VeRA and PVeRA cannot be told apart by it"
    return f"VeRA's ACE is {ratio} times PVeRA's (95 % interval over data sets and seeds): {verdict}."


# The tables


def calibration(runs: list[dict]) -> Table:
    """Calibration errors and proper scores per method."""
    of = {metric: Scores.of(runs, metric).complete() for metric in ("ace", "ece", "nll", "brier", "accuracy")}
    ace, ece = (geometric_means(of[metric]) for metric in ("ace", "ece"))
    data = pd.concat([ace.add_prefix("ace_"), ece.add_prefix("ece_")], axis=1)
    for metric in ("nll", "brier", "accuracy"):
        data[metric] = averages(of[metric].values)
    marked = {
        "ace": marks(-100 * ace["mean"]), "ece": marks(-100 * ece["mean"]),
        "nll": marks(-data["nll"], 3), "brier": marks(-data["brier"], 3),
    }  # fmt: skip
    rows = []
    for m, (method, own) in enumerate(data.iterrows()):
        ratio = interval(own["ace_ratio"], own["ace_ratio_low"], own["ace_ratio_high"], 2)
        cells = (
            Cell(f"{100 * own['ace_mean']:.1f}", marked["ace"][m]),
            Cell(interval(None, 100 * own["ace_low"], 100 * own["ace_high"])),
            Cell(NOTHING if method == REFERENCE else ratio),
            Cell(f"{100 * own['ece_mean']:.1f}", marked["ece"][m]),
            Cell(f"{own['nll']:.3f}", marked["nll"][m]),
            Cell(f"{own['brier']:.3f}", marked["brier"][m]),
            Cell(percent(100 * own["accuracy"])),
        )
        rows.append(Row(METHODS[method].title, cells))
    header = ("ACE", "95 % interval", "Ratio to PVeRA's", "ECE", "NLL", "Brier", "Accuracy")
    caption = (
        f"Calibration errors (%, {metrics.BINS} bins; geometric means over data sets and seeds), negative "
        "log-likelihood (nats), Brier score and accuracy (%) (means). In brackets 95 % bootstrap intervals "
        "over data sets and seeds. Lowest in bold, second lowest underlined."
    )
    caption += left_out(Scores.of(runs))
    return Table("calibration", caption, about(runs), (Panel("", header, tuple(rows)),), data.reset_index())


def held_claims(runs: list[dict]) -> Table:
    """What Section 4.3 says of calibration, and whether it holds here."""
    caption = "What the paper says of calibration, by the geometric mean of ACE, and whether it holds here."
    return verdicts("calibration_claims", caption, runs, Scores.of(runs, "ace"), CLAIMS)
