"""Workers as jobs of SLURM and what has become of the runs, with stand-ins for its commands.

Jobs run in this process, through the entry point with which submitit starts them. tests/slurm/run.sh does the same with
a real SLURM.
"""

import os
import shutil
import signal
import time

import pytest
import scripts
import yaml
from filelock import FileLock
from slurm_like import SITE, slurm  # noqa: F401  a fixture
from small import PROFILE

from pvera.errors import InputError
from pvera.study import cluster
from pvera.study.cluster import Site
from pvera.study.profiles import Profile
from pvera.study.runs import Run
from pvera.study.worker import Plan


def plan_of(folder, *methods, **changes) -> Plan:
    kept = {name: PROFILE["methods"][name] for name in methods}
    profile = Profile.read(folder / "small.yaml").with_(methods=kept, **changes)
    return Plan(profile, ("beta", "benchmark"), folder / "results")


@pytest.fixture
def plan(folder):
    """A search of β (1 run), linear, lora (4 runs), and pvera, which needs it (2)."""
    return plan_of(folder, *PROFILE["methods"])


def submit(plan, **site) -> int:
    return cluster.submit(plan, Site(**SITE | site))


def states(plan) -> dict[str, str]:
    table = cluster.status(plan)
    return {f"{run.experiment}/{run.name.split('/', 2)[2]}": run.state for run in table.itertuples()}


def test_as_many_workers_as_there_are_runs_and_the_site_allows(slurm, plan):
    assert submit(plan, workers=32) == 5 and slurm.jobs["7"]["flags"]["array"] == "0-4%5"
    assert submit(plan, workers=32) == 0, "they are queued"
    slurm.set("7", 0, "RUNNING")
    slurm.set("7", 1, "")
    slurm.set("7", 2, "")
    assert submit(plan, workers=4) == 1 and "array" not in slurm.jobs["8"]["flags"]
    assert cluster.active(plan) == 4
    other = Plan(plan.profile, plan.experiments, plan.root.with_name("other"))
    assert submit(other, workers=2) == 2, "of other results"


def test_site_reaches_sbatch(slurm, plan):
    options = {"qos": "high; rm -rf /", "exclusive": True}
    submit(plan, partition="long one", account="me", gpus=1, cpus=6, workers=2, options=options)
    job = slurm.jobs["7"]
    expected = {"partition": "'long one'", "account": "me", "time": "60", "mem": "2G", "cpus-per-task": "6",
                "gpus-per-node": "1", "array": "0-1%2", "qos": "'high; rm -rf /'", "requeue": "",
                "exclusive": ""}  # fmt: skip
    assert expected.items() <= job["flags"].items()
    assert "--cpus-per-task=6" in job["script"].splitlines()[-1], "srun is told as well"
    submit(Plan(plan.profile, plan.experiments, plan.root.with_name("other")))
    assert not {"partition", "account", "gpus-per-node"} & slurm.jobs["8"]["flags"].keys()


def test_a_failing_run_does_not_end_the_others(slurm, folder):
    plan = plan_of(folder, "linear", datasets=["digits", "vessels"], seeds=[0])
    with pytest.raises(InputError, match="digits/train800.txt does not exist"):
        submit(plan)
    assert not slurm.jobs
    shutil.copytree(folder / "data/vessels", folder / "data/digits")
    (folder / "data/digits/images/test7.png").write_bytes(b"no image")
    submit(plan, workers=1)
    assert slurm.work("7") == 1
    table = cluster.status(plan)
    assert dict(zip(table.dataset, table.state)) == {"digits": "failed", "vessels": "done"}
    failure = cluster.describe(table).splitlines()[-1]
    assert failure.startswith("failed: benchmark/tiny/digits/linear/seed0: pvera.errors.InputError: ")
    assert f"{folder}/data/digits/images/test7.png" in failure
    shutil.copy(folder / "data/vessels/images/test7.png", folder / "data/digits/images")
    assert submit(plan) == 1 and "failed" not in cluster.status(plan).state.values
    assert slurm.work("8") == 0 and set(states(plan).values()) == {"done"}


def test_states_follow_from_files(slurm, plan):
    linear = next(run for run in plan.runs() if run.method == "linear")
    assert set(states(plan).values()) == {"missing"}
    linear.path.parent.mkdir(parents=True)
    with FileLock(linear.path.with_suffix(".lock")):
        assert states(plan)["benchmark/linear/seed0"] == "running"
    linear.path.with_suffix(".lock").touch()  # of a worker that was killed
    assert states(plan)["benchmark/linear/seed0"] == "missing"
    linear.execute()
    assert states(plan)["benchmark/linear/seed0"] == "done"
    counts = cluster.describe(cluster.status(plan)).splitlines()
    assert counts[0].split() == ["state", "done", "running", "failed", "missing", "different"]
    assert counts[-1].split() == ["total", "1", "0", "0", "4", "0"]
    other = Plan(plan.profile.with_(training=plan.profile.training.with_(epochs=1)), plan.experiments, plan.root)
    assert states(other)["benchmark/linear/seed0"] == "different"
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
    assert cluster.active(plan) == 1
    before = next(run.path for run in plan.runs() if run.method == "linear").stat().st_mtime_ns
    assert slurm.work("7") == 0
    assert set(states(plan).values()) == {"done"}
    assert before == next(run.path for run in plan.runs() if run.method == "linear").stat().st_mtime_ns


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
