"""Monte Carlo uncertainty and intervals of PVeRA (Section 4.3, Appendix C), for correct and incorrect predictions.

The tables pool all test images of all adapters, as the paper does, and then show each data set alone: hard data sets
have both more errors and a wider spread, so pooling mixes the two.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from pvera.metrics import auroc
from pvera.report.analyses import Uncertainty
from pvera.report.analyses import estimates as estimates_of
from pvera.report.published import Published
from pvera.report.scores import place
from pvera.report.statistics import mean_interval, over_repeats, rank_sum
from pvera.report.table import Table, interval, origin, plain, signed, title
from pvera.report.tables.verdicts import (
    CONTRADICTED,
    INCONCLUSIVE,
    SUPPORTED,
    Answer,
    PairedDifferences,
    contrast,
)

ALL = "All data sets"
DRAWS = (4, 16)  # those of the paper's figure

Runs = Sequence[Uncertainty]


def ordered(runs: Runs) -> list[Uncertainty]:
    """Sort the runs in the order of data sets."""
    return sorted(runs, key=lambda run: place(run.record))


def datasets(runs: Runs) -> list[str]:
    """List the data sets of the runs, in their order."""
    return list(dict.fromkeys(run.record["dataset"] for run in ordered(runs)))


# Spread of the scores, widths of the intervals


def images(runs: Runs, k: int, value: str, right: str) -> pd.DataFrame:
    """Return a row per image and adapter: dataset, seed, and `value` and `right` of its estimates with k samples."""
    frames = []
    for run in runs:
        columns = {
            "value": getattr(run.estimates[k], value),
            "right": getattr(run.estimates[k], right),
        }
        frames.append(
            pd.DataFrame(columns | {name: run.record[name] for name in ("dataset", "seed")})
        )
    return pd.concat(frames)


#: The standard deviations of Algorithm 1, and the widths of the intervals.
spread_of, width_of = (
    partial(images, value="sd", right="most_are_correct"),
    partial(images, value="width", right="predicts_label"),
)


def parted(frame: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the values of correct and of incorrect `images`."""
    return frame.loc[frame["right"], "value"], frame.loc[~frame["right"], "value"]


def delta(frame: pd.DataFrame) -> float:
    """Return Cliff's delta of incorrect against correct `images`."""
    right, wrong = parted(frame)
    return rank_sum(wrong, right).cliffs_delta


def spread(runs: Runs) -> Table:
    """Build the table behind the paper's violins."""
    data = compared(runs, spread_of)
    caption = (
        "Mean standard deviation of the highest softmax score over the samples, for correct and incorrect images. An "
        "image is correct where more than half of its samples are. p: one-sided rank-sum test that incorrect images "
        "have the higher value. Cliff's delta: share of pairs in which the incorrect image has the higher value, minus "
        "the share in which the correct one has it; 0 is no effect."
    )
    csv = data.drop(columns="by_seed")
    return Table("uncertainty", caption, _by_draws(data), RIGHT_AND_WRONG, csv, describe_runs(runs))


RIGHT_AND_WRONG = {
    "wrong_percent": ("Incorrect (%)", 1),
    "right": ("Correct", 4),
    "wrong": ("Incorrect", 4),
    "p_value": ("p", lambda row: "< 0.0001" if row["p_value"] < 1e-4 else plain(row["p_value"], 4)),
    "ratio": ("Ratio", 2),
    "cliffs_delta": ("Cliff's delta", "+2"),
    "by_seed": ("By seed", lambda row: ", ".join(signed(value, 2) for value in row["by_seed"])),
}


def compared(runs: Runs, values_of: Callable) -> pd.DataFrame:
    """Compare the values of correct and incorrect images: one row per number of samples and group."""
    rows = []
    for k in DRAWS:
        frame = values_of(runs, k)
        for name in (ALL, *datasets(runs)):
            part = frame if name == ALL else frame[frame["dataset"] == name]
            right, wrong = parted(part)
            test = rank_sum(wrong, right)
            rows.append({
                "draws": k, "group": title(name), "wrong_percent": 100 * len(wrong) / len(part), "right": right.mean(),
                "wrong": wrong.mean(), "p_value": test.p_value, "cliffs_delta": test.cliffs_delta,
                "by_seed": part.groupby("seed").apply(delta).tolist(),
            })  # fmt: skip
    return pd.DataFrame(rows)


def _by_draws(data: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {f"{k} samples": part.set_index("group") for k, part in data.groupby("draws")}


# Detecting incorrect predictions

SD, SCORE, SINGLE = "Predictive standard deviation", "1 − mean score", "1 − score of one pass"


def detection(runs: Runs) -> pd.DataFrame:
    """Compute the AUROC for detecting incorrect predictions, one row per adapter, number of samples and way.

    Each way is held against its own predictions: the class that most of its samples predict, or that of one pass with
    the mean (`SINGLE`, whose number of samples is 0).
    """
    rows = []
    for run in runs:
        values = {(SINGLE, 0): (1 - run.single_pass, ~run.single_right)}
        for k, estimates in run.estimates.items():
            values |= {
                (SD, k): (estimates.sd, ~estimates.predicts_label),
                (SCORE, k): (1 - estimates.centre, ~estimates.predicts_label),
            }
        for (way, k), (uncertainty, wrong) in values.items():
            adapter = {name: run.record[name] for name in ("dataset", "seed")}
            rows.append(adapter | {"way": way, "draws": k, "auroc": auroc(uncertainty, wrong)})
    return pd.DataFrame(rows)


def detection_table(runs: Runs) -> Table:
    """Build the table of `detection`, averaged over seeds, then over data sets."""
    data, most = detection(runs), max(runs[0].estimates)
    ways = [*((SD, k) for k in runs[0].estimates), (SCORE, most), (SINGLE, 0)]
    means = (
        data.groupby(["dataset", "way", "draws"])["auroc"].mean().unstack(["way", "draws"])[ways]
    )
    means.columns = [way if k == 0 else f"{way}, {k} samples" for way, k in ways]
    panel = pd.concat(
        [means.mean().to_frame(f"Mean over {len(means)} data sets").T, means.loc[datasets(runs)]]
    )
    caption = (
        "AUROC for detecting incorrect predictions (0.5: chance), within each data set, mean over seeds. The "
        "prediction is the class that most samples predict, or that of one pass. Mean score: of the predicted class, "
        "over all samples. One pass: its highest score, with the mean and without samples."
    )
    spec = {name: (name, 3) for name in means}
    return Table("uncertainty_auroc", caption, {"": panel}, spec, data, describe_runs(runs))


@contrast
def deltas(runs: Runs, values_of: Callable, k: int, pooled: bool = False) -> PairedDifferences:
    """Return Cliff's delta of incorrect against correct images with k samples, within each adapter.

    pooled: of all adapters of a seed, as the paper pools them (Figure 5).
    """
    frame = values_of(runs, k)
    return {
        "": (frame.assign(dataset=ALL) if pooled else frame)
        .groupby(["dataset", "seed"])
        .apply(delta)
    }


@contrast
def times_as_wide(runs: Runs, k: int) -> PairedDifferences:
    """Return the logarithms of mean interval widths with k samples, of incorrect minus correct images.

    The paper compares these means over all images (Appendix C).
    """
    frame = width_of(runs, k).assign(dataset=ALL)
    means = (
        frame.groupby(["dataset", "seed", "right"])["value"]
        .mean()
        .unstack()
        .reindex(columns=[True, False])
    )
    return {"": np.log(means[False] / means[True])}


@contrast
def gain(runs: Runs, k: int) -> PairedDifferences:
    """Return how far the AUROC of k samples lies above that of one pass."""
    aurocs = detection(runs).pivot(
        index=["dataset", "seed"], columns=["way", "draws"], values="auroc"
    )
    return {"": aurocs[SD, k] - aurocs[SINGLE, 0]}


# Task by task

SAMPLES = 16  # of the statements on tasks
Sampled = Sequence[tuple[dict, dict[str, np.ndarray]]]  # of `load_analyses`


def by_task(analysed: Sampled) -> pd.DataFrame:
    """Return how well the predictive standard deviation of `SAMPLES` samples finds the errors of each data set.

    Returns:
        Rows data sets, by error rate. error: incorrect predictions (%), the class that most samples predict. mean, low,
        high: AUROC of errors, mean over seeds with its 95 % interval. seeds: how many there are.
    """
    rows = []
    for record, arrays in analysed:
        estimates = estimates_of(arrays)[SAMPLES]
        wrong = ~estimates.predicts_label
        place = {"dataset": record["dataset"], "seed": record["seed"]}
        rows.append(place | {"error": 100 * wrong.mean(), "auroc": auroc(estimates.sd, wrong)})
    of_seeds = pd.DataFrame(rows)

    tasks = {}
    for name, part in of_seeds.groupby("dataset"):
        aurocs = part.set_index("seed")["auroc"].to_frame().T
        error, seeds = part["error"].mean(), len(part)
        tasks[name] = {"error": error, "seeds": seeds} | mean_interval(aurocs, over_repeats)
    return pd.DataFrame.from_dict(tasks, orient="index").sort_values("error").rename_axis("dataset")


def sides(tasks: pd.DataFrame) -> tuple[int, int]:
    """Return the numbers of tasks whose interval lies above 0.5, and below."""
    return int((tasks["low"] > 0.5).sum()), int((tasks["high"] < 0.5).sum())


def by_task_table(tasks: pd.DataFrame) -> Table:
    """Build the table of `by_task`."""
    above, below = sides(tasks)
    spec = {
        "error": ("Incorrect (%)", 1),
        "mean": ("AUROC of errors", lambda row: interval(row["mean"], row["low"], row["high"], 2)),
        "seeds": ("Seeds", 0),
    }
    caption = (
        f"Does the predictive standard deviation of {SAMPLES} samples mark errors? AUROC for detecting incorrect "
        "predictions, the class that most samples predict, mean over seeds with its 95 % interval over them; 0.5 is "
        f"chance. By error rate. Of {len(tasks)} data sets {above} have an interval above 0.5, and {below} below."
    )
    return Table("uncertainty_by_task", caption, {"": tasks}, spec)


def marks_errors(tasks: pd.DataFrame) -> Answer:
    """Answer whether the predictive standard deviation marks errors on every task, or on none."""
    above, below = sides(tasks)
    verdict = (
        SUPPORTED if above == len(tasks) else CONTRADICTED if below == len(tasks) else INCONCLUSIVE
    )
    reading = f"AUROC above 0.5 on {above} of {len(tasks)} data sets, below on {below}"
    return Answer(reading, verdict, f"{len(tasks)} data sets, {tasks['seeds'].max():.0f} seeds")


# Rivals

#: (Experiment of the adapters, predictor) -> its title.
RIVALS = {
    ("benchmark", "pass"): "PVeRA, one pass with the mean",
    ("benchmark", "samples"): "PVeRA, {} samples",
    ("latent_dropout", "samples"): "VeRA, {} samples of latent dropout",
    ("benchmark", "ensemble"): "PVeRA, ensemble of {} seeds",
}


def rivals(analysed: Mapping[str, Sampled]) -> pd.DataFrame:
    """Return the scores of each predictor, mean over seeds: rows (predictor, dataset).

    Args:
        analysed: Experiment of the adapters -> its analyses "predictors".
    """
    frames = []
    for experiment, group in analysed.items():
        for record, arrays in group:
            frame = pd.DataFrame(arrays).assign(experiment=experiment, dataset=record["dataset"])
            frames.append(frame)
    scores = pd.concat(frames)

    parts = {}
    for (experiment, predictor), heading in RIVALS.items():
        part = scores[(scores["experiment"] == experiment) & (scores["predictor"] == predictor)]
        if len(part):
            parts[heading.format(part["passes"].max())] = part.groupby("dataset")[
                RIVAL_SCORES
            ].mean()
    return pd.concat(parts, names=["predictor"])


RIVAL_SCORES = ["accuracy", "nll", "ece", "auroc", "auroc_spread"]


def rivals_table(scores: pd.DataFrame) -> Table:
    """Build the table of `rivals` on the data sets that all predictors share."""
    counts = scores.groupby("dataset").size()
    shared = counts[counts == counts.max()].index
    means = (
        scores[scores.index.isin(shared, level="dataset")].groupby("predictor", sort=False).mean()
    )
    panel = means.assign(accuracy=100 * means["accuracy"], ece=100 * means["ece"])
    spec = {
        "accuracy": ("Accuracy", 1, "max"),
        "nll": ("NLL", 3, "min"),
        "ece": ("ECE", 1, "min"),
        "auroc": ("AUROC of errors, highest probability", 3, "max"),
        "auroc_spread": ("AUROC of errors, predictive standard deviation", 3),
    }
    caption = (
        f"PVeRA's samples and their rivals, mean over seeds, then over {len(shared)} data sets. Accuracy and ECE in "
        "per cent; NLL: negative log-likelihood (nats). Each is judged on its own predictions, the class of the "
        "highest mean probability. Bold: best. Underlined: second best."
    )
    return Table("rivals", caption, {"": panel}, spec, scores.reset_index())


# Intervals


def widths(runs: Runs, paper: Published) -> Table:
    """Build the table of interval widths: beside the paper's, and per data set."""
    data = compared(runs, width_of)
    published = [float(paper.quote(f"width_{name}")) for name in ("correct", "incorrect")]
    here = (
        data[data["group"] == ALL]
        .set_index("draws")[["right", "wrong"]]
        .rename("Here, {} samples".format)
    )
    panel = pd.concat([pd.DataFrame([published], ["Paper"], ["right", "wrong"]), here])
    panel["ratio"] = panel["wrong"] / panel["right"].replace(0, np.nan)
    caption = (
        "Mean width of the 95 % t-interval of the softmax score of the most predicted class, for correct and incorrect "
        "predictions. Ratio: incorrect to correct. p: one-sided rank-sum test that incorrect predictions have the "
        "wider interval. Cliff's delta: 0 is no effect. The paper's widths are those of ViT-B/14 on its 19 data sets, "
        "with a number of samples that it does not state, so they are no test of ours."
    )
    panels = {"Beside the paper": panel} | _by_draws(data)
    data = data.drop(columns="by_seed").assign(
        published_right=published[0], published_wrong=published[1]
    )
    return Table("intervals", caption, panels, RIGHT_AND_WRONG, data, describe_runs(runs))


def describe_runs(runs: Runs) -> str:
    """Describe the adapters for a caption."""
    count = sum(len(run.single_right) for run in runs)
    described = origin(runs, dict.fromkeys(run.record["dataset"] for run in runs))
    return f"{described}; {count} images in all (each counts once per seed, so the values are not independent)."
