"""Monte Carlo uncertainty and intervals of PVeRA, for correct and incorrect predictions.

Section 4.3 and Appendix C. The tables pool all test images of all adapters, as the paper does, and
then show each data set alone: hard data sets have both more errors and higher standard deviations,
so pooling mixes the two.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pvera.metrics import auroc
from pvera.report.analysis_results import Analyses, Example, SampledAdapter
from pvera.report.captions import caption_source
from pvera.report.contrasts import LATENT_DROPOUT
from pvera.report.paper_numbers import PaperNumbers
from pvera.report.scores import complete_datasets, dataset_order
from pvera.report.statistics import half_width_over_seeds, mean_interval, rank_sum
from pvera.report.table import Column, Table
from pvera.report.text import decimal, interval, signed, title

ALL = "All data sets"
#: The numbers of samples of the paper's figure.
SHOWN_COUNTS = (4, 16)
#: The number of samples of the statements on errors.
SAMPLES = 16

#: For captions of tables that pool adapters.
ONCE_PER_SEED = "An image counts once per seed, so the values are not independent."

#: Column -> its name in CSV files: committed ones keep their first names, as do their files
#: ("rivals") and the columns published_right and published_wrong.
CSV_NAMES = {
    "samples": "draws",
    "incorrect_percent": "wrong_percent",
    "correct": "right",
    "incorrect": "wrong",
}

#: The samples of each adapter.
Adapters = Sequence[SampledAdapter]


def sort_by_dataset(adapters: Adapters) -> list[SampledAdapter]:
    """Sort the adapters in the order of data sets."""
    return sorted(adapters, key=lambda adapter: dataset_order(adapter.record))


def first_seed_examples(adapters: Adapters) -> list[Example]:
    """Return the example images of the first seed: of a data set one correct and one incorrect."""
    seed = min(adapter.record["seed"] for adapter in adapters)
    first = [adapter for adapter in sort_by_dataset(adapters) if adapter.record["seed"] == seed]
    return [example for adapter in first for example in adapter.examples]


# Standard deviations of the scores, widths of the intervals


def predictive_sds(adapters: Adapters) -> pd.DataFrame:
    """Return the predictive standard deviation of each image.

    Returns:
        A row per image, adapter and number of samples: dataset, seed, value, and correct: whether
        most samples are.
    """
    return _image_values(adapters, "sd", "most_are_correct")


def interval_widths(adapters: Adapters) -> pd.DataFrame:
    """Return the width of the 95 % interval of each image's mean score.

    Returns:
        A row per image, adapter and number of samples: dataset, seed, value, and correct: whether
        the class that most samples predict is the label.
    """
    return _image_values(adapters, "width", "predicts_label")


def _image_values(adapters: Adapters, value: str, correct: str) -> pd.DataFrame:
    frames = []
    for adapter in sort_by_dataset(adapters):
        for k, estimates in adapter.estimates.items():
            columns = {
                "samples": k,
                "dataset": adapter.record["dataset"],
                "seed": adapter.record["seed"],
                "value": getattr(estimates, value),
                "correct": getattr(estimates, correct),
            }
            frames.append(pd.DataFrame(columns))
    return pd.concat(frames)


def split_by_correct(images: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the values of correct and of incorrect images."""
    return images.loc[images["correct"], "value"], images.loc[~images["correct"], "value"]


def cliffs_delta(images: pd.DataFrame) -> float:
    """Return Cliff's delta of incorrect against correct images."""
    correct, incorrect = split_by_correct(images)
    return rank_sum(incorrect, correct).cliffs_delta


def compare_correct_and_incorrect(images: pd.DataFrame) -> pd.DataFrame:
    """Compare the values of correct and incorrect images, with `SHOWN_COUNTS`.

    Args:
        images: A frame of `predictive_sds` or `interval_widths`.

    Returns:
        A row per number of samples and group, all data sets or one: the mean values of correct and
        of incorrect images, and the rank-sum test between them.
    """
    rows = []
    for k in SHOWN_COUNTS:
        every = images[images["samples"] == k]
        for name, part in [(ALL, every), *every.groupby("dataset", sort=False)]:
            correct, incorrect = split_by_correct(part)
            test = rank_sum(incorrect, correct)
            row = {
                "samples": k,
                "group": title(name),
                "incorrect_percent": 100 * len(incorrect) / len(part),
                "correct": correct.mean(),
                "incorrect": incorrect.mean(),
                "p_value": test.p_value,
                "cliffs_delta": test.cliffs_delta,
                "by_seed": part.groupby("seed").apply(cliffs_delta).tolist(),
            }
            rows.append(row)
    return pd.DataFrame(rows)


def _p_value(row: pd.Series) -> str:
    return "< 0.0001" if row["p_value"] < 1e-4 else decimal(row["p_value"], 4)


COMPARISON = {
    "incorrect_percent": Column("Incorrect (%)", 1),
    "correct": Column("Correct", 4),
    "incorrect": Column("Incorrect", 4),
    "p_value": Column("p", _p_value),
    "ratio": Column("Ratio", 2),
    "cliffs_delta": Column("Cliff's delta", 2, signed=True),
    "by_seed": Column(
        "By seed", lambda row: ", ".join(signed(value, 2) for value in row["by_seed"])
    ),
}


def _by_count(data: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of `compare_correct_and_incorrect`, a panel per number of samples."""
    return {f"{k} samples": part.set_index("group") for k, part in data.groupby("samples")}


def predictive_sds_table(adapters: Adapters) -> Table:
    """Build the table behind the paper's violins."""
    data = compare_correct_and_incorrect(predictive_sds(adapters))
    caption = (
        "Mean standard deviation of the highest softmax score over the samples, for correct and "
        "incorrect images."
    )
    notes = (
        "An image is correct where more than half of its samples are. p: one-sided rank-sum test "
        "that incorrect images have the higher value. Cliff's delta: share of pairs in which the "
        "incorrect image has the higher value, minus the share in which the correct one has it; "
        f"0 is no effect. {ONCE_PER_SEED}"
    )
    return Table(
        "uncertainty",
        caption,
        _by_count(data),
        columns=COMPARISON,
        data=data.drop(columns="by_seed").rename(columns=CSV_NAMES),
        source=caption_source(adapters),
        notes=notes,
    )


def interval_widths_table(adapters: Adapters, paper: PaperNumbers) -> Table:
    """Build the table of interval widths: here and in the paper, and per data set."""
    data = compare_correct_and_incorrect(interval_widths(adapters))
    printed = {name: float(paper.quote(f"width_{name}")) for name in ("correct", "incorrect")}
    here = data[data["group"] == ALL].set_index("samples")[list(printed)]
    panel = pd.concat([pd.DataFrame(printed, ["Paper"]), here.rename("Here, {} samples".format)])
    # Intervals of equal samples have no width.
    panel["ratio"] = panel["incorrect"] / panel["correct"].replace(0, np.nan)
    caption = (
        "Mean width of the 95 % t-interval of the softmax score of the most predicted class, for "
        "correct and incorrect predictions."
    )
    notes = (
        "Ratio: incorrect to correct. p: one-sided rank-sum test that incorrect predictions have "
        "the wider interval. Cliff's delta: 0 is no effect. The paper's widths are those of "
        "ViT-B/14 on its 19 data sets, with a number of samples that it does not state, so they "
        f"are no test of ours. {ONCE_PER_SEED}"
    )
    panels = {"Here and in the paper": panel} | _by_count(data)
    numbers = (
        data.drop(columns="by_seed")
        .rename(columns=CSV_NAMES)
        .assign(published_right=printed["correct"], published_wrong=printed["incorrect"])
    )
    return Table(
        "intervals",
        caption,
        panels,
        columns=COMPARISON,
        data=numbers,
        source=caption_source(adapters),
        notes=notes,
    )


# Detecting incorrect predictions


def error_detection(adapters: Adapters) -> pd.DataFrame:
    """Compute the AUROC with which `SAMPLES` samples, and one pass, find incorrect predictions.

    Each is judged on its own predictions: the class that most samples predict, or that of one pass
    with the mean.

    Returns:
        Rows (dataset, seed), one per adapter. error: incorrect predictions of the samples (%). sd:
        AUROC of their predictive standard deviation. single: of one minus the score of one pass.
    """
    rows = []
    for adapter in adapters:
        estimates = adapter.estimates[SAMPLES]
        incorrect = ~estimates.predicts_label
        row = {
            "dataset": adapter.record["dataset"],
            "seed": adapter.record["seed"],
            "error": 100 * incorrect.mean(),
            "sd": auroc(estimates.sd, incorrect),
            "single": auroc(1 - adapter.single_pass, ~adapter.single_correct),
        }
        rows.append(row)
    return pd.DataFrame(rows).set_index(["dataset", "seed"])


def log_mean_widths(adapters: Adapters) -> pd.DataFrame:
    """Return logarithms of mean interval widths over all images, which the paper compares.

    Returns:
        Rows (dataset, seed), the data set `ALL`; columns correct and incorrect predictions.
    """
    images = interval_widths(adapters).query("samples == @SAMPLES").assign(dataset=ALL)
    means = images.groupby(["dataset", "seed", "correct"])["value"].mean().unstack()
    # A column of its own if no prediction, or every one, is correct.
    means = means.reindex(columns=[True, False])
    return np.log(means).set_axis(["correct", "incorrect"], axis=1)


# Each data set alone


def auroc_by_dataset(adapters: Adapters) -> pd.DataFrame:
    """Return how well the predictive standard deviation of `SAMPLES` samples finds errors.

    Returns:
        Rows data sets, by error rate. error: incorrect predictions (%), the class that most samples
        predict. seeds: how many there are. mean, low, high: AUROC of errors, mean over seeds with
        its 95 % interval.
    """
    rows = {}
    for name, part in error_detection(adapters).groupby("dataset"):
        # One data set with its seeds, (1, seeds).
        seeds = part["sd"].unstack("seed")
        row = {"error": part["error"].mean(), "seeds": len(part)}
        rows[name] = row | mean_interval(seeds, half_width_over_seeds)
    return pd.DataFrame.from_dict(rows, orient="index").sort_values("error").rename_axis("dataset")


def auroc_by_dataset_table(aurocs: pd.DataFrame) -> Table:
    """Build the table of `auroc_by_dataset`."""
    above, below = (aurocs["low"] > 0.5).sum(), (aurocs["high"] < 0.5).sum()
    columns = {
        "error": Column("Incorrect (%)", 1),
        "mean": Column(
            "AUROC of errors", lambda row: interval(row["mean"], row["low"], row["high"], 2)
        ),
        "seeds": Column("Seeds", 0),
    }
    caption = (
        f"Does the predictive standard deviation of {SAMPLES} samples mark errors? AUROC for "
        "detecting incorrect predictions, the class that most samples predict, mean over seeds "
        "with its 95 % interval over them; 0.5 is chance."
    )
    notes = (
        f"By error rate. Of {len(aurocs)} data sets {above} have an interval above 0.5, and "
        f"{below} below."
    )
    return Table("uncertainty_by_task", caption, aurocs, columns=columns, notes=notes)


# Other predictors

#: (Experiment of the adapters, predictor) -> its title.
PREDICTORS = {
    ("benchmark", "pass"): "PVeRA, one pass with the mean",
    ("benchmark", "samples"): "PVeRA, {} samples",
    (LATENT_DROPOUT, "samples"): "VeRA, {} samples of latent dropout",
    ("benchmark", "ensemble"): "PVeRA, ensemble of {} seeds",
}
#: Columns of the scores of a predictor.
PREDICTOR_SCORES = ["accuracy", "nll", "ece", "auroc", "auroc_spread"]


def score_predictors(analyses: Mapping[str, Analyses]) -> pd.DataFrame:
    """Return the scores of each predictor, mean over seeds.

    Args:
        analyses: Experiment of the adapters -> its analyses "predictors".

    Returns:
        Rows (predictor, dataset), columns `PREDICTOR_SCORES`.
    """
    frames = []
    for experiment, group in analyses.items():
        for record, arrays in group:
            # A row per predictor and seed; an ensemble has one for all seeds.
            frame = pd.DataFrame(arrays).assign(experiment=experiment, dataset=record["dataset"])
            frames.append(frame)
    scores = pd.concat(frames)

    parts = {}
    for (experiment, predictor), heading in PREDICTORS.items():
        part = scores[(scores["experiment"] == experiment) & (scores["predictor"] == predictor)]
        if len(part):
            name = heading.format(part["passes"].max())
            parts[name] = part.groupby("dataset")[PREDICTOR_SCORES].mean()
    return pd.concat(parts, names=["predictor"])


def predictors_table(scores: pd.DataFrame) -> Table:
    """Build the table of `score_predictors` on the data sets that all of them share."""
    # An average over other data sets would be no comparison.
    shared = complete_datasets(scores["accuracy"].unstack("predictor")).index
    on_shared = scores[scores.index.isin(shared, level="dataset")]
    means = on_shared.groupby("predictor", sort=False).mean()
    panel = means.assign(accuracy=100 * means["accuracy"], ece=100 * means["ece"])
    columns = {
        "accuracy": Column("Accuracy", 1, best="max"),
        "nll": Column("NLL", 3, best="min"),
        "ece": Column("ECE", 1, best="min"),
        "auroc": Column("AUROC of errors, highest probability", 3, best="max"),
        "auroc_spread": Column("AUROC of errors, predictive standard deviation", 3),
    }
    caption = (
        f"PVeRA's samples and other predictors, mean over seeds, then over {len(shared)} data sets."
    )
    notes = (
        "Accuracy and ECE in per cent; NLL: negative log-likelihood (nats). Each is judged on "
        "its own predictions, the class of the highest mean probability. Bold: best. Underlined: "
        "second best."
    )
    return Table("rivals", caption, panel, columns=columns, data=scores.reset_index(), notes=notes)
