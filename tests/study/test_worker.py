"""Workers: claims, failures, what others do meanwhile, and runs that can start later."""

import multiprocessing
import threading
from unittest.mock import MagicMock

import pytest
from filelock import FileLock
from small import profile_with

from pvera import InputError
from pvera.study import worker
from pvera.study.profiles import Profile
from pvera.study.runs import Run
from pvera.study.worker import Plan, claimed, failure, work, work_together

EXPERIMENTS = ("beta", "benchmark")


@pytest.fixture
def plan(folder):
    """A search of β (1 run), linear, lora (4 runs), and pvera, which needs it (2)."""
    return Plan(Profile.read(folder / "small.yaml"), EXPERIMENTS, folder / "results")


def names(runs) -> list[str]:
    return [f"{run.experiment}/{run.method}/{run.seed}" for run in runs]


def test_what_a_run_needs_is_found_first(plan):
    assert names(plan.runs()) == [
        "beta/pvera/0",
        *(f"benchmark/{m}/{s}" for s in (0, 1) for m in ("linear", "lora")),
    ]
    steps = []
    work(plan, on_step=lambda *step: steps.append(step))
    assert len(plan.runs()) == 7 and plan.missing() == []
    search = plan.runs()[0]
    assert search.name == "tiny/vessels/pvera/seed0"
    assert steps[:3] == [(search, 1, 2), (search, 2, 2), (search, 0, 0)]
    before = {path: path.stat().st_mtime_ns for path in plan.root.rglob("seed*")}
    assert {path.suffix for path in before} == {".json", ".npz", ".safetensors"}, "no lock is left"
    work(plan)
    assert before == {path: path.stat().st_mtime_ns for path in plan.root.rglob("seed*")}


def test_large_grids_come_first(plan, folder):
    benchmark = {"benchmark": {"keep": True}}
    profile_with(folder, experiments=benchmark, methods={"linear": {}, "lora": {"grid": {"rank": [2, 4]}}})
    profile = Profile.read(folder / "small.yaml")
    listed = Plan(profile, ("benchmark",), folder / "other").missing()
    assert [run.method for run in listed] == ["lora", "lora", "linear", "linear"]


def test_results_of_another_configuration_are_replaced_on_request_only(plan, folder):
    work(plan)
    other = plan.profile.with_(training=plan.profile.training.with_(epochs=1))
    with pytest.raises(InputError, match="^7 result files were made with another configuration, .*--replace"):
        Plan(other, EXPERIMENTS, plan.root).missing()
    replacing = Plan(other, EXPERIMENTS, plan.root, replace=True)
    work(replacing)
    assert Plan(other, EXPERIMENTS, plan.root).missing() == []


def test_a_claimed_run_is_left_to_its_worker(plan, monkeypatch):
    """The others go on, and wait for what it does."""
    mine, *others = plan.runs()
    executed, execute = [], Run.execute

    def noted(run, *arguments):
        execute(run, *arguments)
        executed.append(run)

    monkeypatch.setattr(Run, "execute", noted)
    mine.path.parent.mkdir(parents=True)
    with FileLock(mine.path.with_suffix(".lock")):
        with claimed(mine) as free:
            assert not free
        other = threading.Thread(target=work, args=(plan,))
        other.start()
        while len(executed) < len(others):
            assert other.is_alive()
        other.join(2)
        assert other.is_alive() and executed == others
        execute(mine)
    other.join()
    assert len(executed) == 6 and plan.missing() == []


def test_a_run_that_another_worker_has_finished_is_not_trained_again(plan, monkeypatch):
    """It was missing when this worker made its list."""
    executed, execute = [], Run.execute

    def beside_another(run, *arguments):
        executed.append(run)
        execute(run, *arguments)
        for other in plan.missing():
            execute(other)

    monkeypatch.setattr(Run, "execute", beside_another)
    first = plan.runs()[0]
    work(plan)
    assert executed == [first] and plan.missing() == []


def failing(monkeypatch, error: Exception) -> None:
    """Let trainings of LoRA fail."""
    execute = Run.execute

    def fail(run, *arguments):
        if run.method == "lora":
            raise error
        execute(run, *arguments)

    monkeypatch.setattr(Run, "execute", fail)


def test_a_failure_ends_a_worker_or_is_left_beside_its_place(plan, monkeypatch):
    failing(monkeypatch, KeyError("gone"))
    with pytest.raises(RuntimeError, match="^tiny/vessels/lora/seed0: 'gone'$"):
        work(plan)
    assert not list(plan.root.rglob("*.failed"))
    with pytest.raises(RuntimeError, match="^2 runs failed, the first is tiny/vessels/lora/seed0$"):
        work(plan, keep_going=True)
    failed = plan.missing()
    assert names(failed) == ["benchmark/lora/0", "benchmark/lora/1"]
    assert all(failure(run).read_text().endswith("KeyError: 'gone'\n") for run in failed)
    work(plan, keep_going=True)  # passes them by
    monkeypatch.undo()
    work_together(plan, failed, 1, "cpu")
    assert plan.missing() == [] and not list(plan.root.rglob("*.failed"))


def test_a_failure_in_one_of_several_processes_ends_the_others(plan, folder, capfd):
    for image in (folder / "data/vessels/images").glob("*.png"):
        image.write_bytes(b"no image")
    with pytest.raises(InputError, match="/images/"):
        work_together(plan, plan.missing(), 2, "cpu")


def test_a_killed_process_ends_the_others(plan, monkeypatch):
    step = MagicMock(side_effect=lambda *_: multiprocessing.active_children()[0].kill())
    with pytest.raises(RuntimeError, match="a worker was killed, perhaps for lack of memory"):
        worker._in_processes(plan, 2, "cpu", step)
