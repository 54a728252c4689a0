"""μ_q + μ_v of the last layer in and out of distribution, for PVeRA and VeRA (Section 4.4)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.report.readings import load
from pvera.report.statistics import LEVEL, rank_sum
from pvera.report.tables.claims import Claim, held
from pvera.report.tables.layout import Cell, Panel, Row, Table, dataset_title, lettered, p_value, plain

#: What becomes of the vector per token (`latents.adaptation`), as the tables call it.
KINDS = {"mean": "mean value", "norm": "norm"}


@dataclass(frozen=True)
class Values:
    """What `experiments/out_of_distribution.py` found of one adapter: (data set, kind) -> a value per
    image."""

    record: dict
    values: dict[tuple[str, str], np.ndarray]

    @property
    def own(self) -> str:
        """The data set on which it was trained."""
        return self.record["dataset"]

    @property
    def others(self) -> list[str]:
        return [name for name in self.record["config"]["tested"] if name != self.own]


def load_values(root, profile: str) -> list[Values]:
    """As `analyses.load`; PVeRA before VeRA, as in the paper's figure."""
    found = []
    for record, arrays in load(root, profile, "out_of_distribution"):
        tested = record["config"]["tested"]
        found.append(Values(record, {(name, kind): arrays[f"{name}_{kind}"] for name in tested for kind in KINDS}))
    methods, order = ("pvera", "vera"), found[0].record["config"]["tested"] if found else []
    return sorted(
        found, key=lambda run: (methods.index(run.record["method"]), order.index(run.own), run.record["seed"])
    )


def comparisons(runs: Sequence[Values]) -> pd.DataFrame:
    """One row per adapter, other data set and kind: means in and out of distribution, one-sided rank-sum test
    that the values in distribution are lower, Cliff's delta, and AUROC of detection by high values."""
    rows = []
    for run in runs:
        for other in run.others:
            for kind in KINDS:
                own, out = run.values[run.own, kind], run.values[other, kind]
                test = rank_sum(out, own)
                place = {"method": run.record["method"], "model": run.own, "seed": run.record["seed"]}
                rows.append(
                    place
                    | {
                        "tested": other,
                        "kind": kind,
                        "mean_in": own.mean(),
                        "mean_out": out.mean(),
                        "p_value": test.p_value,
                        "cliffs_delta": test.cliffs_delta,
                        "auroc": test.superiority,
                    }
                )
    return pd.DataFrame(rows)


def table(runs: Sequence[Values]) -> Table:
    data = comparisons(runs)
    panels = []
    for method, of_method in data.groupby("method", sort=False):
        for kind, title in KINDS.items():
            rows, before = [], None
            for (model, tested), some in of_method[of_method["kind"] == kind].groupby(["model", "tested"], sort=False):
                low = int((some["p_value"] < LEVEL).sum())
                cells = (
                    plain(some["mean_in"].mean(), 3),
                    plain(some["mean_out"].mean(), 3),
                    plain(some["auroc"].mean(), 3),
                    ", ".join(plain(value, 2) for value in some["auroc"]),
                    ", ".join(p_value(value, 4) for value in some["p_value"]),
                    f"{low} of {len(some)}",
                )
                label = f"{dataset_title(model)}, given {dataset_title(tested)}"
                rows.append(Row(label, tuple(map(Cell, cells)), rule=before not in (None, model)))
                before = model
            header = ("In", "Out", "AUROC", "By seed", "p by seed", "Lower in")
            panels.append(Panel(f"{METHODS[method].title}, {title}", header, tuple(rows)))
    caption = (
        "The query's and the value's latent mean of the last layer added, of test images of the model's own "
        "data set (in) and of another (out). Mean value: over tokens and latent dimensions. Norm: "
        "Euclidean, mean over tokens. AUROC: of telling out-of-distribution images by high values (0.5: "
        "chance). p: one-sided rank-sum test that the values in distribution are lower; in how many seeds "
        f"it is under {LEVEL}. Not corrected for the number of comparisons."
    )
    return Table("out_of_distribution", caption, about(runs), lettered(panels), data)


def claims(runs: Sequence[Values]) -> Table:
    """The claim needs every comparison, so the smallest effect decides."""
    data = comparisons(runs)
    seeds = sorted(data["seed"].unique())
    found = []
    for kind, title in KINDS.items():
        least = data[data["kind"] == kind].groupby(["method", "seed"])["cliffs_delta"].min().unstack()
        mean = data[data["kind"] == kind].groupby(["method", "model", "tested"])["cliffs_delta"].mean()
        overall = mean.groupby("method").min()
        for method, text, sign in (
            ("pvera", "PVeRA's values are lower in distribution, in all comparisons", 1),
            ("vera", "VeRA's are not", -1),
        ):
            if method in overall.index:
                unit = "Cliff's delta, the smallest" + ", with its sign turned" * (sign < 0)
                found.append(
                    Claim(
                        f"{text} ({title})",
                        unit,
                        sign * overall[method],
                        (sign * least.loc[method, seeds]).tolist(),
                        2,
                    )
                )
    return held("out_of_distribution_claims", "What the paper says of telling what lies out of distribution.",
                about(runs), found, seeds)  # fmt: skip


def about(runs: Sequence[Values]) -> str:
    record = runs[0].record
    seeds = sorted({run.record["seed"] for run in runs})
    tested = ", ".join(dataset_title(name) for name in record["config"]["tested"])
    return (
        f"Profile {record['profile']}, {record['protocol']} protocol, backbone {record['backbone']}, seeds "
        f"{', '.join(map(str, seeds))}; the first data set of each category: {tested}."
    )
