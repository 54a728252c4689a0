"""Results of the analyses of trained adapters, loaded for notebooks."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pvera import uncertainty
from pvera.errors import InputError
from pvera.study import results


@dataclass(frozen=True)
class Example:
    """A test image of an uncertainty figure.

    pixels: (size, size, 3) uint8. label, predicted: its class and the predicted one. scores: (k, classes) softmax
    scores of all draws. low, high: the interval of the mean score of the predicted class, within [0, 1].
    """

    dataset: str
    pixels: np.ndarray
    label: int
    predicted: int
    scores: np.ndarray
    low: float
    high: float

    @property
    def right(self) -> bool:
        """Whether the prediction is correct."""
        return self.label == self.predicted

    @property
    def interval(self) -> str:
        """The interval as text."""
        return f"[{self.low:.2f}, {self.high:.2f}]"


class Uncertainty(NamedTuple):
    """The results of experiment uncertainty for one adapter.

    estimates: number of draws -> `uncertainty.Estimates` of all N test images.
    single_pass: (N,) highest softmax score of the benchmark's prediction, one pass with the mean.
    single_right: (N,) whether that prediction is the label.
    examples: one image with a correct and one with an incorrect prediction, where they exist.
    """

    record: dict
    estimates: dict[int, uncertainty.Estimates]
    single_pass: np.ndarray
    single_right: np.ndarray
    examples: list[Example]


def load_analyses(root, profile: str, experiment: str) -> list[tuple[dict, dict[str, np.ndarray]]]:
    """Load records and arrays of an analysis of adapters, sorted by path; empty where it has not been run.

    InputError for results that are damaged, or cannot stand in one analysis.
    """
    runs = results.load_runs(root, profile, experiment)
    return [(run, results.read_arrays(results.path_of(root, run))) for run in runs]


def estimates(arrays: dict[str, np.ndarray]) -> dict[int, uncertainty.Estimates]:
    """Return number of draws -> estimates of all images, from the arrays of an analysis of uncertainty."""
    of_draws, labels = {}, arrays["labels"].astype(np.int64)
    kinds = {name: np.int64 if kind == np.int16 else np.float64 for name, kind in uncertainty.STORED.items()}
    for i, k in enumerate(arrays["draws"].tolist()):
        stored = {name: arrays[name][i].astype(kind) for name, kind in kinds.items()}
        of_draws[k] = uncertainty.Estimates(labels, **stored)
    return of_draws


def load_uncertainty(root, profile: str, trained: str = "benchmark") -> list[Uncertainty]:
    """Load the draws of the adapters that an experiment `trained`, with its predictions.

    InputError where its adapter is not the one that was analysed.
    """
    adapters = []
    experiment = "uncertainty" if trained == "benchmark" else f"uncertainty_{trained}"
    for record, arrays in load_analyses(root, profile, experiment):
        path = results.path_of(root, record | {"experiment": trained})
        (drawn_from,) = record["config"]["adapter_sha256"]
        if results.read(path)["files"].get(results.ADAPTER, drawn_from) != drawn_from:
            raise InputError(
                f"{path.with_suffix(results.ADAPTER)} is not the adapter of the draws: run python "
                f"experiments/analyse.py --profile {record['profile']} --replace"
            )
        predictions, labels = results.read_predictions(path)
        of_draws, examples = estimates(arrays), []
        most = of_draws[max(of_draws)]
        columns = (arrays[f"example_{name}"] for name in ("images", "pixels", "scores"))
        for i, pixels, scores in zip(*columns, strict=True):
            label, predicted = int(most.labels[i]), int(most.predicted[i])
            low, high = np.clip(most.centre[i] + most.width[i] * np.array([-0.5, 0.5]), 0, 1)
            examples.append(Example(record["dataset"], pixels, label, predicted, scores.astype(np.float64), low, high))
        single_pass, single_right = predictions.max(1).astype(np.float64), predictions.argmax(1) == labels
        adapters.append(Uncertainty(record, of_draws, single_pass, single_right, examples))
    return adapters
