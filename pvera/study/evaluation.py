"""One saved adapter on images: scores of its mean, and of several draws on request; metrics where labels are known."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pvera import checkpoint, metrics, uncertainty
from pvera.backbones import Backbone
from pvera.data.image_folders import ImageSplit
from pvera.errors import InputError
from pvera.members import Member
from pvera.study import analyses, markdown, training

#: Metrics of an evaluation with their titles.
TITLES = {"accuracy": "Accuracy", "nll": "NLL", "brier": "Brier score", "ece": "ECE", "ace": "ACE"}


@dataclass(frozen=True)
class SavedAdapter:
    """A saved adapter's file, its frozen backbone, and how to compute with both.

    record: of the run that left the adapter, {} where none lies beside it.
    """

    path: Path
    frozen: Backbone
    record: dict = field(default_factory=dict)
    device: str = "cpu"
    precision: str = "float32"


@dataclass(frozen=True)
class Predictions:
    """Softmax scores (images, classes) of a saved adapter's mean for the images of `paths`, in this order.

    member: the adapter's tensors.   draws: `uncertainty.summarise` of several draws, {} without them.
    labels: (images,), None where they are not known.
    """

    adapter: SavedAdapter
    member: Member
    classes: Sequence[str]
    paths: Sequence[str]
    probabilities: np.ndarray
    draws: dict[str, np.ndarray]
    labels: np.ndarray | None

    @property
    def metrics(self) -> dict[str, float | int]:
        """The metrics of result files."""
        return metrics.evaluate(self.probabilities, self.labels)

    def table(self) -> pd.DataFrame:
        """Return one row per image: path, prediction and its score, the confidence; with draws, the spread of the
        highest score, and the class that most predict with the interval of its score.

        With labels also the label, whether the prediction is correct, the label's score, and the share of such draws.
        """
        names, predicted = np.array(self.classes, object), self.probabilities.argmax(1)
        paths = pd.Series(self.paths, dtype=object)  # a string column holds no file name that is not UTF-8
        table = pd.DataFrame({"path": paths, "prediction": names[predicted]})
        table["confidence"] = self.probabilities.max(1)
        if self.draws:
            table["draws_sd"], table["draws_prediction"] = self.draws["sd"], names[self.draws["predicted"]]
            table["interval_low"], table["interval_high"] = self.draws["low"], self.draws["high"]
        if self.labels is not None:
            label_of = np.arange(len(self.labels)), self.labels
            table["label"], table["correct"] = names[self.labels], predicted == self.labels
            table["label_score"] = self.probabilities[label_of]
            if self.draws:
                table["draws_correct"] = self.draws["votes"][label_of]
        return table

    def per_class(self) -> pd.DataFrame:
        """Return images, correct predictions and accuracy (NaN for no image) of each class."""
        right = self.labels[self.probabilities.argmax(1) == self.labels]
        images, correct = (np.bincount(those, minlength=len(self.classes)) for those in (self.labels, right))
        table = pd.DataFrame({"class": list(self.classes), "images": images, "correct": correct})
        return table.assign(accuracy=table.correct / table.images)

    def markdown(self) -> str:
        """Return the metrics, and the accuracy of each class, as tables."""
        numbers = self.metrics
        scores = [[title, f"{numbers[key]:.6f}"] for key, title in TITLES.items()]
        of_class = [
            [markdown.escape(str(name)), str(images), "–" if np.isnan(accuracy) else f"{accuracy:.4f}"]
            for _, name, images, _, accuracy in self.per_class().itertuples()
        ]
        return (
            f"{markdown.table(['Metric', 'Value'], scores, 'lr')}\n\n"
            f"{markdown.table(['Class', 'Images', 'Accuracy'], of_class, 'lrr')}"
        )


def predict(adapter: SavedAdapter, split: ImageSplit, classes: Sequence[str], draws: int | None = None) -> Predictions:
    """Predict a split, as a run predicts with the adapter that it trained.

    classes: their names in the order of labels.   draws: Monte Carlo samples besides the mean, two or more; from the
    record's seed, with which the experiment "uncertainty" draws, else from the adapter's.
    InputError for a file of another backbone or number of classes, and for draws of a method without a distribution.
    """
    frozen, device = adapter.frozen, adapter.device
    frozen.model.to(device)
    with checkpoint.load(frozen.model, adapter.path).eval() as model:
        (member,) = model.members
        if member.num_classes != len(classes):
            raise InputError(f"{adapter.path} knows {member.num_classes} classes, the data set has {len(classes)}")
        # What cannot be merged is computed as `training.fit` leaves it: the same products, the same bits.
        model.last_mlp_on_class_token = not member.mergeable
        data = split.data(frozen, torch.device(device), in_memory=False)
        statistics = {}
        with training.autocast(device, adapter.precision):
            probabilities = training.predict(model, data)
            if draws:
                model.last_mlp_on_class_token = False
                scores = analyses.draw(model, data, draws, adapter.record.get("seed", member.seed))
                batches = [uncertainty.summarise(batch) for batch in scores]
                statistics = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    return Predictions(adapter, member, classes, split.names, probabilities, statistics, split.labels)
