"""The effect of each difference between the protocols, measured one switch at a time, in pairs.

A pair is two runs of the same data set, method and seed that differ in one switch and nothing else.
Its difference is the switched run minus the corrected one. `own_draws` changes nothing but the
random numbers of a run without a grid, so its differences measure noise. `joint_stop` has no effect
on such a run, so both runs of its pairs search the full grid (`protocol.ProtocolEntry`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import t

from pvera.errors import InputError
from pvera.report.captions import caption_source
from pvera.report.scores import Records, chosen_member, diverged
from pvera.report.settings import ResultFiles, Setting
from pvera.report.statistics import LEVEL
from pvera.report.table import Table, pivot_text
from pvera.report.text import NOTHING, decimal, signed, title
from pvera.study.protocol import PROTOCOLS
from pvera.uncertainty import t_interval

#: The switch that changes random numbers alone.
NOISE = "own_draws"

#: What two runs of a pair share.
PAIR = ["dataset", "method", "seed"]

#: Switch -> the records of its runs.
RecordsBySwitch = dict[str, Records]


@dataclass(frozen=True)
class Metric:
    """A number that a switch may change."""

    #: The heading of its column, with its unit.
    title: str
    #: From a record to its value.
    value: Callable[[dict], float]
    #: The decimals of its effects.
    decimals: int = 2


METRICS = {
    "accuracy": Metric("Accuracy (points)", lambda record: 100 * record["test"]["accuracy"]),
    "ece": Metric("ECE (points)", lambda record: 100 * record["test"]["ece"]),
    "ace": Metric("ACE (points)", lambda record: 100 * record["test"]["ace"]),
    "validation_loss": Metric(
        "Validation loss (nats)",
        lambda record: chosen_member(record)["best_validation_loss"],
        decimals=3,
    ),
}


def read_switches(files: ResultFiles) -> dict[Setting, RecordsBySwitch]:
    """Return the records of each switch that has any, references first, by setting.

    Raises:
        InputError: A switch lacks the runs of its reference.
    """
    settings: dict[Setting, RecordsBySwitch] = {}
    for switch in PROTOCOLS:
        for setting, records in files.read(f"protocol_{switch}").items():
            settings.setdefault(setting, {})[switch] = records
    for setting, runs in settings.items():
        for switch in runs:
            reference = PROTOCOLS[switch].reference
            if reference not in runs:
                raise InputError(
                    f"{files.root}/{setting.profile}: effects of protocol_{switch} need the runs "
                    f"of protocol_{reference}"
                )
    return settings


def switch_differences(records: RecordsBySwitch) -> pd.DataFrame:
    """Return the differences of pairs.

    Returns:
        One row per pair: switch, method, dataset, seed, and the difference in each of `METRICS`,
        NaN where one of the two runs diverged.
    """
    values = {switch: _values(runs) for switch, runs in records.items()}
    pairs = {}
    for switch, switched in values.items():
        reference = PROTOCOLS[switch].reference
        if switch != reference:
            corrected = values[reference]
            # Pairs of which both runs are there.
            shared = switched.index.intersection(corrected.index)
            pairs[switch] = (switched - corrected).loc[shared]
    return pd.concat(pairs, names=["switch"]).reset_index()


def _values(records: Records) -> pd.DataFrame:
    """Return `METRICS` of runs: rows `PAIR`; NaN where a run diverged."""
    rows = []
    for record in records:
        row = {name: record[name] for name in PAIR}
        for name, metric in METRICS.items():
            row[name] = np.nan if diverged(record) else metric.value(record)
        rows.append(row)
    return pd.DataFrame(rows).set_index(PAIR)


def mean_effects(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean effect per switch and metric.

    Args:
        pairs: The `switch_differences`.

    Returns:
        pairs: the number of data sets and seeds. mean, low, high: the mean over them, after
        averaging over methods, and a 95 % t-interval over both sources of variation. noise: the
        "range of chance" of the notes, the bound within which the mean of as many independent runs
        of the same methods stays in 95 of 100 cases when their random numbers alone change; NaN
        without such runs. comparable: whether both runs of a pair measure the metric on one scale;
        the loss of two softmaxes is on another. beyond: whether a comparable effect exceeds the
        noise and its interval, if there is one, leaves out zero.
    """
    # Differences that random numbers alone make, (pairs of `NOISE`, metrics).
    noise = pairs[pairs["switch"] == NOISE]
    rows = []
    for switch, part in pairs.groupby("switch", sort=False):
        same_methods = noise[noise["method"].isin(part["method"])]
        rows += [_mean_effect(switch, metric, part, same_methods) for metric in METRICS]
    return pd.DataFrame(rows)


def _mean_effect(switch: str, metric: str, part: pd.DataFrame, noise: pd.DataFrame) -> dict:
    """Return a row of `mean_effects`.

    Args:
        switch: A key of `PROTOCOLS`.
        metric: A key of `METRICS`.
        part: The pairs of the switch.
        noise: The pairs of `NOISE` that have the same methods.
    """
    values = means_over_methods(part, metric)
    mean = values.mean() if len(values) else np.nan
    low, high = t_interval(values) if len(values) > 1 else (np.nan, np.nan)

    methods = set(part["method"])
    noise_bound = np.nan
    noise_differences = noise[metric].dropna()
    if len(noise_differences) and len(values) and set(noise["method"]) == methods:
        # The mean has the variance of one difference, over all runs that it averages. Equal runs
        # have a true mean of zero, so the variance is the mean square with n degrees of freedom.
        variance = (noise_differences**2).mean() / (len(values) * len(methods))
        noise_bound = t.ppf(1 - LEVEL / 2, len(noise_differences)) * np.sqrt(variance)

    comparable = metric != "validation_loss" or not PROTOCOLS[switch].protocol.softmax_in_loss
    beyond = comparable and switch != NOISE and abs(mean) > noise_bound and not low <= 0 <= high
    return {
        "switch": switch,
        "metric": metric,
        "methods": len(methods),
        "pairs": len(values),
        "mean": mean,
        "low": low,
        "high": high,
        "noise": noise_bound,
        "comparable": comparable,
        "beyond": bool(beyond),
    }


def means_over_methods(part: pd.DataFrame, metric: str) -> np.ndarray:
    """Return means over methods of `switch_differences`, without those with a diverged run.

    Returns:
        One value per data set and seed.
    """
    groups = part.groupby(["dataset", "seed"])[metric]
    return groups.agg(lambda values: values.mean(skipna=False)).dropna().to_numpy()


def switches_table(records: RecordsBySwitch) -> Table:
    """Build the table of mean effects of each switch on each metric.

    Args:
        records: The records of one setting of `read_switches`.
    """
    data = mean_effects(switch_differences(records))
    titles = {name: metric.title for name, metric in METRICS.items()}
    cells = pivot_text(data, "switch", "metric", _cell).rename(columns=titles)
    counts = data.groupby("switch")["methods"].first()
    # A switch concerns one method, or all that ran.
    methods = [PROTOCOLS[name].only_method or f"{counts[name]} methods" for name in cells.index]
    cells.insert(0, "Methods", [title(method) for method in methods])
    caption = (
        "Effect of each switch alone: the run with the official code's setting of it minus the "
        "corrected run, mean over data sets and seeds."
    )
    notes = (
        "Brackets: 95 % t-interval over all pairs of them. ±: range of chance, which the mean of "
        f"as many runs leaves in 5 of 100 cases if only the random numbers change (`{NOISE}`: "
        "initial values and noise). Bold: beyond chance, and the interval leaves out zero; among "
        "this many comparisons a few do so by chance. Square brackets: a loss on another scale, "
        "because the softmax is applied twice. The two runs of `joint_stop` search the whole "
        "grid, and are equal until a member of it stops; all other runs have one fixed value of "
        "each hyperparameter."
    )
    panel = cells.rename("`{}`".format)
    source = caption_source(record for runs in records.values() for record in runs)
    return Table("protocol", caption, panel, data=data, source=source, notes=notes)


def _cell(row: pd.Series) -> str:
    """Return one row of `mean_effects` as text: the mean, its interval, the range of chance."""
    decimals = METRICS[row["metric"]].decimals
    text = signed(row["mean"], decimals)
    if text == NOTHING:
        return text
    if not row["comparable"]:
        return f"[{text}]"
    if not np.isnan(row["low"]):
        text += f" ({signed(row['low'], decimals)} to {signed(row['high'], decimals)})"
    if not np.isnan(row["noise"]):
        text += f"; ±{decimal(row['noise'], decimals)}"
    return f"**{text}**" if row["beyond"] else text
