"""The effects of the switches between the two protocols; PROTOCOL.md lists what they switch."""

import numpy as np
import pandas as pd

from pvera.report import effects
from pvera.report.effects import METRICS, NOISE
from pvera.report.table import NOTHING, Table, crossed, plain, signed, title
from pvera.report.tables.names import origin
from pvera.study.protocol import GRID_REFERENCE, one_at_a_time

DIGITS = {"validation_loss": 3}
TITLES = {key: f"{name} ({unit})" for key, (name, unit, _) in METRICS.items()}


def switches(runs: dict[str, list[dict]]) -> Table:
    """Build the table of mean effects of each switch on each metric; runs: `effects.load`."""
    data = effects.summary(effects.differences(runs))
    cells = crossed(data, "switch", "metric", _effect).rename(columns=TITLES)
    methods = data.groupby("switch")["methods"].first()
    named = {name: variant.method or f"{methods.get(name)} methods" for name, variant in one_at_a_time().items()}
    cells.insert(0, "Methods", [title(named[name]) for name in cells.index])
    caption = (
        "Effect of each switch alone: the run as under `published` minus the corrected one, mean over data sets and "
        "seeds. Brackets: 95 % t-interval over both. ±: range of chance, which the mean of as many runs leaves in 5 of "
        f"100 cases if only the random numbers change (`{NOISE}`: initial values and noise). Bold: beyond chance, and "
        "the interval leaves out zero; among this many comparisons a few do so by chance. Square brackets: a loss on "
        "another scale, because the softmax is taken twice. The two runs of `joint_stop` are equal until a member of "
        "the grid stops."
    )
    return Table("protocol", caption, {"": cells.rename("`{}`".format)}, data=data, about=about(runs))


def _effect(row: pd.Series) -> str:
    """Return one row of `effects.summary` as text: the mean, its interval, the range of chance."""
    digits = DIGITS.get(row["metric"], 2)
    text = signed(row["mean"], digits)
    if text == NOTHING:
        return text
    if not row["comparable"]:
        return f"[{text}]"
    if not np.isnan(row["low"]):
        text += f" ({signed(row['low'], digits)} to {signed(row['high'], digits)})"
    if not np.isnan(row["noise"]):
        text += f"; ±{plain(row['noise'], digits)}"
    return f"**{text}**" if row["beyond"] else text


def about(runs: dict[str, list[dict]]) -> str:
    """Describe the runs for a caption."""
    first = next(iter(runs.values()))
    seeds, datasets = (dict.fromkeys(run[key] for run in first) for key in ("seed", "dataset"))
    grids = " (`joint_stop`: all of them)" if GRID_REFERENCE in runs else ""
    return (
        f"{origin(first[0], sorted(seeds), datasets)}; at most {first[0]['config']['max_epochs']} epochs, one fixed "
        f"value of each grid{grids}; {sum(map(len, runs.values()))} runs."
    )
