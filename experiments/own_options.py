"""Options for the user's own pictures."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from pvera.data import own
from pvera.errors import InputError
from pvera.study.validation import Natural, parse

FOLDER = Path(__file__).resolve().parents[1] / "data" / "own"
NOT_OWN = "--split-seed is for your own pictures: --data-set NAME=FOLDER"


class OwnData:
    """The options --data-set and --split-seed of a parser."""

    def __init__(self, parser: ArgumentParser):
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

    def install(self, options: Namespace) -> None:
        """Install the data sets and let `options` name them: profile, data and data sets.

        InputError like `own.install`, for known data sets beside the user's, and for another split of a data set.
        """
        options.profile = options.profile or ("own" if options.data_set else "demo")
        if not options.data_set:
            if options.split_seed is not None:
                raise InputError(NOT_OWN)
            return
        if options.datasets:
            raise InputError("--datasets and --data-set: known data sets and your own pictures train in separate calls")
        root = Path(options.data or FOLDER).absolute()
        options.datasets, options.data = [], str(root)
        for text in options.data_set:
            name, source = named(text)
            if name in options.datasets:
                raise InputError(f"--data-set: {name} stands twice")
            if (seed := own.other_seed(root, name, options.split_seed)) is not None:
                raise InputError(
                    f"{name} is split from seed {seed}: give the other split another name, --data-set "
                    f"{name}-{options.split_seed}={source}, or remove {root / name}"
                )
            print(own.describe(name, own.install(root, name, source, options.split_seed)), flush=True)
            options.datasets.append(name)


def named(text: str) -> tuple[str, str]:
    """Return the name and folder of NAME=FOLDER. InputError for another form."""
    name, _, source = text.partition("=")
    if not (name and source):
        raise InputError(f"--data-set takes NAME=FOLDER, not {text!r}")
    return name, source
