"""μ_q + μ_v of the last layer, in and out of distribution, for PVeRA and VeRA (Section 4.4)."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.report.analyses import load_analyses
from pvera.report.statistics import LEVEL, rank_sum
from pvera.report.table import Table, origin, plain, title
from pvera.report.tables.verdicts import PairedDifferences, Untestable, contrast
from pvera.study.analyses import from_steps

#: Value per image (`latents.adaptation`) -> its name in tables.
KINDS = {"mean": "mean value", "norm": "norm"}
Analysed = tuple[dict, dict[str, np.ndarray]]  # record and arrays of one adapter


def load_values(root, profile: str, experiment: str = "out_of_distribution") -> list[Analysed]:
    """Load the analyses like `analyses.load_analyses`, with PVeRA first, as in the paper's figure.

    Arrays: "<data set>_<kind>", the values of one of `KINDS` for its images, (images,).
    """
    runs = load_analyses(root, profile, experiment)
    runs.sort(
        key=lambda run: (
            run[0]["method"] != "pvera",
            run[0]["config"]["tested"].index(run[0]["dataset"]),
        )
    )
    return [
        (run, {name.removesuffix("_steps"): from_steps(steps) for name, steps in arrays.items()})
        for run, arrays in runs
    ]


def comparisons(runs: Sequence[Analysed]) -> pd.DataFrame:
    """Compare the values in and out of distribution: one row per adapter, other data set and kind.

    mean_in, mean_out; p_value: one-sided rank-sum test that the values in distribution are lower; cliffs_delta; auroc:
    of detection by high values.
    """
    rows = []
    for record, arrays in runs:
        home, adapter = record["dataset"], [record[name] for name in ("method", "dataset", "seed")]
        others = (name for name in record["config"]["tested"] if name != home)
        for other, kind in product(others, KINDS):
            inside, outside = (arrays[f"{name}_{kind}"] for name in (home, other))
            test = rank_sum(outside, inside)
            numbers = (
                inside.mean(),
                outside.mean(),
                test.p_value,
                test.cliffs_delta,
                test.superiority,
            )
            rows.append((*adapter, other, kind, *numbers))
    columns = [
        "method",
        "model",
        "seed",
        "tested",
        "kind",
        "mean_in",
        "mean_out",
        "p_value",
        "cliffs_delta",
        "auroc",
    ]
    return pd.DataFrame(rows, columns=columns)


SPEC = {
    "mean_in": ("In", 3),
    "mean_out": ("Out", 3),
    "auroc": ("AUROC", 3),
    "by_seed": ("By seed", lambda row: ", ".join(plain(value, 2) for value in row["by_seed"])),
    "lower": ("Lower in", lambda row: f"{row['lower']} of {row['comparisons']}"),
}


def out_of_distribution_table(runs: Sequence[Analysed]) -> Table:
    """Build the table of `comparisons`, a panel per method and kind."""
    data, panels = comparisons(runs), {}
    for (method, kind), part in data.groupby(["method", "kind"], sort=False):
        of_models = part.assign(lower=part["p_value"] < LEVEL).groupby("model", sort=False)
        panel = of_models[["mean_in", "mean_out", "auroc"]].mean()
        of_seeds = part.groupby(["model", "seed"], sort=False)["auroc"].mean()
        panel["by_seed"] = of_seeds.groupby(level="model", sort=False).agg(list)
        panel["lower"], panel["comparisons"] = of_models["lower"].sum(), of_models.size()
        panels[f"{title(method)}, {KINDS[kind]}"] = panel.rename(title)
    caption = (
        "Sum of the query's and the value's latent mean in the last layer, for test images of the data set that a "
        "model was trained on (in), and of the others (out; mean over them). Mean value: over tokens and latent "
        "dimensions. Norm: Euclidean, mean over tokens. AUROC: for detecting out-of-distribution images by high values "
        "(0.5: chance). Lower in: comparisons, of all seeds and other data sets, in which the values in distribution "
        f"are lower by a one-sided rank-sum test (p < {LEVEL}, uncorrected)."
    )
    return Table("out_of_distribution", caption, panels, SPEC, data, describe_runs(runs))


@contrast
def separation(data: pd.DataFrame, kind: str, over: str = "") -> PairedDifferences:
    """Return PVeRA's AUROC above that of `over` or ½, mean over the other data sets, by model and seed.

    data: `comparisons`.

    The paper finds PVeRA's values significantly lower and VeRA's not, which does not show that the two differ (Gelman
    and Stern 2006); their difference is judged instead.
    """
    data = data[data["kind"] == kind].groupby(["method", "model", "seed"])["auroc"].mean()
    for name in filter(None, ("pvera", over)):
        if name not in data.index.unique("method"):
            raise Untestable(f"no runs of {METHODS[name].title}")
    return {"": data.loc["pvera"] - (data.loc[over] if over else 0.5)}


def describe_runs(runs: Sequence[Analysed]) -> str:
    """Describe the adapters for a caption."""
    return f"{origin(runs, runs[0][0]['config']['tested'])}."
