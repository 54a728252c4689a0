"""Hours from counted multiply-adds, and --budget."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import scripts
from small import arguments, profile_with

from pvera.study import hours, results, worker
from pvera.study.plan import list_runs
from pvera.study.profiles import Profile
from pvera.study.runs import Run
from pvera.study.training import TrainingConfig
from pvera.study.worker import Plan

PROFILES = Path(__file__).resolve().parents[2] / "experiments/profiles"


@pytest.fixture
def plan(folder):
    """Linear and lora with two members, each with two seeds."""
    profile_with(folder, methods={"linear": {}, "lora": {"grid": {"rank": [2, 4]}}})
    return Plan(Profile.read(folder / "small.yaml"), ("benchmark",), folder / "results")


def of(runs, method):
    return next(run for run in runs if run.method == method)


def test_an_epoch_trains_on_twice_the_images_and_validates_once(plan, monkeypatch):
    """With passes of 10 multiply-adds, 12 where z is drawn: 2 members × (2 × 800 × 12 + 200 × 10)."""
    monkeypatch.setattr(hours, "forward", lambda backbone, image_size, method, sampled: 12 if sampled else 10)
    linear, lora = (of(plan.runs(), method) for method in ("linear", "lora"))
    assert hours.epoch(linear) == 0 and hours.work(linear) == (800 + 200 + 2000) * 10
    assert hours.epoch(lora) == 42_400
    assert hours.work(lora) == 2 * 42_400 + 2000 * 10, "the profile's two epochs"
    longer = plan.profile.with_(training=TrainingConfig(epochs=500), images=100)
    assert hours.work(of(list_runs(longer, "benchmark", ""), "lora")) == 100 * 2 * (200 * 12 + 100 * 10) + 100 * 10


def test_the_table_by_hand(monkeypatch):
    """36 000 seconds of a peak, of which 40 % and 30 % are reached, on each backbone."""
    profile = Profile.read(PROFILES / "paper.yaml").with_(methods={"linear": {}}, seeds=[0], datasets=["dtd"])
    monkeypatch.setattr(hours, "work", lambda run: 36_000 * 156e12)
    lines = [
        line.strip("| ").split(" | ") for line in hours.calculated(list_runs(profile, "benchmark", "")).splitlines()
    ]
    assert lines[0][1:] == ["Runs", "H100 SXM", "A100", "RTX 4090"]
    assert [line[1:4:2] for line in lines[2:]] == [["1", "25 to 33"], ["3", "75 to 100"], ["3", "75 to 100"]]


@pytest.mark.parametrize("workers, over, left", [(1, (), "0:00:31"), (2, (), "0:00:15"), (1, (3,), "0:00:14")])
def test_what_is_left_follows_from_one_epoch_and_the_counted_ratio(plan, monkeypatch, capsys, workers, over, left):
    """Two epochs of 7 seconds, and of the other seed's LoRA 6/5 of it unless it is over; linear counts nothing."""
    runs = plan.runs()
    linear, lora, _, other = runs
    assert (lora.method, other.method) == ("lora", "lora")
    seconds = iter([0, 0, 7])

    def work(plan, *place):
        on_step = place[-1]
        for index in over:
            on_step(runs[index], 0, 0)
        for run, step in ((linear, 1), (linear, 2), (lora, 1), (lora, 2)):
            on_step(run, step, 2)

    monkeypatch.setattr(worker, "work", work)
    monkeypatch.setattr(worker, "_in_processes", work)
    monkeypatch.setattr(worker.time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(hours, "epoch", lambda run: {"linear": 0, "lora": 5 + run.seed}[run.method])
    worker.work_together(plan, runs, workers, "cpu")
    said = [line for line in capsys.readouterr().err.splitlines() if "what is left" in line]
    assert said == [f"tiny/vessels/lora/seed0: what is left takes {left} to {left} (h:mm:ss), as patience ends them"]


def test_no_run_starts_that_would_end_after_the_budget(plan, monkeypatch):
    """Two of a minute end in time; a third, as long as the longest so far, would not."""
    now = [1000.0]

    def execute(run, *_):
        now[0] += 60 if run.seed else 50
        run.path.parent.mkdir(parents=True, exist_ok=True)
        results.write(run.path, {"config": {}, "members": []})

    clock = SimpleNamespace(time=lambda: now[0], monotonic=lambda: now[0])
    monkeypatch.setattr(worker, "time", clock)
    monkeypatch.setattr(Run, "execute", execute)
    monkeypatch.setattr(Run, "state", lambda run: "done" if run.path.exists() else "missing")
    worker.work(replace(plan, ends=1160.0))
    assert [run.path.exists() for run in plan.runs()] == [True, True, True, False] and now == [1160.0]


def test_budget_from_the_command_line(plan, folder, capsys, monkeypatch, in_process):
    def said(*more) -> str:
        status, output, errors = scripts.outcome("train", capsys, *arguments(folder, "results", "--workers", 1, *more))
        assert status == 0, errors
        return output.splitlines()[-1]

    assert said("--budget", 1e-9) == "small: 4 runs are left; the same command goes on"
    assert said("--budget", 5) == "small: 0 runs are left; the same command goes on"
    assert "--budget" in scripts.refusal("train", capsys, *arguments(folder), "--budget", "soon")
