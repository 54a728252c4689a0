"""PVeRA's draws against other methods of uncertainty on one backbone: one pass, ensembles, dropout, Laplace.

One analysis reads the adapters of all seeds of a method on a data set.

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
ADAPTED = ("linear", "lora", "vera", "pvera")  # methods whose adapters are compared
LAPLACE = ("linear", "vera")  # methods whose head gets a Laplace approximation
ALL_SEEDS = -1

TEST, VALIDATION, TRAIN = "test", "validation", "train"
Place = str | tuple  # a split's name, ("shift", corruption, severity), or ("out", data set)


@dataclass(frozen=True)
class Prediction:
    """The mean of k predictions for n images, and how far they disagree.

    probabilities: (n, C). parts: of the entropy, (n,) each. uncertainties: (n,) each; for k > 1 also `mutual` and
    `spread`, the standard deviation of the highest score. milliseconds: of all k passes, per image.
    """

    probabilities: np.ndarray
    parts: dict[str, np.ndarray]
    uncertainties: dict[str, np.ndarray]
    milliseconds: float

    @classmethod
    def average(cls, drawn: np.ndarray, milliseconds: float) -> "Prediction":
        """Combine probabilities (k, n, C) of k draws or of k members of an ensemble."""
        drawn = np.asarray(drawn, np.float64)
        probabilities, parts = drawn.mean(0), uncertainty.decompose(drawn)
        measures = {"score": 1 - probabilities.max(1), "entropy": parts["total"]}
        if len(drawn) > 1:
            measures |= {"mutual": parts["mutual"], "spread": drawn.max(2).std(0, ddof=1)}
        return cls(probabilities, parts, measures, milliseconds)


@dataclass(frozen=True)
class Predictor:
    """A way to predict with one adapter, or with all seeds: its predictions by place."""

    way: str
    passes: int
    seed: int
    predictions: dict[Place, Prediction]


def compare(model: AdaptedModel, analysis: Analysis, tests: dict[str, ImageData]) -> dict:
    """Compute the frames of all predictors with the adapters of `analysis`; `model` holds the first of them."""
    name = analysis.dataset
    splits = {TEST: tests[name], TRAIN: tests[f"{name}/{TRAIN}"], VALIDATION: tests[f"{name}/{VALIDATION}"]}
    labels = {split: data.labels.cpu().numpy() for split, data in splits.items()}
    predictors, backbone = list[Predictor](), model.unload()
    for adapter, run in zip(analysis.adapters, analysis.trained, strict=True):
        with checkpoint.load(backbone, adapter).eval() as of_seed:
            predictors += predict(of_seed, run.seed, places(analysis, tests, splits), labels, analysis.settings)
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
    images = splits[TEST].images[:count]
    for corruption in corruptions.CORRUPTIONS if analysis.settings["shifts"] else ():
        for severity in corruptions.SEVERITIES:
            corrupted = corruptions.corrupt(images, corruption, severity)
            yield ("shift", corruption, severity), splits[TEST].with_images(corrupted)
    for other in analysis.tested[1:]:
        yield ("out", other), tests[other].with_images(tests[other].images[:count])


def predict(model: AdaptedModel, seed: int, places: Iterable, labels: dict, settings: dict) -> list[Predictor]:
    """Return every predictor with one adapter. Few draws are the first of the most."""
    (member,) = model.members
    with_laplace = member.method.key in LAPLACE and not member.is_stochastic
    counts = settings["draws"] if member.is_stochastic else []
    features: dict[Place, torch.Tensor] = {}  # the head's input (n, dim)
    once: dict[Place, Prediction] = {}
    draws: dict[int, dict[Place, Prediction]] = {k: {} for k in counts}
    for place, data in places:
        if place == TRAIN and not with_laplace:
            continue
        started = time.perf_counter()
        with model.inference():
            features[place] = training.Features(model, data).features
            probabilities = model.classify(features[place][None]).float().softmax(-1).cpu().numpy()
        once[place] = Prediction.average(probabilities[None], _milliseconds(started, data))
        few = [k for k in counts if isinstance(place, str) or k <= settings["shift_draws"]]
        if few:
            started = time.perf_counter()
            drawn = np.concatenate(list(draw(model, data, max(few), seed)), 1)
            per_draw = _milliseconds(started, data) / max(few)
        for k in few:
            draws[k][place] = Prediction.average(drawn[:k], k * per_draw)
    predictors = [Predictor("pass", 1, seed, once)]
    if with_laplace:
        posterior = posthoc.LastLayer.fit(member.head.weight, member.head.bias, features[TRAIN])
        prior = posterior.choose_prior(features[VALIDATION], labels[VALIDATION])
        of_laplace = {
            place: Prediction.average(posterior.predict(features[place], prior)[None], single.milliseconds)
            for place, single in once.items()
        }
        predictors.append(Predictor("laplace", 1, seed, of_laplace))
    return predictors + [Predictor("draws", k, seed, predictions) for k, predictions in draws.items()]


def _milliseconds(started: float, data: ImageData) -> float:
    return 1e3 * (time.perf_counter() - started) / len(data)


def ensemble(members: Sequence[Predictor]) -> Predictor:
    """Return the mean of several adapters' predictions."""
    predictions = {}
    for place in members[0].predictions:
        parts = [member.predictions[place] for member in members]
        drawn, milliseconds = [part.probabilities for part in parts], sum(part.milliseconds for part in parts)
        predictions[place] = Prediction.average(np.stack(drawn), milliseconds)
    return Predictor("ensemble", sum(member.passes for member in members), ALL_SEEDS, predictions)


def frames(predictors: Sequence[Predictor], labels: dict, count: int) -> dict[str, pd.DataFrame]:
    """Score all predictors: `FRAMES`. labels: (n,) by place; count: the first test images, which the shifts corrupt."""
    rows: dict[str, list[dict]] = {name: [] for name in FRAMES}
    for predictor in predictors:
        key = {"way": predictor.way, "passes": predictor.passes, "seed": predictor.seed}
        temperature = posthoc.temperature(predictor.predictions[VALIDATION].probabilities, labels[VALIDATION])
        test = predictor.predictions[TEST]
        shifts = {place[1:]: part.probabilities for place, part in predictor.predictions.items() if place[0] == "shift"}
        shifts |= {(corruption, 0): test.probabilities[:count] for corruption, _ in shifts}
        for scaled, degrees in ((False, 1.0), (True, temperature)):
            scaled_key = key | {"scaled": scaled}
            probabilities = posthoc.scaled(test.probabilities, degrees)
            floors = metrics.calibrated_errors(probabilities.max(1))
            rows["scores"].append(
                scaled_key
                | {"temperature": degrees, "milliseconds": test.milliseconds}
                | _metrics(probabilities, labels[TEST])
                | {f"{name}_floor": float(errors.mean()) for name, errors in floors.items()}
                | {name: float(part.mean()) for name, part in test.parts.items()}
            )
            for (corruption, severity), shifted in sorted(shifts.items()):
                scores = _metrics(posthoc.scaled(shifted, degrees), labels[TEST][: len(shifted)])
                rows["shift"].append(scaled_key | {"corruption": corruption, "severity": severity} | scores)
        wrong = test.probabilities.argmax(1) != labels[TEST]
        for name, values in test.uncertainties.items():
            quality = {each: getattr(selective, each)(values, wrong) for each in ("auroc", "aurc", "augrc")}
            quality["selective_accuracy"] = selective.selective_accuracy(values, wrong, COVERAGE)
            rows["detection"].append(key | {"by": name} | quality)
        for place, prediction in predictor.predictions.items():
            if place[0] == "out":
                for name, outside in prediction.uncertainties.items():
                    separation = ood_metrics(test.uncertainties[name][:count], outside)
                    rows["out"].append(key | {"other": place[1], "by": name} | separation)
    return {name: pd.DataFrame(part) for name, part in rows.items() if part}


def _metrics(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    scores = metrics.evaluate(probabilities, labels)
    return {name: scores[name] for name in METRICS}


def ood_metrics(inside: np.ndarray, outside: np.ndarray) -> dict[str, float]:
    """Return how well an uncertainty separates images in distribution (n,) from those out of it (m,).

    fpr: the share of those out of it below the lowest threshold that accepts `ACCEPTED` of the images in distribution.
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
