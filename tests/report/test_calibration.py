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
OTHERS = {m: {"digits": [0.09, 0.09], "vessels": [0.09, 0.09]} for m in ("bottleneck", "ia3", "dora", "lora")}


def test_geometric_means_by_hand():
    means = calibration.geometric_means(score_frame(runs_of(HAND), "ace"))
    # (.04 .01 .16 .04)^(1/4) = .04, and (.01 .01 .04 .04)^(1/4) = .02
    np.testing.assert_allclose(means["mean"], [0.04, 0.02])
    np.testing.assert_allclose(means[["seed0", "seed1"]], [[0.08, 0.02], [0.02, 0.02]])
    np.testing.assert_allclose(means["ratio"], [2, 1])
    # PVeRA has .01 and .04, each a factor of 2 from the mean: the standard error of the logarithm is log 2
    half = t.ppf(0.975, 1) * math.log(2)
    np.testing.assert_allclose(means.loc["pvera", ["low", "high"]], 0.02 * np.exp([-half, half]))
    assert means.loc["pvera", "ratio_low"] == means.loc["pvera", "ratio_high"] == 1
    # VeRA's ratio is 2 on each data set, 4 with one seed and 1 with the other
    half = t.ppf(0.975, 2) * math.log(4) / math.sqrt(2) / math.sqrt(2 * 2)
    np.testing.assert_allclose(means.loc["vera", ["ratio_low", "ratio_high"]], 2 * np.exp([-half, half]))


def floors(runs, ace=0.01, ece=0.005):
    return {"ace": score_frame(runs, lambda run: ace), "ece": score_frame(runs, lambda run: ece)}


def verdicts(errors):
    return judged("Calibration", logarithms(runs_of(errors)))["verdict"].tolist()


def test_claims_by_hand():
    linear = {"linear": {"digits": [0.03, 0.03], "vessels": [0.03, 0.03]}}
    adaptformer = {"adaptformer": {"digits": [0.2, 0.2], "vessels": [0.2, 0.2]}}
    others = {m: of for m, of in OTHERS.items() if m != "lora"}
    lora = {"lora": {"digits": [0.05, 0.05], "vessels": [0.05, 0.05]}}
    runs = [
        run | {"method": "adaptformer"} for run in runs_of({"bottleneck": adaptformer["adaptformer"]})
    ]  # `records.GRIDS` has none of AdaptFormer
    runs += runs_of(HAND | lora | others | linear)
    rows = judged("Calibration", logarithms(runs))
    # Geometric means: LoRA .05, VeRA .04, PVeRA .02; the others .09 or .2; linear .03. The nearest pairs: LoRA and .09,
    # LoRA and linear, PVeRA and VeRA
    np.testing.assert_allclose(rows["difference"], [80, -40, 100])
    assert rows["reading"].tolist()[1:] == [
        "Linear / LoRA: ACE −40.0 %",
        "VeRA / PVeRA: ACE +100.0 %"
    ]  # fmt: skip
    # VeRA is 4 times PVeRA on the first seed and 1 time on the second, on both data sets alike: 2 times. The means of
    # the data sets agree by luck, so the seeds bound the error from below.
    error = math.log(4) / math.sqrt(2) / math.sqrt(2 * 2)
    bounds = [100 * (2 * math.exp(sign * t.ppf(0.975, 2) * error) - 1) for sign in (-1, 1)]
    np.testing.assert_allclose(rows.iloc[2][["low", "high", "seed0", "seed1"]].astype(float), [*bounds, 300, 0],
                               atol=1e-9)  # fmt: skip
    # VeRA's geometric means are .02 and .08, LoRA's .05 twice: log ratios to .09 of both signs
    assert rows["verdict"].tolist() == ["undecided", "fails", "undecided"]
    assert verdicts(HAND)[:2] == ["not testable here"] * 2


def test_predictions_are_pooled_per_method(tmp_path):
    runs = runs_of(HAND)
    for i, (path, record) in enumerate(zip(write_all(tmp_path, runs), runs)):
        confidence = 0.5 + 0.05 * i
        results.write(path, record, np.array([[confidence, 1 - confidence]]), np.array([i % 2]))
    pooled = calibration.pooled(tmp_path, runs)
    assert list(pooled) == ["vera", "pvera"]
    confidence, correct = pooled["vera"]
    np.testing.assert_allclose(confidence, [0.5, 0.55, 0.6, 0.65], atol=1e-3)
    np.testing.assert_array_equal(correct, [True, False, True, False])
    (tmp_path / "mine/benchmark/tiny/digits/vera/seed0.npz").unlink()
    with pytest.raises(InputError, match="is gone, or was changed"):
        calibration.pooled(tmp_path, runs)
