"""Options for your own pictures."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from pvera.data import custom, tasks
from pvera.errors import InputError
from pvera.study.validation import Natural, parse

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
        type=parse(Natural),
        metavar="K",
        help="draws the splits that your pictures do not have (default: as in an earlier call, else 0)",
    )


def install(options: Namespace) -> None:
    """Install the data sets and let `options` name them: profile, data and data sets.

    Unless more is said: profile `own`, or `own_large` for a larger backbone; the corrected protocol; PVeRA with seed 0.
    InputError like `custom.install`, for known data sets beside the user's, and for another split of a data set, which
    trainings may read.
    """
    if not options.data_set:
        if options.split_seed is not None:
            raise InputError("--split-seed is for your own pictures: --data-set NAME=FOLDER")
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
        name, source = named(text)
        if name in options.datasets:
            raise InputError(f"--data-set: {name} stands twice")
        drawn = custom.drawn_from(tasks.manifest(root, name))
        if seed is not None and drawn not in (None, seed):
            raise InputError(
                f"{name} is split from seed {drawn}: give the other split another name, --data-set "
                f"{name}-{seed}={source}, or remove {root / name}"
            )
        print(custom.describe(name, custom.install(root, name, source, seed)), flush=True)
        options.datasets.append(name)


def named(text: str) -> tuple[str, str]:
    """Return the name and folder of NAME=FOLDER. InputError for another form."""
    name, _, source = text.partition("=")
    if not (name and source):
        raise InputError(f"--data-set takes NAME=FOLDER, not {text!r}")
    return name, source
