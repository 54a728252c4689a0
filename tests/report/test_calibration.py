"""The table of calibration and its claims."""

import math

import numpy as np
import pytest
from records import make_record, write_all
from scipy.stats import t

from pvera.report.scores import score_frame
from pvera.report.tables import calibration
from pvera.study import results

TEST = {"images": 10, "correct": 5, "accuracy": 0.5, "nll": 1.0, "brier": 0.5}


def runs_of(errors):
    """Return records of {method: {data set: ACE per seed}}; ECE is twice ACE."""
    return [
        make_record(method, dataset, seed, test=TEST | {"ace": ace, "ece": 2 * ace})
        for method, of_method in errors.items()
        for dataset, of_seeds in of_method.items()
        for seed, ace in enumerate(of_seeds)
    ]


HAND = {
    "vera": {"digits": [0.04, 0.01], "vessels": [0.16, 0.04]},
    "pvera": {"digits": [0.01, 0.01], "vessels": [0.04, 0.04]},
}


def test_geometric_means_by_hand():
    means = calibration.geometric_means(score_frame(runs_of(HAND), "ace"))
    # (.04 .01 .16 .04)^(1/4) = .04, and (.01 .01 .04 .04)^(1/4) = .02
    np.testing.assert_allclose(means["mean"], [0.04, 0.02])
    np.testing.assert_allclose(means[["seed0", "seed1"]], [[0.08, 0.02], [0.02, 0.02]])
    np.testing.assert_allclose(means["ratio"], [2, 1])
    # PVeRA has .01 and .04, each a factor of 2 from the mean: the standard error of the logarithm is log 2
    half = t.ppf(0.975, 1) * math.log(2)
    np.testing.assert_allclose(means.loc["pvera", ["low", "high"]], 0.02 * np.exp([-half, half]))
    # VeRA's ratio is 2 on each data set, 4 with one seed and 1 with the other
    half = t.ppf(0.975, 2) * math.log(4) / math.sqrt(2) / math.sqrt(2 * 2)
    np.testing.assert_allclose(means.loc["vera", ["ratio_low", "ratio_high"]], 2 * np.exp([-half, half]))


def test_the_floor_is_the_geometric_mean_of_drawn_labels(tmp_path):
    """With one image of confidence 0.8, a drawn label is off by 0.2 in 80 of 100 draws and by 0.8 in the others."""
    runs = runs_of({"pvera": {"digits": [0.5], "vessels": [0.5]}})
    for path, record in zip(write_all(tmp_path, runs), runs):
        results.write(path, record, np.array([[0.8, 0.2]]), np.array([0]))
    floors = calibration.floors(tmp_path, runs)
    expected = 0.2**0.8 * 0.8**0.2
    for metric in ("ace", "ece"):
        np.testing.assert_allclose(floors[metric], expected, rtol=0.15)
    floors["ace"].loc[("natural", "digits", 0), "pvera"] = 0.09
    floors["ace"].loc[("specialized", "vessels", 0), "pvera"] = 0.01
    assert calibration.calibration(runs, floors).data["ace_floor"].item() == pytest.approx(0.03)
