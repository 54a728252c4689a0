"""Options for a saved adapter and the images to evaluate it on."""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import custom_options
import torch
from options import ROOT, Parser, set_cache

from pvera import backbones
from pvera.data import custom, splits, tasks
from pvera.errors import InputError
from pvera.study import results
from pvera.study.evaluation import Evaluation, evaluate, record_beside
from pvera.study.training import PRECISIONS
from pvera.study.validation import choose

#: Folders of the suites' data sets.
ROOTS = {"demo": ROOT / "data" / "demo", "vtab": ROOT / "data" / "vtab-1k", "own": custom_options.FOLDER}
ALL = "all"


@dataclass(frozen=True)
class Opened:
    """What an adapter is read with; record: of the run that saved it, None where none lies beside it."""

    record: dict | None
    frozen: backbones.Backbone
    precision: str
    device: str


def parser(description: str) -> Parser:
    """Return a parser with the options for an adapter."""
    made = Parser(description)
    made.add_argument("adapter", type=Path, metavar="ADAPTER", help="file that pvera.save or a training has written")
    made.add_argument("--backbone", metavar="B", help="the backbone (default: that of the record beside the adapter)")
    made.add_argument("--weights", metavar="FILE", help="file of the backbone's weights, instead of the hub's")
    made.number("--draws", metavar="K", help="Monte Carlo samples besides the mean, 2 or more")
    made.add_argument("--precision", help="float32, bfloat16 or float16 (default: the record's, else float32)")
    made.device()
    return made


def add_images(made: Parser) -> None:
    """Add the options for labelled images."""
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


def opened(options: Namespace) -> Opened:
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
    return Opened(record, backbones.load(backbone, weights=options.weights), precision, device)


def evaluated(options: Namespace) -> Evaluation:
    """Evaluate the adapter that `options` name on labelled images. InputError as `opened`."""
    set_cache(options.cache)
    if options.data_set is None and record_beside(options.adapter) is None and options.adapter.is_file():
        raise InputError(
            f"which images is {options.adapter} to be evaluated on? Name them with --data-set; pictures without labels "
            "are for experiments/predict.py"
        )
    made = opened(options)
    name, _, source = (options.data_set or made.record["dataset"]).partition("=")
    root = _custom(options, made.record, name, source) if source else _known(options, made.record, name)
    (split,) = splits.load(root, name, made.frozen, ("test" if options.split == ALL else options.split,))
    return evaluate(
        options.adapter,
        made.frozen,
        split,
        tasks.class_names(name, root),
        made.device,
        made.precision,
        options.draws,
        record=made.record,
        dataset=name,
        part=options.split,
    )


def _known(options: Namespace, record: dict | None, name: str) -> Path:
    """Return the folder of the data sets where `name` lies: a known one, or one that a training installed."""
    suite = tasks.TASKS[name].suite if name in tasks.TASKS else "own"
    if suite not in ROOTS:
        raise InputError(f"{name!r} is a data set of texts; adapters of images can be evaluated here")
    if options.split == ALL:
        raise InputError("--split all is for your own pictures: --data-set NAME=FOLDER")
    root = options.data or ROOTS[suite]
    tasks.task(name, root)
    trained = record["dataset"] if record else name
    if trained != name and {trained, name} <= tasks.TASKS.keys():
        raise InputError(f"the adapter was trained on {trained}; it does not know the classes of {name}")
    described = tasks.manifest(root, name)
    if described and not (root / name / "images").exists():
        raise InputError(f"the pictures of {name} have left {described['source']}: type --data-set {name}=FOLDER")
    _require_fitting(name, record, name, described or {"classes": tasks.class_names(name, root)})
    return root


def _custom(options: Namespace, record: dict | None, name: str, source: str) -> Path:
    """Install the user's own pictures beside those of trainings, and return the folder where they lie."""
    root = options.data or custom_options.FOLDER
    if options.split == ALL:
        custom.install(root / ".whole", name, source, whole=_trained_classes(record))
        return root / ".whole"
    trainings = custom.drawn_from(results.own_data(record)), custom.drawn_from(tasks.manifest(root, name))
    seed = next((seed for seed in trainings if seed is not None), 0)
    _require_fitting(source, record, name, custom.install(root / ".evaluated", name, source, seed))
    return root / ".evaluated"


def _trained_classes(record: dict | None) -> list[str]:
    """Return the names of the adapter's classes in the order of its outputs, [] where nothing tells them."""
    if record and record["dataset"] in tasks.TASKS:
        return tasks.class_names(record["dataset"])
    return results.own_data(record).get("classes", [])


def _require_fitting(source: str, record: dict | None, name: str, described: dict) -> None:
    """Raise InputError where pictures have other classes than the adapter, or another split than in its training."""
    trained, classes = _trained_classes(record), described["classes"]
    if trained and trained != classes:
        raise InputError(
            f"{source} has the classes {', '.join(classes)}, the adapter knows {', '.join(trained)}; --split all "
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
