"""The tables of docs/speed.md and docs/paper.md follow from counted costs and the profile's runs."""

from pathlib import Path

import pytest
from options import read_profile

from pvera.data import tasks
from pvera.study import cost_records
from pvera.study.plan import list_runs

RESULTS = Path(__file__).resolve().parents[2] / "results"


#: Multiply-adds per second of dense bf16 products with fp32 sums, half of the operations in the makers' data sheets;
#: and the shares of them that are assumed.
PEAKS, SHARES = (494.5e12, 156.0e12, 82.6e12), (0.4, 0.3)


def work(run, counted) -> float:
    """100 epochs, each of 800 images forward and backward and 200 as at inference; then the test of one member.

    Linear probing computes the features of all images once.
    """
    test, inference = tasks.task(run.dataset).test_images, counted.inference.mean()
    if run.method == "linear":
        return (1000 + test) * inference
    return 100 * (1600 * counted.training + 200 * counted.inference).sum() + test * inference


def test_hours_follow_from_the_counts():
    costs = cost_records.load_costs(RESULTS, "paper").set_index(["backbone", "method"])
    by_backbone = dict.fromkeys(costs.index.unique("backbone"), 0.0)
    for run in list_runs(read_profile("paper"), "benchmark", ""):
        counted = costs.loc[[(run.backbone, run.method)]].set_index("configuration")
        by_backbone[run.backbone] += work(run, counted.loc[[member.method for member in run.members]]) / 3600
    table = (RESULTS / "performance/scaling_hours.md").read_text().splitlines()
    for line, total in zip(table[2:4], (by_backbone["dinov2_b"], sum(by_backbone.values())), strict=True):
        expected = ["{:,.0f} to {:,.0f}".format(*(total / (s * peak) for s in SHARES)) for peak in PEAKS]
        assert line.strip("| ").split(" | ")[2:] == expected


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
