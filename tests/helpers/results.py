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


def ratio(machine: str, backbone: str, precision: str, what: str, bound: str = "") -> float | None:
    """Return a timed ratio to a bound that begins so, None where it was not timed."""
    record = json.loads((ROOT / f"results/performance/speed_{machine}.json").read_text())
    wanted = (backbone, precision, what)
    timed = [row for row in record["rows"] if (row["backbone"], row["precision"], row["what"]) == wanted]
    found = [row["ratio"] for row in timed if row["part"] != "memory" and row["bound"].startswith(bound)]
    assert len(found) <= 1, wanted
    return found[0] if found else None
