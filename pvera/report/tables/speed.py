"""The wall time of a profile, by experiment and by method."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from pvera.adapters import METHODS
from pvera.report.table import Table
from pvera.study import results

SHARED = "tuned"  # these trainings shared their cores with other work, so their times say nothing
#: Experiments with their titles. Those whose names begin alike share a row; others have their own names as titles.
TITLES = {
    "beta": "Search of β",
    "alpha": "Search of α",
    "benchmark": "Benchmark",
    "noise": "Noise of fixed size",
    "published": "Published protocol",
    "rank": "Ablation of the rank",
    "position": "Ablation of positions",
    "protocol": "Differences of the protocols",
    "uncertainty": "Monte Carlo inference",
    "out_of_distribution": "Out of distribution",
    "latents": "Latents",
    "focus": "Focus",
    "dropout": "Dropout",
    "beta_effects": "Effects of β",
    "baselines": "Baselines",
    "dropout_baselines": "Baselines, dropout",
    "beta_baselines": "Baselines along β",
    "language": "Text",
    "full_sets": "Text, full sets",
}


def wall_times(root, profile: str) -> pd.DataFrame:
    """Load one row per run of `profile` below `root`; none without results.

    Columns: experiment, a key of `TITLES` where one fits; dataset, method, seconds, and epochs, summed over the members
    of the run's grid (0 for analyses, which train nothing).
    """
    rows = []
    for path in sorted((Path(root) / profile).glob("*/")):
        if not path.name.startswith(SHARED):
            named = max((key for key in TITLES if f"{path.name}_".startswith(f"{key}_")), key=len, default=path.name)
            for run in results.read_all(root, profile, path.name):
                epochs = sum(member["epochs"] for member in run.get("members", []))
                rows.append((named, run["dataset"], run["method"], run["cost"]["wall_seconds"], epochs))
    return pd.DataFrame(rows, columns=["experiment", "dataset", "method", "seconds", "epochs"])


SPEC = {
    "runs": ("Runs", 0),
    "minutes": ("Minutes", 1),
    "share": ("Share (%)", 1),
    "each": ("Seconds per run", 1),
    "epochs": ("Epochs of all members", 0),
    "epoch": ("Seconds per epoch and member", 2),
}


def wall_time_table(data: pd.DataFrame, profile: str) -> Table:
    """Build the table of `wall_times`: (a) per experiment, (b) per method of the benchmark."""
    experiments = _sums(data, "experiment", [*TITLES, *set(data["experiment"])]).rename(TITLES)
    panels = {"Experiments": experiments.drop(columns=["epochs", "epoch"])}
    if len(benchmark := data[data["experiment"] == "benchmark"]):
        panels["Methods of the benchmark"] = _sums(benchmark, "method", METHODS).drop(columns=["share", "each"])
    caption = (
        "Wall time that the runs recorded, summed over runs, parallel or not. (a) Every experiment. (b) The methods of "
        "the benchmark. An epoch includes the validation; a run includes the test of the chosen member."
    )
    return Table("spent", caption, panels, SPEC, data, f"Profile {profile}: {len(data)} runs.")


def _sums(data: pd.DataFrame, by: str, order: Iterable[str]) -> pd.DataFrame:
    """Return the columns of `SPEC` for each group, in order."""
    sums = data.groupby(by).agg(runs=("seconds", "size"), seconds=("seconds", "sum"), epochs=("epochs", "sum"))
    seconds = sums["seconds"]
    sums = sums.assign(minutes=seconds / 60, share=100 * seconds / seconds.sum(), each=seconds / sums["runs"],
                       epoch=seconds / sums["epochs"])  # fmt: skip
    return sums.loc[[key for key in dict.fromkeys(order) if key in sums.index]]
