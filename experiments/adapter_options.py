"""Options for a saved adapter and the images to evaluate it on."""

from argparse import Namespace
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from options import ROOT, Parser, set_cache
from own_options import FOLDER, NOT_OWN, named

from pvera import backbones
from pvera.data import own, splits, tasks
from pvera.errors import InputError
from pvera.study import results
from pvera.study.evaluation import Evaluation, evaluate, record_beside
from pvera.study.training import PRECISIONS
from pvera.study.validation import Natural, choose

#: Folders of the suites' data sets.
ROOTS = {"demo": ROOT / "data" / "demo", "vtab": ROOT / "data" / "vtab-1k", "own": FOLDER}
ALL = "all"


@dataclass(frozen=True)
class Evaluated:
    """An evaluation with its names; record: of the run that saved the adapter, if the file lies beside it."""

    evaluation: Evaluation
    frozen: backbones.Backbone
    dataset: str
    part: str
    record: dict | None

    @property
    def recorded(self) -> dict | None:
        """The record's metrics, if they are of the same split."""
        same = self.record and self.record["dataset"] == self.dataset and self.part == "test"
        return self.record["test"] if self.record and same else None


def parser(description: str) -> Parser:
    """Return a parser with the options."""
    made = Parser(description)
    made.add_argument("adapter", type=Path, metavar="ADAPTER", help="file that pvera.save or a training has written")
    made.add_argument("--backbone", metavar="B", help="the backbone (default: that of the record beside the adapter)")
    made.add_argument("--weights", metavar="FILE", help="file of the backbone's weights, instead of the hub's")
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
    made.number("--split-seed", type_=Natural, metavar="K", help="as for train.py (default: the record's)")
    made.number("--draws", metavar="K", help="Monte Carlo samples besides the mean, 2 or more")
    made.add_argument("--precision", help="float32, bfloat16 or float16 (default: the record's, else float32)")
    made.add_argument("--cache", help="folder for decoded images")
    made.device()
    return made


def evaluated(options: Namespace) -> Evaluated:
    """Evaluate the adapter that `options` name. InputError for what is missing or does not fit."""
    set_cache(options.cache)
    if not options.adapter.is_file():
        raise InputError(f"{options.adapter}: no such file")
    record = record_beside(options.adapter)
    if record and record["category"] == "language":
        raise InputError(f"{options.adapter} reads text; adapters of images can be evaluated here")
    name, source = _data_set(options, record)
    backbone = options.backbone or (record and record["backbone"])
    if backbone is None:
        raise InputError(f"which backbone is {options.adapter} for? Name it with --backbone")
    precision = options.precision or (record["config"]["precision"] if record else "float32")
    choose("precision", precision, PRECISIONS)
    root = _installed(options, record, name, source)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if record and device == "cpu":
        torch.set_num_threads(record["environment"]["threads"])  # another number of images rounds sums differently
    frozen = backbones.load(backbone, weights=options.weights)
    part = "test" if options.split == ALL else options.split
    (split,) = splits.load(root, name, frozen, (part,))
    seed = record["seed"] if record else None
    result = evaluate(
        options.adapter, frozen, split, tasks.class_names(name, root), device, precision, options.draws, seed
    )
    return Evaluated(result, frozen, name, options.split, record)


def _data_set(options: Namespace, record: dict | None) -> tuple[str, str | None]:
    """Return the data set's name and, for the user's own pictures, their folder."""
    if options.data_set is None and record is None:
        raise InputError(f"which images is {options.adapter} to be evaluated on? Name them with --data-set")
    text = options.data_set or record["dataset"]
    name, source = named(text) if "=" in text else (text, None)
    if options.split == ALL and source is None:
        raise InputError("--split all is for your own pictures: --data-set NAME=FOLDER")
    return name, source


def _installed(options: Namespace, record: dict | None, name: str, source: str | None) -> Path:
    """Return the root of the data set; the user's own pictures are installed there first."""
    if source is None:
        suite = tasks.TASKS[name].suite if name in tasks.TASKS else "own"
        if suite not in ROOTS:
            raise InputError(f"{name!r} is a data set of texts; adapters of images can be evaluated here")
        if options.split_seed is not None:
            raise InputError(NOT_OWN)
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
    root = options.data or FOLDER
    if options.split == ALL:
        root /= ".whole"
        own.install(root, name, source, whole=_trained_classes(record))
        return root
    seed = options.split_seed
    if seed is None:
        seed = own.drawn_from(results.own_data(record))
    if own.other_seed(root, name, seed) is not None:
        root /= f".split{seed}"
    own.install(root, name, source, seed, check=partial(_require_fitting, source, record, name))
    return root


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
    pictures = about.get("pictures_sha256")  # which earlier records do not have
    others = pictures not in (None, described.get("pictures_sha256"))
    if not about or record["dataset"] != name and (others or pictures is None):
        return
    split = about["split"]
    if split != described["split"]:
        seed = f" --split-seed {split['seed']}" if "seed" in split else ""
        raise InputError(
            f"{name} has another split ({own.describe_split(described['split'])}) than the adapter's training "
            f"({own.describe_split(split)}): type --data-set {name}=FOLDER{seed}, with the FOLDER of its training"
        )
    if others:
        raise InputError(
            f"{source} has other pictures than in the adapter's training, or splits them otherwise: restore them, or "
            "give new pictures a folder and a name of their own, with --split all"
        )
