"""The tables of docs/scaling.md follow from counted costs and the profile's runs."""

from pathlib import Path

import pytest
from options import read_profile

from pvera.data import tasks
from pvera.study import cost_records, hours
from pvera.study.plan import list_runs

RESULTS = Path(__file__).resolve().parents[2] / "results"


@pytest.mark.parametrize("method", ["linear", "lora", "pvera", "bottleneck"])
def test_work_of_a_run_follows_from_the_counts(method):
    """800 images twice per epoch in training mode, 200 as at inference, and the test of the chosen member."""
    run = next(
        r for r in list_runs(read_profile("paper"), "benchmark", "") if (r.backbone, r.method) == ("dinov2_s", method)
    )
    costs = cost_records.load_costs(RESULTS, "paper").query("backbone == 'dinov2_s' and method == @method")
    by_method = costs.set_index("configuration")
    counted = [by_method.loc[candidate.method] for candidate in run.candidates]
    test = tasks.task(run.dataset).test_images
    if method == "linear":
        expected = (1000 + test) * counted[0].inference
    else:
        expected = sum(hours.EPOCHS * (1600 * one.training + 200 * one.inference) for one in counted)
        expected += test * sum(one.inference for one in counted) / len(counted)
    assert hours.work(run) == pytest.approx(expected, rel=1e-3)


def test_passes_are_those_of_the_counts():
    """A step passes 16 images forward and backward."""
    _, _, *lines = (RESULTS / "performance/scaling_passes.md").read_text().splitlines()
    costs = cost_records.load_costs(RESULTS, "paper")
    for line, (_, rows) in zip(lines, costs.groupby("backbone", sort=False), strict=True):
        frozen, training = rows["backbone_multiply_adds"].iloc[0], rows.drop_duplicates("method").set_index("method")
        vera, pvera = (training["training"][name] for name in ("vera", "pvera"))
        expected = [frozen / 1e9, 100 * (vera / frozen - 1), 100 * (pvera / frozen - 1), 32 * pvera / 1e12]
        shown = [float(cell) for cell in line.strip("| ").split(" | ")[1:]]
        assert shown == pytest.approx(expected, abs=0.05) and shown[3] == pytest.approx(expected[3], abs=0.005)
