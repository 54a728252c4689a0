"""Command-line options that the scripts share, and the profiles that they change."""

import argparse
import os
import re
from pathlib import Path

import custom_options
import torch

from pvera.data import store
from pvera.errors import InputError
from pvera.study.experiments import EXPERIMENTS, of_script
from pvera.study.profiles import Profile
from pvera.study.validation import at_least

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"


class Parser(argparse.ArgumentParser):
    """A parser with the script's docstring as its help. InputError for a wrong command line."""

    def __init__(self, description: str):
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str):
        raise InputError(message)

    def count(self, *flags: str, **options) -> None:
        """Add an option with a whole number from 1 on."""
        self.add_argument(*flags, type=at_least(1), **options)

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


def parse_training(description: str, script: str, words: list[str] | None) -> tuple[Profile, argparse.Namespace]:
    """Parse the command line of a script that makes the runs of its experiments, which --help lists.

    Returns the profile as the options change it, and the options.
    """
    experiments = of_script(script)
    width = max(map(len, experiments))
    about = "\n".join(f"    {name:{width}}   {EXPERIMENTS[name].about}" for name in experiments)
    parser = Parser(f"{description}\nExperiments:\n\n{about}\n")
    parser.profile(None, "demo, with --data-set own")
    custom_options.add(parser)
    parser.add_argument(
        "--experiments",
        nargs="+",
        metavar="E",
        choices=experiments,
        help=f"only these of {', '.join(experiments)} (default: those of the profile)",
    )
    parser.add_argument("--methods", nargs="+", metavar="M", help="only these of the profile's")
    parser.add_argument("--datasets", nargs="+", metavar="D", help="these instead of the profile's")
    parser.add_argument("--backbones", nargs="+", metavar="B", help="these instead of the profile's")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="K", help="these instead of the profile's")
    parser.add_argument("--protocol", help="published or corrected, instead of the profile's")
    parser.add_argument("--precision", help="float32, bfloat16 or float16, instead of the profile's")
    parser.count("--epochs", metavar="N", help="largest number of epochs, instead of the profile's")
    parser.count("--batch-size", metavar="N", help="images of a batch, instead of the profile's")
    parser.add_argument(
        "--learning-rate", type=float, metavar="X", help="of all methods, instead of the profile's grids"
    )
    parser.add_argument(
        "--weights",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="file of a backbone's weights, instead of the hub's; may be given several times",
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        default=None,
        help="fail where PyTorch has no deterministic implementation",
    )
    parser.count("--images", metavar="N", help="for trials: the first N images of each split")
    parser.add_argument("--data", help="folder of the data sets, instead of the profile's")
    parser.add_argument("--cache", help=f"folder for decoded images (default: ${store.VARIABLE}, or .cache/pvera)")
    parser.results()
    parser.device(more=" (--workers take the GPUs in turn)")
    parser.count("--workers", metavar="N", help="processes side by side (default: one per core, one on a GPU)")
    parser.add_argument(
        "--slurm",
        nargs="?",
        metavar="FILE",
        const=ROOT / "experiments" / "slurm.yaml",
        help="submit what is missing to SLURM, as FILE says (default: experiments/slurm.yaml)",
    )
    parser.add_argument("--wait", action="store_true", help="with --slurm: wait until all jobs have ended")
    parser.add_argument(
        "--budget",
        type=float,
        metavar="HOURS",
        help="start no run that would end after these hours, if it took as long as the longest so far",
    )
    parser.add_argument("--status", action="store_true", help="count the runs that are done, running, failed, missing")
    parser.add_argument("--replace", action="store_true", help="run again where the result is of another configuration")
    parser.add_argument("--list", action="store_true", help="list the missing runs, and train nothing")
    options = parser.parse_args(words)
    options.script = script
    if options.slurm and (options.device or options.workers):
        raise InputError("--device and --workers are for this machine; with --slurm, set them in the YAML file")
    set_cache(options.cache)
    custom_options.install(options)
    profile = read_profile(options.profile)
    return changed(profile.of_language() if script == "train_language" else profile, options), options


def set_cache(folder: str | None) -> None:
    """Make `folder`, if given, the store of decoded images, also for worker processes."""
    if folder:
        os.environ[store.VARIABLE] = os.path.abspath(folder)


def read_profile(name: str) -> Profile:
    """Read the profile of that name in experiments/profiles, or in that file."""
    path = Path(name)
    return Profile.read(path if path.suffix else ROOT / "experiments" / "profiles" / f"{name}.yaml")


def changed(profile: Profile, options: argparse.Namespace) -> Profile:
    """Return `profile` with the command line's changes: an option replaces the key of the same name."""
    if options.methods:
        unknown = {name: {} for name in options.methods if name not in profile.methods}
        kept = {name: profile.methods[name] for name in profile.methods if name in options.methods}
        profile = profile.with_(methods=kept | unknown)
    schedule = {key: getattr(options, key) for key in ("epochs", "batch_size")}
    profile = profile.with_(training=profile.training.with_(**schedule))
    if options.learning_rate is not None:
        profile = profile.with_(methods={name: fixed(one, options) for name, one in profile.methods.items()})
    replaced = vars(profile).keys() & vars(options).keys() - {"methods", "weights"}
    profile = profile.with_(**{key: getattr(options, key) for key in replaced})
    weights = {name: str(ROOT / file) for name, file in profile.weights.items()}
    for text in options.weights:
        name, _, file = text.partition("=")
        if not file or name not in profile.backbones:
            names = ", ".join(profile.backbones)
            raise InputError(f"--weights takes NAME=FILE, NAME out of {names}, not {text!r}")
        weights[name] = os.path.abspath(file)
    return profile.with_(data=str(ROOT / profile.data), weights=weights)


def fixed(of_method: dict, options: argparse.Namespace) -> dict:
    """Return a method's settings with the learning rate of the command line in place of a grid of learning rates."""
    if "learning_rate" not in of_method.get("grid", {}):
        return of_method
    others = {key: value for key, value in of_method.items() if key not in ("grid", "most_chosen")}
    return others | {"learning_rate": options.learning_rate}
