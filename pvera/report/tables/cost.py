"""Cost of the adapters, and the paper's claims about computational efficiency (Section 4.3)."""

import json
from collections.abc import Callable

import numpy as np
import pandas as pd

from pvera.adapters import METHODS, PAPER_METHODS
from pvera.cost import GIGA
from pvera.report.audit import FOLLOWS, HALF, near
from pvera.report.published import Published
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, lettered, thousands
from pvera.report.tables.names import backbone_title
from pvera.report.tables.verdicts import FAILS, HOLDS, UNTESTABLE, Claim


def cost_table(costs: pd.DataFrame) -> Table:
    """Build the table of every configuration of every grid, a panel per profile and backbone.

    costs: `cost_records.load`.
    """
    panels = []
    for (profile, backbone), part in costs.groupby(["profile", "backbone"], sort=False):
        first = part.iloc[0]
        title = (
            f"{backbone_title(backbone)}, grids of {profile}: "
            f"{thousands(first['backbone_parameters'])} parameters, "
            f"{_gmac(*[first['backbone_multiply_adds']] * 2)} GMAC"
        )
        panels.append(Panel(title, HEADER, tuple(map(_row, part.itertuples()))))
    caption = (
        "Parameters and multiply-adds of one image, without the head, which all methods share. Trained: trained "
        "numbers. Frozen: numbers that stay random. GMAC: 10⁹ multiply-adds of matrix products, counted by fvcore, of "
        "the pass with the mean, of a pass that samples z, and of the merged model. + %: increase over the backbone."
    )
    about = "DoRA follows the protocol of each profile."
    data = costs.assign(configuration=costs["configuration"].map(str), grid=costs["grid"].map(json.dumps))
    return Table("cost", caption, about, lettered(panels), data)


HEADER = (
    "Trained", "% of backbone", "Frozen", "GMAC", "+ %", "GMAC, sampled", "+ %", "GMAC, merged", "+ %"
)  # fmt: skip


def _row(configuration) -> Row:
    cells = [
        thousands(configuration.adapter_parameters),
        f"{100 * configuration.adapter_parameters / configuration.backbone_parameters:.3f}",
        thousands(configuration.frozen_parameters) if configuration.frozen_parameters else NOTHING,
    ]
    for total in (configuration.inference, configuration.sampled, configuration.merged):
        if np.isnan(total):
            cells += [NOTHING, NOTHING]
        else:
            cells += [
                _gmac(total, configuration.backbone_multiply_adds),
                f"{_added(total, configuration.backbone_multiply_adds):.1f}",
            ]
    label = ", ".join(
        [METHODS[configuration.method].title, *(f"{name} {value}" for name, value in configuration.grid.items())]
    )
    return Row(label, tuple(map(Cell, cells)))


REAL = "ViT-B/14, counted"


def cost_claims(paper: Published, points: pd.DataFrame | None, real: bool, scale: str = "") -> list[Claim]:
    """Judge the claims of Section 4.3 on counts (`efficiency.of_paper`, `efficiency.of_runs`), which have no spread.

    real: whether they are those of the paper's ViT-B/14, which its printed percentages are about. points: None
    without counts.
    """
    claims = []
    for text, quote, measure in CLAIMS:
        value, reading, holds = _measured(points, measure)
        number = _printed(paper, quote)
        text += "" if number is None else f": {number:g} %"
        if not reading:
            claims.append(Claim(text, UNTESTABLE, "no runs of every method, or no counts", scale=scale))
            continue
        if number is not None:
            holds = near(number, value, HALF, 0) == FOLLOWS if real else None
        verdict = {None: UNTESTABLE, True: HOLDS, False: FAILS}[holds]
        reason = f"{reading}; the printed percentage is one of ViT-B/14" if holds is None else reading
        claims.append(Claim(text, verdict, reason, scale=scale))
    return claims


def cost_verdicts(paper: Published, counted: pd.DataFrame, here: dict[str, pd.DataFrame]) -> Table:
    """Build the verdicts on the claims of Section 4.3.

    Columns: the paper's number, our counts on its ViT-B/14 with its grid choices (`efficiency.of_paper`), and those of
    the runs on each backbone (`efficiency.of_runs`).
    """
    columns = {REAL: counted} | {f"{backbone_title(backbone)}, here": points for backbone, points in here.items()}
    judged = {column: cost_claims(paper, points, column == REAL) for column, points in columns.items()}
    rows, data = [], []
    for i, (text, quote, measure) in enumerate(CLAIMS):
        number = _printed(paper, quote)
        printed = paper.quote(quote) if quote else ""
        cells = [NOTHING if not printed else printed if number is None else f"{printed} %"]
        for column, claims in judged.items():
            claim = claims[i]
            cells += [claim.reading, claim.verdict]
            row = {"claim": text, "where": column, "printed": printed, "value": _measured(columns[column], measure)[0]}
            data.append(row | {"text": claim.reading, "verdict": claim.verdict})
        rows.append(Row(text, tuple(map(Cell, cells))))
    header = ["Paper"]
    for column in columns:
        header += [column, "Verdict"]
    caption = (
        "The paper's claims about computational efficiency (Section 4.3), against our exact counts. A method with "
        "a grid has the mean over its choices. Adds: multiply-adds, in % of the backbone's. A pass that samples, "
        "as in training, computes the variance too. Orders of magnitude: most of the other adapters have at least 32 "
        "times PVeRA's numbers, halfway between ten and a hundred on a logarithmic scale."
    )
    about = f"{REAL}: the grid shares are the paper's."
    return Table("cost_claims", caption, about, (Panel("", tuple(header), tuple(rows)),), pd.DataFrame(data))


def _printed(paper: Published, quote: str | None) -> float | None:
    """Return the percentage that the paper prints for a claim; None for a word, or without a quote."""
    printed = paper.quote(quote) if quote else ""
    return float(printed) if printed.replace(".", "", 1).isdigit() else None


Measured = tuple[float, str, bool | None]  # the number, its text, whether the claim holds (None: see its number)


def _measured(points: pd.DataFrame | None, measure: Callable[[pd.DataFrame], Measured]) -> Measured:
    """Measure the paper's methods; NaN and an empty text where one lacks its counts."""
    if points is None or not set(PAPER_METHODS) <= set(points.index):
        return np.nan, "", None
    return measure(points.loc[list(PAPER_METHODS)])


def _few_numbers(points: pd.DataFrame) -> Measured:
    sizes = points["adapter_parameters"]
    times = sizes["pvera"] / sizes["vera"]
    return times, f"{times:.2f}", bool(sizes.drop(["pvera", "vera", "linear"]).min() > sizes["pvera"])


def _orders_of_magnitude(points: pd.DataFrame) -> Measured:
    sizes = points["adapter_parameters"]
    times = sizes.drop(["pvera", "linear"]) / sizes["pvera"]
    text = ", ".join(f"{METHODS[key].title} {value:.1f}" for key, value in times.items())
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
    text = ", ".join(f"{METHODS[key].title} {value:.2f} %" for key, value in added.items())
    return added.max(), text, bool(modules["merged"].isna().all() and (added > 0).all())


#: Claim, the quote with its printed number or word (`Published.quote`), and its measure.
CLAIMS: tuple[tuple[str, str | None, Callable[[pd.DataFrame], Measured]], ...] = (
    ("PVeRA trains fewer numbers than every other adapter but VeRA (effect: times VeRA's)", None, _few_numbers),
    ("PVeRA is orders of magnitude smaller than most (effect: times PVeRA's)", "size", _orders_of_magnitude),
    ("Operations that PVeRA adds, with z drawn as in training", "flops_pvera", _more("pvera", "training")),
    ("Operations that VeRA adds", "flops_vera", _more("vera", "inference")),
    ("Merged, LoRA, VeRA and PVeRA add nothing", None, _merged),
    ("Bottleneck and AdaptFormer keep what they add", None, _not_merged),
)


def _added(total, backbone):
    """Return the increase over the backbone in percent."""
    return 100 * (total / backbone - 1)


def _gmac(number: float, backbone: float) -> str:
    """Format with the decimals that show four digits of the backbone's count."""
    return f"{number / GIGA:.{max(0, 3 - int(np.floor(np.log10(backbone / GIGA))))}f}"
