"""Hours from counted multiply-adds: their table, the estimate of what is left, and --budget."""

from pathlib import Path

import pytest
import scripts
from small import arguments, profile_with

from pvera.study import hours, worker
from pvera.study.experiments import list_runs
from pvera.study.inputs import Inputs
from pvera.study.profiles import Profile
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
    monkeypatch.setattr(hours, "forward", lambda backbone, method, sampled: 12 if sampled else 10)
    linear, lora = (of(plan.runs(), method) for method in ("linear", "lora"))
    assert hours.epoch(linear) == 0 and hours.work(linear) == (800 + 200 + 2000) * 10
    assert hours.epoch(lora) == 42_400
    assert hours.work(lora) == 2 * 42_400 + 2000 * 10, "the profile's two epochs"
    longer = plan.profile.with_(training=TrainingConfig(epochs=500), images=100)
    assert hours.work(of(list_runs(longer, "benchmark", ""), "lora")) == 100 * 2 * (200 * 12 + 100 * 10) + 100 * 10


def test_own_pictures_count_as_they_are_and_texts_by_members(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/own.json").write_text(
        '{"classes": ["a", "b"], "images": {"train": 50, "validation": 12, "test": 7}}'
    )
    own = Profile.read(PROFILES / "own.yaml").with_(datasets=["photos"], data=str(tmp_path), beta=[0.0])
    assert hours.images(list_runs(own, "benchmark", "")[0]) == (50, 12, 7)
    language = Profile.read(PROFILES / "mini.yaml").of_language()
    runs = list_runs(language.with_(beta=[0.0]), "language", "")
    assert hours.epoch(of(runs, "vera")) == 2 and hours.work(of(runs, "lora")) == 100


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
    worker.work_together(plan, runs, "runs", workers, "cpu")
    said = [line for line in capsys.readouterr().err.splitlines() if "what is left" in line]
    assert said == [f"tiny/vessels/lora/seed0: what is left takes {left} to {left} (h:mm:ss), as patience ends them"]


def test_a_budget_ends_before_the_first_run_that_would_exceed_it(plan, monkeypatch):
    monkeypatch.setattr(hours, "epoch", lambda run: run.method != "linear")
    monkeypatch.setattr(hours, "work", lambda run: 10 if run.method == "lora" else 1)
    now = [1000.0]
    monkeypatch.setattr(hours.time, "time", lambda: now[0])
    linear, lora = (of(plan.runs(), method) for method in ("linear", "lora"))
    budget = hours.Budget(1020, seconds=4, done=2)
    assert budget.fits(lora) and budget.expected(lora) == 20
    now[0] += 1
    assert budget.fits(linear) and not budget.fits(lora)
    budget.note(linear, 1e6)
    assert budget.expected(lora) == 20, "its time is not that of products"
    budget.note(lora, 2)
    assert budget.expected(lora) == pytest.approx(10 * 6 / 12)


def test_workers_stop_between_runs(plan, monkeypatch):
    started = []

    class Two(hours.Budget):
        def fits(self, run):
            started.append(run)
            return len(started) <= 2

    limited = Plan(plan.profile, plan.experiments, plan.root, budget=Two(0, 1, 1))
    worker.work(limited)
    assert len(plan.missing(Inputs())) == len(plan.runs()) - 2 and started == plan.runs()[:3]


def test_budget_from_the_command_line(plan, folder, capsys, monkeypatch, in_process):
    """With 900 seconds for LoRA's epoch and the counted ratio, runs end after 0.2, 0.85, 1.06 and 1.7 hours."""
    monkeypatch.setattr(hours, "epoch_seconds", lambda run, device: 900.0)

    def say(*more) -> list[str]:
        options = arguments(folder, "results", "--experiments", "benchmark", "--workers", 1, *more)
        status, output, errors = scripts.outcome("train", capsys, *options)
        assert status == 0, errors
        return output.splitlines()

    listed = say("--list", "--budget", 0.9)
    assert listed[1] == "2 of 4 missing runs fit into 0.9 hours, by a measured step and 100 epochs each"
    assert [line.split("/", 3)[3] for line in listed[2:]] == ["linear/seed0", "lora/seed0"]
    assert say("--list", "--budget", 0.9, "--workers", 2)[1].startswith("4 of 4 missing runs fit"), (
        "in half of the time"
    )
    assert say("--budget", 0.3)[1:] == [
        "1 of 4 missing runs fit into 0.3 hours, by a measured step and 100 epochs each",
        "small: 3 runs are left; the same command goes on",
    ]
    last = say("--budget", 5)
    assert (
        last[1].startswith("3 of 3 missing runs fit") and last[-1] == "small: 0 runs are left; the same command goes on"
    )
    for wrong in (["--budget", "0"], ["--budget", "soon"], ["--budget", "1", "--slurm"]):
        assert "--budget" in scripts.refusal("train", capsys, *arguments(folder)[:4], *wrong)
    assert "--budget" in scripts.refusal("train_language", capsys, "--profile", "mini", "--budget", 1)
