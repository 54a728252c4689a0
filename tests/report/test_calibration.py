"""The table of calibration and its claims."""

import math

import numpy as np
import pytest
from hand import judged
from records import make_record, write_all
from scipy.stats import t

from pvera.errors import InputError
from pvera.report.claims import logarithms
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


def test_claims_by_hand():
    """Geometric means: LoRA .05, VeRA .04, PVeRA .02; linear .03, the others .09. The nearest pairs: LoRA and .09, LoRA
    and linear, PVeRA and VeRA."""
    others = dict.fromkeys(("bottleneck", "ia3", "dora"), 0.09) | {"lora": 0.05, "linear": 0.03}
    alike = {method: {"digits": [ace] * 2, "vessels": [ace] * 2} for method, ace in others.items()}
    runs = runs_of(HAND | alike)
    runs += [run | {"method": "adaptformer"} for run in runs if run["method"] == "dora"]
    rows = judged("Calibration", logarithms(runs))
    np.testing.assert_allclose(rows["difference"], [80, -40, 100])
    assert rows["reading"].tolist()[1:] == ["Linear / LoRA: ACE −40.0 %", "VeRA / PVeRA: ACE +100.0 %"]
    # VeRA's geometric means are .02 and .08: log ratios to .09 of both signs
    assert rows["verdict"].tolist() == ["undecided", "fails", "undecided"]
    assert judged("Calibration", logarithms(runs_of(HAND)))["verdict"].tolist()[:2] == ["not testable here"] * 2


def stored(root, runs, confidence):
    """Write predictions of one image for each run, correct for every second."""
    for i, (path, record) in enumerate(zip(write_all(root, runs), runs)):
        results.write(path, record, np.array([[confidence(i), 1 - confidence(i)]]), np.array([i % 2]))


def test_the_floor_is_the_geometric_mean_of_drawn_labels(tmp_path):
    """With one image of confidence 0.8, a drawn label is off by 0.2 in 80 of 100 draws and by 0.8 in the others."""
    runs = runs_of({"pvera": {"digits": [0.5], "vessels": [0.5]}})
    stored(tmp_path, runs, lambda i: 0.8)
    floors = calibration.floors(tmp_path, runs)
    expected = 0.2**0.8 * 0.8**0.2
    for metric in ("ace", "ece"):
        np.testing.assert_allclose(floors[metric], expected, rtol=0.15)
    floors["ace"].loc[("natural", "digits", 0), "pvera"] = 0.09
    floors["ace"].loc[("specialized", "vessels", 0), "pvera"] = 0.01
    assert calibration.calibration(runs, floors).data["ace_floor"].item() == pytest.approx(0.03)


def test_predictions_are_pooled_per_method(tmp_path):
    runs = runs_of(HAND)
    stored(tmp_path, runs, lambda i: 0.5 + 0.05 * i)
    confidence, correct = calibration.pooled(tmp_path, runs)["vera"]
    np.testing.assert_allclose(confidence, [0.5, 0.55, 0.6, 0.65], atol=1e-3)
    np.testing.assert_array_equal(correct, [True, False, True, False])
    (tmp_path / "mine/benchmark/tiny/digits/vera/seed0.npz").unlink()
    with pytest.raises(InputError, match="is gone, or was changed"):
        calibration.pooled(tmp_path, runs)
