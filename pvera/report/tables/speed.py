"""Times and sizes beside their bounds."""

from operator import itemgetter
from pathlib import Path

import pandas as pd

from pvera.report.table import Column, Table


def ratio_table(record: Path) -> Table:
    """Build the table of a file that experiments/benchmark_speed.py wrote."""
    rows = pd.read_csv(record)
    machine = rows.iloc[0]
    # The script measures times; committed records also have the parts memory and size, in bytes.
    caption = (
        f"{machine.device}, threads: {machine.threads}, torch {machine.torch}, timm {machine.timm}."
    )
    notes = "Ratio: of the times of part and bound, or of their sizes in the parts memory and size."
    columns = {
        name: Column(name, itemgetter(name)) for name in ("part", "backbone", "precision", "bound")
    }
    columns["ratio"] = Column("Ratio", 3)
    columns["low"] = Column("Lower quartile", 3)
    columns["high"] = Column("Upper quartile", 3)
    return Table(record.stem, caption, rows.set_index("what"), columns=columns, notes=notes)
