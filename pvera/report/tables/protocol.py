"""The effect of each difference between the protocols on the results, measured one switch at a time, in pairs.

A pair is two runs of the same data set, method and seed that differ in one switch and nothing else. Its difference is
the switched run minus the corrected one. `own_draws` changes nothing but the random numbers of a run without a grid,
so its differences measure chance. `joint_stop` has no effect on such a run, so both runs of its pairs search the full
grid (`protocol.Variant`).
"""

import numpy as np
import pandas as pd
from scipy.stats import t

from pvera.errors import InputError
from pvera.report.scores import chosen_member
from pvera.report.settings import ResultFiles, Setting
from pvera.report.table import NOTHING, Table, origin, pivot_text, plain, signed, title
from pvera.study.protocol import REFERENCES, VARIANTS
from pvera.uncertainty import t_interval

NOISE = "own_draws"

#: Column -> title, unit, and a function from a record to its value.
METRICS = {
    "accuracy": ("Accuracy", "points", lambda run: 100 * run["test"]["accuracy"]),
    "ece": ("ECE", "points", lambda run: 100 * run["test"]["ece"]),
    "ace": ("ACE", "points", lambda run: 100 * run["test"]["ace"]),
    "validation_loss": (
        "Validation loss",
        "nats",
        lambda run: chosen_member(run)["best_validation_loss"],
    ),
}


def load(files: ResultFiles) -> dict[Setting, dict[str, list[dict]]]:
    """Return the records of each switch that has any, references first, by setting.

    InputError for a switch without the runs of its reference.
    """
    settings: dict[Setting, dict[str, list[dict]]] = {}
    for name in VARIANTS:
        for setting, runs in files.read(f"protocol_{name}").items():
            settings.setdefault(setting, {})[name] = runs
    for setting, of_setting in settings.items():
        for name in of_setting:
            reference = VARIANTS[name].reference
            if reference not in of_setting:
                raise InputError(
                    f"{files.root}/{setting.profile}: effects of protocol_{name} need the runs of protocol_{reference}"
                )
    return settings


def differences(runs: dict[str, list[dict]]) -> pd.DataFrame:
    """Return one row per pair: switch, method, dataset, seed, and the difference in each of `METRICS`.

    Differences are NaN where one of the two runs diverged.
    """
    place = ["backbone", "dataset", "method", "seed"]
    values = {
        switch: pd.DataFrame(
            {name: value(run) if run["test"] else np.nan for name, (*_, value) in METRICS.items()}
            | {key: run[key] for key in place}
            for run in records
        ).set_index(place)
        for switch, records in runs.items()
    }
    gaps = {}
    for switch, switched in values.items():
        if switch not in REFERENCES:
            corrected = values[VARIANTS[switch].reference]
            gaps[switch] = (switched - corrected).loc[
                switched.index[switched.index.isin(corrected.index)]
            ]
    return pd.concat(gaps, names=["switch"]).reset_index()


def summary(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean effect per switch and metric.

    pairs: the number of data sets and seeds. mean, low, high: the mean over them, after averaging over methods, and a
    95 % t-interval over both sources of variation. noise: the bound within which the mean of as many independent runs
    of the same methods stays in 95 of 100 cases when their random numbers alone change; NaN without such runs.
    comparable: whether both runs of a pair measure the metric on one scale; the loss of two softmaxes is on another.
    beyond: whether a comparable effect exceeds the noise and its interval, if
    there is one, leaves out zero.
    """
    rows = []
    for switch, part in pairs.groupby("switch", sort=False):
        methods = set(part["method"])
        chance = pairs[(pairs["switch"] == NOISE) & pairs["method"].isin(methods)]
        for metric in METRICS:
            values, noise = per_pair(part, metric), chance[metric].dropna()
            low, high = t_interval(values) if len(values) > 1 else (np.nan, np.nan)
            mean = values.mean() if len(values) else np.nan
            bound = np.nan
            if len(noise) and len(values) and set(chance["method"]) == methods:
                bound = t.ppf(0.975, len(noise)) * np.sqrt(
                    (noise**2).mean() / (len(values) * len(methods))
                )
            fair = metric != "validation_loss" or not VARIANTS[switch].protocol.softmax_in_loss
            beyond = fair and switch != NOISE and abs(mean) > bound and not low <= 0 <= high
            rows.append({
                "switch": switch, "metric": metric, "methods": len(methods), "pairs": len(values), "mean": mean,
                "low": low, "high": high, "noise": bound, "comparable": fair, "beyond": bool(beyond),
            })  # fmt: skip
    return pd.DataFrame(rows)


def per_pair(part: pd.DataFrame, metric: str) -> np.ndarray:
    """Return the mean of `differences` over methods per data set and seed, without those that have a diverged run."""
    return (
        part.groupby(["dataset", "seed"])[metric]
        .agg(lambda values: values.mean(skipna=False))
        .dropna()
        .to_numpy()
    )


DIGITS = {"validation_loss": 3}
TITLES = {key: f"{name} ({unit})" for key, (name, unit, _) in METRICS.items()}


def switches(runs: dict[str, list[dict]]) -> Table:
    """Build the table of mean effects of each switch on each metric; runs: `load`."""
    data = summary(differences(runs))
    cells = pivot_text(data, "switch", "metric", _effect).rename(columns=TITLES)
    methods = data.groupby("switch")["methods"].first()
    named = {
        name: variant.method or f"{methods.get(name)} methods" for name, variant in VARIANTS.items()
    }
    cells.insert(0, "Methods", [title(named[name]) for name in cells.index])
    caption = (
        "Effect of each switch alone: the run as under `published` minus the corrected one, mean over data sets and "
        "seeds. Brackets: 95 % t-interval over all pairs of them. ±: range of chance, which the mean of as many runs "
        f"leaves in 5 of 100 cases if only the random numbers change (`{NOISE}`: initial values and noise). Bold: "
        "beyond chance, and the interval leaves out zero; among this many comparisons a few do so by chance. Square "
        "brackets: a loss on another scale, because the softmax is taken twice. The two runs of `joint_stop` are equal "
        "until a member of the grid stops."
    )
    return Table(
        "protocol",
        caption,
        {"": cells.rename("`{}`".format)},
        data=data,
        source=describe_runs(runs),
    )


def _effect(row: pd.Series) -> str:
    """Return one row of `summary` as text: the mean, its interval, the range of chance."""
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


def describe_runs(runs: dict[str, list[dict]]) -> str:
    """Describe the runs for a caption."""
    first = next(iter(runs.values()))
    place = origin(first, dict.fromkeys(run["dataset"] for run in first))
    return (
        f"{place}; at most {first[0]['config']['max_epochs']} epochs, one fixed "
        f"value of each grid (`joint_stop`: all of them); {sum(map(len, runs.values()))} runs."
    )
