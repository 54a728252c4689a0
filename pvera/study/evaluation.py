"""One saved adapter on one split: scores of its mean, and of several draws on request."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pvera import checkpoint, metrics
from pvera.backbones import Backbone
from pvera.data.image_folders import ImageSplit
from pvera.errors import InputError
from pvera.members import Member
from pvera.study import analyses, markdown, training
from pvera.uncertainty import Estimates

#: Metrics of an evaluation with their titles.
TITLES = {"accuracy": "Accuracy", "nll": "NLL", "brier": "Brier score", "ece": "ECE", "ace": "ACE"}


@dataclass(frozen=True)
class Adapter:
    """A saved adapter's file, its frozen backbone, and how to compute with both.

    record: of the run that left the adapter, {} where none lies beside it.
    """

    path: Path
    frozen: Backbone
    record: dict = field(default_factory=dict)
    device: str = "cpu"
    precision: str = "float32"


@dataclass(frozen=True)
class Evaluation:
    """Scores (images, classes) of an adapter's mean on a split, in its order, and what they are worth.

    member: the adapter's tensors.   estimates: of several draws, None without draws.
    metrics: those of result files, of the mean.   dataset: its name.
    """

    adapter: Adapter
    member: Member
    split: ImageSplit
    classes: Sequence[str]
    probabilities: np.ndarray
    estimates: Estimates | None
    metrics: dict[str, float | int]
    dataset: str

    @property
    def title(self) -> str:
        """Method, backbone and data set."""
        return f"{self.member.method.title} for {self.adapter.frozen.name} on {self.dataset}"

    def per_class(self) -> pd.DataFrame:
        """Return images, correct predictions and accuracy (NaN for no image) of each class."""
        labels = self.split.labels
        right = labels[self.probabilities.argmax(1) == labels]
        images, correct = (np.bincount(those, minlength=len(self.classes)) for those in (labels, right))
        table = pd.DataFrame({"class": list(self.classes), "images": images, "correct": correct})
        return table.assign(accuracy=table.correct / table.images)

    def predictions(self) -> pd.DataFrame:
        """Return one row per image: path, prediction and its score, the confidence; label, whether the prediction is
        correct, and the label's score; with draws, the spread of the highest score, the class that most predict with
        the interval of its score, and the share of correct draws.
        """
        labels, predicted, images = self.split.labels, self.probabilities.argmax(1), np.arange(len(self.split.labels))
        names = np.array(self.classes, object)
        table = pd.DataFrame({"path": self.split.names, "prediction": names[predicted]})
        table["confidence"] = self.probabilities[images, predicted]
        table["label"], table["correct"] = names[labels], predicted == labels
        table["label_score"] = self.probabilities[images, labels]
        if (drawn := self.estimates) is not None:
            table["draws_sd"] = drawn.sd
            table["draws_prediction"] = names[drawn.predicted]
            table["interval_low"], table["interval_high"] = drawn.low, drawn.high
            table["draws_correct"] = drawn.accuracy
        return table

    def tables(self) -> str:
        """Return the metrics, and the accuracy of each class, in Markdown."""
        scores = [[title, f"{self.metrics[key]:.6f}"] for key, title in TITLES.items()]
        of_class = [
            [markdown.escape(str(name)), str(images), "–" if np.isnan(accuracy) else f"{accuracy:.4f}"]
            for _, name, images, _, accuracy in self.per_class().itertuples()
        ]
        return (
            f"{markdown.table(['Metric', 'Value'], scores, 'lr')}\n\n"
            f"{markdown.table(['Class', 'Images', 'Accuracy'], of_class, 'lrr')}"
        )


def evaluate(
    adapter: Adapter,
    split: ImageSplit,
    classes: Sequence[str],
    draws: int | None = None,
    dataset: str = "",
) -> Evaluation:
    """Evaluate an adapter on a split, as a run evaluates the adapter that it trained.

    classes: their names in the order of labels.   draws: Monte Carlo samples besides the mean, two or more; from the
    record's seed, with which the experiment "uncertainty" draws, else from the adapter's.
    InputError for a file of another backbone or number of classes, and for draws of a method without a distribution.
    """
    frozen, device = adapter.frozen, adapter.device
    frozen.model.to(device)
    model = checkpoint.load(frozen.model, adapter.path).eval()
    try:
        (member,) = model.members
        if member.num_classes != len(classes):
            raise InputError(f"{adapter.path} knows {member.num_classes} classes, the data set has {len(classes)}")
        # What cannot be merged is computed as `training.fit` leaves it: the same products, the same bits.
        model.last_mlp_on_class_token = not member.mergeable
        data = split.data(frozen, torch.device(device), in_memory=False)
        estimates = None
        with training.autocast(device, adapter.precision):
            probabilities = training.predict(model, data)
            if draws:
                model.last_mlp_on_class_token = False
                drawn = analyses.draw(model, data, draws, adapter.record.get("seed", member.seed))
                estimates = analyses.estimate(drawn, split.labels, draws)
    finally:
        model.unload()
    scores = metrics.evaluate(probabilities, split.labels)
    return Evaluation(adapter, member, split, classes, probabilities, estimates, scores, dataset)
