"""Stand-ins for SLURM's commands."""

import json
import os
import signal
import stat
import sys
import traceback
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from submitit.core.submission import process_job

SITE = {"workers": 3, "minutes": 60, "memory": "2G", "cpus": 1, "gpus": 0, "requeues": 2}
# Each prints the real command's output. jobs.json is the cluster's state: id -> name, script, states of tasks.
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
            names = {"SLURM_JOB_ID": "99", "SLURM_ARRAY_JOB_ID": id, "SLURM_ARRAY_TASK_ID": str(index)}
            log = Path(flags["output"].replace("%A", id).replace("%a", str(index)))
        self.set(id, index, "RUNNING")
        with (
            pytest.MonkeyPatch.context() as patch,
            open(log, "a") as file,
            redirect_stdout(file),
            redirect_stderr(file),
            handlers_kept(),
        ):
            for name, value in (names | {"SUBMITIT_EXECUTOR": "slurm", "SUBMITIT_FOLDER": str(log.parent)}).items():
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
