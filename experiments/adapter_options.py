"""Options for a saved adapter and the images to evaluate it on."""

from argparse import Namespace
from pathlib import Path

import custom_options
import torch
from options import ROOT, Parser, set_cache

from pvera import backbones
from pvera.data import custom, image_folders, splits, tasks
from pvera.errors import InputError
from pvera.study import results
from pvera.study.evaluation import Adapter, Evaluation, evaluate, record_beside
from pvera.study.training import PRECISIONS
from pvera.study.validation import choose

#: Folders of the suites' data sets.
ROOTS = {"demo": ROOT / "data" / "demo", "vtab": ROOT / "data" / "vtab-1k", "own": custom_options.FOLDER}
ALL = "all"


def parser(description: str, labelled: bool = True) -> Parser:
    """Return a parser with the options for an adapter, and for labelled images."""
    made = Parser(description)
    made.add_argument("adapter", type=Path, metavar="ADAPTER", help="file that pvera.save or a training has written")
    made.add_argument("--backbone", metavar="B", help="the backbone (default: that of the record beside the adapter)")
    made.add_argument("--weights", metavar="FILE", help="file of the backbone's weights, instead of the hub's")
    made.number("--draws", metavar="K", help="Monte Carlo samples besides the mean, 2 or more")
    made.add_argument("--precision", help="float32, bfloat16 or float16 (default: the record's, else float32)")
    made.device()
    if not labelled:
        return made
    made.add_argument(
        "--data-set",
        metavar="NAME[=FOLDER]",
        help="a known data set, or your own pictures (default: the data set of the record)",
    )
    made.add_argument("--data", type=Path, help="folder of the data sets (default: that of their suite below data/)")
    made.add_argument(
        "--split",
        choices=(*splits.PARTS, ALL),
        default="test",
        help="evaluate this one; all: every picture of FOLDER, whatever its split (%(default)s)",
    )
    made.add_argument("--cache", help="folder for decoded images")
    return made


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


def evaluated(options: Namespace) -> Evaluation:
    """Evaluate the adapter that `options` name on labelled images. InputError as `opened`."""
    set_cache(options.cache)
    adapter = opened(options)
    named = options.data_set or (adapter.record and adapter.record["dataset"])
    if not named:
        raise InputError(
            f"which images is {options.adapter} to be evaluated on? Name them with --data-set; pictures without labels "
            "are for experiments/predict.py"
        )
    name, _, source = named.partition("=")
    if source:
        split, classes = _from_folder(options, adapter, name, source)
    else:
        split, classes = _from_lists(options, adapter, name)
    return evaluate(adapter, split, classes, options.draws, dataset=name, part=options.split)


def _from_lists(options: Namespace, adapter: Adapter, name: str) -> tuple[splits.Split, list[str]]:
    """Load a known data set, or one that a training has installed, with the names of its classes."""
    suite = tasks.TASKS[name].suite if name in tasks.TASKS else "own"
    if suite not in ROOTS:
        raise InputError(f"{name!r} is a data set of texts; adapters of images can be evaluated here")
    if options.split == ALL:
        raise InputError("--split all is for your own pictures: --data-set NAME=FOLDER")
    trained = adapter.record["dataset"] if adapter.record else name
    if trained != name and {trained, name} <= tasks.TASKS.keys():
        raise InputError(f"the adapter was trained on {trained}; it does not know the classes of {name}")
    root = options.data or ROOTS[suite]
    classes = tasks.class_names(name, root)
    _require_fitting(adapter.record, name, tasks.manifest(root, name) or {"classes": classes})
    (split,) = splits.load(root, name, adapter.frozen, (options.split,))
    return split, classes


def _from_folder(options: Namespace, adapter: Adapter, name: str, source: str) -> tuple[splits.Split, list[str]]:
    """Read the user's own pictures, with the names of the classes; nothing is written."""
    if options.split == ALL:
        pictures = custom.read(source)
        classes, table = trained_classes(adapter.record) or pictures.classes, pictures.table
        if unknown := [label for label in pictures.classes if label not in classes]:
            raise InputError(f"{source} has the label {unknown[0]}, the adapter knows {', '.join(classes)}")
    else:
        installed = tasks.manifest(options.data or custom_options.FOLDER, name)
        seed = custom.drawn_from(results.own_data(adapter.record))
        pictures, described = custom.split(source, seed if seed is not None else custom.drawn_from(installed) or 0)
        _require_fitting(adapter.record, name, described)
        classes, table = described["classes"], pictures.table[pictures.table.part == options.split]
    labels = [classes.index(label) for label in table.label]
    return image_folders.undecoded(pictures.folder, table.path, labels, adapter.frozen.image_size), classes


def _require_fitting(record: dict | None, name: str, described: dict) -> None:
    """Raise InputError where pictures have other classes than the adapter, or another split than in its training."""
    trained, classes = trained_classes(record), described["classes"]
    if trained and trained != classes:
        raise InputError(
            f"{name} has the classes {', '.join(classes)}, the adapter knows {', '.join(trained)}; --split all "
            "evaluates pictures of some of its classes"
        )
    # Another split tests the adapter on images that it was trained on.
    about = results.own_data(record)
    same_pictures = about.get("pictures_sha256") == described.get("pictures_sha256")
    if not about or record["dataset"] != name and not same_pictures:
        return
    if not same_pictures or about["split"] != described["split"]:
        raise InputError(
            f"{name} has other pictures or another split ({custom.describe_split(described['split'])}) than in the "
            f"adapter's training ({custom.describe_split(about['split'])}): type --data-set {name}=FOLDER, with the "
            "FOLDER of its training; new pictures take a folder and a name of their own, and --split all"
        )
