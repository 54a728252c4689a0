"""docs/scaling.md follows from the counted costs, the profile's runs and the measured throughput."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from pvera.data import tasks
from pvera.report import scaling
from pvera.study import cost_records, speed

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path):
    """What the page is written from."""
    for name in ("experiments/profiles", "results/paper/cost"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "experiments/slurm.yaml", tmp_path / "experiments")
    (tmp_path / "results/performance").mkdir()
    return tmp_path


def cells(table: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]


def test_each_run_goes_to_the_card_that_is_free_first():
    assert scaling.longest([3, 3, 2, 2], 1) == 10
    assert scaling.longest([3, 3, 2, 2], 2) == 5
    assert scaling.longest([1, 1, 4], 2) == 5 and scaling.longest([4, 1, 1], 2) == 4
    assert scaling.longest([4, 1, 1], 16) == 4


@pytest.mark.parametrize("method", ["linear", "lora", "pvera", "bottleneck"])
def test_work_of_a_run_follows_from_fvcore_s_counts(method):
    """800 images twice per epoch in training mode, 200 as at inference, and the test of the chosen member."""
    profile = scaling.plan(ROOT)
    run = next(r for r in profile.runs("benchmark", "") if (r.backbone, r.method) == ("dinov2_s", method))
    record = cost_records.read_record(cost_records.record_path(ROOT / "results", "paper", "dinov2_s"))
    costs = cost_records.load_costs(ROOT / "results", "paper").query("backbone == 'dinov2_s' and method == @method")
    by_method = costs.set_index("configuration")
    counted = [by_method.loc[candidate.method] for candidate in run.candidates]
    test = tasks.task(run.dataset).test_images
    if method == "linear":
        expected = (1000 + test) * counted[0].inference
    else:
        expected = sum(scaling.EPOCHS * (1600 * one.training + 200 * one.inference) for one in counted)
        expected += test * sum(one.inference for one in counted) / len(counted)
    assert scaling.work(run, scaling.Shape(**record["shape"])) == pytest.approx(expected, rel=1e-3)


def test_cards_share_the_work_until_the_largest_run_or_job(root, monkeypatch):
    work = pd.DataFrame({"work": [8.0, 1.0, 1.0, 1.0, 1.0, 4.0, 0.0, 0.0, 16.0]}).assign(
        experiment="benchmark", backbone="dinov2_s", dataset="kitti", method="pvera"
    )
    monkeypatch.setattr(scaling, "trainings", lambda root: work)
    monkeypatch.setattr(scaling, "PETA", 1)
    header, _, *lines = cells(scaling.cards(root))
    assert header == ["Cards", "PMACs of the busiest", "Gain, one run per job", "Gain, 8 runs per job"]
    assert lines == [
        ["1", "32", "1.00 times", "1.00 times"],
        ["4", "16", "2.00 times", "2.00 times"],
        ["16", "16", "2.00 times", "2.00 times"],
    ]
    assert "16.0 PMACs, one in 2 of the whole" in scaling.cards(root)


def test_hours_stand_there_where_a_card_was_measured(root):
    assert "No GPU was at hand" in scaling.cards(root)
    table = pd.DataFrame({"backbone": ["dinov2_s"] * 2, "experiment": ["benchmark", "rank"], "hours": [30.0, 10.0]})
    table.to_csv(root / "results/performance/throughput_nvidia_h100_bfloat16.csv", index=False)
    header, _, one, four, _ = cells(scaling.cards(root))
    assert header[-1] == "Hours, nvidia h100 bfloat16" and one[-1] == "40.0"
    assert 10.0 <= float(four[-1]) < 11.0
    assert "No GPU" not in scaling.cards(root)


def test_runs_add_up(root):
    _, _, *lines, total = cells(scaling.runs(root))
    for column in (2, 3, 4):
        counts = [int(line[column].replace(",", "")) for line in lines]
        assert sum(counts) == int(total[column].replace(",", ""))
    profile = scaling.plan(root)
    assert int(total[2].replace(",", "")) == sum(len(profile.runs(name, "")) for name in profile.experiments)


def test_searches_hold_up_what_needs_their_value(root):
    rows = {line[0]: list(map(int, line[1:])) for line in cells(scaling.searches(root))[2:]}
    assert rows["`paper`"][:3] == [0, 0, 0], "the paper gives β on VTAB-1k"
    assert rows["`paper`, text"][0] == len(scaling.plan(root).of_language().datasets)
    assert rows["`paper`, text"][2] == 3 * rows["`paper`, text"][0], "one run per seed waits"


def test_steps_are_those_of_the_records(root):
    made_by = {"device": "cpu: One", "threads": 2, "torch": "2", "timm": "1"}
    rows = [speed.Measurement("sweep", "dinov2_s", "float32", f"rank {r}", "frozen", s, 2.0, s / 2)
            for r, s in ((32, 1.0), (64, 3.0))]  # fmt: skip
    speed.update(speed.record_path(root / "results/performance", made_by["device"]), made_by, rows)
    header, _, *lines = cells(scaling.steps(root))
    assert header[2] == "DINOv2 ViT-S/14, float32, One, 2 threads"
    assert lines == [["Rank r", "32", "1.00 s (0.50)"], ["Rank r", "64", "3.00 s (1.50)"]]
