"""μ_q + μ_v of the last layer, in and out of distribution, for PVeRA and VeRA (Section 4.4)."""

from pathlib import Path

import pandas as pd

from pvera.report.analysis_results import Analyses, AnalysisResult, load_analyses
from pvera.report.captions import caption_source
from pvera.report.statistics import LEVEL, rank_sum
from pvera.report.table import Column, Table
from pvera.report.text import decimal, title
from pvera.study.analyses import from_steps

#: Value per image (`latents.adaptation`) -> its name in tables.
MEAN_AND_NORM = {"mean": "mean value", "norm": "norm"}
#: The column of a detector at chance.
CHANCE = "chance"


def load_values(root: Path, profile: str, experiment: str) -> Analyses:
    """Load the analyses, with PVeRA first, as in the paper's figure.

    Returns:
        Records with arrays "<data set>_<kind>": a value per image, (images,).
    """
    loaded = []
    for record, arrays in load_analyses(root, profile, experiment):
        values = {name.removesuffix("_steps"): from_steps(steps) for name, steps in arrays.items()}
        loaded.append((record, values))

    def order(analysis: AnalysisResult) -> tuple[bool, int]:
        record, _ = analysis
        return record["method"] != "pvera", record["config"]["tested"].index(record["dataset"])

    return sorted(loaded, key=order)


def compare_in_and_out(analyses: Analyses) -> pd.DataFrame:
    """Compare the values in and out of distribution.

    Returns:
        One row per adapter, other data set (tested) and kind. mean_in, mean_out: mean values.
        p_value: of the one-sided rank-sum test that the values in distribution are lower.
        cliffs_delta: its effect size. auroc: of detection by high values.
    """
    rows = []
    for record, arrays in analyses:
        for other in record["config"]["tested"]:
            if other == record["dataset"]:
                continue
            for kind in MEAN_AND_NORM:
                inside = arrays[f"{record['dataset']}_{kind}"]
                outside = arrays[f"{other}_{kind}"]
                test = rank_sum(outside, inside)
                row = {
                    "method": record["method"],
                    "model": record["dataset"],
                    "seed": record["seed"],
                    "tested": other,
                    "kind": kind,
                    "mean_in": inside.mean(),
                    "mean_out": outside.mean(),
                    "p_value": test.p_value,
                    "cliffs_delta": test.cliffs_delta,
                    "auroc": test.superiority,
                }
                rows.append(row)
    return pd.DataFrame(rows)


def shown_adapters(analyses: Analyses) -> Analyses:
    """Return the adapters of the first seed on the first data set of each category.

    The paper shows three. Other seeds have other random matrices, and so other values.
    """
    seed = min(record["seed"] for record, _ in analyses)
    first: dict[str, str] = {}
    for record, _ in analyses:
        first.setdefault(record["category"], record["dataset"])
    return [
        (record, arrays)
        for record, arrays in analyses
        if record["seed"] == seed and record["dataset"] in first.values()
    ]


def image_values(analyses: Analyses, kind: str) -> pd.DataFrame:
    """Return the values of adapters on the data sets of all of them.

    Returns:
        A row per image: method, model, tested, value.
    """
    datasets = dict.fromkeys(record["dataset"] for record, _ in analyses)
    frames = []
    for record, arrays in analyses:
        for tested in datasets:
            frame = pd.DataFrame({"value": arrays[f"{tested}_{kind}"]})
            frames.append(
                frame.assign(method=record["method"], model=record["dataset"], tested=tested)
            )
    return pd.concat(frames, ignore_index=True)


COLUMNS = {
    "mean_in": Column("In", 3),
    "mean_out": Column("Out", 3),
    "auroc": Column("AUROC", 3),
    "by_seed": Column(
        "By seed", lambda row: ", ".join(decimal(value, 2) for value in row["by_seed"])
    ),
    "lower": Column("Lower in", lambda row: f"{row['lower']} of {row['comparisons']}"),
}


def out_of_distribution_table(analyses: Analyses) -> Table:
    """Build the table of `compare_in_and_out`, a panel per method and kind."""
    data = compare_in_and_out(analyses)
    panels = {}
    for (method, kind), part in data.groupby(["method", "kind"], sort=False):
        panels[f"{title(method)}, {MEAN_AND_NORM[kind]}"] = _means_by_model(part).rename(title)
    caption = (
        "Sum of the query's and the value's latent mean in the last layer, for test images of "
        "the data set that a model was trained on (in), and of the others (out; mean over them)."
    )
    notes = (
        "Mean value: over tokens and latent dimensions. Norm: Euclidean, mean over tokens. "
        "AUROC: for detecting out-of-distribution images by high values (0.5: chance). Lower in: "
        "comparisons, of all seeds and other data sets, in which the values in distribution are "
        f"lower by a one-sided rank-sum test (p < {LEVEL}, uncorrected)."
    )
    return Table(
        "out_of_distribution",
        caption,
        panels,
        columns=COLUMNS,
        data=data,
        source=caption_source(analyses),
        notes=notes,
    )


def _means_by_model(part: pd.DataFrame) -> pd.DataFrame:
    """Return a row per model of the comparisons of one method and kind."""
    # Mean over the other data sets and seeds.
    by_model = part.assign(lower=part["p_value"] < LEVEL).groupby("model", sort=False)
    panel = by_model[["mean_in", "mean_out", "auroc"]].mean()
    # A list per model, an AUROC for each seed.
    seeds = part.groupby(["model", "seed"], sort=False)["auroc"].mean()
    panel["by_seed"] = seeds.groupby(level="model", sort=False).agg(list)
    panel["lower"] = by_model["lower"].sum()
    panel["comparisons"] = by_model.size()
    return panel


def detection_aurocs(analyses: Analyses) -> pd.DataFrame:
    """Return the AUROC with which high norms detect other data sets, mean over these.

    The paper finds PVeRA's values significantly lower and VeRA's not, which does not show that the
    two differ (Gelman and Stern 2006); claims compare them.

    Returns:
        Rows (model, seed), columns methods and `CHANCE`.
    """
    data = compare_in_and_out(analyses)
    by_adapter = data[data["kind"] == "norm"].groupby(["model", "seed", "method"])
    aurocs = by_adapter["auroc"].mean().unstack()
    aurocs[CHANCE] = 0.5
    return aurocs
