"""Evaluate a saved adapter on test images: accuracy, NLL, Brier score, ECE and ACE, and the accuracy of each class.

    python experiments/evaluate.py results/mini/benchmark/tiny/digits/pvera/seed0.safetensors
    python experiments/evaluate.py adapter.safetensors --backbone tiny --data-set pets=FOLDER --draws 16

The run's record beside the adapter gives backbone and data set. The first command takes a few seconds, once
experiments/make_suite.py has made the images, and prints the accuracy 0.555000 that profile `mini` recorded. Pictures
without labels are for experiments/predict.py.
"""

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from options import Parser
from own_pictures import ROOTS, install_one

from pvera import backbones, checkpoint, metrics, uncertainty
from pvera.backbones import Backbone
from pvera.data import custom, inputs, tasks
from pvera.data.image_folders import ImageSplit
from pvera.errors import InputError, run_script
from pvera.files import plain, require_writable, write_atomically
from pvera.members import Member
from pvera.study import analyses, markdown, results, training

#: Metrics of an evaluation with their titles.
TITLES = {"accuracy": "Accuracy", "nll": "NLL", "brier": "Brier score", "ece": "ECE", "ace": "ACE"}


def main() -> None:
    parser = adapter_parser(__doc__, labelled=True)
    parser.count("--draws", least=2, metavar="K", help="Monte Carlo samples besides the mean, for --predictions")
    parser.add_argument("--predictions", type=Path, metavar="FILE", help="CSV file to write: one line per image")
    parser.add_argument("--metrics", type=Path, metavar="FILE", help="JSON file to write: all numbers that are printed")
    options = parser.parse_args()
    for file in filter(None, (options.predictions, options.metrics)):
        require_writable(file.resolve().parent)
    predictions, name = evaluate(options, options.draws)
    method, backbone = predictions.member.method, predictions.adapter.frozen.name
    print(f"{method.title} for {backbone} on {name}: {len(predictions.labels)} images\n\n{predictions.markdown()}")
    if options.predictions:
        write_atomically(options.predictions, predictions.table().to_csv(index=False))
    if options.metrics:
        numbers = {
            "backbone": backbone,
            "dataset": name,
            "method": method.key,
            "metrics": predictions.metrics,
            "classes": predictions.per_class().to_dict("records"),
        }
        write_atomically(options.metrics, json.dumps(plain(numbers), indent=1) + "\n")


@dataclass(frozen=True)
class SavedAdapter:
    """A saved adapter's file, its frozen backbone, and how to compute with both.

    record: of the run that left the adapter, {} where none lies beside it.
    """

    path: Path
    frozen: Backbone
    record: dict = field(default_factory=dict)
    device: str = "cpu"

    @property
    def classes(self) -> list[str]:
        """The names of its classes in the order of its outputs, [] where nothing tells them."""
        own = self.record.get("own_data")
        return own["classes"] if own else tasks.class_names(self.record["dataset"]) if self.record else []

    def predict(self, split: ImageSplit, classes: Sequence[str], draws: int | None = None) -> "Predictions":
        """Predict a split, as a run predicts with the adapter that it trained.

        classes: their names in the order of labels.   draws: Monte Carlo samples besides the mean, two or more; from
        the record's seed, with which the experiment "uncertainty" draws, else from the adapter's.
        InputError for a file of another backbone or number of classes, and for draws without a distribution.
        """
        self.frozen.model.to(self.device)
        with checkpoint.load(self.frozen.model, self.path).eval() as model:
            (member,) = model.members
            if member.num_classes != len(classes):
                raise InputError(f"{self.path} knows {member.num_classes} classes, the data set has {len(classes)}")
            # What cannot be merged is computed as `training.fit` leaves it: the same products, the same bits.
            model.last_mlp_on_class_token = not member.mergeable
            data = split.data(self.frozen, torch.device(self.device), in_memory=False)
            statistics = {}
            with training.autocast(self.device, self.record.get("config", {}).get("precision", "float32")):
                probabilities = training.predict(model, data)
                if draws:
                    model.last_mlp_on_class_token = False
                    scores = analyses.draw(model, data, draws, self.record.get("seed", member.seed))
                    batches = [uncertainty.summarise(batch) for batch in scores]
                    statistics = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        return Predictions(self, member, classes, split.names, probabilities, statistics, split.labels)


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


def adapter_parser(description: str, labelled: bool) -> Parser:
    """Return a parser with the options for an adapter, and for labelled images."""
    parser = Parser(description)
    parser.add_argument("adapter", type=Path, metavar="ADAPTER", help="file that pvera.save or a training has written")
    parser.add_argument("--backbone", metavar="B", help="the backbone (default: that of the record beside the adapter)")
    parser.add_argument("--weights", metavar="FILE", help="file of the backbone's weights, instead of the hub's")
    parser.device()
    if labelled:
        data_set = "a known data set, or your own pictures (default: the data set of the record)"
        parser.add_argument("--data-set", metavar="NAME[=FOLDER]", help=data_set)
        parser.add_argument("--data", type=Path, help="folder of the data sets (default: their suite's, below data/)")
    return parser


def open_adapter(options: Namespace) -> SavedAdapter:
    """Load the backbone of the adapter that `options` name. InputError for what is missing or does not fit."""
    if not options.adapter.is_file():
        raise InputError(f"{options.adapter}: no such file")
    path, record = options.adapter.with_suffix(".json"), {}
    if path.exists():
        results.beside(path, results.ADAPTER)  # refuses an adapter that is not the one that the run left
        record = results.read(path)
    if record.get("category") == "language":
        raise InputError(f"{options.adapter} reads text; adapters of images can be evaluated here")
    backbone = options.backbone or record.get("backbone")
    if backbone is None:
        raise InputError(f"which backbone is {options.adapter} for? Name it with --backbone")
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if record and device == "cpu":
        torch.set_num_threads(record["environment"]["threads"])  # another number of images rounds sums differently
    size = record["config"]["image_size"] if backbone == record.get("backbone") else None
    frozen = backbones.load(backbone, weights=options.weights, image_size=size)
    return SavedAdapter(options.adapter, frozen, record, device)


def evaluate(options: Namespace, draws: int | None = None) -> tuple[Predictions, str]:
    """Evaluate the adapter that `options` name on test images; return predictions and the name of the data set.

    InputError as `open_adapter` and `require_unseen`, and where images have other classes than the adapter.
    """
    adapter = open_adapter(options)
    record, trained_on = adapter.record, adapter.record.get("dataset")
    name, _, folder = (options.data_set or trained_on or "").partition("=")
    if not name:
        raise InputError(f"which images is {options.adapter} to be evaluated on? Name them with --data-set")
    suite = tasks.TASKS[name].suite if name in tasks.TASKS else "own"
    if suite == "glue":
        raise InputError(f"{name!r} is a data set of texts; adapters of images can be evaluated here")
    root = options.data or ROOTS[suite]
    if folder:
        install_one(root, name, folder, custom.drawn_from(record.get("own_data")))
    classes = tasks.class_names(name, root)
    if record:
        both_known = {trained_on, name} <= tasks.TASKS.keys()
        if adapter.classes != classes or (trained_on != name and both_known):
            raise InputError(f"the adapter was trained on {trained_on}; it does not know the classes of {name}")
        require_unseen(record, custom.current(root, name), name)
    (split,) = inputs.load(root, name, adapter.frozen, ("test",))
    return adapter.predict(split, classes, draws), name


def require_unseen(record: dict, described: dict | None, name: str) -> None:
    """Raise an InputError where test images of one's own data set `name` may be images of the adapter's training.

    described: `custom.current` of the data set, None for a known one.
    """
    advice = "--data-set NEW=FOLDER"
    trained = record.get("own_data")
    if trained is None or described is None:
        return
    same_pictures = described["pictures_sha256"] == trained["pictures_sha256"]
    if same_pictures and described["split"] != trained["split"]:
        raise InputError(f"{name} is split otherwise than in the adapter's training: give it a new name, {advice}")
    if name == record["dataset"] and not same_pictures:
        changed = f"the pictures of {name} have changed since the adapter's training"
        raise InputError(f"{changed}: restore them, or give new ones a new name, {advice}")


if __name__ == "__main__":
    run_script(main)
