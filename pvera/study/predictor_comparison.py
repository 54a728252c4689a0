"""The analysis "predictors": PVeRA's samples against one pass, latent dropout and an ensemble.

One analysis reads the adapters of all seeds on a data set, which together are the ensemble. Its
arrays are the columns of one frame:

    predictor      "pass", "samples" or "ensemble"
    seed           of the adapter; `ALL_SEEDS` for the ensemble
    passes         forward passes per image
    accuracy, nll, ece, ace    of the mean probabilities (`metrics.evaluate`)
    auroc          of errors, by 1 − the highest mean probability
    auroc_spread   of errors, by the predictive standard deviation of the highest probability;
                   NaN for one pass
"""

from typing import Any

import numpy as np

from pvera import checkpoint, metrics
from pvera.model import AdaptedModel
from pvera.study import prediction
from pvera.study.analyses import Analysis, TestSets, sample_scores

PASS, SAMPLES, ENSEMBLE = "pass", "samples", "ensemble"
ALL_SEEDS = -1
SCORES = ("accuracy", "nll", "ece", "ace")


def compute_predictors(
    model: AdaptedModel, analysis: Analysis, tests: TestSets
) -> dict[str, np.ndarray]:
    """Score every predictor with the adapters of an analysis; `model` holds the first of them."""
    test = tests[analysis.dataset]
    labels = test.labels.cpu().numpy()
    count = analysis.settings["samples"]
    backbone = model.unload()

    rows: list[dict[str, Any]] = []

    def add_row(predictor: str, seed: int, probabilities: np.ndarray) -> None:
        rows.append({"predictor": predictor, "seed": seed, **score(probabilities, labels)})

    single_passes = []
    for adapter, run in zip(analysis.adapters, analysis.runs, strict=True):
        with checkpoint.load(backbone, adapter).eval() as adapted:
            single_pass = prediction.predict(adapted, test)
            samples = sample_scores(adapted, test, count, run.seed)
        add_row(PASS, run.seed, single_pass[None])  # (1, images, classes)
        add_row(SAMPLES, run.seed, samples)
        single_passes.append(single_pass)
    add_row(ENSEMBLE, ALL_SEEDS, np.stack(single_passes))

    return {column: np.array([row[column] for row in rows]) for column in rows[0]}


def score(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float | int]:
    """Score the mean of predictions, and how it ranks its errors.

    Args:
        probabilities: (passes, images, classes).
        labels: (images,).
    """
    probabilities = np.asarray(probabilities, np.float64)
    mean = probabilities.mean(axis=0)
    is_wrong = mean.argmax(axis=1) != labels

    scores: dict[str, float | int] = {"passes": len(probabilities)}
    evaluated = metrics.evaluate(mean, labels)
    scores |= {name: evaluated[name] for name in SCORES}
    scores["auroc"] = metrics.auroc(1 - mean.max(axis=1), is_wrong)
    scores["auroc_spread"] = np.nan
    if len(probabilities) > 1:
        spread = probabilities.max(axis=2).std(axis=0, ddof=1)
        scores["auroc_spread"] = metrics.auroc(spread, is_wrong)
    return scores
