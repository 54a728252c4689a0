"""Computational efficiency (Section 4.5, Figure 3): counted costs, and accuracy against cost."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from pvera.adapters import METHODS, Method
from pvera.errors import InputError
from pvera.report.published import Published
from pvera.report.scores import by_backbone, wide
from pvera.report.tables.benchmark import accuracies
from pvera.study.cost_records import MEASURES, SIZES, load_costs, method_of
from pvera.study.results import load_runs


def of_paper(costs: pd.DataFrame, paper: Published, backbone: str = "dinov2_b") -> pd.DataFrame:
    """Return the paper's average accuracies (%) and our counts: one row per method, columns accuracy and `MEASURES`.

    merged is NaN for methods that cannot be merged. Where the paper searched a grid, costs are means weighted by the
    shares of its choices, as in Figure 3.
    """
    accuracy = paper.accuracies(backbone).mean(axis=1)
    return _points(_of(costs, SIZES, backbone), accuracy, paper.configurations())


def of_runs(costs: pd.DataFrame, runs: Iterable[dict]) -> pd.DataFrame:
    """Return the table of `of_paper` for runs on one backbone: means over the members that they chose.

    Methods without a run are left out.
    """
    runs = list(runs)
    accuracy = accuracies(wide(runs))["average"]
    chosen: dict[str, list[tuple[Method, float]]] = {}
    for run in runs:
        if run["chosen"]:
            hyperparameters = run["config"]["members"][run["chosen"]["member"]]["method"]
            entry = {"method": run["method"], "hyperparameters": hyperparameters}
            chosen.setdefault(run["method"], []).append((method_of(entry), 1.0))
    return _points(_of(costs, runs[0]["profile"], runs[0]["backbone"]), accuracy, chosen)


def of_profile(root, profile: str, paper: Published) -> dict[str, tuple[list[dict], tuple]]:
    """Return the counts behind the claims, per backbone: those of the paper's ViT-B/14, marked so, and of the runs."""
    costs = load_costs(root, *dict.fromkeys([profile, SIZES]))
    found = {"dinov2_b": ([], (of_paper(costs, paper), True))}
    for backbone, runs in by_backbone(load_runs(root, profile, optional=True)).items():
        try:
            found.setdefault(backbone, ([], (of_runs(costs, runs), False)))
        except InputError:
            found.setdefault(backbone, ([], (None, False)))
    return found


def _of(costs: pd.DataFrame, profile: str, backbone: str) -> pd.DataFrame:
    return costs[(costs["profile"] == profile) & (costs["backbone"] == backbone)]


def _points(costs: pd.DataFrame, accuracy: pd.Series, chosen: dict) -> pd.DataFrame:
    if costs.empty:
        raise InputError("no cost is counted for this profile and backbone; run experiments/cost.py")
    by_method = costs.set_index("configuration")
    rows = {}
    for key in METHODS:
        if key not in chosen:
            continue
        methods, weights = zip(*chosen[key], strict=True)
        if unknown := [method for method in methods if method not in by_method.index]:
            raise InputError(f"{unknown[0]} has no counted cost: it is in none of the profile's grids")
        counts = by_method.loc[list(methods)]
        means = {name: np.average(counts[name].astype(float), weights=weights) for name in MEASURES}
        rows[key] = {"accuracy": accuracy[key], **means}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
