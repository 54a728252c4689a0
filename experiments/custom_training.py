"""The lines that a training on your own pictures prints: what is trained, how long it takes, and what it leaves."""

import torch
from benchmark_throughput import measure

from pvera.data import tasks
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
    grids = {name: options["grid"] for name, options in profile.methods.items() if "grid" in options}
    idle = "" if device != "cpu" else ", while a GPU is idle" if torch.cuda.is_available() else ", without a GPU"
    return (
        f"protocol {profile.protocol}; backbones {profile.backbones}; methods {list(profile.methods)}; seeds "
        f"{profile.seeds}; β {profile.beta}; grids {grids}; {count(profile)} trainings of at most "
        f"{profile.training.epochs} epochs, on {environment(device)['device']}{idle}"
    )


def expect(profile: Profile, run: Run, device: str) -> str:
    """Return the line that says how long the trainings will take, from a few steps of `run` with random weights."""
    images, rate = tasks.manifest(run.data_root, run.dataset)["images"], measure(run, device, batches=2)
    epoch = images["train"] / rate["train"] + images["validation"] / rate["validate"]
    said = duration(epoch * len(run.candidates), profile.training, count(profile))
    return f"by a measured step, {count(profile)} trainings one after the other take {said}"


def trained(runs: list[Job]) -> str:
    """Return the lines with the adapters of the first seed, and the command that evaluates them."""
    adapters = [run.path.with_suffix(ADAPTER) for run in runs if run.experiment == "benchmark"]
    first = [path for path in adapters if path.exists() and path.stem == adapters[0].stem]
    return "\n".join(f"adapter: {path}; evaluate it: python experiments/evaluate.py {path}" for path in first)
