"""Whether a version of the program is faster than another one, and gives the same accuracies."""

from pathlib import Path

import pandas as pd

from pvera.adapters import METHODS
from pvera.errors import InputError
from pvera.report.tables.layout import Cell, Panel, Row, Table, lettered, plain
from pvera.report.tables.spent import TITLES

SAME = ["device", "profile", "before", "after"]  # what the rows of one panel share
KEY = [*SAME, "experiment", "method"]


def compare(turns: pd.DataFrame) -> pd.DataFrame:
    """One row per experiment and method, and one of all. turns: a row per turn, version ("before" or "after") and
    run, with experiment, method, seconds, accuracy in [0, 1].

    seconds_before, seconds_after: sums over the runs, medians over the turns; ratio: after to before, the median
    of the turns; apart: the largest difference of mean accuracies in a turn, in points.
    """
    rows = []
    for (experiment, method), own in [*turns.groupby(["experiment", "method"]), (("all", "all"), turns)]:
        both = own.groupby(["turn", "version"]).agg(seconds=("seconds", "sum"), accuracy=("accuracy", "mean")).unstack()
        seconds, accuracy = both["seconds"], both["accuracy"]
        rows.append(
            {
                "experiment": experiment,
                "method": method,
                "turns": len(both),
                "runs": len(own) // (2 * len(both)),
                "seconds_before": seconds["before"].median(),
                "seconds_after": seconds["after"].median(),
                "ratio": (seconds["after"] / seconds["before"]).median(),
                "apart": 100 * (accuracy["after"] - accuracy["before"]).abs().max(),
            }
        )
    return pd.DataFrame(rows)


def load(file) -> pd.DataFrame:
    """What experiments/benchmark_versions.py wrote; empty where it has not been run. InputError for a damaged file."""
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
    """What was measured, after `earlier` rows of other versions, profiles and machines."""
    known = set(map(tuple, measured[KEY].values))
    kept = [tuple(row) not in known for row in earlier[KEY].values]
    return pd.concat([earlier[kept], measured], ignore_index=True) if any(kept) else measured


def table(data: pd.DataFrame) -> Table:
    """A panel per machine, profile and pair of versions."""
    panels = []
    for (device, profile, before, after), own in data.groupby(SAME, sort=False):
        title = f"{device}, profile {profile}: {after} after {before}, {own['turns'].max()} turns"
        panels.append(Panel(title, HEADER, tuple(map(_row, own.itertuples()))))
    caption = (
        "The same runs by two versions of the program in turn: seconds summed over runs, medians over turns; the "
        "median of their ratio; and how far the accuracies lie apart, in points, where most."
    )
    return Table("versions", caption, "", lettered(panels), data)


HEADER = ("Runs", "Seconds before", "Seconds after", "Ratio", "Accuracies apart")


def _row(row) -> Row:
    whole = row.experiment == "all"
    label = "All" if whole else f"{TITLES[row.experiment]}, {METHODS[row.method].title}"
    cells = (str(row.runs), plain(row.seconds_before, 1), plain(row.seconds_after, 1), plain(row.ratio, 2),
             plain(row.apart, 2))  # fmt: skip
    return Row(label, tuple(map(Cell, cells)), rule=whole)
