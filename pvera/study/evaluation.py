"""One saved adapter on one split: scores of its mean, and of several draws on request."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pvera import checkpoint, metrics
from pvera.adapters import Method
from pvera.backbones import Backbone
from pvera.data.image_folders import ImageSplit
from pvera.errors import InputError
from pvera.study import analyses, results, training
from pvera.uncertainty import Estimates

#: Metrics of an evaluation with their titles.
TITLES = {"accuracy": "Accuracy", "nll": "NLL", "brier": "Brier score", "ece": "ECE", "ace": "ACE"}

#: The values of draws with their titles.
DRAWN = {
    "accuracy": "Accuracy of the class that most draws predict",
    "sd_correct": "Mean spread of the highest score, correct images",
    "sd_incorrect": "Mean spread of the highest score, incorrect images",
    "interval_width": "Mean width of the 95 % interval",
}


@dataclass(frozen=True)
class Evaluation:
    """Scores (images, classes) of an adapter's mean on a split, in its order, and what they are worth.

    parameters: numbers of trained values of "adapter" and "head".
    estimates: of several draws, None where none were asked for.
    dataset, part: names of the data set and the split.   record: of the run that left the adapter, where it is known.
    """

    adapter: Path
    frozen: Backbone
    method: Method
    seed: int
    parameters: dict[str, int]
    split: ImageSplit
    classes: Sequence[str]
    probabilities: np.ndarray
    estimates: Estimates | None = None
    record: dict | None = None
    dataset: str = ""
    part: str = "test"

    @property
    def recorded(self) -> dict | None:
        """The metrics that the run recorded, if they are of the same split."""
        same = self.record and self.record["dataset"] == self.dataset and self.part == "test"
        return self.record["test"] if self.record and same else None

    @property
    def metrics(self) -> dict[str, float | int]:
        """The metrics of result files, of the mean."""
        return metrics.evaluate(self.probabilities, self.split.labels)

    @property
    def uncertainty(self) -> dict[str, float] | None:
        """Accuracy of the class that most draws predict, mean spread of correct and incorrect images (Algorithm 1, NaN
        for none), and mean width of the 95 % interval of the predicted class's score; None without draws."""
        if (drawn := self.estimates) is None:
            return None
        return {
            "accuracy": float(drawn.right.mean()),
            "sd_correct": _mean(drawn.sd_correct),
            "sd_incorrect": _mean(drawn.sd_incorrect),
            "interval_width": float(drawn.width.mean()),
        }

    def per_class(self) -> pd.DataFrame:
        """Return images, correct predictions and accuracy (NaN for no image) of each class."""
        correct = self.probabilities.argmax(1) == self.split.labels
        images = np.bincount(self.split.labels, minlength=len(self.classes))
        right = np.bincount(self.split.labels, correct, len(self.classes)).astype(int)
        with np.errstate(invalid="ignore"):
            return pd.DataFrame(
                {"class": list(self.classes), "images": images, "correct": right, "accuracy": right / images}
            )

    def predictions(self, labelled: bool = True) -> pd.DataFrame:
        """Return one row per image: path, prediction and its score, the confidence; with draws, the spread of the
        highest score, and the interval of the class that most predict.

        labelled: also label, whether the prediction is correct, score of the label, and share of correct draws.
        """
        labels, predicted, images = self.split.labels, self.probabilities.argmax(1), np.arange(len(self.split.labels))
        names = np.array(self.classes, object)
        table = pd.DataFrame({"path": self.split.names, "prediction": names[predicted]})
        table["confidence"] = self.probabilities[images, predicted]
        if labelled:
            table["label"], table["correct"] = names[labels], predicted == labels
            table["label_score"] = self.probabilities[images, labels]
        if (drawn := self.estimates) is not None:
            table["draws_sd"] = drawn.sd
            table["draws_prediction"] = names[drawn.predicted]
            table["interval_low"], table["interval_high"] = drawn.low, drawn.high
            if labelled:
                table["draws_correct"] = drawn.accuracy
        return table


def shown(value: float, digits: int = 4) -> str:
    """Format a mean over images; a dash where there are none."""
    return "–" if np.isnan(value) else f"{value:.{digits}f}"


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def evaluate(
    adapter: str | Path,
    frozen: Backbone,
    split: ImageSplit,
    classes: Sequence[str],
    device: str = "cpu",
    precision: str = "float32",
    draws: int | None = None,
    record: dict | None = None,
    dataset: str = "",
    part: str = "test",
) -> Evaluation:
    """Evaluate an adapter file on a split, as a run evaluates the adapter that it trained.

    classes: their names in the order of labels.   draws: Monte Carlo samples besides the mean, two or more; from the
    record's seed, with which the experiment "uncertainty" draws, else from the adapter's.
    InputError for a file of another backbone or number of classes, and for draws of a method without a distribution.
    """
    if draws is not None and draws < 2:
        raise InputError(f"{draws} draw has no spread: take 2 or more")
    frozen.model.to(device)
    model = checkpoint.load(frozen.model, adapter).eval()
    try:
        (member,) = model.members
        if member.num_classes != len(classes):
            raise InputError(f"{adapter} knows {member.num_classes} classes, the data set has {len(classes)}")
        # What cannot be merged is computed as `training.fit` leaves it: the same products, the same bits.
        model.last_mlp_on_class_token = not all(adapter.mergeable for adapter in member.layers)
        data = split.data(frozen, torch.device(device), in_memory=False)
        estimates = None
        with training.autocast(device, precision):
            probabilities = training.predict(model, data)
            if draws is not None:
                model.last_mlp_on_class_token = False
                drawn = analyses.draw(model, data, draws, record["seed"] if record else member.seed)
                estimates = analyses.estimate(drawn, split.labels, draws)
        count = {part: member.count()[part] for part in ("adapter", "head")}
        return Evaluation(
            Path(adapter),
            frozen,
            member.method,
            member.seed,
            count,
            split,
            classes,
            probabilities,
            estimates,
            record,
            dataset,
            part,
        )
    finally:
        model.unload()


def record_beside(adapter: str | Path) -> dict | None:
    """Return the record of the run that left the adapter, None where none lies beside it.

    InputError for an adapter that is not the one that the run left.
    """
    path = Path(adapter).with_suffix(".json")
    if Path(adapter).suffix != results.ADAPTER or not path.exists():
        return None
    results.beside(path, results.ADAPTER)
    return results.read(path)
