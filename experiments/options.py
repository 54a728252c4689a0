"""Command-line options that the scripts share, and the profiles that they name."""

import argparse
from pathlib import Path

import torch

from pvera.errors import InputError
from pvera.files import is_stream, require_writable
from pvera.study.profiles import Profile

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OWN = ROOT / "data/own"  # data sets of the user's own pictures


class Parser(argparse.ArgumentParser):
    """A parser with the script's docstring as its help. InputError for a wrong command line."""

    def __init__(self, description: str | None):
        super().__init__(
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str):
        """Refuse a wrong command line."""
        raise InputError(message)

    def add_count(self, *flags: str, least: int = 1, **options) -> None:
        """Add an option with a whole number from `least` on."""

        def number(text: str) -> int:
            if int(text) < least:
                raise argparse.ArgumentTypeError(f"must be at least {least}, not {text}")
            return int(text)

        self.add_argument(*flags, type=number, **options)

    def add_pairs(self, flag: str, **options) -> None:
        """Add an option with NAME=VALUE, which may be given several times."""

        def pair(text: str) -> tuple[str, str]:
            name, _, value = text.partition("=")
            if not (name and value):
                raise argparse.ArgumentTypeError(f"must be {options['metavar']}, not {text!r}")
            return name, value

        self.add_argument(flag, type=pair, action="append", default=[], **options)

    def add_output(self, *flags: str, suffix: str, **options) -> None:
        """Add an option with a file to write, or a pipe.

        The required suffix is none of an input's, so the output cannot overwrite one.
        """

        def output(text: str) -> Path:
            file = Path(text)
            if is_stream(file):
                return file
            if file.resolve().suffix != suffix:
                raise argparse.ArgumentTypeError(f"must be a {suffix} file, not {text}")
            try:
                require_writable(file.resolve().parent)
            except InputError as error:
                raise argparse.ArgumentTypeError(str(error)) from None
            return file

        self.add_argument(*flags, type=output, **options)

    def add_device(self, default: str | None = None) -> None:
        """Add --device."""
        numbered = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        names = dict.fromkeys(["cpu", DEVICE, *numbered])
        words = "cpu, cuda, or one such as cuda:1"
        self.add_argument("--device", choices=names, metavar="DEVICE", default=default, help=words)


def read_profile(name: str) -> Profile:
    """Read the profile of that name in experiments/profiles, or in that file."""
    path = Path(name)
    return Profile.read(path if path.suffix else ROOT / "experiments" / "profiles" / f"{name}.yaml")


class AdapterParser(Parser):
    """A parser of the options that say which adapter to use, on which backbone."""

    def __init__(self, description: str):
        super().__init__(description)
        text = "file that pvera.save or a training has written"
        self.add_argument("adapter", type=Path, metavar="ADAPTER", help=text)
        text = "the backbone (default: that of the record next to the adapter)"
        self.add_argument("--backbone", metavar="B", help=text)
        text = "file of the backbone's weights, instead of the hub's"
        self.add_argument("--weights", metavar="FILE", help=text)
        self.add_device(DEVICE)
