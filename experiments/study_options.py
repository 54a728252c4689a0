"""Options of the scripts that train or analyse, and the profile as they change it."""

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from options import RESULTS, ROOT, Parser, read_profile

from pvera.errors import InputError
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
    if options.slurm and (options.device or options.workers):
        raise InputError(
            "--device and --workers are for this machine; with --slurm, set them in the YAML file"
        )
    return options


def _add_selection(parser: Parser) -> None:
    """Add options that say what of a profile is done."""
    words = "name in experiments/profiles, or a YAML file (demo, with --data-set own)"
    parser.add_argument("--profile", help=words)
    words = (
        "your own pictures instead of the profile's (docs/own-data.md); may be given several times"
    )
    _add_several(parser, "--data-set", "NAME=FOLDER", words)
    for name in ("experiments", "methods", "datasets", "backbones"):
        words = "these instead of what the profile says"
        parser.add_argument(f"--{name}", nargs="+", metavar="NAME", help=words)
    words = "instead of the profile's; experiments that name seeds keep theirs"
    parser.add_argument("--seeds", nargs="+", type=int, metavar="K", help=words)


def _add_changes(parser: Parser) -> None:
    """Add options that replace a profile's settings."""
    words = "published or corrected, instead of the profile's"
    parser.add_argument("--protocol", help=words)
    parser.add_argument("--precision", help="float32 or bfloat16, instead of the profile's")
    words = "largest number of epochs, instead of the profile's"
    parser.add_count("--epochs", metavar="N", help=words)
    words = "images of a batch, instead of the profile's"
    parser.add_count("--batch-size", metavar="N", help=words)
    words = "of all methods and of their heads, instead of the profile's rates and grids"
    parser.add_argument("--learning-rate", type=float, metavar="X", help=words)
    words = "file of a backbone's weights, instead of the hub's; may be given several times"
    _add_several(parser, "--weights", "NAME=FILE", words)
    parser.add_count("--images", metavar="N", help="for trials: the first N images of each split")
    words = "folder of the data sets, instead of the profile's"
    parser.add_argument("--data", type=os.path.abspath, help=words)


def _add_execution(parser: Parser) -> None:
    """Add options that say where and how runs are executed."""
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    parser.add_device()
    words = "processes in parallel, on the GPUs in turn (default: one per core, or per GPU)"
    parser.add_count("--workers", metavar="N", help=words)
    site = ROOT / "experiments" / "slurm.yaml"
    words = "submit what is missing to SLURM, as FILE says (default: experiments/slurm.yaml)"
    parser.add_argument("--slurm", nargs="?", metavar="FILE", const=site, help=words)
    flags = {
        "--wait": "with --slurm: wait until all jobs have ended",
        "--status": "count the runs in each state",
        "--replace": "run again where the result is of another configuration",
        "--list": "as --status, and name the missing runs",
    }
    for flag, words in flags.items():
        parser.add_argument(flag, action="store_true", help=words)


def _add_several(parser: Parser, flag: str, metavar: str, words: str) -> None:
    parser.add_argument(flag, action="append", default=[], metavar=metavar, help=words)


def changed_profile(options: Namespace) -> Profile:
    """Read the profile that the options name, and change it as they ask.

    Raises:
        InputError: The profile is missing, or a value does not fit.
    """
    return change(read_profile(options.profile or "demo"), options)


def change(profile: Profile, options: Namespace) -> Profile:
    """Return a profile with the settings that options replace.

    The learning rate is that of adapters and heads.
    """
    if options.learning_rate is not None:
        profile = Profile.build(_without_rates(profile.model_dump()))
    names = options.methods or profile.methods
    changed = profile.with_(
        backbones=options.backbones,
        datasets=options.datasets,
        methods={name: profile.methods.get(name, {}) for name in names},
        seeds=options.seeds,
        protocol=options.protocol,
        precision=options.precision,
        learning_rate=options.learning_rate,
        images=options.images,
        data=options.data,
        schedule=profile.schedule.with_(epochs=options.epochs, batch_size=options.batch_size),
    )
    weights = {name: str(ROOT / file) for name, file in profile.weights.items()}
    for text in options.weights:
        name, _, file = text.partition("=")
        if not file or name not in changed.backbones:
            known = ", ".join(changed.backbones)
            raise InputError(f"--weights takes NAME=FILE, NAME out of {known}, not {text!r}")
        weights[name] = os.path.abspath(file)
    return changed.with_(data=str(ROOT / changed.data), weights=weights)


def _without_rates(value: Any) -> Any:
    """Return settings without the learning rates of methods and experiments."""
    if not isinstance(value, dict):
        return value
    return {key: _without_rates(each) for key, each in value.items() if key != "learning_rate"}
