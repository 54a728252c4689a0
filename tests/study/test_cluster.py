"""Workers as jobs of SLURM and what has become of the runs, with stand-ins for its commands.

Jobs run in this process, through the entry point with which submitit starts them.
tests/slurm/run.sh does the same with a real SLURM.
"""

import json
import os
import shlex
import shutil
import signal
import sys
import time
import traceback
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import scripts
import yaml
from filelock import FileLock
from small import PROFILE
from submitit.core.submission import process_job

from pvera.errors import InputError
from pvera.study import cluster
from pvera.study.cluster import Site
from pvera.study.jobs import Run
from pvera.study.plan import Plan
from pvera.study.profiles import Profile
from pvera.study.status import current_state, describe

SITE = {"workers": 3, "minutes": 60, "memory": "2G", "cpus": 1, "gpus": 0, "requeues": 2}
# Each prints the real command's output. jobs.json is the cluster's state: by id the name, the
# script and the states of tasks.
COMMANDS = {
    "sbatch": """
script = open(sys.argv[1]).read()
options = [line[10:] for line in script.splitlines() if line.startswith("#SBATCH --")]
flags = dict(option.partition("=")[::2] for option in options)
if flags.get("partition") == "closed":
    error = "sbatch: error: invalid partition specified: closed"
    sys.exit(f"{error}\\nsbatch: error: submission failed")
tasks = int(flags["array"].split("%")[0].split("-")[1]) + 1 if "array" in flags else 1
states = ["PENDING"] * tasks
job = {"name": flags["job-name"], "flags": flags, "script": script, "states": states}
jobs[str(len(jobs) + 7)] = job
print("Submitted batch job", len(jobs) + 6)
""",
    "squeue": """
names = [a[len("--name="):].split(",") for a in sys.argv if a.startswith("--name=")][0]
assert {"--array", "--me", "--format=%T"} <= {*sys.argv}
for id, job in jobs.items():
    for state in job["states"]:
        if state and job["name"] in names:
            print(state)
""",
    "srun": "",
    "scontrol": """
assert sys.argv[1] == "requeue"
id, _, index = sys.argv[2].partition("_")
jobs[id]["states"][int(index or 0)] = "PENDING"
""",
}


class Cluster:
    """The state of the stand-in for SLURM."""

    def __init__(self, folder: Path):
        self.file = folder / "jobs.json"
        self.file.write_text("{}")
        for name, program in COMMANDS.items():
            script = folder / f"{name}.py"
            script.write_text(
                f"import json, sys\njobs = json.load(open({str(self.file)!r}))\n{program}\n"
                f"json.dump(jobs, open({str(self.file)!r}, 'w'))\n"
            )
            command = shlex.join([sys.executable, "-S", str(script)])  # their path may hold blanks
            (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (folder / name).chmod(0o755)

    @property
    def jobs(self) -> dict:
        return json.loads(self.file.read_text())

    def set(self, id: str, index: int, state: str) -> None:
        """Set one task's state: PENDING, RUNNING, ..., or "" once the cluster has forgotten it."""
        jobs = self.jobs
        jobs[id]["states"][index] = state
        self.file.write_text(json.dumps(jobs))

    def work(self, id: str, index: int = 0) -> int:
        """Run a task in this process and return its exit status."""
        flags = self.jobs[id]["flags"]
        names = {"SLURM_JOB_ID": id}
        log = Path(flags["output"].replace("%j", id))
        if "array" in flags:
            names = {
                "SLURM_JOB_ID": "99",
                "SLURM_ARRAY_JOB_ID": id,
                "SLURM_ARRAY_TASK_ID": str(index),
            }
            log = Path(flags["output"].replace("%A", id).replace("%a", str(index)))
        self.set(id, index, "RUNNING")
        with (
            pytest.MonkeyPatch.context() as patch,
            open(log, "a") as file,
            redirect_stdout(file),
            redirect_stderr(file),
            handlers_kept(),
        ):
            for name, value in (
                names | {"SUBMITIT_EXECUTOR": "slurm", "SUBMITIT_FOLDER": str(log.parent)}
            ).items():
                patch.setenv(name, value)
            try:
                process_job(log.parent)
                status = 0
            except SystemExit as end:
                status = end.code
            except Exception:
                traceback.print_exc()
                status = 1
        if self.jobs[id]["states"][index] == "RUNNING":
            self.set(id, index, "")
        return status


@contextmanager
def handlers_kept():
    """Restore the signal handlers afterwards."""
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGTERM, signal.SIGCONT, signal.SIGUSR2)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.fixture
def slurm(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("slurm")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return Cluster(folder)


def plan_of(folder, *methods, **changes) -> Plan:
    kept = {name: PROFILE["methods"][name] for name in methods}
    profile = Profile.read(folder / "small.yaml").replaced(methods=kept, **changes)
    return Plan(profile, ("beta", "benchmark"), folder / "results")


def submit(plan, **site) -> int:
    return cluster.submit(plan, plan.missing(), Site(**SITE | site))


def states(plan) -> dict[str, str]:
    return {
        f"{job.folder}/{job.label.split('/', 3)[3]}": current_state(job)[0] for job in plan.jobs()
    }


def test_as_many_workers_as_there_are_runs_and_the_site_allows(slurm, plan):
    assert cluster.submit(plan, [], Site(**SITE)) == 0, "nothing can start"
    assert submit(plan, workers=32) == 7 and slurm.jobs["7"]["flags"]["array"] == "0-6%7"
    assert submit(plan, workers=32) == 0, "they are queued"
    slurm.set("7", 0, "RUNNING")
    slurm.set("7", 1, "")
    slurm.set("7", 2, "")
    assert submit(plan, workers=6) == 1 and "array" not in slurm.jobs["8"]["flags"]
    assert cluster.count_workers(plan) == 6
    other = Plan(plan.profile, plan.names, plan.root.with_name("other"))
    assert (
        submit(other, workers=2)
        == submit(Plan(plan.profile, ("benchmark",), plan.root), workers=2)
        == 2
    )


def test_site_reaches_sbatch(slurm, plan):
    options = {"qos": "high; rm -rf /", "exclusive": True}
    submit(plan, partition="long one", account="me", gpus=1, cpus=6, workers=2, options=options)
    job = slurm.jobs["7"]
    expected = {
        "partition": "'long one'",
        "account": "me",
        "time": "60",
        "mem": "2G",
        "cpus-per-task": "6",
        "gpus-per-node": "1",
        "array": "0-1%2",
        "qos": "'high; rm -rf /'",
        "requeue": "",
        "exclusive": "",
    }
    assert expected.items() <= job["flags"].items()
    assert "--cpus-per-task=6" in job["script"].splitlines()[-1], "srun is told as well"
    submit(Plan(plan.profile, plan.names, plan.root.with_name("other")))
    assert not {"partition", "account", "gpus-per-node"} & slurm.jobs["8"]["flags"].keys()


def test_a_failing_run_does_not_end_the_others(slurm, folder):
    plan = plan_of(folder, "linear", datasets=["digits", "vessels"], seeds=[0])
    with pytest.raises(InputError, match="digits/train800.txt cannot be read: .Errno 2"):
        submit(plan)
    assert not slurm.jobs
    shutil.copytree(folder / "data/vessels", folder / "data/digits")
    (folder / "data/digits/images/test7.png").write_bytes(b"no image")
    submit(plan, workers=1)
    assert slurm.work("7") == 1
    found = {job.dataset: current_state(job)[0] for job in plan.jobs()}
    assert found == {"digits": "failed", "vessels": "done"}
    failure = describe(plan).splitlines()[-1]
    assert failure.startswith(
        "failed: benchmark/tiny/digits/linear/seed0: pvera.errors.InputError: "
    )
    assert f"{folder}/data/digits/images/test7.png" in failure
    shutil.copy(folder / "data/vessels/images/test7.png", folder / "data/digits/images")
    assert submit(plan) == 1 and "failed" not in states(plan).values()
    assert slurm.work("8") == 0 and set(states(plan).values()) == {"done"}


def test_states_follow_from_files(slurm, plan):
    linear = next(run for run in plan.jobs() if run.method == "linear")
    assert set(states(plan).values()) == {"missing"}
    linear.path.parent.mkdir(parents=True)
    with FileLock(linear.path.with_suffix(".lock")):
        assert states(plan)["benchmark/linear/seed0"] == "running"
    linear.path.with_suffix(".lock").touch()  # of a worker that was killed
    assert states(plan)["benchmark/linear/seed0"] == "missing"
    linear.execute()
    assert states(plan)["benchmark/linear/seed0"] == "done"
    counts = describe(plan).splitlines()
    assert counts[0].split() == [
        "state",
        "done",
        "diverged",
        "running",
        "failed",
        "missing",
        "different",
    ]
    assert counts[-1].split() == ["total", "1", "0", "0", "0", "4", "0"]
    other = Plan(
        plan.profile.replaced(schedule=plan.profile.schedule.replaced(epochs=1)),
        plan.names,
        plan.root,
    )
    assert states(other)["benchmark/linear/seed0"] == "different"
    # As `--replace` leaves it where it fails.
    linear.path.with_suffix(".failed").write_text("Traceback\nValueError: too short\n")
    assert states(other)["benchmark/linear/seed0"] == "failed"
    assert "seed0: ValueError: too short" in describe(other)
    assert states(plan)["benchmark/linear/seed0"] == "done"
    with pytest.raises(InputError, match="another configuration"):
        submit(other)


def test_a_job_is_requeued_before_its_time_limit_and_resumes(slurm, folder, monkeypatch):
    plan = plan_of(folder, "linear", "lora", seeds=[0])
    submit(plan, workers=1)
    execute = Run.execute

    def until_the_limit(run, *others):
        if run.method == "lora":
            os.kill(os.getpid(), signal.SIGUSR2)  # the time limit is near
            time.sleep(60)
        else:
            execute(run, *others)

    with monkeypatch.context() as first:
        first.setattr(Run, "execute", until_the_limit)
        assert slurm.work("7") != 0
    assert states(plan) == {"benchmark/linear/seed0": "done", "benchmark/lora/seed0": "missing"}
    assert cluster.count_workers(plan) == 1
    before = next(run.path for run in plan.jobs() if run.method == "linear").stat().st_mtime_ns
    assert slurm.work("7") == 0
    assert set(states(plan).values()) == {"done"}
    assert (
        before == next(run.path for run in plan.jobs() if run.method == "linear").stat().st_mtime_ns
    )


# The command line


def train(folder, capsys, *arguments) -> tuple[int, str, str]:
    """Run train.py and return its exit status, output and errors."""
    files = ["--profile", folder / "small.yaml", "--results", folder / "results"]
    return scripts.outcome("train", capsys, *files, *arguments)


def test_bad_input_is_one_line_and_exit_code_2(slurm, folder, capsys, monkeypatch):
    def refused(message, *arguments, **site) -> None:
        (folder / "site.yaml").write_text(yaml.safe_dump(SITE | site))
        status, _, errors = train(folder, capsys, *(arguments or ("--slurm", folder / "site.yaml")))
        line = errors.splitlines()[-1]  # sbatch's own words come before it
        assert status == 2 and line.startswith("error: ") and message in line

    refused("partitions: unknown key", partitions="a")
    refused("gpus: Input should be less than or equal to 1, not 2", gpus=2)
    refused("options.qos.constrained-str: String ", options={"qos": "a\n#SBATCH --x"})
    refused("invalid partition specified: closed", partition="closed")
    refused("--device and --workers", "--slurm", "--workers", "2")
    monkeypatch.setenv("PATH", str(slurm.file.parent))
    (slurm.file.parent / "sbatch").unlink()
    refused("sbatch is not on PATH")
    assert not slurm.jobs and not list(folder.rglob("*.pkl"))
