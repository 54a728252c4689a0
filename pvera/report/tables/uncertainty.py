"""Monte Carlo uncertainty and intervals of PVeRA (Section 4.3, Appendix C), for correct and incorrect predictions.

The tables pool all test images of all adapters, as the paper does, and then show each data set alone: hard data sets
have both more errors and a wider spread, so pooling mixes the two.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import pandas as pd
from statsmodels.regression.linear_model import OLS
from statsmodels.tools import add_constant

from pvera.report.analyses import Uncertainty
from pvera.report.published import Published
from pvera.report.scores import place
from pvera.report.statistics import LEVEL, rank_sum
from pvera.report.table import Table, interval, origin, plain, signed, title
from pvera.report.tables.verdicts import Answer, Gaps, Untestable, contrast, unit, verdict
from pvera.selective import auroc

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
    """Return a row per image and adapter: dataset, seed, and `value` and `right` of its estimates with k draws."""
    frames = []
    for run in runs:
        columns = {"value": getattr(run.estimates[k], value), "right": getattr(run.estimates[k], right)}
        frames.append(pd.DataFrame(columns | {name: run.record[name] for name in ("dataset", "seed")}))
    return pd.concat(frames)


#: The standard deviations of Algorithm 1, and the widths of the intervals.
spread_of, width_of = partial(images, value="sd", right="correct"), partial(images, value="width", right="right")


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
        "Mean standard deviation of the highest softmax score over the draws, for correct and incorrect images. An "
        "image is correct where more than half of its draws are. p: one-sided rank-sum test that incorrect images have "
        "the higher value. Cliff's delta: share of pairs in which the incorrect image has the higher value, minus the "
        "share in which the correct one has it; 0 is no effect."
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
    """Compare the values of correct and incorrect images: one row per number of draws and group."""
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
    return {f"{k} draws": part.set_index("group") for k, part in data.groupby("draws")}


# Detecting incorrect predictions

SD, SCORE, SINGLE = "Spread of the draws", "1 − mean score", "1 − score of one pass"


def detection(runs: Runs) -> pd.DataFrame:
    """Compute the AUROC for detecting incorrect predictions, one row per adapter, number of draws and way.

    Each way is held against its own predictions: the class that most of its draws predict, or that of one pass with the
    mean (`SINGLE`, whose number of draws is 0).
    """
    rows = []
    for run in runs:
        values = {(SINGLE, 0): (1 - run.single_pass, ~run.single_right)}
        for k, estimates in run.estimates.items():
            values |= {(SD, k): (estimates.sd, ~estimates.right), (SCORE, k): (1 - estimates.centre, ~estimates.right)}
        for (way, k), (uncertainty, wrong) in values.items():
            adapter = {name: run.record[name] for name in ("dataset", "seed")}
            rows.append(adapter | {"way": way, "draws": k, "auroc": auroc(uncertainty, wrong)})
    return pd.DataFrame(rows)


def detection_table(runs: Runs) -> Table:
    """Build the table of `detection`, averaged over seeds, then over data sets."""
    data, most = detection(runs), max(runs[0].estimates)
    ways = [*((SD, k) for k in runs[0].estimates), (SCORE, most), (SINGLE, 0)]
    means = data.groupby(["dataset", "way", "draws"])["auroc"].mean().unstack(["way", "draws"])[ways]
    means.columns = [way if k == 0 else f"{way}, {k} draws" for way, k in ways]
    panel = pd.concat([means.mean().to_frame(f"Mean over {len(means)} data sets").T, means.loc[datasets(runs)]])
    caption = (
        "AUROC for detecting incorrect predictions (0.5: chance), within each data set, mean over seeds. The "
        "prediction is the class that most draws predict, or that of one pass. Mean score: of the predicted class, "
        "over all draws. One pass: its highest score, with the mean and without draws."
    )
    spec = {name: (name, 3) for name in means}
    return Table("uncertainty_auroc", caption, {"": panel}, spec, data, describe_runs(runs))


def of_fixed_noise(learned: Runs, fixed: Runs) -> Table:
    """Build the table of `detection` with a learned and a fixed size of the noise, where both were drawn."""
    most, places = max(fixed[0].estimates), [(run.record["dataset"], run.record["seed"]) for run in fixed]
    noises = {"σ learned": detection(learned), "σ = 1 fixed": detection(fixed)}
    data = pd.concat(noises, names=["noise"]).reset_index("noise").set_index(["dataset", "seed"]).loc[places]
    data = data[data["draws"].isin([0, most])].reset_index()
    means = data.groupby(["noise", "dataset", "way"])["auroc"].mean().groupby(["noise", "way"]).mean().unstack("way")
    caption = (
        f"AUROC for detecting incorrect predictions by {most} draws of PVeRA and by one pass, with noise of learned "
        "and of fixed size. Mean over seeds, then over data sets."
    )
    spec = {way: (way, 3) for way in (SD, SCORE, SINGLE)}
    return Table("uncertainty_fixed_noise", caption, {"": means.loc[list(noises)]}, spec, data, describe_runs(fixed))


@contrast
def deltas(runs: Runs, values_of: Callable, k: int, pooled: bool = False) -> Gaps:
    """Return Cliff's delta of incorrect against correct images with k draws, within each adapter.

    pooled: of all adapters of a seed, as the paper pools them (Figure 5).
    """
    frame = values_of(runs, k)
    return {"": (frame.assign(dataset=ALL) if pooled else frame).groupby(["dataset", "seed"]).apply(delta)}


@contrast
def times_as_wide(runs: Runs, k: int) -> Gaps:
    """Return the logarithms of mean interval widths with k draws, of incorrect minus correct images.

    The paper compares these means over all images (Appendix C).
    """
    frame = width_of(runs, k).assign(dataset=ALL)
    means = frame.groupby(["dataset", "seed", "right"])["value"].mean().unstack().reindex(columns=[True, False])
    return {"": np.log(means[False] / means[True])}


@contrast
def gain(runs: Runs, k: int) -> Gaps:
    """Return how far the AUROC of k draws lies above that of one pass."""
    aurocs = detection(runs).pivot(index=["dataset", "seed"], columns=["way", "draws"], values="auroc")
    return {"": aurocs[SD, k] - aurocs[SINGLE, 0]}


# The spread against the error rate


def line(tasks: pd.DataFrame, errors: Iterable[float] | None = None) -> pd.DataFrame:
    """Return the least-squares line of Cliff's delta against the error rate: mean, low, high, verdict and error.

    tasks: of `tuned.draws_by_task`; those of the same images are one point. errors: where, by default the lowest and
    the highest error rate of a task.
    """
    at = pd.Series(tasks["error"].agg(["min", "max"]) if errors is None else errors).reset_index(drop=True)
    units = tasks[["error", "delta"]].groupby(tasks.index.map(unit), sort=False).mean()
    fit = OLS(units["delta"], add_constant(units["error"])).fit()
    ends = fit.get_prediction(add_constant(at, has_constant="add")).summary_frame(LEVEL).reset_index(drop=True)
    ends = ends.rename(columns={"mean_ci_lower": "low", "mean_ci_upper": "high"})[["mean", "low", "high"]]
    verdicts = [verdict(bounds) for bounds in ends[["low", "high"]].itertuples(index=False)]
    return ends.assign(error=at, verdict=verdicts)


def at_both_ends(tasks: pd.DataFrame) -> Table:
    """Build the table of the lines of Cliff's delta and of AUROC at the lowest and the highest error rate of a task."""
    ends = line(tasks).set_axis(["Lowest error rate", "Highest error rate"])
    ends = ends.join((ends[["mean", "low", "high"]] / 2 + 0.5).add_prefix("auroc_"))
    spec = {
        "error": ("Incorrect (%)", 1),
        "mean": ("Cliff's delta, 16 draws", lambda row: interval(row["mean"], row["low"], row["high"], 2)),
        "auroc_mean": ("AUROC", lambda row: interval(row["auroc_mean"], row["auroc_low"], row["auroc_high"], 2)),
        "verdict": ("The spread marks errors", lambda row: row["verdict"]),
    }
    caption = (
        "Does the spread of the draws mark errors? Cliff's delta by a least-squares line through the tasks, with its "
        "95 % interval, at the lowest and the highest error rate of a task. Above zero the spread is higher where the "
        "prediction, the class of most draws, is incorrect. AUROC: for detecting incorrect predictions by the spread; "
        "0.5 is chance."
    )
    return Table("uncertainty_by_error", caption, {"": ends}, spec)


def marks_errors(tasks: pd.DataFrame) -> Answer:
    """Answer whether the spread marks errors at the lowest error rate of a task; the text has the highest too."""
    if len(tasks) < 4:
        raise Untestable("fewer than four tasks: no line")
    ends = line(tasks)
    read = [f"{signed(end['mean'], 2)} at {plain(end['error'], 0)} % errors" for _, end in ends.iterrows()]
    low = ends.iloc[0]
    return Answer(
        f"Cliff's delta {', '.join(read)}", low["verdict"], f"{len(tasks)} tasks", *low[["mean", "low", "high"]]
    )


# Intervals


def widths(runs: Runs, paper: Published) -> Table:
    """Build the table of interval widths: beside the paper's, and per data set."""
    data = compared(runs, width_of)
    published = [float(paper.quote(f"width_{name}")) for name in ("correct", "incorrect")]
    here = data[data["group"] == ALL].set_index("draws")[["right", "wrong"]].rename("Here, {} draws".format)
    panel = pd.concat([pd.DataFrame([published], ["Paper"], ["right", "wrong"]), here])
    panel["ratio"] = panel["wrong"] / panel["right"].replace(0, np.nan)
    caption = (
        "Mean width of the 95 % t-interval of the softmax score of the most predicted class, for correct and incorrect "
        "predictions. Ratio: incorrect to correct. p: one-sided rank-sum test that incorrect predictions have the "
        "wider interval. Cliff's delta: 0 is no effect. The paper's widths are those of ViT-B/14 on its 19 data sets, "
        "with a number of draws that it does not state, so they are no test of ours."
    )
    panels = {"Beside the paper": panel} | _by_draws(data)
    data = data.drop(columns="by_seed").assign(published_right=published[0], published_wrong=published[1])
    return Table("intervals", caption, panels, RIGHT_AND_WRONG, data, describe_runs(runs))


def describe_runs(runs: Runs) -> str:
    """Describe the adapters for a caption."""
    count = sum(len(run.single_right) for run in runs)
    described = origin(runs, dict.fromkeys(run.record["dataset"] for run in runs))
    return f"{described}; {count} images in all (each counts once per seed, so the values are not independent)."
