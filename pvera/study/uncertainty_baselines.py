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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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

    probabilities: (n, C). parts: (n,) each: those of the entropy (total, expected, mutual), and for k > 1 `spread`,
    the standard deviation of the highest score.
    """

    probabilities: np.ndarray
    parts: dict[str, np.ndarray]

    @classmethod
    def of(cls, drawn: np.ndarray) -> "Prediction":
        """Combine probabilities (k, n, C) of k draws or of k members of an ensemble."""
        drawn = np.asarray(drawn, np.float64)
        parts = uncertainty.decompose(drawn)
        if len(drawn) > 1:
            parts["spread"] = drawn.max(2).std(0, ddof=1)
        return cls(drawn.mean(0), parts)

    def first(self, count: int) -> "Prediction":
        """Return the prediction for the first images."""
        return Prediction(self.probabilities[:count], {name: part[:count] for name, part in self.parts.items()})

    def uncertainties(self) -> dict[str, np.ndarray]:
        """Return each measure of uncertainty by name, (n,)."""
        measures = {"score": 1 - self.probabilities.max(1), "entropy": self.parts["total"]}
        if "spread" in self.parts:
            measures |= {name: self.parts[name] for name in ("mutual", "spread")}
        return measures


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
    places = partial(_places, analysis, tests, splits)
    labels = {split: data.labels.cpu().numpy() for split, data in splits.items()}
    predictors: list[Predictor] = []
    try:
        for adapter, seed in zip(analysis.adapters, analysis.seeds, strict=True):
            if predictors:
                model = checkpoint.load(model.unload(), adapter).eval()
            predictors += of_adapter(model, seed, places, labels, analysis.settings)
    finally:
        model.unload()
    single = [predictor for predictor in predictors if predictor.way == "pass"]
    if len(single) > 1:
        predictors.append(ensemble(single))
    return as_arrays(frames(predictors, labels, analysis.settings["shifted_images"]))


def _places(
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
            yield (
                ("shift", corruption, severity),
                first.with_images(corruptions.corrupt(first.images, corruption, severity)),
            )
    for other in analysis.tested[1:]:
        yield ("out", other), tests[other].first(count)


def of_adapter(model: AdaptedModel, seed: int, places: Callable, labels: dict, settings: dict) -> list[Predictor]:
    """Return every predictor with one adapter; only draws take more than one pass of each image."""
    (member,) = model.members
    laplace = member.method.key in LAPLACE and not member.samples
    features, once = {}, {}
    for place, data in places():
        if place == TRAIN and not laplace:
            continue
        started = time.perf_counter()
        features[place], probabilities = single_pass(model, data)
        if place == TEST:
            per_image = 1e3 * (time.perf_counter() - started) / len(data)
        once[place] = Prediction.of(probabilities[None])
    predictors = [Predictor("pass", 1, seed, once, per_image)]
    if laplace:
        posterior = posthoc.LastLayer.fit(member.head.weight, member.head.bias, features[TRAIN])
        prior = posterior.choose_prior(features[VALIDATION], labels[VALIDATION])
        predicted = {place: Prediction.of(posterior.predict(f, prior)[None]) for place, f in features.items()}
        predictors.append(Predictor("laplace", 1, seed, predicted, per_image))
    if member.samples:
        predictors += of_draws(model, seed, places, settings)
    return predictors


def single_pass(model: AdaptedModel, data) -> tuple[torch.Tensor, np.ndarray]:
    """Return the head's input (n, dim) and the probabilities (n, C) of one pass with the mean, merged where it can."""
    model.eval()
    if all(member.mergeable for member in model.members):
        model.merge_()
    with model.without_kl():
        features = training.Features(model, data).features
    model.unmerge_()
    with torch.inference_mode():
        return features, model.classify(features[None]).float().softmax(-1).cpu().numpy()


def of_draws(model: AdaptedModel, seed: int, places: Callable, settings: dict) -> list[Predictor]:
    """Return a predictor for each number of draws; fewer draws are the first of the most."""
    numbers, most = settings["draws"], max(settings["draws"])
    predicted: dict[int, dict] = {k: {} for k in numbers}
    for place, data in places():
        if place == TRAIN:
            continue
        k, started = most if isinstance(place, str) else settings["shift_draws"], time.perf_counter()
        drawn = np.concatenate(list(draw(model, data, k, seed)), 1)
        if place == TEST:
            per_draw = 1e3 * (time.perf_counter() - started) / (most * len(data))
        for number in numbers:
            if number <= k:
                predicted[number][place] = Prediction.of(drawn[:number])
    return [Predictor("draws", k, seed, predicted[k], k * per_draw) for k in numbers]


def ensemble(members: Sequence[Predictor]) -> Predictor:
    """Return the mean of several adapters' predictions; of one member, its own."""
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
        for scaled, degrees in ((False, 1.0), (True, temperature)):
            of_scale = about | {"scaled": scaled}
            times = {"temperature": degrees, "milliseconds": predictor.milliseconds}
            rows["scores"].append(of_scale | times | _scores(predictor, degrees, labels[TEST]))
            rows["shift"] += [of_scale | row for row in _shifts(predictor, degrees, labels[TEST], count)]
        test = predictor.predictions[TEST]
        wrong = test.probabilities.argmax(1) != labels[TEST]
        for name, values in test.uncertainties().items():
            rows["detection"].append(about | {"by": name} | _detection(values, wrong))
        inside = test.first(count).uncertainties()
        for place, prediction in predictor.predictions.items():
            if place[0] == "out":
                for name, outside in prediction.uncertainties().items():
                    rows["out"].append(about | {"other": place[1], "by": name} | told_apart(inside[name], outside))
    return {name: pd.DataFrame(part) for name, part in rows.items() if part}


def _scores(predictor: Predictor, degrees: float, labels: np.ndarray) -> dict[str, float]:
    """Return metrics, floors and mean entropies on the test split at a temperature."""
    test = predictor.predictions[TEST]
    probabilities = posthoc.scaled(test.probabilities, degrees)
    floors = metrics.calibrated_errors(probabilities.max(1))
    return (
        _metrics(probabilities, labels)
        | {f"{name}_floor": float(errors.mean()) for name, errors in floors.items()}
        | {name: float(part.mean()) for name, part in test.parts.items() if name != "spread"}
    )


def _shifts(predictor: Predictor, degrees: float, labels: np.ndarray, count: int) -> Iterator[dict]:
    """Yield the metrics by corruption and severity at a temperature; severity 0 are the first test images."""
    shifts = {place: part for place, part in predictor.predictions.items() if place[0] == "shift"}
    before = predictor.predictions[TEST].first(count)
    shifts |= {("shift", corruption, 0): before for _, corruption, _ in shifts}
    for (_, corruption, severity), prediction in sorted(shifts.items()):
        probabilities = posthoc.scaled(prediction.probabilities, degrees)
        scores = _metrics(probabilities, labels[: len(probabilities)])
        yield {"corruption": corruption, "severity": severity} | scores


def _metrics(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    scores = metrics.evaluate(probabilities, labels)
    return {name: scores[name] for name in METRICS}


def _detection(values: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Return how well an uncertainty, (n,), finds incorrect predictions."""
    return {
        "auroc": selective.auroc(values, wrong),
        "aurc": selective.aurc(values, wrong),
        "augrc": selective.augrc(values, wrong),
        "selective_accuracy": selective.selective_accuracy(values, wrong, COVERAGE),
    }


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


def as_arrays(parts: dict[str, pd.DataFrame]) -> dict[str, np.ndarray]:
    """Return the columns of the frames as arrays without objects."""
    return {f"{name}.{column}": np.array(frame[column].tolist()) for name, frame in parts.items() for column in frame}


def read_frames(path: str | Path) -> dict[str, pd.DataFrame]:
    """Read the frames of the result at `path`; one without rows has no columns."""
    columns: dict[str, dict] = {name: {} for name in FRAMES}
    for key, values in results.read_arrays(path).items():
        frame, _, column = key.partition(".")
        if frame in columns:  # committed results have another one
            columns[frame][column] = values
    return {name: pd.DataFrame(part) for name, part in columns.items()}
