"""Latents over the patches of an image (Section 4.4).

They are compared with samples from their distribution, and by how well they find the object.
"""

import numpy as np
import pandas as pd

from pvera.report.analysis_results import Analyses
from pvera.report.captions import caption_source
from pvera.report.table import Column, Table
from pvera.report.text import decimal, title

#: The column of x A, the input times the frozen random matrix A, on the frozen backbone.
FROZEN = "frozen"


def latents_table(analyses: Analyses) -> Table:
    """Build the table of samples and their mean over the patches, one row per adapter."""
    rows = []
    for record, arrays in analyses:
        row = {name: record[name] for name in ("method", "dataset", "seed")}
        row["explained"] = float(arrays["explained"])
        # These "draws" are the samples themselves, (samples, images, height, width).
        rows.append(row | _agreement(arrays["mu"], arrays["draws"]))
    data = pd.DataFrame(rows)

    columns = {
        "explained": Column("Explained (%)", lambda row: decimal(100 * row["explained"], 1)),
        "spread": Column("Distance", 2),
        "correlation": Column("Correlation", 2),
    }
    images, height, width = analyses[0][1]["mu"].shape
    caption = (
        f"The query's latent in the last layer over {height} x {width} patches of {images} test "
        "images, projected on the first principal component of its mean."
    )
    notes = (
        "Explained: share of the variance over patches that the component keeps. Distance: of a "
        "sample from the mean (root mean square), in standard deviations of the mean over "
        "patches. Correlation: of a sample with the mean, over the patches of an image."
    )
    return Table(
        "latents",
        caption,
        data.set_index("method"),
        columns=columns,
        data=data,
        source=caption_source(analyses),
        notes=notes,
    )


def _agreement(mean: np.ndarray, samples: np.ndarray) -> dict[str, float]:
    """Return how far samples lie from their mean, and how well they correlate with it.

    Args:
        mean: (images, height, width).
        samples: (samples, images, height, width).

    Returns:
        spread: root mean square of sample minus mean, in standard deviations of the mean.
        correlation: within an image, averaged over images and samples. NaN without samples.
    """
    if not len(samples):
        return {"spread": np.nan, "correlation": np.nan}
    # The mean broadcasts over samples.
    distance = np.sqrt(np.square(samples - mean).mean())
    # One per sample and image.
    correlations = []
    for sample in samples:
        for values, means in zip(sample, mean, strict=True):
            correlations.append(np.corrcoef(values.ravel(), means.ravel())[0, 1])
    return {"spread": distance / mean.std(), "correlation": np.mean(correlations)}


def focus_aurocs(analyses: Analyses) -> pd.DataFrame:
    """Return the mean AUROC over images of each adapter.

    Args:
        analyses: The results of experiment focus. x A is that of PVeRA; VeRA's differs in its
            random numbers alone.

    Returns:
        Rows (dataset, seed), columns methods and `FROZEN`.
    """
    rows = []
    for record, arrays in analyses:
        adapter = {"dataset": record["dataset"], "seed": record["seed"]}
        # NaN for an image without an object.
        adapted = np.nanmean(arrays["adapted"])
        rows.append(adapter | {"method": record["method"], "auroc": adapted})
        if record["method"] == "pvera":
            rows.append(adapter | {"method": FROZEN, "auroc": np.nanmean(arrays["frozen"])})
    return pd.DataFrame(rows).pivot(index=["dataset", "seed"], columns="method", values="auroc")


def focus_table(analyses: Analyses) -> Table:
    """Build the table of `focus_aurocs`: a row per data set, mean over seeds."""
    data = focus_aurocs(analyses)
    means = data.groupby(level="dataset").mean()
    # Data sets count equally.
    means.loc["Mean"] = means.mean()
    columns = {name: Column(title(name), 3) for name in ("pvera", "vera")}
    columns[FROZEN] = Column("x A, frozen backbone", 3)
    caption = (
        "AUROC with which the length of μ_q in the last layer finds the patches of the object in "
        "an image, mean over test images and seeds; 0.5 is chance."
    )
    notes = (
        "A patch is the object's where the object covers a tenth of it or more; patches that it "
        "touches less are left out. For VeRA, μ_q is x A ⊙ d. The last column has no adapter: "
        "the frozen backbone's x A."
    )
    return Table(
        "focus",
        caption,
        means.rename(title),
        columns=columns,
        data=data.reset_index(),
        notes=notes,
    )
