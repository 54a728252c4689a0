"""Wall time of a profile, by experiment and by method."""

from pathlib import Path

import pandas as pd

from pvera.adapters import METHODS
from pvera.report.tables.layout import Cell, Panel, Row, Table, plain
from pvera.study import results
from pvera.study.experiments import EXPERIMENTS, named

TITLES = {name: experiment.title for name, experiment in EXPERIMENTS.items()}


def wall_times(root, profile: str) -> pd.DataFrame:
    """Load one row per run of `profile` below `root`; none without results.

    Columns: experiment (a key of `TITLES`), dataset, method, seconds, and epochs, summed over the members of the run's
    grid (0 for analyses, which train nothing).
    """
    rows = []
    for folder in sorted(path for path in (Path(root) / profile).glob("*") if path.is_dir()):
        for run in results.read_all(root, profile, folder.name):
            epochs = sum(member["epochs"] for member in run.get("members", []))
            rows.append((named(folder.name).name, run["dataset"], run["method"], run["cost"]["wall_seconds"], epochs))
    return pd.DataFrame(rows, columns=["experiment", "dataset", "method", "seconds", "epochs"])


def wall_time_table(data: pd.DataFrame, profile: str) -> Table:
    """Build the table of `wall_times`: (a) per experiment, (b) per method of the benchmark."""
    total = data["seconds"].sum()
    rows = []
    for experiment, runs in data.groupby("experiment"):
        seconds = runs["seconds"]
        cells = (
            len(runs),
            plain(seconds.sum() / 60, 1),
            plain(100 * seconds.sum() / total, 1),
            plain(seconds.mean(), 1),
        )
        rows.append((list(TITLES).index(experiment), Row(TITLES[experiment], tuple(Cell(str(x)) for x in cells))))
    panels = [Panel("(a) Experiments", ("Runs", "Minutes", "Share (%)", "Seconds per run"),
                    tuple(row for _, row in sorted(rows, key=lambda x: x[0])))]  # fmt: skip
    benchmark = data[data["experiment"] == "benchmark"]
    rows = []
    for method in (m for m in METHODS if m in set(benchmark["method"])):
        runs = benchmark[benchmark["method"] == method]
        seconds, epochs = runs["seconds"].sum(), runs["epochs"].sum()
        cells = (len(runs), plain(seconds / 60, 1), str(epochs), plain(seconds / epochs, 2))
        rows.append(Row(METHODS[method].title, tuple(Cell(str(x)) for x in cells)))
    if rows:
        header = ("Runs", "Minutes", "Epochs of all members", "Seconds per epoch and member")
        panels.append(Panel("(b) Methods of the benchmark", header, tuple(rows)))
    caption = (
        "Wall time that the runs recorded, summed over runs, parallel or not. (a) Every experiment. (b) The methods of "
        "the benchmark. An epoch includes the validation; a run includes the test of the chosen member."
    )
    return Table("spent", caption, f"Profile {profile}: {len(data)} runs.", tuple(panels), data)
