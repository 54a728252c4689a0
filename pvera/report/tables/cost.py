"""Cost of the adapters, accuracy against it, and the paper's claims about efficiency (Section 4.3, Figure 3)."""

import json
from collections.abc import Iterable
from functools import partial

import numpy as np
import pandas as pd

from pvera.adapters import METHODS, Method
from pvera.cost import GIGA
from pvera.errors import InputError
from pvera.report.published import Published
from pvera.report.scores import score_frame
from pvera.report.table import Table, plain, thousands, title
from pvera.report.tables.benchmark import accuracies
from pvera.study.cost_records import MEASURES, SIZES, method_of


def cost_table(costs: pd.DataFrame) -> Table:
    """Build the table of every configuration of every grid, a panel per profile and backbone.

    costs: `cost_records.load_costs`.
    """
    panels = {}
    for (profile, backbone), part in costs.groupby(["profile", "backbone"], sort=False):
        first = part.iloc[0]
        operations = _operations("backbone_multiply_adds", first)
        parameters = f"{thousands(first['backbone_parameters'])} parameters"
        heading = f"{title(backbone)}, grids of {profile}: {parameters}, {operations} GMAC"
        labels = [", ".join([title(row["method"]), *(f"{name} {value}" for name, value in row["grid"].items())])
                  for _, row in part.iterrows()]  # fmt: skip
        share = 100 * part["adapter_parameters"] / part["backbone_parameters"]
        added = {
            f"{name}_added": _added(part[name], part["backbone_multiply_adds"]) for name in PASSES
        }
        panels[heading] = part.assign(share=share, **added).set_axis(labels)
    caption = (
        "Parameters and multiply-adds of one image, without the head, which all methods share. Trained: trained "
        "numbers. Frozen: numbers that stay random. GMAC: 10⁹ multiply-adds of matrix products of the "
        "pass with the mean, of a pass that samples z, and of the merged model. + %: increase over the backbone."
    )
    spec = {
        "adapter_parameters": ("Trained", lambda row: thousands(row.adapter_parameters)),
        "share": ("% of backbone", 3),
        "frozen_parameters": ("Frozen", lambda row: thousands(row.frozen_parameters)),
    }
    for name, heading in PASSES.items():
        spec[name] = (heading, partial(_operations, name))
        spec[f"{name}_added"] = ("+ %", 1)
    data = costs.assign(
        configuration=costs["configuration"].map(str), grid=costs["grid"].map(json.dumps)
    )
    return Table("cost", caption, panels, spec, data, "DoRA follows the protocol of each profile.")


PASSES = {"inference": "GMAC", "sampled": "GMAC, sampled", "merged": "GMAC, merged"}


def _operations(name: str, row: pd.Series) -> str:
    """Return a count in GMAC, with the decimals that show four digits of the backbone's."""
    return plain(
        row[name] / GIGA, max(0, 3 - int(np.floor(np.log10(row["backbone_multiply_adds"] / GIGA))))
    )


def _added(total, backbone):
    """Return the increase over the backbone in percent."""
    return 100 * (total / backbone - 1)


def of_paper(costs: pd.DataFrame, paper: Published) -> pd.DataFrame:
    """Return the paper's averages (%) on ViT-B/14 and our counts: one row per method, columns accuracy and `MEASURES`.

    merged is NaN for methods that cannot be merged. Where the paper searched a grid, costs are means weighted by the
    shares of its choices, as in Figure 3.
    """
    accuracy = paper.accuracies("dinov2_b").mean(axis=1)
    return _points(costs, SIZES, "dinov2_b", accuracy, paper.configurations())


def of_runs(costs: pd.DataFrame, runs: Iterable[dict]) -> pd.DataFrame:
    """Return the table of `of_paper` for runs on one backbone: means over the members that they chose.

    Methods without a run are left out.
    """
    runs = list(runs)
    accuracy = accuracies(score_frame(runs))["average"]
    chosen: dict[str, list[tuple[Method, float]]] = {}
    for run in runs:
        if run["chosen"]:
            member = run["config"]["members"][run["chosen"]["member"]]
            method = method_of({"method": run["method"], "hyperparameters": member["method"]})
            chosen.setdefault(run["method"], []).append((method, 1.0))
    return _points(costs, runs[0]["profile"], runs[0]["backbone"], accuracy, chosen)


def _points(
    costs: pd.DataFrame, profile: str, backbone: str, accuracy: pd.Series, chosen: dict
) -> pd.DataFrame:
    costs = costs[(costs["profile"] == profile) & (costs["backbone"] == backbone)]
    if costs.empty:
        raise InputError(
            "no cost is counted for this profile and backbone; run experiments/cost.py"
        )
    by_method, rows = costs.set_index("configuration"), {}
    for key in (key for key in METHODS if key in chosen):
        methods, weights = zip(*chosen[key], strict=True)
        if unknown := [method for method in methods if method not in by_method.index]:
            raise InputError(
                f"{unknown[0]} has no counted cost: it is in none of the profile's grids"
            )
        counts = by_method.loc[list(methods), list(MEASURES)].astype(float)
        rows[key] = {"accuracy": accuracy[key]} | dict(
            zip(MEASURES, np.average(counts, 0, weights), strict=True)
        )
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
