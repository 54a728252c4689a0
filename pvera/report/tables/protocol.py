"""The effects of the switches between the two protocols; PROTOCOL.md lists what they switch."""

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.report import effects
from pvera.report.effects import METRICS, NOISE
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, plain, signed
from pvera.report.tables.names import backbone_title, dataset_title, switch_title
from pvera.study.protocol import GRID_REFERENCE, one_at_a_time

DIGITS = {"validation_loss": 3}


def switches(runs: dict[str, list[dict]]) -> Table:
    """Build the table of mean effects of each switch on each metric; runs: `effects.load`."""
    data = effects.summary(effects.differences(runs))
    rows = []
    for name, effects_of_switch in data.groupby("switch", sort=False):
        by_metric = effects_of_switch.set_index("metric")
        first = by_metric.iloc[0]
        concerned = one_at_a_time()[name].method
        methods = METHODS[concerned].title if concerned else f"{first.methods} methods"
        cells = [Cell(methods)] + [_effect(metric, by_metric.loc[metric]) for metric in METRICS]
        rows.append(Row(f"`{name}`", tuple(cells), concerned is not None and not any(r.rule for r in rows)))
    header = ("Methods", *(f"{title} ({unit})" for title, unit, _ in METRICS.values()))
    caption = (
        "Effect of each switch alone: the run as under `published` minus the corrected one, mean over data sets and "
        "seeds. Brackets: 95 % t-interval over both. ±: range of chance, which the mean of as many runs leaves in 5 of "
        f"100 cases if only the random numbers change (`{NOISE}`: initial values and noise). Bold: beyond chance, and "
        "the interval leaves out zero; among this many comparisons a few do so by chance. Square brackets: a loss on "
        "another scale, because the softmax is taken twice. The two runs of `joint_stop` are equal until a member of "
        "the grid stops."
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
    """Build the table of effects on each method's accuracy, of the switches that concern every method."""
    pairs = effects.differences(runs)
    general = [name for name, variant in one_at_a_time().items() if not variant.method]
    data = effects.summary(pairs[pairs["switch"].isin(general)], ("switch", "method"))
    data = data[data["metric"] == "accuracy"].reset_index(drop=True)
    names = list(dict.fromkeys(data["switch"]))
    cells = data.set_index(["method", "switch"])
    rows = []
    for method in METHODS:
        if method in set(data["method"]):
            of_method = [cells.loc[(method, name)] if (method, name) in cells.index else None for name in names]
            texts = [Cell(NOTHING) if row is None else _effect("accuracy", row) for row in of_method]
            rows.append(Row(METHODS[method].title, tuple(texts)))
    caption = (
        "Effect on the accuracy (points) of each method, of the published protocol and of the switches that all "
        "methods share. Brackets, ± and bold as in the table of all switches."
    )
    header = tuple(f"`{name}`" for name in names)
    return Table("protocol_methods", caption, _about(runs), (Panel("", header, tuple(rows)),), data)


def _about(runs: dict[str, list[dict]]) -> str:
    first = next(iter(runs.values()))
    searched = " (`joint_stop`: all of them)" if GRID_REFERENCE in runs else ""
    seeds = sorted({run["seed"] for run in first})
    datasets = dict.fromkeys(dataset_title(run["dataset"]) for run in first)
    profile, backbone, epochs = first[0]["profile"], first[0]["backbone"], first[0]["config"]["max_epochs"]
    return (
        f"Profile {profile}, backbone {backbone_title(backbone)}, data set{'s' * (len(datasets) > 1)} "
        f"{', '.join(datasets)}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}, at most {epochs} epochs, "
        f"one fixed value of each grid{searched}; {sum(map(len, runs.values()))} runs."
    )


def summary(data: pd.DataFrame) -> str:
    """Name in one sentence the switches whose effect on the accuracy is beyond chance; data: that of `switches`."""
    accuracy = data[data["metric"] == "accuracy"].set_index("switch")
    single = accuracy.drop([NOISE, "published"], errors="ignore")
    beyond = [f"{switch_title(row.Index)} ({signed(row.mean, 1)})" for row in single[single["beyond"]].itertuples()]
    text = (
        f"**Answer.** {len(beyond)} of {len(single)} switches change the accuracy beyond chance (points): "
        f"{'; '.join(beyond) or 'none'}."
    )
    if "published" in accuracy.index:
        text += f" All at once change it by {signed(accuracy.at['published', 'mean'], 1)}."
    return text
