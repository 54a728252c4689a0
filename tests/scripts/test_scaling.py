"""experiments/scaling.py: what docs/scaling.md says follows from counted costs, the profile's runs and the records."""

from pathlib import Path

import pytest
import scripts
from options import read_profile

from pvera.data import tasks
from pvera.study import cost_records, hours
from pvera.study.experiments import list_runs

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


def test_the_page_is_of_the_committed_results(tmp_path):
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper/cost").symlink_to(RESULTS / "paper/cost")
    scripts.execute("scaling", "--results", tmp_path)
    for name in ("passes", "hours"):
        written = (tmp_path / f"performance/scaling_{name}.md").read_text()
        assert written == (RESULTS / f"performance/scaling_{name}.md").read_text()
