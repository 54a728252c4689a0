"""Results of the analyses of trained adapters, loaded for notebooks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from pvera import uncertainty
from pvera.study import results

#: The record and the arrays of an analysis of an adapter.
AnalysisResult: TypeAlias = tuple[dict, dict[str, np.ndarray]]
#: Those of one setting.
Analyses: TypeAlias = Sequence[AnalysisResult]


@dataclass(frozen=True)
class Example:
    """A test image of an uncertainty figure."""

    dataset: str
    #: (size, size, 3) uint8.
    pixels: np.ndarray
    #: The class of the image.
    label: int
    #: The class that most samples predict.
    predicted: int
    #: Softmax scores of all samples, (samples, classes).
    probabilities: np.ndarray
    #: The bounds of the interval of the predicted class's mean score, within [0, 1].
    low: float
    high: float

    @property
    def correct(self) -> bool:
        """Whether the prediction is the label."""
        return self.label == self.predicted

    @property
    def interval(self) -> str:
        """The interval as text."""
        return f"[{self.low:.2f}, {self.high:.2f}]"


class SampledAdapter(NamedTuple):
    """The results of experiment uncertainty for one adapter, on N test images."""

    record: dict
    #: Number of samples -> estimates of all images.
    estimates: dict[int, uncertainty.Estimates]
    #: The highest softmax score of one pass with the mean, (N,).
    single_pass: np.ndarray
    #: Whether its prediction is the label, (N,).
    single_correct: np.ndarray
    #: An image with a correct and one with an incorrect prediction, if any is stored.
    examples: list[Example]


def load_analyses(root: Path, profile: str, experiment: str) -> list[AnalysisResult]:
    """Load records and arrays of an analysis of adapters, sorted by path.

    Returns:
        The records, each with its arrays; empty where the analysis has not been run.

    Raises:
        InputError: Results are damaged, or cannot stand in one analysis.
    """
    records = results.load_runs(root, profile, experiment)
    return [(record, results.read_arrays(results.path_of(root, record))) for record in records]


def estimates_by_count(arrays: dict[str, np.ndarray]) -> dict[int, uncertainty.Estimates]:
    """Return number of samples -> estimates, from the arrays of an analysis of uncertainty."""
    labels = arrays["labels"].astype(np.int64)
    by_count = {}
    # These "draws" are numbers of samples, (counts,).
    for i, k in enumerate(arrays["draws"].tolist()):
        fields = {}
        for name, stored in uncertainty.STORED.items():
            # Stored in 16 bits, (counts, N); statistics need more.
            kind = np.int64 if stored == np.int16 else np.float64
            fields[name] = arrays[name][i].astype(kind)
        by_count[k] = uncertainty.Estimates(labels, **fields)
    return by_count


def load_sampled_adapters(
    root: Path, profile: str, experiment: str = "uncertainty"
) -> list[SampledAdapter]:
    """Load the samples of adapters, with the predictions of one pass."""
    adapters = []
    for record, arrays in load_analyses(root, profile, experiment):
        by_count = estimates_by_count(arrays)
        single_pass = arrays["single_confidence"].astype(np.float64)
        single_correct = arrays["single_predicted"] == arrays["labels"]
        shown = examples_of(record["dataset"], arrays, by_count[max(by_count)])
        adapters.append(SampledAdapter(record, by_count, single_pass, single_correct, shown))
    return adapters


def examples_of(
    dataset: str, arrays: dict[str, np.ndarray], estimates: uncertainty.Estimates
) -> list[Example]:
    """Return the example images of an analysis; none where its profile keeps no pictures."""
    shown = []
    for i, index in enumerate(arrays.get("example_images", [])):
        centre, half_width = estimates.centre[index], estimates.width[index] / 2
        low, high = np.clip([centre - half_width, centre + half_width], 0, 1)
        example = Example(
            dataset,
            arrays["example_pixels"][i],
            label=int(estimates.labels[index]),
            predicted=int(estimates.predicted[index]),
            probabilities=arrays["example_scores"][i].astype(np.float64),
            low=low,
            high=high,
        )
        shown.append(example)
    return shown
