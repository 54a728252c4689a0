"""All trainings of a report as one table, results/runs.csv: a row each, for readers with pandas."""

from pathlib import Path

import pandas as pd

from pvera.files import write_atomically
from pvera.report.scores import chosen_member, diverged
from pvera.report.settings import ResultFiles
from pvera.report.text import grid_value
from pvera.study import results

METRICS = ("accuracy", "ece", "ace", "nll", "brier")


def runs_frame(files: ResultFiles) -> pd.DataFrame:
    """Return a row per training.

    Returns:
        What it is, what it chose, its test metrics, epochs, seconds and device.
    """
    rows = []
    for profile in files.profiles:
        for folder in sorted((files.root / profile.name).glob("*/")):
            # Records of analyses have no members.
            records = results.read_all(files.root, profile.name, folder.name)
            rows += [run_row(record) for record in records if "members" in record]
    return pd.DataFrame(rows)


def run_row(record: dict) -> dict:
    """Return the row of a training; one whose members all diverged has no choice and no metrics."""
    cells = {name: record[name] for name in (*results.IDENTITY, "category", "protocol")}
    cells["searched"] = len(record["members"])
    if not diverged(record):
        cells |= _choice(record)
        cells |= {name: record["test"][name] for name in METRICS}
        cells["matthews"] = record["test"].get("matthews")
    cells["seconds"] = record["cost"]["wall_seconds"]
    cells["device"] = record["environment"]["device"]
    return cells


def _choice(record: dict) -> dict:
    """Return the cells about the chosen member."""
    member = chosen_member(record)
    grid = record["chosen"]["grid"]
    # Target projections are no number; the experiment's name tells them.
    values = [f"{name}={grid_value(value)}" for name, value in grid.items() if name != "targets"]
    return {
        "chosen": ", ".join(values),
        "adapter_parameters": member["adapter_parameters"],
        "epoch": record["chosen"]["epoch"] + 1,
        "epochs": member["epochs"],
        "validation_loss": member["best_validation_loss"],
    }


def write_runs(files: ResultFiles, path: Path) -> None:
    """Write `runs_frame` to a CSV file, with six significant digits."""
    text = runs_frame(files).to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_atomically(path, text)
