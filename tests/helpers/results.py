"""Committed results, read without the program."""

import functools
import json
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
    found = table(name)
    for column, value in where.items():
        found = found[found[column] == value]
    assert len(found), (name, where)
    return found


def cell(name: str, column: str, **where):
    """Return the one cell of a column in the rows that have these values."""
    (value,) = rows(name, **where)[column]
    return value


def claim(text: str, backbone: str = "tiny") -> list[float]:
    """Return a claim's difference and interval."""
    (row,) = rows("claims", claim=text, backbone=backbone)[["difference", "low", "high"]].to_numpy()
    return list(row)


def hours(*datasets: str) -> float:
    """Return the hours of the recorded runs on these data sets, on two cores."""
    spent = table("spent")
    return float(spent.loc[spent["dataset"].isin(datasets), "seconds"].sum() / 7200)


def ratio(machine: str, backbone: str, precision: str, what: str) -> float:
    """Return a timed ratio to the bound."""
    record = json.loads((ROOT / f"results/performance/speed_{machine}.json").read_text())
    (row,) = (r for r in record["rows"] if (r["backbone"], r["precision"], r["what"]) == (backbone, precision, what))
    return row["ratio"]
