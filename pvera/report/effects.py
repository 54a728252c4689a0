"""What each difference between the protocols does to the results, measured one at a time, in pairs.

A pair is two runs of the same data set, method and seed that differ in one switch and nothing else; the
difference is that of the switched run minus the corrected one. `own_draws` changes only the random numbers of
a run without a grid, so its differences show what chance alone does. `joint_stop` does nothing to such a run, so
both runs of its pairs search the full grid (`protocol.Variant`).
"""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd
from scipy.stats import t

from pvera.errors import InputError
from pvera.report.scores import chosen_member
from pvera.report.statistics import t_interval
from pvera.study import results
from pvera.study.protocol import CORRECTED, REFERENCES, Protocol, one_at_a_time
from pvera.study.results import config_hash

NOISE = "own_draws"

#: Column -> title, unit and value of a run.
METRICS = {
    "accuracy": ("Accuracy", "points", lambda run: 100 * run["test"]["accuracy"]),
    "ece": ("ECE", "points", lambda run: 100 * run["test"]["ece"]),
    "ace": ("ACE", "points", lambda run: 100 * run["test"]["ace"]),
    "validation_loss": ("Validation loss", "nats", lambda run: chosen_member(run)["best_validation_loss"]),
}


def load(root, profile: str) -> dict[str, list[dict]]:
    """Switch -> records of its experiment, for those that have any, references first. Empty where there are
    no runs at all; InputError where there is nothing to compare with."""
    variants = one_at_a_time()
    found = {name: results.load_runs(root, profile, f"protocol_{name}", optional=True) for name in variants}
    found = {name: runs for name, runs in found.items() if runs}
    for name in found:
        if (reference := variants[name].reference) not in found:
            raise InputError(f"{root}/{profile}: effects of protocol_{name} need the runs of protocol_{reference}")
    return found


def differences(runs: dict[str, list[dict]]) -> pd.DataFrame:
    """One row per pair: switch, method, dataset, seed, and the difference in each of `METRICS`.

    A pair of which one run diverged has NaN. InputError for runs that differ in more than the switch.
    """
    variants, rows = one_at_a_time(), []
    references = {name: {_place(run): run for run in runs.get(name, ())} for name in REFERENCES}
    for reference in references.values():
        for run in reference.values():
            check(run, run, CORRECTED)
    for name, own in runs.items():
        for run in own if name not in references else ():
            other = references[variants[name].reference].get(_place(run))
            if other is None:
                continue
            check(run, other, variants[name].protocol)
            row = {"switch": name, **{key: run[key] for key in ("method", "dataset", "seed")}}
            both = run["test"] and other["test"]
            rows.append(row | {m: value(run) - value(other) if both else np.nan for m, (*_, value) in METRICS.items()})
    return pd.DataFrame(rows, columns=["switch", "method", "dataset", "seed", *METRICS])


def check(run: dict, reference: dict, variant: Protocol) -> None:
    """InputError unless `run` follows `variant`, and `reference` the corrected protocol, and nothing else
    differs."""
    options = variant.adapters.get(run["method"], {})
    for one, rules in ((run, variant), (reference, CORRECTED)):
        if config_hash(one["config"]["protocol"]) != config_hash(asdict(rules)):
            raise InputError(f"{_name(one)}: not a run of the protocol {rules.name!r}")
    if any(member["method"][key] != value for member in run["config"]["members"] for key, value in options.items()):
        raise InputError(f"{_name(run)}: its adapter is not that of the protocol {variant.name!r}")
    one, other = (_without(member["config"], options) for member in (run, reference))
    for key in one.keys() | other.keys():
        if config_hash({key: one.get(key)}) != config_hash({key: other.get(key)}):
            raise InputError(f"{_name(run)} and {_name(reference)} differ in more than the switch: in {key}")


def _without(config: dict, options: dict) -> dict:
    """`config` without what a switch may change."""
    config = {key: value for key, value in config.items() if key != "protocol"}
    config["members"] = [
        member | {"method": {key: value for key, value in member["method"].items() if key not in options}}
        for member in config["members"]
    ]
    return config


def summary(pairs: pd.DataFrame, by: Sequence[str] = ("switch",)) -> pd.DataFrame:
    """Mean effect per switch (or switch and method) and metric.

    mean, low, high: of `pairs` data sets and seeds, averaged over methods first, and Student's 95 % interval,
    which doubts both. noise: what the mean of as many runs of the same methods stays within in 95 of 100
    cases if their random numbers alone change, runs being independent (NaN without such runs). comparable:
    see there. beyond: a comparable effect larger than that.
    """
    rows = []
    for key, own in pairs.groupby(list(by), sort=False):
        methods = set(own["method"])
        chance = pairs[(pairs["switch"] == NOISE) & pairs["method"].isin(methods)]
        if set(chance["method"]) != methods:
            chance = chance[:0]
        for metric in METRICS:
            values, noise = per_pair(own, metric), chance[metric].dropna()
            low, high = t_interval(values) if len(values) > 1 else (np.nan, np.nan)
            mean = values.mean() if len(values) else np.nan
            runs = len(values) * len(methods)
            bound = np.nan
            if len(noise) and runs:
                bound = t.ppf(0.975, len(noise)) * np.sqrt((noise**2).mean() / runs)
            row = dict(zip(by, key, strict=True)) | {"metric": metric, "methods": len(methods), "pairs": len(values)}
            row |= {"mean": mean, "low": low, "high": high, "noise": bound}
            fair = comparable(row["switch"], metric)
            beyond = fair and row["switch"] != NOISE and abs(mean) > bound
            rows.append(row | {"comparable": fair, "beyond": bool(beyond)})
    return pd.DataFrame(rows)


def per_pair(part: pd.DataFrame, metric: str) -> np.ndarray:
    """Mean of `differences` over methods, per data set and seed; those with a diverged run are left out."""
    return part.groupby(["dataset", "seed"])[metric].agg(lambda values: values.mean(skipna=False)).dropna().to_numpy()


def comparable(switch: str, metric: str) -> bool:
    """Whether the two runs of a pair measure `metric` alike: not the loss where one takes the softmax
    twice."""
    return metric != "validation_loss" or not one_at_a_time()[switch].protocol.softmax_in_loss


def _place(run: dict) -> tuple:
    return tuple(run[key] for key in ("profile", "backbone", "dataset", "method", "seed"))


def _name(run: dict) -> str:
    return "/".join(str(run[key]) for key in ("experiment", "dataset", "method")) + f"/seed{run['seed']}"
