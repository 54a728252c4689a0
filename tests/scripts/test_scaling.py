"""experiments/scaling.py: what docs/scaling.md says follows from counted costs, the profile's runs and the records."""

from pathlib import Path

import pandas as pd
import pytest
import scaling
import scripts

from pvera.data import tasks
from pvera.study import cost_records, hours, speed
from pvera.study.experiments import list_runs, of_profile
from pvera.study.profiles import Profile

RESULTS = Path(__file__).resolve().parents[2] / "results"
TABLES = ("steps", "passes", "runs", "hours", "cards")


@pytest.fixture(scope="module")
def profile():
    return Profile.read(scaling.ROOT / "experiments/profiles/paper.yaml")


def cells(table):
    return [line.strip("| ").split(" | ") for line in table.splitlines()]


def test_each_run_goes_to_the_card_that_is_free_first():
    assert scaling.longest([3, 3, 2, 2], 1) == 10
    assert scaling.longest([3, 3, 2, 2], 2) == 5
    assert scaling.longest([1, 1, 4], 2) == 5 and scaling.longest([4, 1, 1], 2) == 4
    assert scaling.longest([4, 1, 1], 16) == 4


@pytest.mark.parametrize("method", ["linear", "lora", "pvera", "bottleneck"])
def test_work_of_a_run_follows_from_fvcore_s_counts(profile, method):
    """800 images twice per epoch in training mode, 200 as at inference, and the test of the chosen member."""
    run = next(r for r in list_runs(profile, "benchmark", "") if (r.backbone, r.method) == ("dinov2_s", method))
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


def test_the_page_is_of_the_committed_results(tmp_path, profile):
    """Runs add up, and the tables are those that the script writes."""
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper/cost").symlink_to(RESULTS / "paper/cost")
    (tmp_path / "performance").mkdir()
    for record in (RESULTS / "performance").glob("speed*.json"):
        (tmp_path / "performance" / record.name).symlink_to(record)
    scripts.execute("scaling", "--results", tmp_path)
    for name in TABLES:
        written = (tmp_path / f"performance/scaling_{name}.md").read_text()
        assert written == (RESULTS / f"performance/scaling_{name}.md").read_text()
    _, _, *lines, total = cells((tmp_path / "performance/scaling_runs.md").read_text())
    for column in (2, 3, 4):
        counts = [int(line[column].replace(",", "")) for line in lines]
        assert sum(counts) == int(total[column].replace(",", ""))
    started = [one for name in of_profile(profile, "train") for one in list_runs(profile, name, "")]
    assert int(total[2].replace(",", "")) == len(started)


def test_steps_are_those_of_the_records(tmp_path):
    made_by = {"device": "cpu: One", "threads": 2, "torch": "2", "timm": "1"}
    rows = [speed.Measurement("sweep", "dinov2_s", "float32", f"rank {r}", "frozen", s, 2.0, s / 2)
            for r, s in ((32, 2.5), (256, 4.0))]  # fmt: skip
    speed.update(speed.record_path(tmp_path / "performance", "cpu: One"), made_by, rows)
    header, _, *lines = cells(scaling.steps(tmp_path))
    assert header[2] == "DINOv2 ViT-S/14, float32, One, 2 threads"
    assert lines == [["Rank r", "32", "2.50 s (1.25)"], ["Rank r", "256", "4.00 s (2.00)"]]


def test_a_card_for_each_run_waits_for_the_largest():
    lines = cells(scaling.cards(pd.Series([8.0, 1.0, 1.0, 1.0, 1.0, 4.0, 0.0, 0.0, 16.0]) * scaling.PETA))[2:]
    assert lines == [["1", "32", "1.00 times"], ["4", "17", "1.88 times"], ["16", "16", "2.00 times"]]
