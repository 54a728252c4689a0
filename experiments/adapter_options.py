"""Options for a saved adapter and the images to evaluate it on."""

from argparse import Namespace
from pathlib import Path

import custom_options
import torch
from options import ROOT, Parser, set_cache

from pvera import backbones
from pvera.data import custom, splits, tasks
from pvera.errors import InputError
from pvera.study import results
from pvera.study.evaluation import Adapter, Evaluation, evaluate, record_beside
from pvera.study.training import PRECISIONS
from pvera.study.validation import choose

#: Folders of the suites' data sets.
ROOTS = {"demo": ROOT / "data" / "demo", "vtab": ROOT / "data" / "vtab-1k", "own": custom_options.FOLDER}


def parser(description: str) -> Parser:
    """Return a parser with the options for an adapter."""
    made = Parser(description)
    made.add_argument("adapter", type=Path, metavar="ADAPTER", help="file that pvera.save or a training has written")
    made.add_argument("--backbone", metavar="B", help="the backbone (default: that of the record beside the adapter)")
    made.add_argument("--weights", metavar="FILE", help="file of the backbone's weights, instead of the hub's")
    made.add_argument("--precision", help="float32, bfloat16 or float16 (default: the record's, else float32)")
    made.device()
    return made


def add_data(made: Parser) -> None:
    """Add the options for labelled images."""
    made.add_argument(
        "--data-set",
        metavar="NAME[=FOLDER]",
        help="a known data set, or your own pictures (default: the data set of the record)",
    )
    made.add_argument("--data", type=Path, help="folder of the data sets (default: that of their suite below data/)")
    made.add_argument("--cache", help="folder for decoded images")


def opened(options: Namespace) -> Adapter:
    """Load the backbone of the adapter that `options` name. InputError for what is missing or does not fit."""
    if not options.adapter.is_file():
        raise InputError(f"{options.adapter}: no such file")
    record = record_beside(options.adapter)
    if record and record["category"] == "language":
        raise InputError(f"{options.adapter} reads text; adapters of images can be evaluated here")
    backbone = options.backbone or (record and record["backbone"])
    if backbone is None:
        raise InputError(f"which backbone is {options.adapter} for? Name it with --backbone")
    precision = options.precision or (record["config"]["precision"] if record else "float32")
    choose("precision", precision, PRECISIONS)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if record and device == "cpu":
        torch.set_num_threads(record["environment"]["threads"])  # another number of images rounds sums differently
    return Adapter(options.adapter, backbones.load(backbone, weights=options.weights), record, device, precision)


def trained_classes(record: dict | None) -> list[str]:
    """Return the names of the adapter's classes in the order of its outputs, [] where nothing tells them."""
    if record is None:
        return []
    return results.own_data(record).get("classes") or tasks.class_names(record["dataset"])


def evaluated(options: Namespace, draws: int | None = None) -> Evaluation:
    """Evaluate the adapter that `options` name on test images. InputError as `opened`."""
    set_cache(options.cache)
    adapter = opened(options)
    named = options.data_set or (adapter.record and adapter.record["dataset"])
    if not named:
        raise InputError(
            f"which images is {options.adapter} to be evaluated on? Name them with --data-set; pictures without labels "
            "are for experiments/predict.py"
        )
    name, _, folder = named.partition("=")
    suite = tasks.TASKS[name].suite if name in tasks.TASKS else "own"
    if suite not in ROOTS:
        raise InputError(f"{name!r} is a data set of texts; adapters of images can be evaluated here")
    root = options.data or ROOTS[suite]
    if folder:
        custom_options.install_one(root, name, folder, custom.drawn_from(results.own_data(adapter.record)))
    classes = tasks.class_names(name, root)
    if adapter.record:
        _require_fitting(adapter.record, name, classes, tasks.manifest(root, name) or {})
    (split,) = splits.load(root, name, adapter.frozen, ("test",))
    return evaluate(adapter, split, classes, draws, name)


def _require_fitting(record: dict, name: str, classes: list[str], described: dict) -> None:
    """Raise InputError where images have other classes than the adapter, or another split than in its training."""
    trained, about = record["dataset"], results.own_data(record)
    if trained_classes(record) != classes or trained != name and {trained, name} <= tasks.TASKS.keys():
        raise InputError(f"the adapter was trained on {trained}; it does not know the classes of {name}")
    # Another split tests the adapter on images that it was trained on, and so may other pictures of the same name.
    same_pictures = about.get("pictures_sha256") == described.get("pictures_sha256")
    if about and (about["split"] != described["split"] if same_pictures else trained == name):
        raise InputError(
            f"{name} has other pictures or another split ({custom.describe_split(described['split'])}) than in the "
            f"adapter's training ({custom.describe_split(about['split'])}): type --data-set NEW=FOLDER with the FOLDER "
            "of its training and a new name; new pictures take a new name as well"
        )
