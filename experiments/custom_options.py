"""Options for your own pictures, and the lines that a training on them prints."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

import torch

from pvera.data import custom, tasks
from pvera.errors import InputError
from pvera.study import hours
from pvera.study.profiles import Profile
from pvera.study.results import ADAPTER
from pvera.study.runs import Job, Run, environment
from pvera.study.training import duration
from pvera.study.validation import at_least

SMALL = "tiny"  # the backbone of profile `own`
FOLDER = Path(__file__).resolve().parents[1] / "data" / "own"


def add(parser: ArgumentParser) -> None:
    """Add the options --data-set and --split-seed."""
    parser.add_argument(
        "--data-set",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="your own pictures instead of the profile's data sets: a folder of class folders, one with splits, or "
        "a CSV file (docs/own-data.md); may be given several times",
    )
    parser.add_argument(
        "--split-seed",
        type=at_least(0),
        metavar="K",
        help="draws the splits that your pictures do not have (default: as in an earlier call, else 0)",
    )


def install(options: Namespace) -> None:
    """Install the data sets and let `options` name them: profile, data and data sets.

    Unless more is said: profile `own`, or `own_large` for a larger backbone; the corrected protocol; PVeRA with seed 0.
    InputError like `install_one`, and for known data sets beside the user's.
    """
    if not options.data_set:
        options.profile = options.profile or "demo"
        return
    small = options.backbones in (None, [SMALL])
    options.profile = options.profile or ("own" if small else "own_large")
    options.protocol = options.protocol or "corrected"
    if options.script == "train":
        options.methods, options.seeds = options.methods or ["pvera"], options.seeds or [0]
    if options.datasets:
        raise InputError("--datasets and --data-set: known data sets and your own pictures train in separate calls")
    root, seed = Path(options.data or FOLDER).absolute(), options.split_seed
    options.datasets, options.data = [], str(root)
    for text in options.data_set:
        name, _, source = text.partition("=")
        if not (name and source):
            raise InputError(f"--data-set takes NAME=FOLDER, not {text!r}")
        install_one(root, name, source, seed)
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
    limit = f"{count(profile)} trainings of at most {profile.training.epochs} epochs"
    return (
        f"protocol {profile.protocol}; backbone {', '.join(profile.backbones)}; methods {', '.join(profile.methods)}; "
        f"seeds {', '.join(map(str, profile.seeds))}; β {', '.join(map(str, profile.beta))}; grids "
        f"{', '.join(grids) or 'none'}; {limit}, on {environment(device)['device']}{idle}"
    )


def count(profile: Profile) -> int:
    """Return the number of trainings: searches of β, and those of the benchmark."""
    of_each = len(profile.backbones) * len(profile.datasets)
    searches = of_each if "pvera" in profile.methods and len(profile.beta) > 1 else 0
    return searches + of_each * len(profile.methods) * len(profile.seeds)


def expect(profile: Profile, run: Run, device: str) -> str:
    """Return the line that says how long the trainings will take, each as long as `run`."""
    said = duration(hours.epoch_seconds(run, device), profile.training, count(profile))
    return f"by a measured step, {count(profile)} trainings one after the other take {said}"


def trained(runs: list[Job]) -> list[str]:
    """Return the lines with the adapters of the first seed, and the command that evaluates them."""
    benchmark = [run for run in runs if run.experiment == "benchmark"]
    lines = []
    for run in benchmark:
        adapter = run.path.with_suffix(ADAPTER)
        if run.seed == benchmark[0].seed and adapter.exists():
            weights = f" --weights {run.weights}" if run.weights else ""
            data = "" if Path(run.data_root) == FOLDER else f" --data {run.data_root}"
            lines.append(f"adapter: {adapter}; evaluate it: python experiments/evaluate.py {adapter}{weights}{data}")
    return lines
