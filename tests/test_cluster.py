"""What is submitted to SLURM and what has become of it, with stand-ins for its commands. Jobs run for real,
through the entry point with which submitit starts them: in this process, and once, slowly, in their own with

    bash run_tests.sh -m slow -k signals_to_a_real_process

tests/slurm/run.sh does the same with a real SLURM."""

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import traceback
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest
import scripts
import torch
import yaml
from submitit.core.submission import process_job
from test_train_cli import PROFILE, folder, until  # noqa: F401  folder is a fixture

from pvera.errors import InputError
from pvera.study import cluster, runs, scheduler
from pvera.study.cluster import Site
from pvera.study.profiles import Profile

SITE = {
    "minutes": 60,
    "memory": "2G",
    "cpus": 1,
    "gpus": 0,
    "workers": 1,
    "runs_per_job": 2,
    "concurrent_jobs": 5,
    "array_limit": 3,
    "requeues": 2,
}
# Each prints what the real one would; jobs.json is the cluster's memory: id -> name, script, tasks' states.
COMMANDS = {
    "sbatch": """
script = open(sys.argv[1]).read()
flags = dict(line[10:].partition("=")[::2] for line in script.splitlines() if line.startswith("#SBATCH --"))
if flags.get("partition") == "closed":
    sys.exit("sbatch: error: invalid partition specified: closed\\nsbatch: error: submission failed")
tasks = int(flags["array"].split("%")[0].split("-")[1]) + 1 if "array" in flags else 1
states = ["PENDING"] * tasks
jobs[str(len(jobs) + 7)] = {"name": flags["job-name"], "flags": flags, "script": script, "states": states}
print("Submitted batch job", len(jobs) + 6)
""",
    "squeue": """
names = [a[len("--name="):].split(",") for a in sys.argv if a.startswith("--name=")][0]
assert "--array" in sys.argv and "--format=%i %T %j" in sys.argv
for id, job in jobs.items():
    for index, state in enumerate(job["states"]):
        if state and job["name"] in names:
            print(id + f"_{index}" * ("array" in job["flags"]), state, job["name"])
""",
    "srun": "",
    "scontrol": """
assert sys.argv[1] == "requeue"
id, _, index = sys.argv[2].partition("_")
jobs[id]["states"][int(index or 0)] = "PENDING"
""",
}


class Cluster:
    """SLURM's memory, seen from outside."""

    def __init__(self, folder: Path):
        self.file = folder / "jobs.json"
        self.file.write_text("{}")
        for name, program in COMMANDS.items():
            path = folder / name
            path.write_text(
                f"#!{sys.executable} -S\nimport json, sys\n"
                f"jobs = json.load(open({str(self.file)!r}))\n{program}\n"
                f"json.dump(jobs, open({str(self.file)!r}, 'w'))\n"
            )
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    @property
    def jobs(self) -> dict:
        return json.loads(self.file.read_text())

    def set(self, id: str, index: int, state: str) -> None:
        """Of one task: PENDING, RUNNING, ..., or "" when the cluster has forgotten it."""
        jobs = self.jobs
        jobs[id]["states"][index] = state
        self.file.write_text(json.dumps(jobs))

    def task(self, id: str, index: int) -> tuple[Path, dict[str, str]]:
        """Log and environment of a task that starts now."""
        flags = self.jobs[id]["flags"]
        names = {"SLURM_JOB_ID": id}
        log = flags["output"].replace("%j", id)
        if "array" in flags:
            names = {"SLURM_JOB_ID": "99", "SLURM_ARRAY_JOB_ID": id, "SLURM_ARRAY_TASK_ID": str(index)}
            log = flags["output"].replace("%A", id).replace("%a", str(index))
        self.set(id, index, "RUNNING")
        return Path(log), names | {"SUBMITIT_EXECUTOR": "slurm"}

    def start(self, id: str, index: int = 0) -> subprocess.Popen:
        """A task in a process group of its own."""
        log, names = self.task(id, index)
        with open(log, "a") as file:
            return subprocess.Popen(
                [sys.executable, "-u", "-m", "submitit.core._submit", log.parent],
                stdout=file,
                stderr=file,
                env=os.environ | names,
                start_new_session=True,
            )

    def work(self, id: str, index: int = 0) -> int:
        """A task from its start to its end, in this process; its exit status."""
        log, names = self.task(id, index)
        with (
            pytest.MonkeyPatch.context() as patch,
            open(log, "a") as file,
            redirect_stdout(file),
            redirect_stderr(file),
            handlers_kept(),
        ):
            for name, value in (names | {"SUBMITIT_FOLDER": str(log.parent)}).items():
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
    """Signals are handled afterwards as they were before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGCONT, signal.SIGUSR2)}
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


@pytest.fixture
def profile(folder):
    # β search: 1 run; linear, lora: 4 runs; pvera: 2 runs that need β
    return Profile.read(folder / "small.yaml")


@pytest.fixture
def root(folder):
    return folder / "results"


def submit(profile, root, **site) -> cluster.Submission:
    return cluster.submit(profile, root, Site(**SITE | site))


def states(profile, root) -> dict[str, str]:
    table = cluster.status(profile, root)
    return {f"{r.experiment}/{r.method}/{r.seed}": r.state for r in table.itertuples()}


def only(*names) -> dict:
    return {name: PROFILE["methods"][name] for name in names}


def submitted(root) -> list[list[list[str]]]:
    """Per array the runs of each of its jobs."""
    files = sorted(root.glob("small/slurm/*/submission.json"))
    return [
        [[path.removeprefix("small/").removesuffix(".json") for path in job] for job in record["jobs"]]
        for record in (json.loads(file.read_text()) for file in files)
    ]


def test_runs_are_packed_and_arrays_split(slurm, profile, root):
    made = submit(profile, root, runs_per_job=1, array_limit=3)
    assert made == cluster.Submission(runs=7, done=0, active=0, new=7, jobs=7)
    assert [[len(job) for job in array] for array in submitted(root)] == [[1], [1, 1, 1], [1], [1, 1]]
    assert [job["flags"].get("array") for job in slurm.jobs.values()] == [None, "0-2%3", None, "0-1%2"]
    assert len({path for array in submitted(root) for job in array for path in job}) == 7

    made = submit(profile, root.with_name("other"), runs_per_job=3, array_limit=3)
    assert [[len(job) for job in array] for array in submitted(root.with_name("other"))] == [[1], [3, 1], [2]]


def test_search_of_beta_goes_first_and_what_needs_it_waits(slurm, profile, root):
    submit(profile, root)
    searches, ready, waiting = submitted(root)
    assert searches == [["beta/tiny/retina/pvera/seed0"]]
    assert not any("pvera" in path for job in ready for path in job)
    assert waiting == [["benchmark/tiny/retina/pvera/seed0", "benchmark/tiny/retina/pvera/seed1"]]
    assert [job["flags"].get("dependency") for job in slurm.jobs.values()] == [None, None, "afterany:7"]
    # What waits for a search that was submitted earlier waits for that one.
    slurm.set("9", 0, "")
    assert submit(profile, root).new == 2
    assert slurm.jobs["10"]["flags"]["dependency"] == "afterany:7"
    assert submit(profile.with_(seeds=[0, 5], methods=only("pvera")), root).new == 1
    assert slurm.jobs["11"]["flags"]["dependency"] == "afterany:7"


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


def test_states_are_told_by_the_result_files_first(slurm, profile, root):
    assert set(states(profile, root).values()) == {"missing"}
    submit(profile, root)
    assert set(states(profile, root).values()) == {"queued"}
    slurm.set("8", 0, "RUNNING")
    linear, lora = [run for run in profile.runs("benchmark", root) if run.seed == 0 and run.method != "pvera"]
    runs.execute(linear)
    found = states(profile, root)
    assert found["benchmark/linear/0"] == "done", "though its job still runs"
    assert found["benchmark/lora/0"] == "running"
    slurm.set("8", 0, "")
    assert states(profile, root) == found | {"benchmark/lora/0": "failed"}, "completed, but without result"
    text = cluster.describe(cluster.status(profile, root))
    assert text.splitlines()[-3:] == ["failed: benchmark/tiny/retina/lora/seed0", "", "  | it never started"]
    assert text.splitlines()[-5].split() == ["total", "1", "0", "5", "1", "0"]

    other = profile.with_(training=runs.TrainingConfig(epochs=1))
    assert states(other, root)["benchmark/linear/0"] == "different"
    with pytest.raises(InputError, match="another configuration"):
        submit(other, root)


def test_jobs_train_and_a_failing_run_does_not_end_the_others(slurm, in_process, folder, profile, root):
    profile = profile.with_(datasets=["digits", "retina"], seeds=[0], methods=only("linear"))
    with pytest.raises(InputError, match="digits/train800.txt does not exist"):
        submit(profile, root)
    assert not slurm.jobs
    shutil.copytree(folder / "data/retina", folder / "data/digits", ignore=shutil.ignore_patterns("test7.png"))
    submit(profile, root)
    assert slurm.work("7") == 1
    table = cluster.status(profile, root)
    assert dict(zip(table.dataset, table.state)) == {"digits": "failed", "retina": "done"}
    assert cluster.describe(table).splitlines()[-1] == (
        "  | RuntimeError: 1 of 2 runs failed; tiny/digits/linear/seed0: "
        f"{folder}/data/digits/test.txt, line 8: image {folder}/data/digits/images/test7.png does not exist"
    )
    before = (root / "small/benchmark/tiny/retina/linear/seed0.json").stat().st_mtime_ns
    assert submit(profile, root) == cluster.Submission(runs=2, done=1, active=0, new=1, jobs=1)
    assert (root / "small/benchmark/tiny/retina/linear/seed0.json").stat().st_mtime_ns == before


def test_beta_is_looked_up_when_the_job_starts(slurm, in_process, profile, root):
    profile = profile.with_(seeds=[0], methods=only("pvera"))
    submit(profile, root)
    assert slurm.work("8") == 1
    assert "β of retina is not known" in cluster.describe(cluster.status(profile, root))
    assert slurm.work("7") == 0
    submit(profile, root)
    assert slurm.work("9") == 0
    assert set(states(profile, root).values()) == {"done"}
    beta, benchmark = (
        json.loads((root / f"small/{part}/tiny/retina/pvera/seed0.json").read_text()) for part in ("beta", "benchmark")
    )
    assert {m["beta"] for m in benchmark["config"]["members"]} == {beta["chosen"]["grid"]["beta"]}


def two_runs(profile) -> Profile:
    return profile.with_(seeds=[0], methods=only("linear", "lora"))


def test_job_is_requeued_before_its_time_limit_and_goes_on_with_what_is_missing(
    slurm, in_process, profile, root, monkeypatch
):
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
    first = root / "small/benchmark/tiny/retina/linear/seed0.json"
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


def test_two_submissions_at_once(slurm, profile, root):
    (root / "small/slurm").mkdir(parents=True)
    with open(root / "small/slurm/lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="under way"):
            submit(profile, root)
    assert submit(profile, root).new == 7


def test_refusal_of_sbatch_leaves_nothing(slurm, profile, root):
    with pytest.raises(InputError, match="invalid partition specified: closed"):
        submit(profile, root, partition="closed")
    assert not submitted(root) and states(profile, root)["beta/pvera/0"] == "missing"


def test_without_an_answer_of_squeue_nothing_is_submitted(slurm, profile, root):
    submit(profile, root)
    program = "#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n"
    (slurm.file.parent / "squeue").write_text(program)
    with pytest.raises(InputError, match="squeue failed: Unable to contact"):
        submit(profile, root)


def test_waiting_ends_when_the_cluster_has_no_more_jobs(slurm, profile, root, monkeypatch):
    submit(profile, root)
    left = [(id, i) for id, job in slurm.jobs.items() for i in range(len(job["states"]))]
    monkeypatch.setattr(cluster, "time", SimpleNamespace(sleep=lambda seconds: slurm.set(*left.pop(), "")))
    cluster.wait(profile, root)
    assert left == []


def git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    command = ["git", "-C", folder, *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_code_version(tmp_path):
    assert cluster.code_version(tmp_path)["commit"] is None
    (tmp_path / "pvera").mkdir()
    (tmp_path / "pvera/a.py").write_text("1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "a")
    (tmp_path / "results.json").write_text("1")
    found = cluster.code_version(tmp_path)
    assert found["commit"] == git(tmp_path, "rev-parse", "HEAD").strip() and found["dirty"] is False
    (tmp_path / "pvera/a.py").write_text("2")
    assert cluster.code_version(tmp_path)["dirty"] is True


def test_code_version_is_recorded(slurm, profile, root):
    submit(profile, root)
    record = json.loads(next(root.glob("small/slurm/*/submission.json")).read_text())
    assert record["code"] == cluster.code_version()


# The command line


def train(folder, capsys, *arguments) -> tuple[int, str, str]:
    """Exit status of train.py, its output, and its errors."""
    files = ["--profile", folder / "small.yaml", "--results", folder / "results"]
    return scripts.outcome("train", capsys, *files, *arguments)


def test_command_line(slurm, folder, capsys):
    site = folder / "site.yaml"
    site.write_text(yaml.safe_dump(SITE))
    status, output, _ = train(folder, capsys, "--slurm", site)
    assert (status, output) == (
        0,
        "small: 0 of 7 runs are there, 0 were queued or running, 7 are submitted now in 4 jobs\n",
    )
    status, output, _ = train(folder, capsys, "--status")
    assert output.splitlines()[-1].split() == ["total", "0", "0", "7", "0", "0"] and status == 0


def test_default_site_is_valid(slurm, folder, capsys):
    status, _, errors = train(folder, capsys, "--slurm")
    assert (status, errors) == (0, "")


BAD = {
    "unknown key": ({"partitions": "a"}, "partitions: unknown key; did you mean 'partition'?"),
    "no number": ({"cpus": "four"}, "cpus: must be a whole number from 1, not 'four'"),
    "no runs": ({"runs_per_job": 0}, "runs_per_job: must be a whole number from 1, not 0"),
    "negative": ({"gpus": -1}, "gpus: must be a whole number from 0, not -1"),
    "time in words": ({"minutes": "1h"}, "minutes: must be a whole number from 1, not '1h'"),
    "memory": ({"memory": 32}, "memory: must be a size such as 32G, not 32"),
    "two lines": ({"partition": "a\nb"}, "partition: must be text on one line, not 'a\\nb'"),
    "options in a list": ({"options": ["qos"]}, "options: must be a mapping, not ['qos']"),
    "list as an option": ({"options": {"qos": [1]}}, "options.qos: must be one value, not [1]"),
    "option of two lines": ({"options": {"qos": "a\n#SBATCH --x"}}, "options.qos: must be one value"),
    "option": ({"options": {"qos=1\n#SBATCH --x": 1}}, "must be text on one line"),
    "no option": ({"options": {"QoS": 1}}, "options: 'QoS' cannot stand in options"),
    "taken option": ({"options": {"job-name": "mine"}}, "'job-name' cannot stand in options"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_site_is_one_line_and_exit_code_2(case, slurm, folder, capsys):
    change, message = BAD[case]
    (folder / "site.yaml").write_text(yaml.safe_dump(SITE | change))
    refused(message, train(folder, capsys, "--slurm", folder / "site.yaml"))
    assert not slurm.jobs and not (folder / "results").exists()


def refused(message, answer) -> None:
    status, output, errors = answer
    assert status == 2 and output == ""
    assert errors.startswith("error: ") and message in errors and errors.count("\n") == 1


def test_what_is_lacking_is_one_line_and_exit_code_2(slurm, folder, capsys, monkeypatch):
    refused("no_such.yaml cannot be read", train(folder, capsys, "--slurm", "no_such.yaml"))
    (folder / "binary.yaml").write_bytes(b"\x80\xff")
    refused("binary.yaml is no text", train(folder, capsys, "--slurm", folder / "binary.yaml"))
    (folder / "empty.yaml").touch()
    refused("empty.yaml: must be a mapping, not None", train(folder, capsys, "--slurm", folder / "empty.yaml"))
    refused("--wait is for --slurm", train(folder, capsys, "--wait"))
    refused("--device and --workers", train(folder, capsys, "--slurm", "--workers", "2"))
    with monkeypatch.context() as without:
        without.setattr(cluster.importlib.util, "find_spec", lambda name: None)
        refused("submitit is not installed", train(folder, capsys, "--slurm"))
    monkeypatch.setenv("PATH", str(slurm.file.parent))
    (slurm.file.parent / "sbatch").unlink()
    refused("sbatch is not on PATH", train(folder, capsys, "--slurm"))


def test_status_needs_slurm_only_once_something_was_submitted(slurm, profile, root, monkeypatch):
    with monkeypatch.context() as without:
        without.setenv("PATH", "")
        assert set(states(profile, root).values()) == {"missing"}
    submit(profile, root)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="no SLURM here: squeue is not on PATH"):
        states(profile, root)


def test_experiments_are_submitted_alone(slurm, folder, capsys, profile, root):
    _, output, _ = train(folder, capsys, "--slurm", "--experiments", "beta")
    assert output.startswith("small: 0 of 1 runs are there") and submitted(root) == [[["beta/tiny/retina/pvera/seed0"]]]
    train(folder, capsys, "--slurm", "--experiments", "benchmark")
    assert slurm.jobs["9"]["flags"]["dependency"] == "afterany:7", "though the search was submitted before"
    _, output, _ = train(folder, capsys, "--status", "--experiments", "benchmark")
    assert output.splitlines()[-1].split() == ["total", "0", "0", "6", "0", "0"]


# The scheduler's part


def test_workers_take_the_gpus_in_turn(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert scheduler._places("cuda", 5) == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"]
    assert scheduler._places("cuda:1", 2) == ["cuda:1", "cuda:1"]
    assert scheduler._places("cpu", 2) == ["cpu", "cpu"]
