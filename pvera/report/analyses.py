"""Results of the analyses of trained adapters, loaded for notebooks."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pvera import uncertainty
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

    estimates: number of samples -> `uncertainty.Estimates` of all N test images.
    single_pass: (N,) highest softmax score of one pass with the mean.
    single_right: (N,) whether its prediction is the label.
    examples: one image with a correct and one with an incorrect prediction, where they exist and may be shown.
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
    kinds = {
        name: np.int64 if kind == np.int16 else np.float64
        for name, kind in uncertainty.STORED.items()
    }
    for i, k in enumerate(arrays["draws"].tolist()):
        stored = {name: arrays[name][i].astype(kind) for name, kind in kinds.items()}
        of_draws[k] = uncertainty.Estimates(labels, **stored)
    return of_draws


def load_uncertainty(root, profile: str, experiment: str = "uncertainty") -> list[Uncertainty]:
    """Load the samples of adapters, with the predictions of one pass."""
    adapters = []
    for record, arrays in load_analyses(root, profile, experiment):
        of_draws = estimates(arrays)
        single_pass = arrays["single_confidence"].astype(np.float64)
        single_right = arrays["single_predicted"] == arrays["labels"]
        shown = examples(record["dataset"], arrays, of_draws[max(of_draws)])
        adapters.append(Uncertainty(record, of_draws, single_pass, single_right, shown))
    return adapters


def examples(
    dataset: str, arrays: dict[str, np.ndarray], estimates: uncertainty.Estimates
) -> list[Example]:
    """Return the example images of an analysis; none where its profile keeps no pictures."""
    shown = []
    for i, index in enumerate(arrays.get("example_images", [])):
        half = estimates.width[index] / 2
        low, high = np.clip([estimates.centre[index] - half, estimates.centre[index] + half], 0, 1)
        shown.append(
            Example(
                dataset,
                arrays["example_pixels"][i],
                int(estimates.labels[index]),
                int(estimates.predicted[index]),
                arrays["example_scores"][i].astype(np.float64),
                low,
                high,
            )
        )
    return shown
