"""Evaluate a saved adapter on test images: accuracy, NLL, Brier score, ECE and ACE, and the accuracy of each class.

    python experiments/evaluate.py results/synthetic/paper_tuning/tiny/digits/pvera/seed0.safetensors
    python experiments/evaluate.py adapter.safetensors --backbone tiny --data-set pets=FOLDER --draws 16

The run's record beside the adapter gives backbone and data set. The first command takes a few seconds, once
experiments/make_suite.py has made the images, and prints the recorded accuracy 0.555000. Pictures
without labels are for experiments/predict.py.
"""

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from options import DEVICE, ROOT, Parser, require_outputs

from pvera import backbones, checkpoint, metrics, uncertainty
from pvera.backbones import Backbone
from pvera.data import custom, image_folders, inputs, vtab
from pvera.data.image_folders import ImageSplit
from pvera.data.tasks import TASKS
from pvera.errors import InputError, run_script
from pvera.files import json_value, write_atomically
from pvera.model import Member
from pvera.report.table import escape, markdown_table
from pvera.study import analyses, results, training

#: Metrics of an evaluation with their titles.
TITLES = {"accuracy": "Accuracy", "nll": "NLL", "brier": "Brier score", "ece": "ECE", "ace": "ACE"}


def main() -> None:
    parser = adapter_parser(__doc__, labelled=True)
    parser.count(
        "--draws",
        least=2,
        metavar="K",
        help="Monte Carlo samples besides the mean, for --predictions",
    )
    parser.add_argument(
        "--predictions", type=Path, metavar="FILE", help="CSV file to write: one line per image"
    )
    parser.add_argument(
        "--metrics",
        type=Path,
        metavar="FILE",
        help="JSON file to write: all numbers that are printed",
    )
    options = parser.parse_args()
    outputs = [file for file in (options.predictions, options.metrics) if file]
    require_other_files(outputs, options)
    evaluated = evaluate(options, options.draws, outputs)
    method, backbone, name = evaluated.member.method, evaluated.frozen.name, evaluated.dataset
    print(
        f"{method.title} for {backbone} on {name}: {len(evaluated.table)} images\n\n{markdown_tables(evaluated)}"
    )
    if options.predictions:
        write_atomically(options.predictions, evaluated.table.to_csv(index=False))
    if options.metrics:
        numbers = {
            "backbone": backbone,
            "dataset": name,
            "method": method.key,
            "metrics": evaluated.metrics,
            "classes": evaluated.classes.reset_index().to_dict("records"),
        }
        write_atomically(options.metrics, json.dumps(json_value(numbers), indent=1) + "\n")


class Evaluation(NamedTuple):
    """An adapter on test images: its backbone and tensors, the data set's name, `predict`'s table, the metrics of
    result files, and per class images, correct predictions and accuracy."""

    frozen: Backbone
    member: Member
    dataset: str
    table: pd.DataFrame
    metrics: dict[str, float | int]
    classes: pd.DataFrame


def adapter_parser(description: str, labelled: bool) -> Parser:
    """Return a parser with the options for an adapter, and for labelled images."""
    parser = Parser(description)
    parser.add_argument(
        "adapter",
        type=Path,
        metavar="ADAPTER",
        help="file that pvera.save or a training has written",
    )
    parser.add_argument(
        "--backbone",
        metavar="B",
        help="the backbone (default: that of the record beside the adapter)",
    )
    parser.add_argument(
        "--weights", metavar="FILE", help="file of the backbone's weights, instead of the hub's"
    )
    parser.device(DEVICE)
    if labelled:
        data_set = "a known data set, or your own pictures (default: the data set of the record)"
        parser.add_argument("--data-set", metavar="NAME[=FOLDER]", help=data_set)
        parser.add_argument(
            "--data",
            type=Path,
            help="folder of the data sets (default: their suite's, below data/)",
        )
    return parser


def require_other_files(
    outputs: Iterable[Path], options: Namespace, images: Iterable[str | Path] = ()
) -> None:
    """Check the outputs as `require_outputs`: they replace neither `images` nor the files of the adapter."""
    adapter, record = options.adapter, options.adapter.with_suffix(".json")
    for file in outputs:
        if file.resolve().with_suffix("") == adapter.resolve().with_suffix(""):
            raise InputError(
                f"{file} would take the place of the adapter or its record: choose another name"
            )
    weights = [options.weights] if options.weights else []
    require_outputs(outputs, map(Path, [adapter, record, *weights, *images]))


def open_adapter(options: Namespace) -> tuple[Backbone, dict]:
    """Load the backbone, on its device, and the record ({} without one) of the adapter that `options` name.

    InputError for what is missing or does not fit.
    """
    if not options.adapter.is_file():
        raise InputError(f"{options.adapter}: no such file")
    path, record = options.adapter.with_suffix(".json"), {}
    if path.exists():
        results.beside(
            path, results.ADAPTER
        )  # refuses an adapter that is not the one that the run left
        record = results.read(path)
    if record.get("category") == "language":
        raise InputError(f"{options.adapter} reads text; adapters of images can be evaluated here")
    backbone = options.backbone or record.get("backbone")
    if backbone is None:
        raise InputError(f"which backbone is {options.adapter} for? Name it with --backbone")
    if record and options.device == "cpu":
        torch.set_num_threads(
            record["environment"]["threads"]
        )  # another number of images rounds sums differently
    size = record["config"]["image_size"] if backbone == record.get("backbone") else None
    frozen = backbones.load(backbone, weights=options.weights, image_size=size)
    frozen.model.to(options.device)
    return frozen, record


def classes_of(record: dict) -> list[str]:
    """Return the names of the classes that a run was trained on, in the order of the outputs."""
    return (
        record["own_data"]["classes"]
        if "own_data" in record
        else image_folders.class_names(record["dataset"])
    )


def evaluate(
    options: Namespace, draws: int | None = None, outputs: Sequence[Path] = ()
) -> Evaluation:
    """Evaluate the adapter that `options` name on test images.

    InputError as `open_adapter`, `custom.split`, `require_unseen` and `predict`, where images have other classes than
    the adapter, and where `outputs`, which the caller writes, would replace a file of the data set.
    """
    frozen, record = open_adapter(options)
    trained_on = record.get("dataset")
    name, _, folder = (options.data_set or trained_on or "").partition("=")
    if not name:
        raise InputError(
            f"which images is {options.adapter} to be evaluated on? Name them with --data-set"
        )
    suite = TASKS[name].suite if name in TASKS else "own"
    if suite == "glue":
        raise InputError(
            f"{name!r} is a data set of texts; adapters of images can be evaluated here"
        )
    root = options.data or ROOT / "data" / ("vtab-1k" if suite == "vtab" else suite)
    if outputs:
        require_outputs(outputs, files_of(root / name, folder))
    if folder:
        require_unseen(
            record, custom.split(folder)[1], name
        )  # before it takes the place of another folder
        print(custom.describe(name, custom.install(root, name, folder)), flush=True)
    vtab.require(root, name)
    differs = vtab.read_record(root).get(name)
    classes = image_folders.class_names(name, root)
    if record:
        require_unseen(record, custom.current(root, name), name)
        both_known = {trained_on, name} <= TASKS.keys()
        if classes_of(record) != classes or (trained_on != name and both_known):
            raise InputError(
                f"the adapter was trained on {trained_on}; it does not know the classes of {name}"
            )
        if trained_on == name and record.get("data_differs") != differs:
            raise InputError(
                f"{Path(root) / name} is another copy than that of the adapter's training"
            )
    (split,) = inputs.load(root, name, frozen, ("test",))
    member, table, probabilities = predict(options.adapter, frozen, record, split, classes, draws)
    by_class = table.correct.groupby(pd.Categorical(table.label, classes), observed=False)
    per_class = by_class.agg(images="size", correct="sum", accuracy="mean")
    scores = metrics.evaluate(probabilities, split.labels)
    name = f"{name} ({vtab.DIFFERS})" if differs else name
    return Evaluation(frozen, member, name, table, scores, per_class.rename_axis("class"))


def files_of(data_set: Path, folder: str) -> Iterator[Path]:
    """Yield the lists and pictures of a data set, and the pictures of the folder that it is made from."""
    yield data_set.parent / vtab.RECORD
    yield from data_set.glob("*.*")
    for place in map(Path, filter(None, [data_set, folder])):
        if place.is_dir():
            yield from custom.find(place)[0]


def require_unseen(record: dict, described: dict | None, name: str) -> None:
    """Raise an InputError where test images of one's own data set `name` may be images of the adapter's training.

    described: `custom.current` of the data set, None for a known one.
    """
    trained = record.get("own_data")
    if trained is None or described is None:
        return
    same_pictures = described["pictures_sha256"] == trained["pictures_sha256"]
    if same_pictures and described["split"] != trained["split"]:
        raise InputError(
            f"{name} is split otherwise than in the adapter's training: split it as then, or train again"
        )
    if name == record["dataset"] and not same_pictures:
        raise InputError(
            f"the pictures of {name} have changed since the adapter's training: restore them, or train again"
        )


def predict(
    adapter: Path,
    frozen: Backbone,
    record: dict,
    split: ImageSplit,
    classes: Sequence[str],
    draws: int | None = None,
) -> tuple[Member, pd.DataFrame, np.ndarray]:
    """Predict a split, as a run predicts with the adapter that it trained.

    classes: their names in the order of labels.   draws: Monte Carlo samples besides the mean, two or more; from the
    record's seed, with which the experiment "uncertainty" draws, else from the adapter's.
    Returns the adapter's tensors, a table with a row per image, and the softmax scores (images, classes) of its mean.
    Columns: path, prediction and its score, the confidence; with draws, the spread of the highest score, and the class
    that most predict with the interval of its score. With labels also the label, whether the prediction is correct,
    the label's score, and the share of such draws.
    InputError for a file of another backbone or number of classes, and for draws without a distribution.
    """
    device = next(frozen.model.parameters()).device
    with checkpoint.load(frozen.model, adapter).eval() as model:
        (member,) = model.members
        if member.num_classes != len(classes):
            raise InputError(
                f"{adapter} knows {member.num_classes} classes, the data set has {len(classes)}"
            )
        # What cannot be merged is computed as `training.fit` leaves it: the same products, the same bits.
        model.last_mlp_on_class_token = not member.mergeable
        data, drawn = split.data(frozen, device, in_memory=False), {}
        with training.autocast(device.type, record.get("config", {}).get("precision", "float32")):
            probabilities = training.predict(model, data)
            if draws:
                model.last_mlp_on_class_token = False
                scores = analyses.draw(model, data, draws, record.get("seed", member.seed))
                batches = [uncertainty.summarise(batch) for batch in scores]
                drawn = {
                    name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]
                }
    names, predicted = np.array(classes, object), probabilities.argmax(1)
    paths = pd.Series(
        split.names, dtype=object
    )  # a string column holds no file name that is not UTF-8
    table = pd.DataFrame(
        {"path": paths, "prediction": names[predicted], "confidence": probabilities.max(1)}
    )
    if drawn:
        table["draws_sd"], table["draws_prediction"] = drawn["sd"], names[drawn["predicted"]]
        # A t-interval knows no bounds, a score has some.
        table["interval_low"] = drawn["low"].clip(0, 1)
        table["interval_high"] = drawn["high"].clip(0, 1)
    if split.labels is not None:
        label_of = np.arange(len(table)), split.labels
        table["label"], table["correct"] = names[split.labels], predicted == split.labels
        table["label_score"] = probabilities[label_of]
        if drawn:
            table["draws_correct"] = drawn["votes"][label_of]
    return member, table, probabilities


def markdown_tables(evaluated: Evaluation) -> str:
    """Return the metrics, and the accuracy of each class, as tables."""
    scores = [[title, f"{evaluated.metrics[key]:.6f}"] for key, title in TITLES.items()]
    of_class = [
        [escape(row.Index), str(row.images), f"{row.accuracy:.4f}" if row.images else "–"]
        for row in evaluated.classes.itertuples()
    ]
    return (
        f"{markdown_table(['Metric', 'Value'], scores, 'lr')}\n\n"
        f"{markdown_table(['Class', 'Images', 'Accuracy'], of_class, 'lrr')}"
    )


if __name__ == "__main__":
    run_script(main)
