"""The wall time of a profile, by experiment."""

from operator import itemgetter
from pathlib import Path

import pandas as pd

from pvera.report.table import Table
from pvera.study import results

#: Experiments with their titles. Those whose names begin alike share a row; others have their own names as titles.
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
    "predictors": "Rivals of the samples",
    "full_sets": "All texts",
}


def wall_times(root, profile: str) -> pd.DataFrame:
    """Load the seconds of each run of `profile` below `root`, with its experiment, a key of `TITLES` where one fits."""
    rows = []
    for path in sorted((Path(root) / profile).glob("*/")):
        named = max(
            (key for key in TITLES if f"{path.name}_".startswith(f"{key}_")),
            key=len,
            default=path.name,
        )
        for run in results.read_all(root, profile, path.name):
            rows.append((named, run["dataset"], run["method"], run["cost"]["wall_seconds"]))
    return pd.DataFrame(rows, columns=["experiment", "dataset", "method", "seconds"])


def wall_time_table(data: pd.DataFrame, profile: str) -> Table:
    """Build the table of `wall_times` per experiment, the longest first."""
    sums = (
        data.groupby("experiment")["seconds"]
        .agg(runs="size", total="sum", each="mean")
        .rename(TITLES)
    )
    sums = sums.sort_values("total", ascending=False)
    sums = sums.assign(minutes=sums["total"] / 60, share=100 * sums["total"] / sums["total"].sum())
    spec = {
        "runs": ("Runs", 0),
        "minutes": ("Minutes", 1),
        "share": ("Share (%)", 1),
        "each": ("Seconds per run", 1),
    }
    caption = "Wall time that the runs recorded, summed over runs, parallel or not. A run includes its test."
    return Table(
        f"spent_{profile}", caption, {"": sums}, spec, data, f"Profile {profile}: {len(data)} runs."
    )


def ratio_table(record: Path) -> Table:
    """Build the table of a file that experiments/benchmark_speed.py wrote."""
    rows = pd.read_csv(record)
    machine = rows.iloc[0]
    caption = (
        f"{machine.device}, threads: {machine.threads}, torch {machine.torch}, "
        f"timm {machine.timm}. Ratio: of the times of part and bound, or of their sizes in the "
        "parts memory and size."
    )
    spec = {name: (name, itemgetter(name)) for name in ("part", "backbone", "precision", "bound")}
    spec["ratio"] = ("Ratio", 3)
    spec["low"] = ("Lower quartile", 3)
    spec["high"] = ("Upper quartile", 3)
    return Table(record.stem, caption, {"": rows.set_index("what")}, spec)
