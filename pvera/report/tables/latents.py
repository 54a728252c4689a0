"""How much the draws of PVeRA's last layer differ from their mean over patches (Section 4.4)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.report.tables.layout import Cell, Panel, Row, Table, dataset_title, plain

Found = Sequence[tuple[dict, dict[str, np.ndarray]]]  # of `analyses.load`


def differences(found: Found) -> pd.DataFrame:
    """One row per adapter, of its latent over the patches.

    explained: share of the variance that the projection keeps; spread: root mean square of draw minus mean,
    in standard deviations of the mean; correlation: of a draw with the mean within one image, averaged. The
    last two are NaN without draws.
    """
    rows = []
    for record, arrays in found:
        mean, draws = arrays["mu"], arrays["draws"]
        spread = correlation = np.nan
        if len(draws):
            spread = np.sqrt(np.square(draws - mean).mean()) / mean.std()
            pairs = ((draw[i].ravel(), mean[i].ravel()) for draw in draws for i in range(len(mean)))
            correlation = np.mean([np.corrcoef(*pair)[0, 1] for pair in pairs])
        rows.append(
            {
                "method": record["method"],
                "dataset": record["dataset"],
                "seed": record["seed"],
                "explained": float(arrays["explained"]),
                "spread": spread,
                "correlation": correlation,
            }
        )
    return pd.DataFrame(rows)


def table(found: Found) -> Table:
    data = differences(found)
    rows = [
        Row(
            METHODS[row.method].title,
            tuple(
                map(
                    Cell,
                    (
                        plain(100 * row.explained, 1),
                        plain(row.spread, 2),
                        plain(row.correlation, 2),
                    ),
                )
            ),
        )
        for row in data.itertuples()
    ]
    record, arrays = found[0]
    caption = (
        "Of the query's latent in the last layer, projected on the first principal component of its mean: "
        "the share of the variance over patches that this keeps; how far draws lie from the mean, in "
        "standard deviations of the mean over the patches (root mean square); correlation of a draw with "
        "the mean over the patches of an image."
    )
    text = (
        f"Profile {record['profile']}, {record['protocol']} protocol, backbone {record['backbone']}, seed "
        f"{record['seed']}: {len(arrays['pixels'])} test images of {dataset_title(record['dataset'])}, "
        f"{arrays['mu'].shape[1]} x {arrays['mu'].shape[2]} patches each."
    )
    header = ("Explained (%)", "Spread", "Correlation")
    return Table("latents", caption, text, (Panel("", header, tuple(rows)),), data)
