"""Saved adapters on images: opened with the record of their training, evaluated, or predicting."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from pvera import backbones, checkpoint, uncertainty
from pvera.backbones import Backbone
from pvera.data import custom, tasks, vtab
from pvera.data.image_splits import ImageSplit, load_split
from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.model import Member
from pvera.study import analyses, prediction, results

#: The folder of the suites' data sets, and the folder in it of each suite of images.
DATA = Path(__file__).resolve().parents[2] / "data"
FOLDERS = {"vtab": "vtab-1k", "synthetic": "demo", "own": "own"}


@dataclass(frozen=True)
class SavedAdapter:
    """An adapter's file, with what is needed to compute with it."""

    file: Path
    #: The adapter's backbone, on the device that computes.
    frozen: Backbone
    #: The record of its training, with the keys of `records.Record`; empty for a file without one.
    record: dict[str, Any]

    def classes(self) -> list[str]:
        """Return the names of the classes that it was trained on, in the order of its outputs."""
        if "own_data" in self.record:
            return self.record["own_data"]["classes"]
        return tasks.class_names(self.record["dataset"])


@dataclass(frozen=True)
class Predictions:
    """What an adapter predicts for images."""

    #: The adapter's method, seed and tensors.
    member: Member
    #: Softmax scores (images, classes) of the adapter's mean.
    probabilities: np.ndarray
    #: A row per image, with the columns path, prediction and its score, the confidence. With
    #: samples: draws_sd (standard deviation of the highest score), draws_prediction (the class that
    #: most samples predict), interval_low and interval_high (95 % interval of that class's score).
    #: With labels: label, correct (whether the prediction is), label_score, and with samples
    #: draws_correct (share of samples that predict the label).
    table: pd.DataFrame


def open_adapter(
    file: Path, backbone: str | None = None, weights: str | None = None, device: str = "cpu"
) -> SavedAdapter:
    """Open an adapter, the record of its training where one lies next to it, and its backbone.

    Args:
        file: The adapter.
        backbone: Name of the backbone; by default that of the record.
        weights: File of the backbone's weights, instead of the hub's.
        device: Where to compute. On a CPU, Torch is set to the number of threads of the training.

    Raises:
        InputError: A file is missing, is not the one that the training left, or is of texts; or
            the backbone is unknown.
    """
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    record = _read_record(file)
    if record.get("category") == "language":
        raise InputError(f"{file} reads text; adapters of images can be evaluated here")
    name = backbone or record.get("backbone")
    if name is None:
        raise InputError(f"which backbone is {file} for? Name it with --backbone")

    if record and device == "cpu":
        # Another number of threads rounds sums differently.
        torch.set_num_threads(record["environment"]["threads"])
    size = record["config"]["image_size"] if name == record.get("backbone") else None
    frozen = backbones.load(name, weights=weights, image_size=size)
    frozen.model.to(device)
    return SavedAdapter(file, frozen, record)


def _read_record(adapter: Path) -> dict[str, Any]:
    path = adapter.with_suffix(".json")
    if not path.exists():
        return {}
    results.kept_file(
        path, results.ADAPTER_SUFFIX
    )  # refuses another adapter than that of the record
    return results.read_record_dict(path)


def find_root(adapter: SavedAdapter, name: str, root: Path | None = None) -> Path:
    """Return the folder of the data sets among which `name` is.

    Args:
        adapter: The adapter, which messages name.
        name: A data set.
        root: That folder; by default that of the data set's suite.

    Raises:
        InputError: There is no name, or it is that of a data set of texts.
    """
    if not name:
        raise InputError(
            f"which images is {adapter.file} to be evaluated on? Name them with --data-set"
        )
    suite = TASKS[name].suite if name in TASKS else "own"
    if suite == "glue":
        raise InputError(
            f"{name!r} is a data set of texts; adapters of images can be evaluated here"
        )
    return root or DATA / FOLDERS[suite]


def install_unseen(adapter: SavedAdapter, root: Path, name: str, source: str) -> dict[str, Any]:
    """Install one's own pictures, unless the adapter's training may have seen test images.

    Args:
        adapter: The adapter.
        root: Folder of the data sets.
        name: The data set's name.
        source: Folder of the pictures.

    Returns:
        The manifest, as `custom.install` does.

    Raises:
        InputError: The pictures or the name do not fit, or the test images may be of the adapter's
            training (`require_unseen`).
    """
    _, manifest = custom.read_and_split(source)
    # Checked before it replaces another folder of this name.
    require_unseen(adapter.record, manifest, name)
    return custom.install(root, name, source)


def load_test(adapter: SavedAdapter, root: Path, name: str) -> ImageSplit:
    """Load the test images that an adapter is evaluated on.

    Args:
        adapter: The adapter.
        root: Folder of the data sets.
        name: The data set.

    Raises:
        InputError: The data set is missing or wrong, has other classes than the adapter, or may
            hold images of the adapter's training as far as `require_unseen` can tell.
    """
    vtab.require_vtab(root, name)
    if adapter.record:
        require_unseen(adapter.record, custom.current_manifest(root, name), name)
        _require_same_data(adapter, root, name)
    return load_split(root, name, "test", adapter.frozen.image_size)


def require_unseen(record: dict[str, Any], manifest: dict[str, Any] | None, name: str) -> None:
    """Check that test images of one's own data set are none of an adapter's training.

    A record holds one hash of all pictures. So what is found out is the training's own data set
    split otherwise, or changed under its name. A folder of another name that holds some of the
    training pictures among others is not found out.

    Args:
        record: The record of the adapter's training.
        manifest: `custom.current_manifest` of the data set; None for a known one.
        name: The data set's name.

    Raises:
        InputError: They may be, as far as that shows.
    """
    trained = record.get("own_data")
    if trained is None or manifest is None:
        return
    if manifest["pictures_sha256"] == trained["pictures_sha256"]:
        if manifest["split"] != trained["split"]:
            raise InputError(
                f"{name} is split otherwise than in the adapter's training: "
                "split it as then, or train again"
            )
    elif name == record["dataset"]:
        raise InputError(
            f"the pictures of {name} have changed since the adapter's training: "
            "restore them, or train again"
        )


def _require_same_data(adapter: SavedAdapter, root: Path, name: str) -> None:
    """Refuse classes that the adapter does not know, and another copy of its data set."""
    record = adapter.record
    trained_on = record["dataset"]
    # Known data sets may have equal names of classes, such as numbers, that mean different things.
    other_known = trained_on != name and {trained_on, name} <= TASKS.keys()
    if adapter.classes() != tasks.class_names(name, root) or other_known:
        raise InputError(
            f"the adapter was trained on {trained_on}; it does not know the classes of {name}"
        )
    differences = vtab.read_accepted(root).get(name)
    if trained_on == name and record.get("data_differs") != differences:
        raise InputError(f"{root / name} is another copy than that of the adapter's training")


def predict_images(
    adapter: SavedAdapter,
    split: ImageSplit,
    classes: Sequence[str],
    samples: int | None = None,
) -> Predictions:
    """Predict images, as a training predicts with the adapter that it leaves.

    Args:
        adapter: The adapter.
        split: The images.
        classes: Names of the classes, in the order of labels.
        samples: Monte Carlo samples besides the mean, two or more, from the record's seed (as in
            the analysis "uncertainty") or else the adapter's.

    Raises:
        InputError: The adapter has another backbone or number of classes, or no distribution.
    """
    device = next(adapter.frozen.model.parameters()).device
    data = split.data(adapter.frozen, device, in_memory=False)
    precision = adapter.record.get("config", {}).get("precision", "float32")
    sampled: dict[str, np.ndarray] = {}
    with checkpoint.load(adapter.frozen.model, adapter.file).eval() as model:
        (member,) = model.members
        if member.num_classes != len(classes):
            raise InputError(
                f"{adapter.file} knows {member.num_classes} classes, "
                f"the data set has {len(classes)}"
            )
        # As in the test of its training: the same bits, of adapters that cannot be merged.
        model.last_mlp_on_class_token = True
        with prediction.autocast(device.type, precision):
            probabilities = prediction.predict(model, data)
            if samples:
                model.last_mlp_on_class_token = False  # as in the analysis
                seed = adapter.record.get("seed", member.seed)
                scores = analyses.sample_scores(model, data, samples, seed)
                sampled = uncertainty.summarise(scores)
    table = _table(split, np.array(classes, object), probabilities, sampled)
    return Predictions(member, probabilities, table)


def count_by_class(table: pd.DataFrame, classes: list[str]) -> pd.DataFrame:
    """Return images, correct predictions and accuracy of each class.

    Args:
        table: As in `Predictions`, with labels.
        classes: Names of the classes; one without test images keeps its row.
    """
    labels = pd.Categorical(table.label, classes)
    grouped = table.correct.groupby(labels, observed=False)
    by_class = grouped.agg(images="size", correct="sum", accuracy="mean")
    return by_class.rename_axis("class")


def _table(
    split: ImageSplit,
    names: np.ndarray,
    probabilities: np.ndarray,
    sampled: dict[str, np.ndarray],
) -> pd.DataFrame:
    """Return the table of `Predictions`.

    Args:
        split: The images.
        names: Names of the classes.
        probabilities: Scores (images, classes) of the mean.
        sampled: `uncertainty.summarise` of the samples; empty without samples.
    """
    predicted = probabilities.argmax(axis=1)
    # A string column would not hold file names that are not UTF-8.
    table = pd.DataFrame({"path": pd.Series(split.names, dtype=object)})
    table["prediction"] = names[predicted]
    table["confidence"] = probabilities.max(axis=1)
    if sampled:
        table["draws_sd"] = sampled["sd"]
        table["draws_prediction"] = names[sampled["predicted"]]
        # A t-interval knows no bounds, a score has some.
        table["interval_low"] = sampled["low"].clip(0, 1)
        table["interval_high"] = sampled["high"].clip(0, 1)
    if len(split.labels):
        of_label = (np.arange(len(table)), split.labels)
        table["label"] = names[split.labels]
        table["correct"] = predicted == split.labels
        table["label_score"] = probabilities[of_label]
        if sampled:
            table["draws_correct"] = sampled["votes"][of_label]
    return table
