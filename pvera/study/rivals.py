"""Ways to uncertainty on one backbone, held against each other: one pass, draws, ensembles, dropout, Laplace.

One analysis reads the adapters of all seeds of a method on a data set. Every adapter passes each image once, and
once more per draw. All else is computed of these predictions: temperatures, ensembles, Laplace, scores.

The arrays of a result are the columns of five frames, named "<frame>.<column>" (`read_frames`); `way` is "pass",
"draws", "ensemble" or "laplace", `passes` its forward passes per image, `seed` −1 for an ensemble of all seeds, and
`scaled` whether a temperature was fitted on the validation split:

    scores      metrics, floors of the calibration errors, mean entropies, milliseconds per image, on the test split
    detection   AUROC, AURC, AUGRC and selective accuracy by each uncertainty, for incorrect predictions
    coverage    selective risk at each of `COVERAGES`, by 1 − the highest score
    shift       metrics by corruption and severity; severity 0 are the same images before
    out         AUROC and FPR by each uncertainty, for images of other data sets
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pvera import checkpoint, metrics, posthoc, selective, uncertainty
from pvera.data import corruptions
from pvera.data.image_folders import ImageData
from pvera.hooks import cast_once
from pvera.model import AdaptedModel
from pvera.study import results, training
from pvera.study.analyses import Analysis, Report, draw

FRAMES = ("scores", "detection", "coverage", "shift", "out")
COVERAGES = np.linspace(0.05, 1, 20)
COVERAGE = 0.8  # of the selective accuracy
ACCEPTED = 0.95  # share of images in distribution at which the FPR is taken
METRICS = ("accuracy", "nll", "brier", "ece", "ace")
LAPLACE = ("linear", "vera")  # methods whose head gets a Laplace approximation
ALL_SEEDS = -1

TEST, VALIDATION, TRAIN = "test", "validation", "train"
Place = tuple  # a split's name, ("shift", corruption, severity), or ("out", data set)


@dataclass(frozen=True)
class Prediction:
    """The mean of k predictions for n images, and how far they disagree.

    probabilities: (n, C). entropy: its parts, (n,) each. spread: standard deviation of the highest score, (n,);
    None for k = 1.
    """

    probabilities: np.ndarray
    entropy: uncertainty.Decomposition
    spread: np.ndarray | None

    @classmethod
    def of(cls, drawn: np.ndarray) -> "Prediction":
        """Combine probabilities (k, n, C) of k draws or of k members of an ensemble."""
        drawn = np.asarray(drawn, np.float64)
        spread = drawn.max(2).std(0, ddof=1) if len(drawn) > 1 else None
        return cls(drawn.mean(0), uncertainty.decompose(drawn), spread)

    def first(self, count: int) -> "Prediction":
        """Return the prediction for the first images."""
        entropy = uncertainty.Decomposition(*(part[:count] for part in vars(self.entropy).values()))
        return Prediction(self.probabilities[:count], entropy, None if self.spread is None else self.spread[:count])

    def uncertainties(self) -> dict[str, np.ndarray]:
        """Return each measure of uncertainty by name, (n,)."""
        measures = {"score": 1 - self.probabilities.max(1), "entropy": self.entropy.total}
        if self.spread is not None:
            measures |= {"mutual": self.entropy.mutual, "spread": self.spread}
        return measures


@dataclass(frozen=True)
class Way:
    """One way to predict with one adapter, or with all seeds: its predictions by place.

    milliseconds: per test image; NaN where no pass of the backbone is its own.
    """

    name: str
    passes: int
    seed: int
    predictions: dict[Place | str, Prediction]
    milliseconds: float


def compare(model: AdaptedModel, analysis: Analysis, tests: dict[str, ImageData], report: Report) -> dict:
    """Compute the frames of all ways with the adapters of `analysis`; `model` holds the first of them."""
    settings = analysis.settings
    data = dict(_places(analysis, tests))
    labels = {place: part.labels.cpu().numpy() for place, part in data.items()}
    expected = _work(analysis, model, data) * len(analysis.adapters)
    done = 0

    def passed(images: int) -> None:
        nonlocal done
        done += images
        report(min(done / expected, 1.0))

    ways: list[Way] = []
    try:
        for adapter, seed in zip(analysis.adapters, analysis.seeds, strict=True):
            if ways:
                model = checkpoint.load(model.unload(), adapter).eval()
            ways += of_adapter(model, seed, data, labels, settings, passed)
    finally:
        model.unload()
    single = [way for way in ways if way.name == "pass"]
    if len(single) > 1:
        ways.append(ensemble(single))
    return _columns(frames(ways, labels, settings["shifted_images"]))


def _places(analysis: Analysis, tests: dict[str, ImageData]) -> Iterator[tuple[Place | str, ImageData]]:
    """Yield what is predicted: the splits, corrupted test images, and images of other data sets."""
    name, count = analysis.dataset, analysis.settings["shifted_images"]
    yield TEST, tests[name]
    for part in (TRAIN, VALIDATION):
        yield part, tests[f"{name}/{part}"]
    first = tests[name].first(count)
    for corruption in corruptions.CORRUPTIONS if analysis.settings["shifts"] else ():
        for severity in corruptions.SEVERITIES:
            yield ("shift", corruption, severity), Corrupted(first, corruption, severity)
    for other in analysis.tested[1:]:
        yield ("out", other), tests[other].first(count)


class Corrupted:
    """The images of a split with a corruption, computed batch by batch: a test split can have gigabytes."""

    def __init__(self, data: ImageData, corruption: str, severity: int):
        self.labels, self.evaluation_batch = data.labels, data.evaluation_batch
        self._data, self._corruption = data, (corruption, severity)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, part: slice) -> torch.Tensor:
        images = corruptions.corrupt(self._data.images[part], *self._corruption, first=part.start)
        return self._data.with_images(images)[:]


def of_adapter(
    model: AdaptedModel, seed: int, data: dict, labels: dict, settings: dict, passed: Callable[[int], None]
) -> list[Way]:
    """Return every way with one adapter; only draws take more than one pass of each image."""
    (member,) = model.members
    laplace = member.method.key in LAPLACE and not member.samples
    features, once, seconds = {}, {}, 0.0
    for place, part in data.items():
        if place == TRAIN and not laplace:
            continue
        started = time.perf_counter()
        features[place], probabilities = single_pass(model, part)
        if place == TEST:
            seconds = time.perf_counter() - started
        once[place] = Prediction.of(probabilities[None])
        passed(len(part))
    per_image = 1e3 * seconds / len(data[TEST])
    ways = [Way("pass", 1, seed, once, per_image)]
    if laplace:
        posterior = posthoc.LastLayer.fit(member.head.weight, member.head.bias, features[TRAIN])
        prior = posterior.choose_prior(features[VALIDATION], labels[VALIDATION])
        predicted = {place: Prediction.of(posterior.predict(f, prior)[None]) for place, f in features.items()}
        ways.append(Way("laplace", 1, seed, predicted, per_image))
    if member.samples:
        ways += _of_draws(model, seed, data, settings, passed)
    return ways


def single_pass(model: AdaptedModel, data) -> tuple[torch.Tensor, np.ndarray]:
    """Return the head's input (n, dim) and the probabilities (n, C) of one pass with the mean, merged where it can."""
    model.eval()
    if all(member.mergeable for member in model.members):
        model.merge_()
    with model.without_kl(), cast_once(model.backbone):
        features = training.Features(model, data).features
    model.unmerge_()
    with torch.inference_mode():
        return features, model.classify(features[None]).float().softmax(-1).cpu().numpy()


def _of_draws(model, seed: int, data: dict, settings: dict, passed) -> list[Way]:
    """Return the ways with each number of draws; fewer draws are the first of the most."""
    numbers, most = settings["draws"], max(settings["draws"])
    predicted: dict[int, dict] = {k: {} for k in numbers}
    seconds = 0.0
    for place, part in data.items():
        if place == TRAIN:
            continue
        k = most if isinstance(place, str) else settings["shift_draws"]
        started = time.perf_counter()
        drawn = np.concatenate(list(draw(model, part, k, seed)), 1)
        if place == TEST:
            seconds = time.perf_counter() - started
        for number in numbers:
            if number <= k:
                predicted[number][place] = Prediction.of(drawn[:number])
        passed(k * len(part))
    per_draw = 1e3 * seconds / (most * len(data[TEST]))
    return [Way("draws", k, seed, predicted[k], k * per_draw) for k in numbers]


def ensemble(members: Sequence[Way]) -> Way:
    """Return the mean of several adapters' predictions; of one member, its own."""
    places = members[0].predictions
    stacked = {place: np.stack([way.predictions[place].probabilities for way in members]) for place in places}
    return Way(
        "ensemble",
        sum(way.passes for way in members),
        ALL_SEEDS,
        {place: Prediction.of(probabilities) for place, probabilities in stacked.items()},
        sum(way.milliseconds for way in members),
    )


def _work(analysis: Analysis, model: AdaptedModel, data: dict) -> int:
    """Return the images that one adapter passes, with repetitions."""
    settings, (member,) = analysis.settings, model.members
    images = 0
    for place, part in data.items():
        draws = max(settings["draws"]) if isinstance(place, str) else settings["shift_draws"]
        images += len(part) * (1 + draws * (member.samples and place != TRAIN))
    return images


def frames(ways: Sequence[Way], labels: dict, count: int) -> dict[str, pd.DataFrame]:
    """Score all ways: `FRAMES`. labels: (n,) by place; count: the first test images, which the shifts corrupt."""
    rows: dict[str, list[dict]] = {name: [] for name in FRAMES}
    for way in ways:
        temperature = posthoc.temperature(way.predictions[VALIDATION].probabilities, labels[VALIDATION])
        of_way = {"way": way.name, "passes": way.passes, "seed": way.seed}
        for scaled, degrees in ((False, 1.0), (True, temperature)):
            _score(rows, way, of_way | {"scaled": scaled}, degrees, labels, count)
        _detect(rows, way, of_way, labels, count)
    return {name: pd.DataFrame(part) for name, part in rows.items() if part}


def _score(rows: dict, way: Way, place: dict, degrees: float, labels: dict, count: int) -> None:
    """Append the metrics at one temperature, of the test split and of its corrupted images."""
    test = way.predictions[TEST]
    probabilities = posthoc.scaled(test.probabilities, degrees)
    floors = metrics.calibrated_errors(probabilities.max(1))
    rows["scores"].append(
        place
        | {"temperature": degrees, "milliseconds": way.milliseconds}
        | _metrics(probabilities, labels[TEST])
        | {f"{name}_floor": float(errors.mean()) for name, errors in floors.items()}
        | {name: float(part.mean()) for name, part in vars(test.entropy).items()}
    )
    shifts = {where: part for where, part in way.predictions.items() if where[0] == "shift"}
    if shifts:
        shifts |= {("shift", name, 0): test.first(count) for name in {where[1] for where in shifts}}
    for (_, corruption, severity), prediction in sorted(shifts.items()):
        of_shift = labels[TEST][: len(prediction.probabilities)]
        scores = _metrics(posthoc.scaled(prediction.probabilities, degrees), of_shift)
        rows["shift"].append(place | {"corruption": corruption, "severity": severity} | scores)


def _metrics(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    scores = metrics.evaluate(probabilities, labels)
    return {name: scores[name] for name in METRICS}


def _detect(rows: dict, way: Way, place: dict, labels: dict, count: int) -> None:
    """Append how well each uncertainty finds incorrect predictions and images of other data sets."""

    test = way.predictions[TEST]
    wrong = test.probabilities.argmax(1) != labels[TEST]
    for name, values in test.uncertainties().items():
        rows["detection"].append(
            place
            | {
                "by": name,
                "auroc": selective.auroc(values, wrong),
                "aurc": selective.aurc(values, wrong),
                "augrc": selective.augrc(values, wrong),
                "selective_accuracy": selective.selective_accuracy(values, wrong, COVERAGE),
            }
        )
    risk = selective.selective_risk(test.uncertainties()["score"], wrong)
    for coverage in COVERAGES:
        answered = selective.answered(coverage, len(risk))
        rows["coverage"].append(place | {"coverage": coverage, "risk": risk[answered - 1]})
    inside = test.first(count).uncertainties()
    for where, prediction in way.predictions.items():
        if where[0] != "out":
            continue
        for name, outside in prediction.uncertainties().items():
            rows["out"].append(place | {"other": where[1], "by": name} | told_apart(inside[name], outside))


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


def _columns(parts: dict[str, pd.DataFrame]) -> dict[str, np.ndarray]:
    """Return the columns of the frames as arrays without objects."""
    return {f"{name}.{column}": np.array(frame[column].tolist()) for name, frame in parts.items() for column in frame}


def read_frames(path: str | Path) -> dict[str, pd.DataFrame]:
    """Read the frames of the result at `path`; one without rows has no columns."""
    columns: dict[str, dict] = {name: {} for name in FRAMES}
    for key, values in results.read_arrays(path).items():
        frame, _, column = key.partition(".")
        columns[frame][column] = values
    return {name: pd.DataFrame(part) for name, part in columns.items()}
