"""One's own pictures, in training and after it, and saved adapters: their options, and what scripts do with them."""

import sys
from argparse import Namespace
from pathlib import Path

import torch
from options import ROOT, Parser

from pvera import backbones
from pvera.data import custom, inputs, tasks
from pvera.errors import InputError
from pvera.study import results
from pvera.study.evaluation import Predictions, SavedAdapter, predict
from pvera.study.profiles import PRECISIONS
from pvera.study.runs import Job

#: Folders of the suites' data sets.
ROOTS = {"demo": ROOT / "data" / "demo", "vtab": ROOT / "data" / "vtab-1k", "own": ROOT / "data" / "own"}


# Training


def install(options: Namespace, script: str) -> Namespace:
    """Install the data sets of --data-set; return options that name them: profile, data and data sets.

    Unless more is said: profile `own`, or `own_large` for a larger backbone; the corrected protocol; PVeRA with seed 0.
    InputError like `install_one`, and for known data sets beside the user's.
    """
    if options.datasets:
        raise InputError("--datasets and --data-set: known data sets and your own pictures train in separate calls")
    options = Namespace(**vars(options))
    options.profile = options.profile or ("own" if options.backbones in (None, ["tiny"]) else "own_large")
    options.protocol = options.protocol or "corrected"
    if script == "train":
        options.methods, options.seeds = options.methods or ["pvera"], options.seeds or [0]
    root = Path(options.data or ROOTS["own"]).absolute()
    options.datasets, options.data = [], str(root)
    for text in options.data_set:
        name, _, source = text.partition("=")
        if not (name and source):
            raise InputError(f"--data-set takes NAME=FOLDER, not {text!r}")
        install_one(root, name, source, options.split_seed)
        options.datasets.append(name)
    return options


def install_one(root: Path, name: str, source: str, seed: int | None) -> None:
    """Install a data set. InputError like `custom.install`, and for another split of it, which trainings may read."""
    drawn = custom.drawn_from(tasks.manifest(root, name))
    if seed is not None and drawn not in (None, seed):
        raise InputError(
            f"{name} is split from seed {drawn}: give the other split another name, --data-set {name}-{seed}={source}, "
            f"or remove {root / name}"
        )
    print(custom.describe(name, custom.install(root, name, source, seed)), flush=True)


def trained(runs: list[Job]) -> list[str]:
    """Return the lines with the adapters of the first seed, and the command that evaluates them."""
    lines = []
    for run in runs:
        adapter = run.path.with_suffix(results.ADAPTER)
        if run.seed == runs[0].seed and adapter.exists():
            weights = f" --weights {run.weights}" if run.weights else ""
            data = "" if Path(run.data_root) == ROOTS["own"] else f" --data {run.data_root}"
            lines.append(f"adapter: {adapter}; evaluate it: python experiments/evaluate.py {adapter}{weights}{data}")
    return lines


# Saved adapters


def adapter_parser(description: str) -> Parser:
    """Return a parser with the options for an adapter."""
    parser = Parser(description)
    parser.add_argument("adapter", type=Path, metavar="ADAPTER", help="file that pvera.save or a training has written")
    parser.add_argument("--backbone", metavar="B", help="the backbone (default: that of the record beside the adapter)")
    parser.add_argument("--weights", metavar="FILE", help="file of the backbone's weights, instead of the hub's")
    parser.add_argument("--precision", choices=PRECISIONS, help="(default: the record's, else float32)")
    parser.device()
    return parser


def labelled_parser(description: str) -> Parser:
    """Return a parser with the options for an adapter and for labelled images."""
    parser = adapter_parser(description)
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
    precision = options.precision or (record["config"]["precision"] if record else "float32")
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if record and device == "cpu":
        torch.set_num_threads(record["environment"]["threads"])  # another number of images rounds sums differently
    size = record["config"]["image_size"] if backbone == record.get("backbone") else None
    frozen = backbones.load(backbone, weights=options.weights, image_size=size)
    return SavedAdapter(options.adapter, frozen, record, device, precision)


def trained_classes(record: dict) -> list[str]:
    """Return the names of the adapter's classes in the order of its outputs, [] where nothing tells them."""
    if "own_data" in record:
        return record["own_data"]["classes"]
    return tasks.class_names(record["dataset"]) if record else []


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
    if suite not in ROOTS:
        raise InputError(f"{name!r} is a data set of texts; adapters of images can be evaluated here")
    root = options.data or ROOTS[suite]
    if folder:
        install_one(root, name, folder, custom.drawn_from(record.get("own_data")))
    classes = tasks.class_names(name, root)
    if record:
        both_known = {trained_on, name} <= tasks.TASKS.keys()
        if trained_classes(record) != classes or (trained_on != name and both_known):
            raise InputError(f"the adapter was trained on {trained_on}; it does not know the classes of {name}")
        require_unseen(record, custom.current(root, name), name)
    (split,) = inputs.load(root, name, adapter.frozen, ("test",))
    predictions = predict(adapter, split, classes, draws)
    if trained_on == name and not same_images(adapter, root):
        print(f"note: the images of {name} are not those of the training, or are decoded otherwise", file=sys.stderr)
    return predictions, name


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
            f"{name} has another split ({custom.describe_split(described['split'])}) than in the adapter's training "
            f"({custom.describe_split(trained['split'])}): type --data-set NEW=FOLDER with the FOLDER of its training "
            "and a new name"
        )
    if name == record["dataset"] and not same_pictures:
        raise InputError(
            f"the pictures of {name} have changed since the adapter's training: restore them, or name new ones "
            "otherwise, --data-set NEW=FOLDER"
        )


def same_images(adapter: SavedAdapter, root: Path) -> bool:
    """Return whether the images below `root` are those of the adapter's training, bit for bit as they are decoded."""
    name, config = adapter.record["dataset"], adapter.record["config"]
    try:
        splits = inputs.load(root, name, adapter.frozen, first=config.get("images"))
    except InputError:  # training images are gone
        return False
    return inputs.digest(splits) == config["data_sha256"]
