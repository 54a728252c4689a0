"""One's own pictures as data sets of trainings."""

from argparse import Namespace
from pathlib import Path

from options import ROOTS

from pvera.data import custom
from pvera.errors import InputError
from pvera.study import results
from pvera.study.runs import Job


def install(options: Namespace, script: str) -> Namespace:
    """Install the data sets of --data-set; return options that name them: profile, data and data sets.

    Unless more is said: profile `own`, or `own_large` for a larger backbone; the corrected protocol; PVeRA with seed 0.
    InputError like `custom.install`, and for known data sets beside the user's.
    """
    if options.datasets:
        raise InputError("--datasets and --data-set: known data sets and your own pictures train in separate calls")
    root, names = Path(options.data or ROOTS["own"]).absolute(), []
    for text in options.data_set:
        name, _, source = text.partition("=")
        if not (name and source):
            raise InputError(f"--data-set takes NAME=FOLDER, not {text!r}")
        print(custom.describe(name, custom.install(root, name, source, options.split_seed)), flush=True)
        names.append(name)
    options = Namespace(**vars(options) | {"datasets": names, "data": str(root)})
    options.profile = options.profile or ("own" if options.backbones in (None, ["tiny"]) else "own_large")
    options.protocol = options.protocol or "corrected"
    if script == "train":
        options.methods, options.seeds = options.methods or ["pvera"], options.seeds or [0]
    return options


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
