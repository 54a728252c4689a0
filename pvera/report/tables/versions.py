"""Speed and accuracy of one version of the program against another."""

from pathlib import Path

import pandas as pd

from pvera.adapters import METHODS
from pvera.errors import InputError
from pvera.report.tables.layout import Cell, Panel, Row, Table, lettered, plain
from pvera.report.tables.wall_time import TITLES

SAME = ["device", "profile", "before", "after"]  # the same in all rows of a panel
KEY = [*SAME, "experiment", "method"]


def compare(turns: pd.DataFrame) -> pd.DataFrame:
    """Compare two versions: one row per experiment and method, and one over all.

    turns: a row per turn, version ("before" or "after") and run, with experiment, method, seconds, and accuracy in
    [0, 1]. seconds_before, seconds_after: sums over runs, medians over turns. ratio: after to before, median over
    turns. apart: largest difference of the mean accuracies in a turn, in points.
    """
    rows = []
    for (experiment, method), part in [*turns.groupby(["experiment", "method"]), (("all", "all"), turns)]:
        both = (
            part.groupby(["turn", "version"]).agg(seconds=("seconds", "sum"), accuracy=("accuracy", "mean")).unstack()
        )
        seconds, accuracy = both["seconds"], both["accuracy"]
        rows.append(
            {
                "experiment": experiment,
                "method": method,
                "turns": len(both),
                "runs": len(part) // (2 * len(both)),
                "seconds_before": seconds["before"].median(),
                "seconds_after": seconds["after"].median(),
                "ratio": (seconds["after"] / seconds["before"]).median(),
                "apart": 100 * (accuracy["after"] - accuracy["before"]).abs().max(),
            }
        )
    return pd.DataFrame(rows)


def load(file) -> pd.DataFrame:
    """Load the file of experiments/benchmark_versions.py; empty without it. InputError for a damaged file."""
    file = Path(file)
    if not file.exists():
        return pd.DataFrame(columns=KEY)
    try:
        data = pd.read_csv(file, dtype={"before": str, "after": str})
        data[[*KEY, "turns", "runs", "seconds_before", "seconds_after", "ratio", "apart"]]
    except (ValueError, KeyError, pd.errors.ParserError) as error:
        raise InputError(f"{file}: damaged file ({type(error).__name__}: {error})") from None
    return data


def merge(earlier: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Append the measured rows to the earlier ones, of which they replace those of the same key."""
    known = set(map(tuple, measured[KEY].values))
    kept = [tuple(row) not in known for row in earlier[KEY].values]
    return pd.concat([earlier[kept], measured], ignore_index=True) if any(kept) else measured


def versions_table(data: pd.DataFrame) -> Table:
    """Build the table with a panel per machine, profile and pair of versions."""
    panels = []
    for (device, profile, before, after), part in data.groupby(SAME, sort=False):
        title = f"{device}, profile {profile}: {after} after {before}, {part['turns'].max()} turns"
        panels.append(Panel(title, HEADER, tuple(map(_row, part.itertuples()))))
    caption = (
        "The same runs by two versions of the program in turn. Seconds: sums over runs, medians over turns. Ratio: "
        "after to before, median over turns. Accuracies apart: largest difference of the mean accuracy in a turn "
        "(points)."
    )
    return Table("versions", caption, "", lettered(panels), data)


HEADER = ("Runs", "Seconds before", "Seconds after", "Ratio", "Accuracies apart")


def _row(row) -> Row:
    whole = row.experiment == "all"
    label = "All" if whole else f"{TITLES[row.experiment]}, {METHODS[row.method].title}"
    cells = (str(row.runs), plain(row.seconds_before, 1), plain(row.seconds_after, 1), plain(row.ratio, 2),
             plain(row.apart, 2))  # fmt: skip
    return Row(label, tuple(map(Cell, cells)), rule=whole)
