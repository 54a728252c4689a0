"""Distance of PVeRA's latent draws from their mean, over the patches of an image (Section 4.4)."""

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import pandas as pd

from pvera.report.table import Table, plain
from pvera.report.tables.names import origin
from pvera.report.tables.verdicts import Untestable

Latents = Sequence[tuple[dict, dict[str, np.ndarray]]]  # records and arrays of `readings.load`


def latents_table(latents: Latents) -> Table:
    """Build the table of draws against their mean over the patches, one row per adapter.

    In the data, explained: share of the variance that the projection keeps. spread: root mean square of draw minus
    mean, in standard deviations of the mean. correlation: of a draw with the mean within an image, averaged over both.
    The last two are NaN without draws.
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
        rows.append(row | {"explained": float(arrays["explained"]), "spread": spread, "correlation": correlation})
    data = pd.DataFrame(rows)
    spec = {
        "explained": ("Explained (%)", lambda row: plain(100 * row["explained"], 1)),
        "spread": ("Spread", 2),
        "correlation": ("Correlation", 2),
    }
    caption = (
        "The query's latent in the last layer, projected on the first principal component of its mean. Explained: "
        "share of the variance over patches that the component keeps. Spread: distance of a draw from the mean "
        "(root mean square), in standard deviations of the mean over patches. Correlation: of a draw with the mean, "
        "over the patches of an image."
    )
    return Table("latents", caption, {"": data.set_index("method")}, spec, data, about(latents))


def draw_distance(latents: Latents) -> NoReturn:
    """Raise `Untestable` with the distance of PVeRA's draws from their mean: σ is positive, so no result could refute
    the claim."""
    distances = [
        np.sqrt(np.square(arrays["draws"] - arrays["mu"]).mean((2, 3))).T / arrays["mu"].std()
        for record, arrays in latents
        if record["method"] == "pvera" and len(arrays["draws"])
    ]
    if not distances:
        raise Untestable("no draws of PVeRA")
    raise Untestable(
        f"it holds by construction, as σ is positive; draws lie {plain(np.concatenate(distances).mean(), 2)} standard "
        "deviations of the mean over patches away"
    )


def relevant_parts(latents: Latents) -> NoReturn:
    """Raise `Untestable`: no data set of the profiles marks the relevant parts."""
    raise Untestable("no image has its relevant parts marked; the maps are for the eye")


def about(latents: Latents) -> str:
    """Describe the adapters for a caption."""
    record, arrays = latents[0]
    images, height, width = arrays["mu"].shape
    described = origin(record, [record["seed"]], [record["dataset"]])
    return f"{described}; {images} test images, {height} x {width} patches each."
