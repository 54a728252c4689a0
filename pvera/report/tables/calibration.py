"""Calibration of the methods (Section 4.3, Figure 4), from result files and stored predictions.

Errors are averaged by the geometric mean over data sets, as in the paper, and over seeds. Their intervals are those of
a mean of logarithms.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from pvera import metrics
from pvera.adapters import METHODS
from pvera.report.scores import Scores, wide
from pvera.report.statistics import averages, mean_and_std, percentile_interval, resample, smallest
from pvera.report.table import marks
from pvera.report.tables.benchmark import REFERENCE, about, left_out, verdicts_on
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, interval, minus, percent
from pvera.report.tables.names import dataset_title
from pvera.report.tables.verdicts import Statement, by_method, leads, others
from pvera.study import results

LORA_BASED = ("lora", "vera", "pvera")  # Section 4.3 leaves DoRA out
SEED = 0  # of the bootstrap


# Computing


def geometric_means(errors: Scores) -> pd.DataFrame:
    """Compute the geometric mean of an error (a share) over data sets and seeds; rows methods.

    mean, low, high: the mean and its 95 % bootstrap interval over data sets. seed<k>: the mean of one seed.
    ratio, ratio_low, ratio_high: to PVeRA's mean, with the bootstrap interval of `smallest`, paired over data sets; NaN
    without PVeRA. InputError where a method lacks a data set.
    """
    with np.errstate(divide="ignore"):  # an error of exactly zero makes the mean zero
        logs = np.log(errors.values)
    mean, drawn = averages(logs), averages(resample(logs, np.random.default_rng(SEED)))
    datasets = len(errors.datasets)
    low, high = percentile_interval(drawn, mean, datasets)
    columns = {"mean": mean, "low": low, "high": high}
    columns |= {f"seed{seed}": logs[:, s].mean(-1) for s, seed in enumerate(errors.seeds)}
    columns |= dict.fromkeys(("ratio", "ratio_low", "ratio_high"), np.nan)
    if REFERENCE in errors.methods:
        r = errors.methods.index(REFERENCE)
        with np.errstate(invalid="ignore"):  # of errors of exactly zero
            gaps = [smallest({"": (of_method - logs[r]).T}) for of_method in logs]
        columns |= {
            "ratio": mean - mean[r],
            "ratio_low": [gap.bootstrap_low for gap in gaps],
            "ratio_high": [gap.bootstrap_high for gap in gaps],
        }
    return np.exp(pd.DataFrame(columns, pd.Index(errors.methods, name="method")))


def predictions(root, runs: list[dict]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Load confidence and correctness of each test image per method, pooled over data sets and seeds.

    InputError where the predictions of a run are not below `root`.
    """
    parts_of = {method: [] for method in Scores.of(runs).methods}
    for run in runs:
        if run["test"]:
            path = results.run_path(root, *(run[key] for key in results.IDENTITY))
            parts_of[run["method"]].append(metrics.top_label(*results.read_predictions(path)))
    return {method: tuple(map(np.concatenate, zip(*parts, strict=True))) for method, parts in parts_of.items() if parts}


def floors(root, runs: list[dict]) -> dict[str, Scores]:
    """Return the "ace" and "ece" of each run if it were calibrated: geometric means over drawn labels.

    InputError where the predictions of a run are not below `root`.
    """
    of_run = {}
    for run in runs:
        if run["test"]:
            path = results.run_path(root, *(run[key] for key in results.IDENTITY))
            confidence = results.read_predictions(path)[0].max(1)
            errors = metrics.calibrated_errors(confidence, run["test"].get("bins", metrics.BINS))
            of_run[path] = {name: float(np.exp(np.log(drawn).mean())) for name, drawn in errors.items()}

    def floor(metric: str) -> Callable[[dict], float]:
        return lambda run: of_run[results.run_path(root, *(run[key] for key in results.IDENTITY))][metric]

    return {metric: Scores.of(runs, floor(metric)) for metric in ("ace", "ece")}


def confound(accuracy: Scores, error: Scores) -> pd.Series:
    """Compute Spearman's correlation of accuracy and error over the methods (means over seeds), per data set.

    NaN where a method lacks the data set, or all methods are equal.
    """
    pairs = zip(*(mean_and_std(scores.values, axis=1)[0].T for scores in (accuracy, error)), strict=True)
    correlations = [spearmanr(*pair).statistic if (np.ptp(pair, axis=1) > 0).all() else np.nan for pair in pairs]
    return pd.Series(correlations, accuracy.datasets)


def confound_summary(accuracy: Scores, error: Scores) -> str:
    """Return `confound` in a sentence."""
    correlations = confound(accuracy, error).dropna()
    listed = ", ".join(f"{minus(f'{rho:+.2f}')} on {dataset_title(name)}" for name, rho in correlations.items())
    return (
        "Rank correlation of accuracy and ACE over the methods (positive: the more accurate methods are calibrated "
        f"worse): {listed or 'none can be told'}."
    )


def _below(of: Iterable[str], over: Iterable[str]) -> Callable[[Scores], dict[str, np.ndarray]]:
    """Return contrasts of log errors: how far each method of `of` lies below each of `over`."""

    def contrasts(errors: Scores) -> dict[str, np.ndarray]:
        with np.errstate(divide="ignore"):
            logs = {method: -np.log(values) for method, values in by_method(errors, 1).items()}
        return {
            f"{title} against {METHODS[method].title}": lead
            for method in of
            for title, lead in leads(logs, method, over).items()
        }

    return contrasts


def _percent(log_ratio: float) -> float:
    """Return a log ratio in percent."""
    return 100 * float(np.expm1(log_ratio))


MORE, LESS = "{name}: calibration error (ACE) {size} % higher", "{name}: calibration error (ACE) {size} % lower"
CLAIMS: tuple[Statement, ...] = (
    Statement(
        "LoRA, VeRA and PVeRA are all better calibrated than the other adapters",
        MORE, LESS, _below(LORA_BASED, others(*LORA_BASED, "linear")), shown=_percent,
    ),
    Statement(
        "Not in the paper: LoRA, VeRA and PVeRA are all better calibrated than linear probing",
        MORE, LESS, _below(LORA_BASED, ("linear",)), shown=_percent,
    ),
    Statement(
        "Not in the paper: PVeRA is better calibrated than VeRA",
        MORE, LESS, _below(("pvera",), ("vera",)), shown=_percent,
    ),
)  # fmt: skip


def vera_against_pvera(ace: pd.DataFrame) -> str:
    """Say in one sentence whether VeRA's calibration differs from PVeRA's; ace: its `geometric_means`."""
    if "vera" not in ace.index or REFERENCE not in ace.index:
        return "VeRA and PVeRA are not both among these runs."
    vera = ace.loc["vera"]
    ratio = interval(vera["ratio"], vera["ratio_low"], vera["ratio_high"], 2)
    told = "worse" if vera["ratio_low"] > 1 else "better" if vera["ratio_high"] < 1 else ""
    verdict = f"VeRA is calibrated {told} than PVeRA" if told else "the two cannot be told apart"
    return f"VeRA's ACE is {ratio} times PVeRA's (95 % bootstrap interval over data sets): {verdict}."


# The tables


def calibration(runs: list[dict], floors: Mapping[str, Scores]) -> Table:
    """Build the table of calibration errors, each beside its floor (`floors`), and proper scores per method."""
    scores = {metric: Scores.of(runs, metric).complete() for metric in ("ace", "ece", "nll", "brier", "accuracy")}
    ace, ece = (geometric_means(scores[metric]) for metric in ("ace", "ece"))
    data = pd.concat([ace.add_prefix("ace_"), ece.add_prefix("ece_")], axis=1)
    for metric, floor in floors.items():
        data[f"{metric}_floor"] = np.exp(averages(np.log(floor.complete().values)))
    for metric in ("nll", "brier", "accuracy"):
        data[metric] = averages(scores[metric].values)
    marked = {
        "ace": marks(-100 * ace["mean"]), "ece": marks(-100 * ece["mean"]),
        "nll": marks(-data["nll"], 3), "brier": marks(-data["brier"], 3),
    }  # fmt: skip
    rows = []
    for m, (method, row) in enumerate(data.iterrows()):
        ratio = interval(row["ace_ratio"], row["ace_ratio_low"], row["ace_ratio_high"], 2)
        cells = (
            Cell(f"{100 * row['ace_mean']:.1f}", marked["ace"][m]),
            Cell(f"{100 * row['ace_floor']:.1f}"),
            Cell(interval(None, 100 * row["ace_low"], 100 * row["ace_high"])),
            Cell(NOTHING if method == REFERENCE else ratio),
            Cell(f"{100 * row['ece_mean']:.1f}", marked["ece"][m]),
            Cell(f"{100 * row['ece_floor']:.1f}"),
            Cell(f"{row['nll']:.3f}", marked["nll"][m]),
            Cell(f"{row['brier']:.3f}", marked["brier"][m]),
            Cell(percent(100 * row["accuracy"])),
        )
        rows.append(Row(METHODS[method].title, cells))
    header = ("ACE", "Floor", "95 % interval", "Ratio to PVeRA's", "ECE", "Floor", "NLL", "Brier", "Accuracy")
    caption = (
        f"Calibration and proper scores of each method. ACE and ECE: % in {metrics.BINS} bins, geometric means over "
        "data sets and seeds. Floor: the same for labels drawn from the method's own scores, so of a perfectly "
        "calibrated model on as many images. NLL: negative log-likelihood (nats). NLL, Brier score and accuracy (%): "
        "means. Brackets: 95 % bootstrap intervals over data sets. Bold: lowest. Underlined: second lowest."
    )
    caption += left_out(wide(runs))
    return Table("calibration", caption, about(runs), (Panel("", header, tuple(rows)),), data.reset_index())


def load(root, profile: str) -> list[dict]:
    """Load the benchmark's runs, and the further seeds of VeRA and PVeRA."""
    return results.load_runs(root, profile, "benchmark", "components_vera", "components_pvera", optional=True)


def calibration_verdicts(runs: list[dict]) -> Table:
    """Build the verdicts on the claims about calibration (Section 4.3); runs: of one backbone, as of `load`."""
    caption = "The paper's claims about calibration, by the geometric mean of ACE over data sets and seeds."
    return verdicts_on("calibration_claims", caption, runs, Scores.of(runs, "ace"), CLAIMS)
