"""Where the time of a profile goes: what each of its runs recorded."""

from pathlib import Path

import pandas as pd

from pvera.adapters import METHODS
from pvera.report.tables.layout import Cell, Panel, Row, Table, plain
from pvera.study import results
from pvera.study.experiments import EXPERIMENTS

TITLES = {name: experiment.title for name, experiment in EXPERIMENTS.items()}


def spent(root, profile: str) -> pd.DataFrame:
    """One row per run of `profile` below `root`: experiment (a key of `TITLES`), method, seconds, and how many
    epochs the members of its grid were trained for in all; 0 for what trains nothing. Empty without results."""
    rows = []
    for folder in sorted(path for path in (Path(root) / profile).glob("*") if path.is_dir()):
        experiment = "protocol" if folder.name.startswith("protocol_") else folder.name
        if experiment in TITLES:
            for run in results.load_runs(root, profile, folder.name, optional=True):
                epochs = sum(member["epochs"] for member in run.get("members", []))
                rows.append((experiment, run["method"], run["cost"]["wall_seconds"], epochs))
    return pd.DataFrame(rows, columns=["experiment", "method", "seconds", "epochs"])


def table(data: pd.DataFrame, profile: str) -> Table:
    """Of `spent`: the experiments, and the methods of the benchmark."""
    total = data["seconds"].sum()
    rows = []
    for experiment, own in data.groupby("experiment"):
        seconds = own["seconds"]
        cells = (
            len(own),
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
        own = benchmark[benchmark["method"] == method]
        seconds, epochs = own["seconds"].sum(), own["epochs"].sum()
        cells = (len(own), plain(seconds / 60, 1), str(epochs), plain(seconds / epochs, 2))
        rows.append(Row(METHODS[method].title, tuple(Cell(str(x)) for x in cells)))
    if rows:
        header = ("Runs", "Minutes", "Epochs of all members", "Seconds per epoch and member")
        panels.append(Panel("(b) Methods of the benchmark", header, tuple(rows)))
    caption = (
        "Wall time that the runs recorded, summed; runs that went side by side count each. An epoch contains the "
        "validation, a run the test of the chosen member."
    )
    return Table("spent", caption, f"Profile {profile}: {len(data)} runs.", tuple(panels), data)
