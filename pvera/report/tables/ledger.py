"""The protocol ledger: what differs between the paper and its published program, and what that does."""

from itertools import groupby

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.report import effects
from pvera.report.effects import METRICS, NOISE
from pvera.report.ledger import LEDGER, Difference
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, plain, signed
from pvera.study.protocol import GRID_REFERENCE, one_at_a_time

DIGITS = {"validation_loss": 3}

PAGE = """\
# The protocol ledger

The paper and its published program differ in places, and both leave points open. This page lists these points. A
row says what the paper states, what the published program does, and what is done here; "–" means nothing. The part
on PVeRA adds what PEFT 0.21 does.

Two *protocols* settle every point. `corrected` follows the paper, or what is right where the paper errs. `published`
follows the program that produced the paper's numbers; [`tests/test_golden.py`](tests/test_golden.py) holds it to
numbers of that program. A profile chooses one of them, and [`pvera/study/protocol.py`](pvera/study/protocol.py) holds
the switches between them. Where *Here* says "both", the protocols agree and there is no switch.

*Measured effect* is the effect of one switch alone, on the small tasks and the small backbone of `mini`; DINOv2 may
respond differently. Two runs of the same data set, method and seed differ in this switch and nothing else. The effect
is the run with the switch as in `published` (for `shuffle`: without shuffling) minus the `corrected` run, averaged.

- Accuracy and ECE are in points. The loss is the best validation loss.
- **Bold**: larger than a change of random numbers explains. [The tables below](#what-each-switch-does) show intervals.
- [Brackets]: a loss on another scale, because the softmax is taken twice.
- `joint_stop` is measured on runs that search the whole grid, the others on its most chosen value.
"""
SOURCE = """\
This page is written by [`analysis/protocol.ipynb`](analysis/protocol.ipynb) from
[`pvera/report/ledger.py`](pvera/report/ledger.py) and the runs of
`python experiments/train.py --profile mini --experiments protocol`.
"""


def switches(runs: dict[str, list[dict]]) -> Table:
    """Mean effect of each switch on each metric; runs: `effects.load`."""
    data = effects.summary(effects.differences(runs))
    rows = []
    for name, own in data.groupby("switch", sort=False):
        by_metric = own.set_index("metric")
        first = by_metric.iloc[0]
        concerned = one_at_a_time()[name].method
        methods = METHODS[concerned].title if concerned else f"{first.methods} methods"
        cells = [Cell(methods)] + [_effect(metric, by_metric.loc[metric]) for metric in METRICS]
        rows.append(Row(f"`{name}`", tuple(cells), concerned is not None and not any(r.rule for r in rows)))
    header = ("Methods", *(f"{title} ({unit})" for title, unit, _ in METRICS.values()))
    caption = (
        "Effect of each switch alone, the run that has it as under `published` minus the corrected one: mean over "
        "data sets and seeds, in brackets Student's 95 % interval over these, then what chance alone does: with "
        f"`{NOISE}` "
        "only the random numbers change (initial values and noise; the order of the images only with "
        "`shuffle`), and the mean of as many runs stays within ± this in 95 of 100 cases. Bold: an effect "
        "beyond that; among this many comparisons a few are so by chance. Square brackets: a loss on "
        "another scale, as the softmax is taken twice. The two runs of `joint_stop` are the same until a "
        "member of the grid stops."
    )
    return Table("protocol", caption, _about(runs), (Panel("", header, tuple(rows)),), data)


def _effect(metric: str, row: pd.Series) -> Cell:
    digits = DIGITS.get(metric, 2)
    if np.isnan(row["mean"]):
        return Cell(NOTHING)
    text = signed(row["mean"], digits)
    if not row.comparable:
        return Cell(f"[{text}]")
    if not np.isnan(row.low):
        text += f" ({signed(row.low, digits)} to {signed(row.high, digits)})"
    if not np.isnan(row.noise):
        text += f"; ±{plain(row.noise, digits)}"
    return Cell(text, "best" if row.beyond else "")


def by_method(runs: dict[str, list[dict]]) -> Table:
    """Effect of what concerns every method, on the accuracy of each."""
    pairs = effects.differences(runs)
    general = [name for name, variant in one_at_a_time().items() if not variant.method]
    data = effects.summary(pairs[pairs["switch"].isin(general)], ("switch", "method"))
    data = data[data["metric"] == "accuracy"].reset_index(drop=True)
    names = list(dict.fromkeys(data["switch"]))
    cells = data.set_index(["method", "switch"])
    rows = []
    for method in METHODS:
        if method in set(data["method"]):
            own = [cells.loc[(method, name)] if (method, name) in cells.index else None for name in names]
            texts = [Cell(NOTHING) if row is None else _effect("accuracy", row) for row in own]
            rows.append(Row(METHODS[method].title, tuple(texts)))
    shared = "of the published protocol and of what all methods share"
    caption = f"Effect on the accuracy (points) of each method, {shared}."
    header = tuple(f"`{name}`" for name in names)
    return Table("protocol_methods", caption, _about(runs), (Panel("", header, tuple(rows)),), data)


def _about(runs: dict[str, list[dict]]) -> str:
    own = next(iter(runs.values()))
    searched = " (`joint_stop`: all of them, for up to 500 epochs)" if GRID_REFERENCE in runs else ""
    seeds, datasets = sorted({run["seed"] for run in own}), {run["dataset"] for run in own}
    return (
        f"Profile {own[0]['profile']}, backbone {own[0]['backbone']}, {len(datasets)} data sets, "
        f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}, the most chosen value of each grid{searched}; "
        f"{sum(map(len, runs.values()))} runs."
    )


def page(runs: dict[str, list[dict]]) -> str:
    """PROTOCOL.md: the ledger's rows with their measured effects, then the tables of effects."""
    measured = ("## What each switch does", switches(runs).markdown(), by_method(runs).markdown())
    return "\n\n".join(part.strip() for part in (PAGE, rows(runs), *measured, SOURCE)) + "\n"


def rows(runs: dict[str, list[dict]], root: str = "") -> str:
    """The ledger's rows in Markdown, with measured effects where there are runs; root: before links to
    files."""
    measured = effects.summary(effects.differences(runs)).set_index(["switch", "metric"]) if runs else None
    parts = []
    for part, own in groupby(LEDGER, key=lambda row: row.part):
        own = list(own)
        peft = any(row.peft for row in own)
        columns = ["", "Paper", "Published program", *["PEFT"] * peft, "Here", "Measured effect"]
        lines = [columns, [":--"] * len(columns)]
        lines += [_line(row, measured, root, peft) for row in own]
        parts += [f"## {part}", "\n".join("| " + " | ".join(line) + " |" for line in lines)]
    return "\n\n".join(parts)


def _line(row: Difference, measured: pd.DataFrame | None, root: str, peft: bool) -> list[str]:
    file, name = row.where
    here = f"{row.here} ([`{name}`]({root}{file}))"
    effect = "; ".join(_measured(switch, measured) for switch in row.switches) or "no switch"
    return [row.point, row.paper, row.program, *[row.peft or NOTHING] * peft, here, effect]


def _measured(switch: str, measured: pd.DataFrame | None) -> str:
    if measured is None or switch not in measured.index.get_level_values(0):
        return f"`{switch}`: not measured"
    texts = []
    for metric, title in (("accuracy", "accuracy"), ("ece", "ECE"), ("validation_loss", "loss")):
        row = measured.loc[(switch, metric)]
        text = signed(row["mean"], DIGITS.get(metric, 2))
        if not row.comparable:
            text = f"[{text}]"
        elif row.beyond:
            text = f"**{text}**"
        texts.append(f"{title} {text}")
    return f"`{switch}`: {', '.join(texts)}"
