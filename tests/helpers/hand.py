"""Hand-made records of a small benchmark, and the cells that a table prints."""

import io

import pandas as pd
from records import make_record

# Correct answers of 10 000, per seed.
HAND = {
    "linear": {"digits": [4900, 5100], "textures": [8000, 8000], "vessels": [1000, 1000]},
    "lora": {"digits": [6004, 6004], "textures": [8000, 8000], "vessels": [2000, 2000]},
    "vera": {"digits": [6000, 6000], "textures": [7000, 7000], "vessels": [3000, 3000]},
    "pvera": {"digits": [6800, 7200], "textures": [6000, 6000], "vessels": [2900, 3300]},
}


def runs_of(correct, images=10000, **changes):
    """Return records of {method: {data set: correct answers per seed}}; None for a missing run."""
    return [
        make_record(method, dataset, seed, right, images, **changes)
        for method, of_method in correct.items()
        for dataset, of_seeds in of_method.items()
        for seed, right in enumerate(of_seeds)
        if right is not None
    ]


def parsed(table):
    return pd.read_csv(io.StringIO(table.csv()))


def cells(table, panel=0):
    """Return the printed cells of a panel by their row labels."""
    return {
        label: list(row)
        for label, *row in list(table.printed_panels().values())[panel].itertuples()
    }
