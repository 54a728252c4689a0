"""PVeRA's draws against other methods of uncertainty on one backbone: one pass, ensembles, dropout, Laplace.

One analysis reads the adapters of all seeds of a method on a data set. Every adapter passes each image once, and
once more per draw. All else is computed of these predictions: temperatures, ensembles, Laplace, scores.

The arrays of a result are the columns of four frames, named "<frame>.<column>" (`read_frames`); `way` is "pass",
"draws", "ensemble" or "laplace", `passes` its forward passes per image, `seed` −1 for an ensemble of all seeds, and
`scaled` whether a temperature was fitted on the validation split:

    scores      metrics, floors of the calibration errors, mean entropies, milliseconds per image, on the test split
    detection   AUROC, AURC, AUGRC and selective accuracy by each uncertainty, for incorrect predictions
    shift       metrics by corruption and severity; severity 0 are the same images before
    out         AUROC and FPR by each uncertainty, for images of other data sets
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pvera import checkpoint, metrics, posthoc, selective, uncertainty
from pvera.data import corruptions
from pvera.data.image_folders import ImageData
from pvera.model import AdaptedModel
from pvera.study import results, training
from pvera.study.analyses import Analysis, draw

FRAMES = ("scores", "detection", "shift", "out")
COVERAGE = 0.8  # of the selective accuracy
ACCEPTED = 0.95  # share of images in distribution at which the FPR is taken
METRICS = ("accuracy", "nll", "brier", "ece", "ace")
METHODS = ("linear", "lora", "vera", "pvera")  # whose adapters are compared
LAPLACE = ("linear", "vera")  # methods whose head gets a Laplace approximation
ALL_SEEDS = -1

TEST, VALIDATION, TRAIN = "test", "validation", "train"
Place = str | tuple  # a split's name, ("shift", corruption, severity), or ("out", data set)


@dataclass(frozen=True)
class Prediction:
    """The mean of k predictions for n images, and how far they disagree.

    probabilities: (n, C). parts: (n,) each: those of the entropy (total, expected, mutual). uncertainties: measures of
    uncertainty, (n,) each; for k > 1 also `mutual` and `spread`, the standard deviation of the highest score.
    """

    probabilities: np.ndarray
    parts: dict[str, np.ndarray]
    uncertainties: dict[str, np.ndarray]

    @classmethod
    def of(cls, drawn: np.ndarray) -> "Prediction":
        """Combine probabilities (k, n, C) of k draws or of k members of an ensemble."""
        drawn = np.asarray(drawn, np.float64)
        probabilities, parts = drawn.mean(0), uncertainty.decompose(drawn)
        measures = {"score": 1 - probabilities.max(1), "entropy": parts["total"]}
        if len(drawn) > 1:
            measures |= {"mutual": parts["mutual"], "spread": drawn.max(2).std(0, ddof=1)}
        return cls(probabilities, parts, measures)


@dataclass(frozen=True)
class Predictor:
    """A way to predict with one adapter, or with all seeds: its predictions by place.

    milliseconds: per test image; NaN where no pass of the backbone is its own.
    """

    way: str
    passes: int
    seed: int
    predictions: dict[Place, Prediction]
    milliseconds: float


def compare(model: AdaptedModel, analysis: Analysis, tests: dict[str, ImageData]) -> dict:
    """Compute the frames of all predictors with the adapters of `analysis`; `model` holds the first of them."""
    name = analysis.dataset
    splits = {TEST: tests[name], TRAIN: tests[f"{name}/{TRAIN}"], VALIDATION: tests[f"{name}/{VALIDATION}"]}
    labels = {split: data.labels.cpu().numpy() for split, data in splits.items()}
    predictors: list[Predictor] = []
    try:
        for adapter, run in zip(analysis.adapters, analysis.trained, strict=True):
            if predictors:
                model = checkpoint.load(model.unload(), adapter).eval()
            predictors += of_adapter(model, run.seed, places(analysis, tests, splits), labels, analysis.settings)
    finally:
        model.unload()
    single = [predictor for predictor in predictors if predictor.way == "pass"]
    if len(single) > 1:
        predictors.append(ensemble(single))
    parts = frames(predictors, labels, analysis.settings["shifted_images"])
    return {f"{name}.{column}": np.array(frame[column].tolist()) for name, frame in parts.items() for column in frame}


def places(
    analysis: Analysis, tests: dict[str, ImageData], splits: dict[str, ImageData]
) -> Iterator[tuple[Place, ImageData]]:
    """Yield what is predicted: the splits, corrupted test images, and images of other data sets.

    One corruption after the other: those of 1,000 images at 224 pixels take 3 GB together.
    """
    yield from splits.items()
    count = analysis.settings["shifted_images"]
    first = splits[TEST].first(count)
    for corruption in corruptions.CORRUPTIONS if analysis.settings["shifts"] else ():
        for severity in corruptions.SEVERITIES:
            corrupted = corruptions.corrupt(first.images, corruption, severity)
            yield ("shift", corruption, severity), first.with_images(corrupted)
    for other in analysis.tested[1:]:
        yield ("out", other), tests[other].first(count)


def of_adapter(model: AdaptedModel, seed: int, places: Iterable, labels: dict, settings: dict) -> list[Predictor]:
    """Return every predictor with one adapter; only draws take more than one pass of each image.

    Fewer draws are the first of the most.
    """
    (member,) = model.members
    laplace = member.method.key in LAPLACE and not member.is_stochastic
    numbers = settings["draws"] if member.is_stochastic else []
    features, once, several = {}, {}, {k: {} for k in numbers}
    for place, data in places:
        if place == TRAIN and not laplace:
            continue
        most = max(settings["draws"]) if isinstance(place, str) else settings["shift_draws"]
        started = time.perf_counter()
        features[place], probabilities = single_pass(model, data)
        passed = time.perf_counter()
        if numbers:
            drawn = np.concatenate(list(draw(model, data, most, seed)), 1)
        drew = time.perf_counter()
        once[place] = Prediction.of(probabilities[None])
        for k in numbers:
            if k <= most:
                several[k][place] = Prediction.of(drawn[:k])
        if place == TEST:
            per_image = 1e3 * (passed - started) / len(data)
            per_draw = 1e3 * (drew - passed) / (most * len(data))
    predictors = [Predictor("pass", 1, seed, once, per_image)]
    if laplace:
        posterior = posthoc.LastLayer.fit(member.head.weight, member.head.bias, features[TRAIN])
        prior = posterior.choose_prior(features[VALIDATION], labels[VALIDATION])
        predicted = {place: Prediction.of(posterior.predict(f, prior)[None]) for place, f in features.items()}
        predictors.append(Predictor("laplace", 1, seed, predicted, per_image))
    return predictors + [Predictor("draws", k, seed, several[k], k * per_draw) for k in numbers]


def single_pass(model: AdaptedModel, data) -> tuple[torch.Tensor, np.ndarray]:
    """Return the head's input (n, dim) and the probabilities (n, C) of one pass with the mean, merged where it can."""
    model.eval()
    if model.members[0].mergeable:
        model.merge_()
    with model.without_kl():
        features = training.Features(model, data).features
    model.unmerge_()
    with torch.inference_mode():
        return features, model.classify(features[None]).float().softmax(-1).cpu().numpy()


def ensemble(members: Sequence[Predictor]) -> Predictor:
    """Return the mean of several adapters' predictions."""
    predictions = {
        place: Prediction.of(np.stack([member.predictions[place].probabilities for member in members]))
        for place in members[0].predictions
    }
    passes, milliseconds = sum(member.passes for member in members), sum(member.milliseconds for member in members)
    return Predictor("ensemble", passes, ALL_SEEDS, predictions, milliseconds)


def frames(predictors: Sequence[Predictor], labels: dict, count: int) -> dict[str, pd.DataFrame]:
    """Score all predictors: `FRAMES`. labels: (n,) by place; count: the first test images, which the shifts corrupt."""
    rows: dict[str, list[dict]] = {name: [] for name in FRAMES}
    for predictor in predictors:
        about = {"way": predictor.way, "passes": predictor.passes, "seed": predictor.seed}
        temperature = posthoc.temperature(predictor.predictions[VALIDATION].probabilities, labels[VALIDATION])
        test = predictor.predictions[TEST]
        for scaled, degrees in ((False, 1.0), (True, temperature)):
            of_scale = about | {"scaled": scaled}
            probabilities = posthoc.scaled(test.probabilities, degrees)
            floors = metrics.calibrated_errors(probabilities.max(1))
            rows["scores"].append(
                of_scale
                | {"temperature": degrees, "milliseconds": predictor.milliseconds}
                | _metrics(probabilities, labels[TEST])
                | {f"{name}_floor": float(errors.mean()) for name, errors in floors.items()}
                | {name: float(part.mean()) for name, part in test.parts.items()}
            )
            for (corruption, severity), shifted in _shifted(predictor, count):
                scores = _metrics(posthoc.scaled(shifted, degrees), labels[TEST][: len(shifted)])
                rows["shift"].append(of_scale | {"corruption": corruption, "severity": severity} | scores)
        wrong = test.probabilities.argmax(1) != labels[TEST]
        for name, values in test.uncertainties.items():
            found = {
                "auroc": selective.auroc(values, wrong),
                "aurc": selective.aurc(values, wrong),
                "augrc": selective.augrc(values, wrong),
                "selective_accuracy": selective.selective_accuracy(values, wrong, COVERAGE),
            }
            rows["detection"].append(about | {"by": name} | found)
        for place, prediction in predictor.predictions.items():
            if place[0] == "out":
                for name, outside in prediction.uncertainties.items():
                    told = told_apart(test.uncertainties[name][:count], outside)
                    rows["out"].append(about | {"other": place[1], "by": name} | told)
    return {name: pd.DataFrame(part) for name, part in rows.items() if part}


def _shifted(predictor: Predictor, count: int) -> list[tuple[tuple[str, int], np.ndarray]]:
    """Return the probabilities by corruption and severity; severity 0 are the first test images."""
    shifts = {place[1:]: part.probabilities for place, part in predictor.predictions.items() if place[0] == "shift"}
    before = predictor.predictions[TEST].probabilities[:count]
    return sorted((shifts | {(corruption, 0): before for corruption, _ in shifts}).items())


def _metrics(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    scores = metrics.evaluate(probabilities, labels)
    return {name: scores[name] for name in METRICS}


def told_apart(inside: np.ndarray, outside: np.ndarray) -> dict[str, float]:
    """Return how well an uncertainty, (n,) in distribution and (m,) out of it, tells them apart.

    auroc: of finding images out of distribution. fpr: the share of these below the lowest threshold that accepts
    `ACCEPTED` of the images in distribution.
    """
    from sklearn.metrics import roc_curve

    accepted = np.concatenate([np.ones(len(inside)), np.zeros(len(outside))])
    certainty = -np.concatenate([inside, outside])
    false, true, _ = roc_curve(accepted, certainty, drop_intermediate=False)
    first = np.searchsorted(true, ACCEPTED - 1e-12)
    return {"auroc": selective.auroc(certainty, accepted), "fpr": float(false[first])}


def read_frames(path: str | Path) -> dict[str, pd.DataFrame]:
    """Read the frames of the result at `path`; one without rows has no columns."""
    columns: dict[str, dict] = {name: {} for name in FRAMES}
    for key, values in results.read_arrays(path).items():
        frame, _, column = key.partition(".")
        if frame in columns:  # committed results have another one
            columns[frame][column] = values
    return {name: pd.DataFrame(part) for name, part in columns.items()}
