"""Command-line options that the scripts share, and the profiles that they name."""

import argparse
import os
import re
from pathlib import Path

import torch

from pvera.data import store
from pvera.errors import InputError
from pvera.study.profiles import Profile

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"


class Parser(argparse.ArgumentParser):
    """A parser with the script's docstring as its help. InputError for a wrong command line."""

    def __init__(self, description: str):
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str):
        raise InputError(message)

    def count(self, *flags: str, least: int = 1, **options) -> None:
        """Add an option with a whole number from `least` on."""

        def number(text: str) -> int:
            if int(text) < least:
                raise argparse.ArgumentTypeError(f"must be at least {least}, not {text}")
            return int(text)

        self.add_argument(*flags, type=number, **options)

    def profile(self, default: str | None = "demo", shown: str = "%(default)s") -> None:
        self.add_argument("--profile", default=default, help=f"name in experiments/profiles, or a YAML file ({shown})")

    def results(self) -> None:
        self.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")

    def device(self, default: str | None = None, more: str = "") -> None:
        self.add_argument("--device", type=_device, default=default, help=f"cpu, cuda{more}, or one such as cuda:1")


def _device(text: str) -> str:
    """Return the device, or raise argparse's error if this machine lacks it."""
    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"must be cpu, cuda, or one such as cuda:1, not {text!r}")
    if text != "cpu" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError("there is no CUDA device here; cpu is")
    if match[1] and int(match[1]) >= torch.cuda.device_count():
        raise argparse.ArgumentTypeError(f"there is no {text} here, only {torch.cuda.device_count()} CUDA devices")
    return text


def set_cache(folder: str | None) -> None:
    """Make `folder`, if given, the store of decoded images, also for worker processes."""
    if folder:
        os.environ[store.VARIABLE] = os.path.abspath(folder)


def read_profile(name: str) -> Profile:
    """Read the profile of that name in experiments/profiles, or in that file."""
    path = Path(name)
    return Profile.read(path if path.suffix else ROOT / "experiments" / "profiles" / f"{name}.yaml")
