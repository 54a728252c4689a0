"""Committed results, read without the program."""

import functools
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def table(name: str) -> pd.DataFrame:
    """Read a CSV file: of the tables of `mini`, or one with a path from results/."""
    folder = "results" if "/" in name else "results/mini/tables"
    return pd.read_csv(ROOT / folder / f"{name}.csv", keep_default_na="/" not in name)


def rows(name: str, **where) -> pd.DataFrame:
    """Return the rows of a table that have these values."""
    frame = table(name)
    for column, value in where.items():
        frame = frame[frame[column] == value]
    assert len(frame), (name, where)
    return frame


def cell(name: str, column: str, **where):
    """Return the one cell of a column in the rows that have these values."""
    (value,) = rows(name, **where)[column]
    return value


def hours(*datasets: str) -> float:
    """Return the hours of the recorded runs on these data sets, on two cores."""
    spent = table("spent")
    return float(spent.loc[spent["dataset"].isin(datasets), "seconds"].sum() / 7200)
