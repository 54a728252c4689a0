"""One's own pictures, in training and after it, and saved adapters: their options, and what scripts do with them."""

from argparse import Namespace
from pathlib import Path

import torch
from options import ROOT, Parser, set_cache

from pvera import backbones
from pvera.data import custom, inputs, tasks
from pvera.errors import InputError
from pvera.study import results
from pvera.study.evaluation import Adapter, Evaluation, evaluate
from pvera.study.profiles import Profile
from pvera.study.runs import Job, environment
from pvera.study.training import PRECISIONS

#: Folders of the suites' data sets.
ROOTS = {"demo": ROOT / "data" / "demo", "vtab": ROOT / "data" / "vtab-1k", "own": ROOT / "data" / "own"}


# Training


def install(options: Namespace) -> None:
    """Install the data sets of --data-set and let `options` name them: profile, data and data sets.

    Unless more is said: profile `own`, or `own_large` for a larger backbone; the corrected protocol; PVeRA with seed 0.
    InputError like `install_one`, and for known data sets beside the user's.
    """
    options.profile = options.profile or ("own" if options.backbones in (None, ["tiny"]) else "own_large")
    options.protocol = options.protocol or "corrected"
    if options.script == "train":
        options.methods, options.seeds = options.methods or ["pvera"], options.seeds or [0]
    if options.datasets:
        raise InputError("--datasets and --data-set: known data sets and your own pictures train in separate calls")
    root = Path(options.data or ROOTS["own"]).absolute()
    options.datasets, options.data = [], str(root)
    for text in options.data_set:
        name, _, source = text.partition("=")
        if not (name and source):
            raise InputError(f"--data-set takes NAME=FOLDER, not {text!r}")
        install_one(root, name, source, options.split_seed)
        options.datasets.append(name)


def install_one(root: Path, name: str, source: str, seed: int | None) -> None:
    """Install a data set. InputError like `custom.install`, and for another split of it, which trainings may read."""
    drawn = custom.drawn_from(tasks.manifest(root, name))
    if seed is not None and drawn not in (None, seed):
        raise InputError(
            f"{name} is split from seed {drawn}: give the other split another name, --data-set {name}-{seed}={source}, "
            f"or remove {root / name}"
        )
    print(custom.describe(name, custom.install(root, name, source, seed)), flush=True)


def announce(profile: Profile, device: str) -> str:
    """Return the line that says what will be trained, before it is."""
    grids = [
        f"{name} {searched} {', '.join(map(str, values))}"
        for name, options in profile.methods.items()
        for searched, values in options.get("grid", {}).items()
    ]
    idle = "" if device != "cpu" else ", while a GPU is idle" if torch.cuda.is_available() else ", without a GPU"
    return (
        f"protocol {profile.protocol}; backbone {', '.join(profile.backbones)}; methods {', '.join(profile.methods)}; "
        f"seeds {', '.join(map(str, profile.seeds))}; grids "
        f"{', '.join(grids) or 'none'}; {count(profile)} trainings of at most {profile.training.epochs} epochs, on "
        f"{environment(device)['device']}{idle}"
    )


def count(profile: Profile) -> int:
    """Return the number of trainings of the benchmark."""
    return len(profile.backbones) * len(profile.datasets) * len(profile.methods) * len(profile.seeds)


def trained(runs: list[Job]) -> list[str]:
    """Return the lines with the adapters of the first seed, and the command that evaluates them."""
    benchmark = [run for run in runs if run.experiment == "benchmark"]
    lines = []
    for run in benchmark:
        adapter = run.path.with_suffix(results.ADAPTER)
        if run.seed == benchmark[0].seed and adapter.exists():
            weights = f" --weights {run.weights}" if run.weights else ""
            data = "" if Path(run.data_root) == ROOTS["own"] else f" --data {run.data_root}"
            lines.append(f"adapter: {adapter}; evaluate it: python experiments/evaluate.py {adapter}{weights}{data}")
    return lines


# Saved adapters


def parser(description: str, labelled: bool = True) -> Parser:
    """Return a parser with the options for an adapter, and for labelled images."""
    made = Parser(description)
    made.add_argument("adapter", type=Path, metavar="ADAPTER", help="file that pvera.save or a training has written")
    made.add_argument("--backbone", metavar="B", help="the backbone (default: that of the record beside the adapter)")
    made.add_argument("--weights", metavar="FILE", help="file of the backbone's weights, instead of the hub's")
    made.add_argument("--precision", choices=PRECISIONS, help="(default: the record's, else float32)")
    made.device()
    if labelled:
        made.add_argument(
            "--data-set",
            metavar="NAME[=FOLDER]",
            help="a known data set, or your own pictures (default: the data set of the record)",
        )
        made.add_argument("--data", type=Path, help="folder of the data sets (default: their suite's, below data/)")
        made.add_argument("--cache", help="folder for decoded images")
    return made


def opened(options: Namespace) -> Adapter:
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
    return Adapter(options.adapter, frozen, record, device, precision)


def trained_classes(record: dict) -> list[str]:
    """Return the names of the adapter's classes in the order of its outputs, [] where nothing tells them."""
    if "own_data" in record:
        return record["own_data"]["classes"]
    return tasks.class_names(record["dataset"]) if record else []


def evaluated(options: Namespace, draws: int | None = None) -> Evaluation:
    """Evaluate the adapter that `options` name on test images. InputError as `opened`, and where images have other
    classes than the adapter, or another split than in its training."""
    set_cache(options.cache)
    adapter = opened(options)
    record, about = adapter.record, adapter.record.get("own_data")
    trained = record.get("dataset")
    if not (named := options.data_set or trained):
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
        install_one(root, name, folder, custom.drawn_from(about))
    classes, described = tasks.class_names(name, root), tasks.manifest(root, name) or {}
    if record and (trained_classes(record) != classes or trained != name and {trained, name} <= tasks.TASKS.keys()):
        raise InputError(f"the adapter was trained on {trained}; it does not know the classes of {name}")
    if about:
        # Another split tests the adapter on images that it was trained on, and so may other pictures of the same name.
        same_pictures = about["pictures_sha256"] == described.get("pictures_sha256")
        if about["split"] != described["split"] if same_pictures else trained == name:
            raise InputError(
                f"{name} has other pictures or another split ({custom.describe_split(described['split'])}) than in the "
                f"adapter's training ({custom.describe_split(about['split'])}): type --data-set NEW=FOLDER with the "
                "FOLDER of its training and a new name; new pictures take a new name as well"
            )
    (split,) = inputs.load(root, name, adapter.frozen, ("test",))
    return evaluate(adapter, split, classes, draws, name)
