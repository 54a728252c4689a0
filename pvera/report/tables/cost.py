"""Cost of the adapters, accuracy against it, and the paper's claims about efficiency (Section 4.3, Figure 3)."""

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from pvera.adapters import METHODS, PAPER_METHODS, Method
from pvera.cost import GIGA
from pvera.errors import InputError
from pvera.report.published import Published, load
from pvera.report.scores import by_backbone, score_frame
from pvera.report.table import Table, listed, plain, thousands, title
from pvera.report.tables.benchmark import accuracies
from pvera.report.tables.verdicts import FAILS, HOLDS, UNTESTABLE, Answer, Untestable
from pvera.study.cost_records import MEASURES, SIZES, load_costs, method_of
from pvera.study.results import load_runs


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
        added = {f"{name}_added": _added(part[name], part["backbone_multiply_adds"]) for name in PASSES}
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
    data = costs.assign(configuration=costs["configuration"].map(str), grid=costs["grid"].map(json.dumps))
    return Table("cost", caption, panels, spec, data, "DoRA follows the protocol of each profile.")


PASSES = {"inference": "GMAC", "sampled": "GMAC, sampled", "merged": "GMAC, merged"}


def _operations(name: str, row: pd.Series) -> str:
    """Return a count in GMAC, with the decimals that show four digits of the backbone's."""
    return plain(row[name] / GIGA, max(0, 3 - int(np.floor(np.log10(row["backbone_multiply_adds"] / GIGA)))))


#: Claims of Section 4.3, with the percentages that the paper prints.
CLAIMS = (
    "PVeRA has fewer trainable parameters than every other adapter but VeRA",
    "PVeRA is orders of magnitude smaller than most adapters",
    "Operations that PVeRA adds, with z drawn as in training: 15.7 %",
    "Operations that VeRA adds: 10.5 %",
    "Merged, LoRA, VeRA and PVeRA add nothing",
    "Bottleneck and AdaptFormer keep what they add",
)


def count(text: str, counts: tuple[pd.DataFrame | None, bool]) -> Answer:
    """Judge one of `CLAIMS` on counts, which have no spread.

    counts: `of_paper` or `of_runs`, None without counts, and whether they are those of the paper's ViT-B/14, which its
    printed percentages are about. `Untestable` where a method of the paper lacks its counts.
    """
    points, real = counts
    if points is None or not set(PAPER_METHODS) <= set(points.index):
        raise Untestable("no runs of every method, or no counts")
    points = points.loc[list(PAPER_METHODS)]
    sizes, backbone = points["adapter_parameters"], points["backbone_multiply_adds"]
    times = sizes.drop(["pvera", "linear"]) / sizes["pvera"]
    training, inference, merged = (_added(points[name], backbone) for name in ("training", "inference", "merged"))
    kept, left = training[["bottleneck", "adaptformer"]], merged[["lora", "vera", "pvera"]].abs().max()
    outcomes = [
        (f"{sizes['pvera'] / sizes['vera']:.2f} times VeRA's", times.drop("vera").min() > 1),
        (f"times PVeRA's: {listed(times, '{:.1f}')}", (np.log10(times) >= 1.5).mean() > 0.5),
        (f"{training['pvera']:.2f} %", round(training["pvera"], 1) == 15.7),
        (f"{inference['vera']:.2f} %", round(inference["vera"], 1) == 10.5),
        (f"{left:.2f} %", left == 0),
        (listed(kept, "{:.2f} %"), merged[kept.index].isna().all() and (kept > 0).all()),
    ]
    reading, holds = outcomes[CLAIMS.index(text)]
    if text.endswith("%") and not real:
        return Answer(f"{reading}; the printed percentage is one of ViT-B/14", UNTESTABLE)
    return Answer(reading, HOLDS if holds else FAILS)


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


def of_profile(root, profile: str) -> dict[str, tuple[list[dict], tuple]]:
    """Return the counts behind the claims, per backbone: those of the paper's ViT-B/14, marked so, and of the runs."""
    costs, paper = load_costs(root, *dict.fromkeys([profile, SIZES])), load(Path(root) / "published")
    counts: dict[str, tuple[list[dict], tuple]] = {"dinov2_b": ([], (of_paper(costs, paper), True))}
    for backbone, runs in by_backbone(load_runs(root, profile)).items():
        try:
            points = of_runs(costs, runs)
        except InputError:
            points = None
        counts.setdefault(backbone, ([], (points, False)))
    return counts


def _points(costs: pd.DataFrame, profile: str, backbone: str, accuracy: pd.Series, chosen: dict) -> pd.DataFrame:
    costs = costs[(costs["profile"] == profile) & (costs["backbone"] == backbone)]
    if costs.empty:
        raise InputError("no cost is counted for this profile and backbone; run experiments/cost.py")
    by_method, rows = costs.set_index("configuration"), {}
    for key in (key for key in METHODS if key in chosen):
        methods, weights = zip(*chosen[key], strict=True)
        if unknown := [method for method in methods if method not in by_method.index]:
            raise InputError(f"{unknown[0]} has no counted cost: it is in none of the profile's grids")
        counts = by_method.loc[list(methods), list(MEASURES)].astype(float)
        rows[key] = {"accuracy": accuracy[key]} | dict(zip(MEASURES, np.average(counts, 0, weights), strict=True))
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
