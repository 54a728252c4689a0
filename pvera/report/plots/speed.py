"""Time and memory against the bound that a frozen backbone sets (`tables.speed`)."""

import re
from collections.abc import Sequence
from itertools import product

import pandas as pd
from matplotlib.figure import Figure

from pvera.report.plots import COLUMN, PAGE, entry, key, name_rows
from pvera.report.tables import speed

#: Colour and marker of each precision: greys, as colours stand for methods.
PRECISIONS = {"float32": ("black", "o"), "bfloat16": ("0.4", "s"), "float16": ("0.75", "D")}
PARTS = {"step": "Training step", "evaluate": "Evaluation", "sample": "Sampling", "memory": "Memory of a step"}
QUARTILES = entry("quartiles over timed pairs", line="-", linewidth=1)


def by_machine(records: Sequence[dict]) -> dict[str, dict[str, pd.DataFrame]]:
    """Return {backbone: {machine: rows}} of all records; machines without marks and kinds of device."""
    parts: dict[str, dict[str, pd.DataFrame]] = {}
    for record in records:
        machine = re.sub(r"^(cpu|cuda): |\((R|TM)\)", "", speed.machine(record))
        for backbone, rows in speed.frame(record).groupby("backbone", sort=False):
            parts.setdefault(backbone, {})[machine] = rows
    return parts


def against_bounds(machines: dict[str, pd.DataFrame], title: str) -> Figure:
    """Draw the ratios of one backbone to their bounds; machines: `by_machine`.

    A column per machine, named after `title`; the parts one above the other, a line per method. A stroke marks the
    target, a bar spans the quartiles, where recorded. Half precision stands a little lower.
    """
    rows = pd.concat(machines, names=["machine"]).reset_index("machine")
    rows = rows[rows["part"].isin(PARTS) & rows["bound"].str.contains("frozen")]
    names = {part: list(rows.loc[rows["part"] == part, "what"].unique()) for part in PARTS if part in set(rows["part"])}
    heights = [len(listed) + 1.5 for listed in names.values()]
    width = COLUMN if len(machines) == 1 else PAGE
    figure = Figure(figsize=(width, 0.8 + 0.17 * sum(heights)))
    grid = figure.subplots(len(names), len(machines), sharex=True, sharey="row", squeeze=False,
                           height_ratios=heights)  # fmt: skip
    for (i, name), (j, part) in product(enumerate(machines), enumerate(names)):
        ax, of_part = grid[j, i], rows[(rows["machine"] == name) & (rows["part"] == part)]
        for row in of_part.itertuples():
            colour, marker = PRECISIONS[row.precision]
            y = names[part].index(row.what)
            if pd.notna(row.target):
                ax.plot([row.target] * 2, [y - 0.35, y + 0.35], color="0.4", linewidth=1.2)
            y += -0.2 if row.precision == "float32" else 0.2
            ax.plot([row.low, row.high], [y, y], color=colour, linewidth=1)
            ax.plot(row.ratio, y, marker, color=colour, markersize=4, mec="white", mew=0.4, zorder=3)
        ax.axvline(1, color="0.8", linewidth=0.6, zorder=0)
        name_rows(ax, names[part])
        ax.set_title(PARTS[part] if j else f"{title}, {name}\n\n{PARTS[part]}", loc="left", fontsize=7)
        if of_part.empty:
            ax.text(0.5, 0.5, "not measured", transform=ax.transAxes, ha="center", va="center", color="0.5")
    for ax in grid[-1]:
        ax.set_xlabel("Ratio to the bound (1: the frozen backbone)")
    precisions = {name: look for name, look in PRECISIONS.items() if name in set(rows["precision"])}
    entries = [entry(precision, marker, colour=colour) for precision, (colour, marker) in precisions.items()]
    entries += [entry("target (at most)", "|", colour="0.4", markersize=6), QUARTILES]
    key(figure, entries, columns=2 * len(machines))
    return figure
