"""The lines that a training on your own pictures prints: what is trained, how long it takes, and what it leaves."""

from collections.abc import Iterable
from pathlib import Path

import torch
from custom_options import FOLDER

from pvera.study import hours
from pvera.study.profiles import Profile
from pvera.study.results import ADAPTER
from pvera.study.runs import Job, Run, environment
from pvera.study.training import duration


def count(profile: Profile) -> int:
    """Return the number of trainings: searches of β, and those of the benchmark."""
    of_each = len(profile.backbones) * len(profile.datasets)
    searches = of_each if "pvera" in profile.methods and len(profile.beta) > 1 else 0
    return searches + of_each * len(profile.methods) * len(profile.seeds)


def announce(profile: Profile, device: str) -> str:
    """Return the line that says what will be trained, before it is."""
    grids = [
        f"{name} {of} {listed(values)}"
        for name, options in profile.methods.items()
        for of, values in options.get("grid", {}).items()
    ]
    searched = f"; grids {', '.join(grids)}" if grids else ""
    idle = "" if device != "cpu" else ", while a GPU is idle" if torch.cuda.is_available() else ", without a GPU"
    return (
        f"protocol {profile.protocol}; backbone {listed(profile.backbones)}; methods {listed(profile.methods)}; seeds "
        f"{listed(profile.seeds)}; β {listed(profile.beta)}{searched}; {count(profile)} trainings of at most "
        f"{profile.training.epochs} epochs, on {environment(device)['device']}{idle}"
    )


def listed(values: Iterable) -> str:
    """Return values in words: "0.01, 0.001"."""
    return ", ".join(map(str, values))


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
