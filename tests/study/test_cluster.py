"""What is submitted to SLURM and what has become of it, with stand-ins for its commands. Jobs run for real,
through the entry point with which submitit starts them: in this process, and once, slowly, in their own with

    bash run_tests.sh -m slow -k signals_to_a_real_process

tests/slurm/run.sh does the same with a real SLURM."""

import json
import os
import shutil
import signal
import threading
import time
from types import SimpleNamespace

import pytest
from slurm_like import SITE, Cluster, folder, only, profile, root, slurm, states, submit, submitted  # noqa: F401  fixtures among them
from test_train_cli import until

from pvera.errors import InputError
from pvera.study import cluster, runs, scheduler
from pvera.study.profiles import Profile


def test_runs_are_packed_and_arrays_split(slurm, profile, root):
    made = submit(profile, root, runs_per_job=1, array_limit=3)
    assert made == cluster.Submission(runs=7, done=0, active=0, new=7, jobs=7)
    assert [[len(job) for job in array] for array in submitted(root)] == [[1], [1, 1, 1], [1], [1, 1]]
    assert [job["flags"].get("array") for job in slurm.jobs.values()] == [None, "0-2%3", None, "0-1%2"]
    assert len({path for array in submitted(root) for job in array for path in job}) == 7

    made = submit(profile, root.with_name("other"), runs_per_job=3, array_limit=3)
    assert [[len(job) for job in array] for array in submitted(root.with_name("other"))] == [[1], [3, 1], [2]]


def test_search_of_beta_goes_first_and_dependent_runs_wait(slurm, profile, root):
    submit(profile, root)
    searches, ready, waiting = submitted(root)
    assert searches == [["beta/tiny/vessels/pvera/seed0"]]
    assert not any("pvera" in path for job in ready for path in job)
    assert waiting == [["benchmark/tiny/vessels/pvera/seed0", "benchmark/tiny/vessels/pvera/seed1"]]
    assert [job["flags"].get("dependency") for job in slurm.jobs.values()] == [None, None, "afterany:7"]
    # What waits for a search that was submitted earlier waits for that one.
    slurm.set("9", 0, "")
    assert submit(profile, root).new == 2
    assert slurm.jobs["10"]["flags"]["dependency"] == "afterany:7"
    assert submit(profile.with_(seeds=[0, 5], methods=only("pvera")), root).new == 1
    assert slurm.jobs["11"]["flags"]["dependency"] == "afterany:7"


def test_a_grid_that_the_first_seed_searches_waits_for_beta_and_the_others_for_it(slurm, profile, root):
    grid = {"pvera": {"rank": 4, "grid": {"learning_rate": [1e-2, 1e-3]}, "most_chosen": 1e-2}}
    submit(profile.with_(search_once=True, methods=grid), root)
    assert submitted(root) == [
        [["beta/tiny/vessels/pvera/seed0"]],
        [["benchmark/tiny/vessels/pvera/seed0"]],
        [["benchmark/tiny/vessels/pvera/seed1"]],
    ]
    assert [job["flags"].get("dependency") for job in slurm.jobs.values()] == [None, "afterany:7", "afterany:7:8"]


def test_site_reaches_sbatch(slurm, profile, root):
    submit(
        profile,
        root,
        partition="long one",
        account="me",
        gpus=2,
        cpus=6,
        concurrent_jobs=1,
        options={"qos": "high; rm -rf /", "exclusive": True},
    )
    job = slurm.jobs["8"]
    expected = {
        "partition": "'long one'",
        "account": "me",
        "time": "60",
        "mem": "2G",
        "cpus-per-task": "6",
        "gpus-per-node": "2",
        "array": "0-1%1",
        "qos": "'high; rm -rf /'",
        "requeue": "",
        "exclusive": "",
    }
    assert expected.items() <= job["flags"].items()
    assert "--cpus-per-task=6" in job["script"].splitlines()[-1], "srun is told as well"
    submit(profile, root.with_name("other"))
    assert not {"partition", "account", "gpus-per-node"} & slurm.jobs["10"]["flags"].keys()


def test_nothing_is_submitted_twice(slurm, profile, root):
    submit(profile, root)
    before = slurm.jobs
    slurm.set("8", 0, "RUNNING")
    assert submit(profile, root) == cluster.Submission(runs=7, done=0, active=7, new=0, jobs=0)
    assert slurm.jobs.keys() == before.keys()

    slurm.set("8", 1, "")  # gone without its two results
    assert submit(profile, root) == cluster.Submission(runs=7, done=0, active=5, new=2, jobs=1)
    assert submitted(root)[-1] == [submitted(root)[1][1]]
    assert submit(profile, root).new == 0


def test_jobs_are_known_after_a_crash_in_the_middle_of_the_submission(slurm, profile, root, monkeypatch):
    import submitit.core.utils

    def crash(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(submitit.core.utils.JobPaths, "move_temporary_file", crash)  # follows sbatch
    with pytest.raises(KeyboardInterrupt):
        submit(profile, root)
    monkeypatch.undo()
    monkeypatch.setenv("PATH", f"{slurm.file.parent}{os.pathsep}{os.environ['PATH']}")
    assert len(slurm.jobs) == 1
    assert submit(profile, root).active == 1


def test_states_follow_from_the_result_files_first(slurm, profile, root):
    assert set(states(profile, root).values()) == {"missing"}
    submit(profile, root)
    assert set(states(profile, root).values()) == {"queued"}
    slurm.set("8", 0, "RUNNING")
    linear, lora = [run for run in profile.runs("benchmark", root) if run.seed == 0 and run.method != "pvera"]
    runs.execute(linear)
    before = states(profile, root)
    assert before["benchmark/linear/0"] == "done", "though its job still runs"
    assert before["benchmark/lora/0"] == "running"
    slurm.set("8", 0, "")
    assert states(profile, root) == before | {"benchmark/lora/0": "failed"}, "completed, but without result"
    text = cluster.describe(cluster.status(profile, root))
    assert text.splitlines()[-3:] == ["failed: benchmark/tiny/vessels/lora/seed0", "", "  | it never started"]
    assert text.splitlines()[-5].split() == ["total", "1", "0", "5", "1", "0"]

    other = profile.with_(training=runs.TrainingConfig(epochs=1))
    assert states(other, root)["benchmark/linear/0"] == "different"
    with pytest.raises(InputError, match="another configuration"):
        submit(other, root)


def test_jobs_train_and_a_failing_run_does_not_end_the_others(slurm, in_process, folder, profile, root):
    profile = profile.with_(datasets=["digits", "vessels"], seeds=[0], methods=only("linear"))
    with pytest.raises(InputError, match="digits/train800.txt does not exist"):
        submit(profile, root)
    assert not slurm.jobs
    shutil.copytree(folder / "data/vessels", folder / "data/digits", ignore=shutil.ignore_patterns("test7.png"))
    submit(profile, root)
    assert slurm.work("7") == 1
    table = cluster.status(profile, root)
    assert dict(zip(table.dataset, table.state)) == {"digits": "failed", "vessels": "done"}
    assert cluster.describe(table).splitlines()[-1] == (
        "  | RuntimeError: 1 of 2 runs failed; tiny/digits/linear/seed0: "
        f"{folder}/data/digits/test.txt, line 8: image {folder}/data/digits/images/test7.png does not exist"
    )
    before = (root / "small/benchmark/tiny/vessels/linear/seed0.json").stat().st_mtime_ns
    assert submit(profile, root) == cluster.Submission(runs=2, done=1, active=0, new=1, jobs=1)
    assert (root / "small/benchmark/tiny/vessels/linear/seed0.json").stat().st_mtime_ns == before


def test_beta_is_looked_up_when_the_job_starts(slurm, in_process, profile, root):
    profile = profile.with_(seeds=[0], methods=only("pvera"))
    submit(profile, root)
    assert slurm.work("8") == 1
    assert "β of vessels is not known" in cluster.describe(cluster.status(profile, root))
    assert slurm.work("7") == 0
    submit(profile, root)
    assert slurm.work("9") == 0
    assert set(states(profile, root).values()) == {"done"}
    beta, benchmark = (
        json.loads((root / f"small/{part}/tiny/vessels/pvera/seed0.json").read_text()) for part in ("beta", "benchmark")
    )
    assert {m["beta"] for m in benchmark["config"]["members"]} == {beta["chosen"]["grid"]["beta"]}


def two_runs(profile) -> Profile:
    return profile.with_(seeds=[0], methods=only("linear", "lora"))


def test_job_is_requeued_before_its_time_limit_and_resumes(slurm, in_process, profile, root, monkeypatch):
    profile = two_runs(profile)
    submit(profile, root)
    end, execute = threading.Event(), runs.execute

    def until_the_limit(run, *others):
        if run.method == "lora":
            os.kill(os.getpid(), signal.SIGUSR2)  # the time limit is near
            end.wait(60)
        else:
            execute(run, *others)

    with monkeypatch.context() as first:
        first.setattr(runs, "execute", until_the_limit)
        workers = {0: SimpleNamespace(kill=end.set)}
        first.setattr(scheduler.ProcessPoolExecutor, "_processes", workers, raising=False)
        assert slurm.work("7") != 0
    assert end.is_set(), "no worker outlives its job"
    assert states(profile, root) == {"benchmark/linear/0": "done", "benchmark/lora/0": "queued"}
    assert slurm.work("7") == 0
    assert "1 of 2 runs are there" in log(root)
    assert set(states(profile, root).values()) == {"done"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_signals_to_a_real_process(slurm, profile, root):
    profile = two_runs(profile.with_(training=runs.TrainingConfig(epochs=400, patience=400)))
    submit(profile, root)
    process = slurm.start("7")
    first = root / "small/benchmark/tiny/vessels/linear/seed0.json"
    until(first.exists, process)
    os.killpg(process.pid, signal.SIGTERM)  # a warning, which SLURM may send to the whole process tree
    time.sleep(1)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGUSR2)  # the time limit is near
    assert process.wait() != 0
    assert "Requeued job 7" in log(root) and "killed" not in log(root)
    assert states(profile, root) == {"benchmark/linear/0": "done", "benchmark/lora/0": "queued"}
    again = slurm.start("7")
    until(lambda: "1 of 2 runs are there" in log(root), again)
    os.killpg(again.pid, signal.SIGKILL)
    again.wait()


def log(root) -> str:
    (path,) = root.glob("small/slurm/*/*_log.out")
    return path.read_text()
