"""Latents over the patches of an image: samples from their mean, and how well they find its object (Section 4.4)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.report.table import Table, origin, plain, title
from pvera.report.tables.verdicts import PairedDifferences, Untestable, contrast

Latents = Sequence[
    tuple[dict, dict[str, np.ndarray]]
]  # records and arrays of `analyses.load_analyses`


def latents_table(latents: Latents) -> Table:
    """Build the table of samples against their mean over the patches, one row per adapter.

    In the data, explained: share of the variance that the projection keeps. spread: root mean square of draw minus
    mean, in standard deviations of the mean. correlation: of a sample with the mean within an image, averaged over
    both. The last two are NaN without samples.
    """
    rows = []
    for record, arrays in latents:
        mean, draws = arrays["mu"], arrays["draws"]
        spread = correlation = np.nan
        if len(draws):
            spread = np.sqrt(np.square(draws - mean).mean()) / mean.std()
            pairs = ((draw[i].ravel(), mean[i].ravel()) for draw in draws for i in range(len(mean)))
            correlation = np.mean([np.corrcoef(*pair)[0, 1] for pair in pairs])
        row = {name: record[name] for name in ("method", "dataset", "seed")}
        rows.append(
            row
            | {
                "explained": float(arrays["explained"]),
                "spread": spread,
                "correlation": correlation,
            }
        )
    data = pd.DataFrame(rows)
    spec = {
        "explained": ("Explained (%)", lambda row: plain(100 * row["explained"], 1)),
        "spread": ("Spread", 2),
        "correlation": ("Correlation", 2),
    }
    caption = (
        "The query's latent in the last layer, projected on the first principal component of its mean. Explained: "
        "share of the variance over patches that the component keeps. Spread: distance of a sample from the mean "
        "(root mean square), in standard deviations of the mean over patches. Correlation: of a sample with the mean, "
        "over the patches of an image."
    )
    return Table(
        "latents", caption, {"": data.set_index("method")}, spec, data, describe_runs(latents)
    )


FROZEN = "frozen"  # the column of x A on the frozen backbone


def focus(analyses: Latents) -> pd.DataFrame:
    """Return the mean AUROC over images of each adapter, rows (dataset, seed), columns methods and `FROZEN`.

    analyses: of experiment focus. x A is that of PVeRA; VeRA's differs in its random numbers alone.
    """
    rows = []
    for record, arrays in analyses:
        place = {name: record[name] for name in ("dataset", "seed")}
        rows.append(place | {"method": record["method"], "auroc": np.nanmean(arrays["adapted"])})
        if record["method"] == "pvera":
            rows.append(place | {"method": FROZEN, "auroc": np.nanmean(arrays["frozen"])})
    return pd.DataFrame(rows).pivot(index=["dataset", "seed"], columns="method", values="auroc")


def focus_table(analyses: Latents) -> Table:
    """Build the table of `focus`: a row per data set, mean over seeds."""
    data = focus(analyses)
    means = data.groupby(level="dataset").mean()
    means.loc["Mean"] = means.mean()
    spec = {name: (METHODS[name].title, 3) for name in ("pvera", "vera")} | {
        FROZEN: ("x A, frozen backbone", 3)
    }
    caption = (
        "AUROC with which the length of μ_q in the last layer finds the patches of the object in an image, mean over "
        "test images and seeds; 0.5 is chance. A patch is the object's where the object covers a tenth of it or more; "
        "patches that it touches less are left out. For VeRA, μ_q is x A ⊙ d. The last column has no adapter: the "
        "frozen backbone's x A."
    )
    return Table("focus", caption, {"": means.rename(title)}, spec, data.reset_index())


@contrast
def more_focused(analyses: Latents, than: str) -> PairedDifferences:
    """Return PVeRA's AUROC above that of "vera" or `FROZEN`."""
    data = focus(analyses)
    if not {"pvera", "vera"} <= set(data):
        raise Untestable("no runs of VeRA and PVeRA")
    return {"": data["pvera"] - data[than]}


def describe_runs(latents: Latents) -> str:
    """Describe the adapters for a caption."""
    record, arrays = latents[0]
    images, height, width = arrays["mu"].shape
    return f"{origin([record], [record['dataset']])}; {images} test images, {height} x {width} patches each."
