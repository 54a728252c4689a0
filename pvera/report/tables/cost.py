"""Cost of the adapters, and the paper's claims about computational efficiency (Section 4.3)."""

import json
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from pvera.adapters import PAPER_METHODS
from pvera.cost import GIGA
from pvera.report.audit import FOLLOWS, HALF, near
from pvera.report.table import NOTHING, Table, crossed, plain, thousands, title
from pvera.report.tables.names import backbone_title
from pvera.report.tables.verdicts import FAILS, HOLDS, UNTESTABLE, Count, Untestable


def cost_table(costs: pd.DataFrame) -> Table:
    """Build the table of every configuration of every grid, a panel per profile and backbone.

    costs: `cost_records.load_costs`.
    """
    panels = {}
    for (profile, backbone), part in costs.groupby(["profile", "backbone"], sort=False):
        first = part.iloc[0]
        operations = _operations("backbone_multiply_adds", first)
        parameters = f"{thousands(first['backbone_parameters'])} parameters"
        heading = f"{backbone_title(backbone)}, grids of {profile}: {parameters}, {operations} GMAC"
        labels = [", ".join([title(row["method"]), *(f"{name} {value}" for name, value in row["grid"].items())])
                  for _, row in part.iterrows()]  # fmt: skip
        share = 100 * part["adapter_parameters"] / part["backbone_parameters"]
        added = {f"{name}_added": _added(part[name], part["backbone_multiply_adds"]) for name in PASSES}
        panels[heading] = part.assign(share=share, **added).set_axis(labels)
    caption = (
        "Parameters and multiply-adds of one image, without the head, which all methods share. Trained: trained "
        "numbers. Frozen: numbers that stay random. GMAC: 10⁹ multiply-adds of matrix products, counted by fvcore, of "
        "the pass with the mean, of a pass that samples z, and of the merged model. + %: increase over the backbone."
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


REAL = "ViT-B/14, counted"


def cost_verdicts(counted_on_vit_b: pd.DataFrame, here: dict[str, pd.DataFrame]) -> Table:
    """Build the verdicts on the claims of Section 4.3.

    Columns: the paper's number, our counts on its ViT-B/14 with its grid choices (`efficiency.of_paper`), and those of
    the runs on each backbone (`efficiency.of_runs`).
    """
    columns = {REAL: counted_on_vit_b}
    columns |= {f"{backbone_title(backbone)}, here": points for backbone, points in here.items()}
    rows = []
    for text, (printed, _) in CLAIMS.items():
        for where, points in columns.items():
            try:
                counted = count(text, (points, where == REAL))
            except Untestable as missing:
                counted = Count(np.nan, str(missing), UNTESTABLE)
            claim = text.removesuffix(f": {printed} %")
            rows.append((claim, where, printed, counted.value, counted.reading, counted.verdict))
    data = pd.DataFrame(rows, columns=["claim", "where", "printed", "value", "text", "verdict"])
    panel = crossed(data, "claim", "where", lambda row: f"{row['text']}: {row['verdict']}")
    panel.insert(0, "Paper", data.groupby("claim")["printed"].first().replace("", NOTHING))
    caption = (
        "The paper's claims about computational efficiency (Section 4.3), against our exact counts. A method with "
        "a grid has the mean over its choices. Adds: multiply-adds, in % of the backbone's. A pass that samples, "
        "as in training, computes the variance too. Orders of magnitude: most of the other adapters have at least 32 "
        "times PVeRA's numbers, halfway between ten and a hundred on a logarithmic scale."
    )
    about = f"{REAL}: the grid shares are the paper's."
    return Table("cost_claims", caption, {"": panel}, data=data, about=about)


def count(text: str, counts: tuple[pd.DataFrame | None, bool]) -> Count:
    """Judge a claim of `CLAIMS` on counts, which have no spread.

    counts: `efficiency.of_paper` or `of_runs`, None without counts; and whether they are those of the paper's ViT-B/14,
    which its printed percentages are about. `Untestable` where a method of the paper lacks its counts.
    """
    points, real = counts
    printed, measure = CLAIMS[text]
    if points is None or not set(PAPER_METHODS) <= set(points.index):
        raise Untestable("no runs of every method, or no counts")
    value, reading, holds = measure(points.loc[list(PAPER_METHODS)])
    if holds is None and not real:
        return Count(value, f"{reading}; the printed percentage is one of ViT-B/14", UNTESTABLE)
    if holds is None:
        holds = near(float(printed), value, HALF, 0) == FOLLOWS
    return Count(value, reading, HOLDS if holds else FAILS)


Measured = tuple[float, str, bool | None]  # the number, its text, whether the claim holds (None: see its number)


def _few_numbers(points: pd.DataFrame) -> Measured:
    sizes = points["adapter_parameters"]
    times = sizes["pvera"] / sizes["vera"]
    return times, f"{times:.2f}", bool(sizes.drop(["pvera", "vera", "linear"]).min() > sizes["pvera"])


def _orders_of_magnitude(points: pd.DataFrame) -> Measured:
    sizes = points["adapter_parameters"]
    times = sizes.drop(["pvera", "linear"]) / sizes["pvera"]
    text = ", ".join(f"{title(key)} {value:.1f}" for key, value in times.items())
    return times.median(), text, bool((np.log10(times) >= 1.5).mean() > 0.5)


def _more(method: str, column: str) -> Callable[[pd.DataFrame], Measured]:
    def percent(points: pd.DataFrame) -> Measured:
        value = _added(points.at[method, column], points.at[method, "backbone_multiply_adds"])
        return value, f"{value:.2f} %", None

    return percent


def _merged(points: pd.DataFrame) -> Measured:
    mergeable = points.loc[["lora", "vera", "pvera"]]
    value = _added(mergeable["merged"], mergeable["backbone_multiply_adds"]).abs().max()
    return value, f"{value:.2f} %", bool(value == 0)


def _not_merged(points: pd.DataFrame) -> Measured:
    modules = points.loc[["bottleneck", "adaptformer"]]
    added = _added(modules["training"], modules["backbone_multiply_adds"])
    text = ", ".join(f"{title(key)} {value:.2f} %" for key, value in added.items())
    return added.max(), text, bool(modules["merged"].isna().all() and (added > 0).all())


#: Claim -> the number or word that the paper prints, and its measure.
CLAIMS: dict[str, tuple[str, Callable[[pd.DataFrame], Measured]]] = {
    "PVeRA trains fewer numbers than every other adapter but VeRA (effect: times VeRA's)": ("", _few_numbers),
    "PVeRA is orders of magnitude smaller than most (effect: times PVeRA's)": (
        "orders of magnitude smaller", _orders_of_magnitude,
    ),
    "Operations that PVeRA adds, with z drawn as in training: 15.7 %": ("15.7", _more("pvera", "training")),
    "Operations that VeRA adds: 10.5 %": ("10.5", _more("vera", "inference")),
    "Merged, LoRA, VeRA and PVeRA add nothing": ("", _merged),
    "Bottleneck and AdaptFormer keep what they add": ("", _not_merged),
}  # fmt: skip


def _added(total, backbone):
    """Return the increase over the backbone in percent."""
    return 100 * (total / backbone - 1)
