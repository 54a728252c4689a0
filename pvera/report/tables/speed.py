"""Records of experiments/benchmark_speed.py: the time of each part against the bound of a frozen backbone; and the wall
time of a profile, by experiment and by method.

    <root>/performance/speed_<device>.json

holds one row per measurement. A new measurement replaces the row of its name; the others stay.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from pvera.adapters import METHODS
from pvera.files import read_json, write_atomically
from pvera.report.table import Table, markdown_table
from pvera.study import results

SCHEMA = 2
NAME = ("part", "backbone", "precision", "what")  # which a record has once
#: value, bound_value: seconds of the part and of its bound; in committed records also bytes (parts memory and size, the
#: memory of draws). ratio: the median over pairs. target: the largest ratio that meets it; None where none is set.
#: low, high: quartiles of the ratio over pairs; None for a single measurement.
NUMBERS = ("value", "bound_value", "ratio", "target", "low", "high")
COLUMNS = (*NAME, "bound", *NUMBERS)


def update(path: Path, made_by: dict, rows: Iterable[tuple]) -> None:
    """Write rows of `COLUMNS` into the record at `path`, where they replace those of their names, and as Markdown."""
    earlier = read_json(path)["rows"] if path.exists() else []
    measured = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    by_name = {tuple(row[column] for column in NAME): row for row in (*earlier, *measured)}
    record = {"schema": SCHEMA, "environment": made_by, "rows": list(by_name.values())}
    write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    write_atomically(path.with_suffix(".md"), describe(record))


def describe(record: dict) -> str:
    """Format the rows as a Markdown table, with the machine."""
    rows, made_by = pd.DataFrame(record["rows"], columns=COLUMNS), record["environment"]
    header = ["backbone", "precision", "part", "what", "bound", "time", "time of the bound", "ratio (quartiles)"]
    lines = []
    for row in rows.itertuples():
        values = [_quantity(row, value) for value in (row.value, row.bound_value)]
        quartiles = "" if pd.isna(row.low) else f" ({row.low:.3f} to {row.high:.3f})"
        target = ["", ""]
        if pd.notna(row.target):
            target = [f"{row.target:.2f}", "met" if row.ratio <= row.target else "**missed**"]
        place = [row.backbone, row.precision, row.part, row.what, row.bound]
        lines.append([*place, *values, f"{row.ratio:.3f}{quartiles}", *target])
    notes = (
        f"{made_by['device']}, {made_by['threads']} thread{'s' * (made_by['threads'] > 1)}, torch {made_by['torch']}, "
        f"timm {made_by['timm']}; "
        "see experiments/benchmark_speed.py. Part and bound are measured in turn: the ratio is the median over the "
        "pairs, not the quotient of the two medians beside it."
    )
    return f"{markdown_table([*header, 'target', ''], lines, 'lllllrrrrl')}\n\n{notes}\n"


def _quantity(row, value: float) -> str:
    if row.part == "size":
        return f"{value / 1e3:,.0f} kB"
    if row.part == "memory" or row.what.startswith("memory"):
        return f"{value / 2**20:,.0f} MiB"
    return f"{value:,.3f} s"


# Wall time of a profile

SHARED = "tuned"  # these trainings shared their cores with other work, so their times say nothing
#: Experiments with their titles. Those whose names begin alike share a row; others have their own names as titles.
TITLES = {
    "tuned": "Tuned alike",
    "beta": "Search of β",
    "alpha": "Search of α",
    "benchmark": "Benchmark",
    "components": "Components",
    "noise": "Noise of fixed size",
    "published": "Published protocol",
    "equal_budget": "Equal budget",
    "rank": "Ablation of the rank",
    "position": "Ablation of positions",
    "protocol": "Differences of the protocols",
    "uncertainty": "Monte Carlo inference",
    "out_of_distribution": "Out of distribution",
    "latents": "Latents",
    "focus": "Focus",
    "dropout": "Dropout",
    "beta_effects": "Effects of β",
    "rivals": "Rivals",
    "dropout_rivals": "Rivals, dropout",
    "beta_rivals": "Rivals along β",
    "language_beta": "Search of β, text",
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
