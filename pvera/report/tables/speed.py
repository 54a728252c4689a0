"""The wall time of a profile, by experiment."""

from operator import itemgetter
from pathlib import Path

import pandas as pd

from pvera.report.table import Column, Table
from pvera.study import results

#: Experiment -> its title. Folders whose names begin with it share a row; others have their own.
TITLES = {
    "benchmark": "Benchmark, equal tuning",
    "sizes": "Search of ranks and ratios",
    "beta": "Search of β",
    "alpha": "Search of α",
    "paper_tuning": "The paper's tuning",
    "official": "Official protocol",
    "rank": "Ablation of the rank",
    "position": "Ablation of positions",
    "protocol": "Differences of the protocols",
    "uncertainty": "Samples",
    "out_of_distribution": "Out of distribution",
    "latents": "Latents",
    "focus": "Focus",
    "predictors": "Samples and other predictors",
    "full_sets": "All texts",
}


def wall_times(root: Path, profile: str) -> pd.DataFrame:
    """Load the seconds of each run of a profile.

    Returns:
        A row per run: experiment, a key of `TITLES` where one fits; dataset,
        method, seconds.
    """
    rows = []
    for path in sorted((Path(root) / profile).glob("*/")):
        # "protocol_shuffle" is a part of "protocol"; the longest name fits best.
        fitting = [key for key in TITLES if f"{path.name}_".startswith(f"{key}_")]
        experiment = max(fitting, key=len, default=path.name)
        for record in results.read_all(root, profile, path.name):
            seconds = record["cost"]["wall_seconds"]
            rows.append((experiment, record["dataset"], record["method"], seconds))
    return pd.DataFrame(rows, columns=["experiment", "dataset", "method", "seconds"])


def wall_time_table(data: pd.DataFrame, profile: str) -> Table:
    """Build the table of `wall_times` per experiment, the longest first."""
    by_experiment = data.groupby("experiment")["seconds"]
    sums = by_experiment.agg(runs="size", total="sum", each="mean").rename(TITLES)
    sums = sums.sort_values("total", ascending=False)
    share = 100 * sums["total"] / sums["total"].sum()
    panel = sums.assign(minutes=sums["total"] / 60, share=share)
    columns = {
        "runs": Column("Runs", 0),
        "minutes": Column("Minutes", 1),
        "share": Column("Share (%)", 1),
        "each": Column("Seconds per run", 1),
    }
    caption = (
        "Wall time that the runs recorded, summed over runs, parallel or not. A run includes its "
        "test."
    )
    source = f"Profile {profile}: {len(data)} runs."
    return Table(f"spent_{profile}", caption, panel, columns, data, source)


def ratio_table(record: Path) -> Table:
    """Build the table of a file that experiments/benchmark_speed.py wrote."""
    rows = pd.read_csv(record)
    machine = rows.iloc[0]
    caption = (
        f"{machine.device}, threads: {machine.threads}, torch {machine.torch}, "
        f"timm {machine.timm}. Ratio: of the times of part and bound, or of their sizes in the "
        "parts memory and size."
    )
    columns = {
        name: Column(name, itemgetter(name)) for name in ("part", "backbone", "precision", "bound")
    }
    columns["ratio"] = Column("Ratio", 3)
    columns["low"] = Column("Lower quartile", 3)
    columns["high"] = Column("Upper quartile", 3)
    return Table(record.stem, caption, rows.set_index("what"), columns)
