"""Options of the scripts that train or analyse, and the profile as they change it."""

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from options import RESULTS, ROOT, Parser, read_profile

from pvera.errors import InputError
from pvera.study.checked import require_known
from pvera.study.profiles import Profile


def parse(description: str | None, words: list[str] | None = None) -> Namespace:
    """Parse the command line of a script that trains or analyses.

    Args:
        description: The script's docstring.
        words: The command line, by default the process's own.

    Raises:
        InputError: An option is wrong.
    """
    parser = Parser(description)
    _add_selection(parser)
    _add_changes(parser)
    _add_execution(parser)
    options = parser.parse_args(words)
    # A listing is a status that names runs too.
    options.status |= options.list
    if options.slurm and (options.device or options.workers):
        raise InputError(
            "--device and --workers are for this machine; with --slurm, set them in the YAML file"
        )
    return options


def _add_selection(parser: Parser) -> None:
    """Add options that say what of a profile is done."""
    parser.add_argument(
        "--profile", help="name in experiments/profiles, or a YAML file (demo, with --data-set own)"
    )
    parser.add_pairs(
        "--data-set",
        metavar="NAME=FOLDER",
        help="your own pictures instead of the profile's (docs/own-data.md); several times",
    )
    for name in ("experiments", "methods", "datasets", "backbones"):
        parser.add_argument(
            f"--{name}", nargs="+", metavar="NAME", help="these instead of what the profile says"
        )
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        metavar="K",
        help="instead of the profile's; experiments that name seeds keep theirs",
    )


def _add_changes(parser: Parser) -> None:
    """Add options that replace a profile's settings."""
    parser.add_argument("--protocol", help="published or corrected")
    parser.add_argument("--precision", help="float32 or bfloat16")
    parser.add_count("--epochs", metavar="N", help="largest number of epochs")
    parser.add_count("--batch-size", metavar="N", help="images of a batch")
    parser.add_argument(
        "--learning-rate",
        type=float,
        metavar="X",
        help="of all methods and of their heads, instead of the profile's rates and grids",
    )
    parser.add_pairs(
        "--weights",
        metavar="NAME=FILE",
        help="file of a backbone's weights, instead of the hub's; several times",
    )
    parser.add_count("--images", metavar="N", help="for trials: the first N images of each split")
    parser.add_argument("--data", type=os.path.abspath, help="folder of the data sets")


def _add_execution(parser: Parser) -> None:
    """Add options that say where and how runs are executed."""
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    parser.add_device()
    parser.add_count(
        "--workers",
        metavar="N",
        help="processes in parallel, on the GPUs in turn (default: one per core, or per GPU)",
    )
    parser.add_argument(
        "--slurm",
        nargs="?",
        metavar="FILE",
        const=ROOT / "experiments" / "slurm.yaml",
        help="submit what is missing to SLURM, as FILE says (default: experiments/slurm.yaml)",
    )
    flags = {
        "--wait": "with --slurm: wait until all workers have ended",
        "--status": "count the runs in each state",
        "--replace": "run again where the result is of another configuration",
        "--list": "as --status, and name the missing runs",
    }
    for flag, words in flags.items():
        parser.add_argument(flag, action="store_true", help=words)


def changed_profile(options: Namespace) -> Profile:
    """Read the profile that the options name, with the settings that they replace.

    The learning rate is that of adapters and heads.

    Raises:
        InputError: The profile is missing, or a value does not fit.
    """
    profile = read_profile(options.profile or "demo")
    if options.learning_rate is not None:
        # Otherwise the rates of methods and grids would come before it.
        profile = Profile.build(_without_rates(profile.model_dump()))
    # A method that the profile lacks has its defaults.
    names = options.methods or profile.methods
    weights = {name: str(ROOT / file) for name, file in profile.weights.items()}
    for name, file in options.weights:
        require_known("backbone", name, options.backbones or profile.backbones)
        weights[name] = os.path.abspath(file)
    return profile.replaced(
        backbones=options.backbones,
        datasets=options.datasets,
        methods={name: profile.methods.get(name, {}) for name in names},
        seeds=options.seeds,
        protocol=options.protocol,
        precision=options.precision,
        learning_rate=options.learning_rate,
        images=options.images,
        data=str(ROOT / (options.data or profile.data)),
        weights=weights,
        schedule=profile.schedule.replaced(epochs=options.epochs, batch_size=options.batch_size),
    )


def _without_rates(value: Any) -> Any:
    """Return settings without the learning rates of methods and experiments."""
    if not isinstance(value, dict):
        return value
    # An experiment of that name stays.
    return {
        key: _without_rates(each)
        for key, each in value.items()
        if key != "learning_rate" or isinstance(each, dict)
    }
