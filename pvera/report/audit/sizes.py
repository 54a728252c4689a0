"""Trained parameters and operations, recomputed from this package's models and closed forms."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from pvera import backbones, cost
from pvera.adapters import METHODS, PVeRA, VeRA
from pvera.report.audit.core import CONTRADICTS, FOLLOWS, HALF, Finding, exact, near
from pvera.report.published import Published


def adapter_sizes(paper: Published) -> pd.DataFrame:
    """Return the mean number of trained parameters of each method on ViT-B, weighted by the grid's shares.

    times: the same as a multiple of PVeRA's.
    """
    vit, rows = backbones.shapes("dinov2_b"), {}
    for key, members in paper.configurations().items():
        methods, percents = zip(*members, strict=True)
        rows[key] = np.average([cost.trained_parameters(vit, method) for method in methods], weights=percents)
    table = pd.DataFrame({"parameters": pd.Series(rows)})
    return table.assign(times=table["parameters"] / table.at["pvera", "parameters"])


def check_sizes(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the trained parameters in the ablation tables and the text, counted on ViT-B."""
    vit = backbones.shapes("dinov2_b")
    for row in paper.rank.itertuples():
        counted = cost.trained_parameters(vit, PVeRA(rank=row.rank))
        yield exact("parameters", f"Table 2, r = {row.rank}", row.parameters, counted)
    for row in paper.position.itertuples():
        counted = cost.trained_parameters(vit, PVeRA(targets=row.targets))
        yield exact("parameters", f"Table 3, {row.targets.upper()}", row.parameters, counted)
    times = adapter_sizes(paper)["times"].drop(["pvera", "linear"])
    larger = times[np.log10(times) >= 1.5]
    yield Finding(
        "parameters", "text, PVeRA against most other adapters", paper.quote("size"),
        "times PVeRA's: " + ", ".join(f"{METHODS[m].title} {x:.1f}" for m, x in times.items()),
        FOLLOWS if len(larger) > len(times) / 2 else CONTRADICTS,
        "averages over the grid by its shares; counted as two orders from 10^1.5",
    )  # fmt: skip


def check_costs(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the percentages of operations that PVeRA and VeRA add to ViT-B/14, from closed forms."""
    shape = cost.Shape.of(backbones.shapes("dinov2_b"))
    base = cost.backbone_multiply_adds(shape)
    for method, note in (
        (PVeRA(), "with σ; the mean alone, which inference takes, costs what VeRA costs"),
        (VeRA(), ""),
    ):
        printed = float(paper.quote(f"flops_{method.key}"))
        percent = 100 * cost.adapter_multiply_adds(method, shape, sampled=True) / base
        yield Finding(
            "operations", f"text, {method.title} on ViT-B/14", f"{printed} %",
            f"{percent:.2f} % of {base / cost.GIGA:.2f} G multiply-adds", near(printed, percent, HALF, 0),
            note,
        )  # fmt: skip
