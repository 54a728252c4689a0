"""Tables of the last layer's latents: cases worked by hand, and against scipy."""

import numpy as np
import pytest
from hand import lines
from records import make_record
from scipy import stats

from pvera.report.tables import latents, out_of_distribution
from pvera.report.tables.out_of_distribution import Values


def values(method="pvera", dataset="digits", seed=0, own=(1.0, 2.0), other=(3.0, 1.0)):
    record = make_record(method, dataset, seed, config={"tested": ["digits", "vessels"]})
    (out,) = {"digits", "vessels"} - {dataset}
    given = {(dataset, kind): np.array(own) for kind in out_of_distribution.KINDS}
    return Values(record, given | {(out, kind): np.array(other) for kind in out_of_distribution.KINDS})


def test_out_of_distribution_by_hand():
    """1, 2 in and 3, 1 out: of four pairs two are higher out, one is equal, so AUROC 2.5 / 4 and delta
    .25."""
    runs = [values(), values(seed=1, own=(-1.0, -2.0), other=(-3.0, -4.0)), values("vera", own=(0.0, 1.0))]
    table = out_of_distribution.out_of_distribution_table(runs)
    label, *row = lines(table)[0]
    assert label == "Digits"
    assert row == ["0.000", "−0.750", "0.312", "0.62, 0.00", "0 of 2"]
    p = [stats.mannwhitneyu(x, y, alternative="greater").pvalue for x, y in (([3, 1], [1, 2]), ([-3, -4], [-1, -2]))]
    assert table.data["p_value"].tolist()[:4:2] == pytest.approx(p)
    assert list(table.panels) == ["PVeRA, mean value", "PVeRA, norm", "VeRA, mean value", "VeRA, norm"]


def analysed(draws, mu=None, method="pvera"):
    mu = np.array([[[0.0, 1.0], [2.0, 3.0]]]) if mu is None else mu
    arrays = {
        "mu": mu,
        "draws": np.array(draws).reshape(-1, *mu.shape),
        "explained": np.float64(0.25),
        "pixels": np.zeros((1, 4, 4, 3), np.uint8),
        "labels": np.zeros(1, np.int16),
    }
    return make_record(method), arrays


def test_latent_differences_by_hand():
    """The mean 0, 1, 2, 3 has variance 1.25. One draw is it plus one, the other its mirror image 3, 2, 1, 0,
    which is off by 3, 1, -1, -3: squares 1 four times, then 9, 1, 1, 9, so a mean of 3 and a spread of √(3 /
    1.25)."""
    table = latents.latents_table([analysed([[1, 2, 3, 4], [3, 2, 1, 0]]), analysed([], method="vera")])
    data = table.data
    assert data["spread"].iloc[0] == pytest.approx(np.sqrt(3 / 1.25))
    assert data["correlation"].iloc[0] == pytest.approx(0)
    assert data.loc[1, ["spread", "correlation"]].isna().all()
    assert lines(table) == [["PVeRA", "25.0", "1.55", "0.00"], ["VeRA", "25.0", "–", "–"]]
    assert "data sets: Digits; 1 test images, 2 x 2 patches each" in table.source
