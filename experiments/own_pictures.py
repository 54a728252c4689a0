"""One's own pictures as data sets of trainings."""

from argparse import Namespace
from pathlib import Path

from options import ROOT

from pvera.data import custom, tasks
from pvera.errors import InputError
from pvera.study import results
from pvera.study.runs import Job

#: Folders of the suites' data sets.
ROOTS = {"demo": ROOT / "data" / "demo", "vtab": ROOT / "data" / "vtab-1k", "own": ROOT / "data" / "own"}


def install(options: Namespace, script: str) -> Namespace:
    """Install the data sets of --data-set; return options that name them: profile, data and data sets.

    Unless more is said: profile `own`, or `own_large` for a larger backbone; the corrected protocol; PVeRA with seed 0.
    InputError like `install_one`, and for known data sets beside the user's.
    """
    if options.datasets:
        raise InputError("--datasets and --data-set: known data sets and your own pictures train in separate calls")
    root, names = Path(options.data or ROOTS["own"]).absolute(), []
    for text in options.data_set:
        name, _, source = text.partition("=")
        if not (name and source):
            raise InputError(f"--data-set takes NAME=FOLDER, not {text!r}")
        install_one(root, name, source, options.split_seed)
        names.append(name)
    options = Namespace(**vars(options) | {"datasets": names, "data": str(root)})
    options.profile = options.profile or ("own" if options.backbones in (None, ["tiny"]) else "own_large")
    options.protocol = options.protocol or "corrected"
    if script == "train":
        options.methods, options.seeds = options.methods or ["pvera"], options.seeds or [0]
    return options


def install_one(root: Path, name: str, source: str, seed: int | None) -> None:
    """Install a data set. InputError like `custom.install`, and for another split of it, which trainings may read."""
    drawn = custom.drawn_from(tasks.manifest(root, name))
    if seed is not None and drawn not in (None, seed):
        raise InputError(
            f"{name} is split from seed {drawn}: give the other split another name, --data-set {name}-{seed}={source}, "
            f"or remove {root / name}"
        )
    print(custom.describe(name, custom.install(root, name, source, seed)), flush=True)


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
