"""Runs as SLURM job arrays, through submitit: submission and state.

Every array has a folder results/<profile>/slurm/<name>/ with submission.json (the result files that each of
its jobs is to write, the code version, the site's settings), submitit's own files and the jobs' logs. SLURM
knows the array by the same name, and the record is written before the jobs exist. So neither job ids nor an
accounting database are needed to find them, and no crash leaves jobs that nobody knows of.

Whether a run is done is told by its result file alone; SLURM is asked only what is still queued or running.
"""

import importlib.util
import json
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated

import pandas as pd
from filelock import FileLock, Timeout
from pydantic import Field
from tqdm import tqdm

from pvera import __version__
from pvera.errors import InputError
from pvera.files import require_writable, write_atomically
from pvera.study.experiments import analyses_of_adapters
from pvera.study.inputs import Inputs, require
from pvera.study.profiles import Profile
from pvera.study.runs import Run
from pvera.study.scheduler import pending, resolve, run_all
from pvera.study.validation import Count, Natural, Text, build, expected, load_yaml, validated

STATES = ("done", "running", "queued", "failed", "missing", "different")
LOGS, LOG_LINES = 5, 8  # of failed jobs that `describe` shows
#: Options of sbatch that are set from other fields, or by which jobs and logs are found again.
TAKEN = {
    "partition",
    "account",
    "time",
    "mem",
    "cpus-per-task",
    "gpus-per-node",
    "dependency",
    "job-name",
    "array",
    "output",
    "error",
    "open-mode",
    "signal",
}

Option = Annotated[Text | int | float | bool | None, expected("one value")]


@validated
class Site:
    """The cluster config: what a job may use and how large it is, from a YAML file like experiments/slurm.yaml."""

    minutes: Count
    memory: Annotated[str, Field(strict=True, pattern=r"^[1-9]\d*[KMGT]?$"), expected("a size such as 32G")]
    cpus: Count
    gpus: Natural
    workers: Count
    runs_per_job: Count
    concurrent_jobs: Count
    array_limit: Count
    requeues: Natural
    partition: Text | None = None
    account: Text | None = None
    options: dict[Text, Option] = field(default_factory=dict)

    def __post_init__(self):
        for name in self.options:
            if not re.fullmatch(r"[a-z][a-z-]*", name) or name in TAKEN:
                raise InputError(f"options: {name!r} cannot stand in options")

    @classmethod
    def read(cls, path: str | Path) -> "Site":
        """Read a file. InputError for a missing or malformed one."""
        return build(cls, load_yaml(path), path)


@dataclass(frozen=True)
class Job:
    """The work of one job: the runs of `profile` whose result files are `paths`, relative to `results_root`.

    It does what is missing when it starts, so it can be started any number of times: submitit requeues it
    before its time limit and SLURM after preemption. β is looked up then as well.
    """

    profile: Profile
    results_root: Path
    paths: tuple[str, ...]
    workers: int
    device: str
    replace: bool
    code: dict

    def __call__(self) -> None:
        if self.code != (code := code_version()):
            print(f"submitted as {self.code}, now running {code}", flush=True)
        analyses = () if self.profile.text else analyses_of_adapters()
        runs = _runs(self.profile, self.results_root, (*self.profile.experiments, *analyses))
        missing = pending([runs[self.results_root / path] for path in self.paths], self.replace)
        print(f"{len(self.paths) - len(missing)} of {len(self.paths)} runs are there", flush=True)
        run_all(missing, "runs", self.workers, self.device, keep_going=True)

    def checkpoint(self):
        """Return what submitit puts back into the queue."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


@dataclass(frozen=True)
class Submission:
    """Numbers of runs: all, done, queued or running before, submitted now; the last in `jobs` jobs."""

    runs: int
    done: int
    active: int
    new: int
    jobs: int


def require_slurm() -> None:
    """Raise InputError unless jobs can be submitted from here."""
    if importlib.util.find_spec("submitit") is None:
        raise InputError("submitit is not installed: pip install -e '.[slurm]'")
    for command in ("sbatch", "squeue", "srun"):
        _require(command)


def _require(command: str) -> None:
    if shutil.which(command) is None:
        raise InputError(f"there is no SLURM here: {command} is not on PATH")


def submit(
    profile: Profile,
    results_root: str | Path,
    site: Site,
    replace: bool = False,
    experiments: Sequence[str] = (),
) -> Submission:
    """Submit the runs without a result that are neither queued nor running.

    Searches go first, and runs that need what they find wait for their jobs to end. InputError if sbatch
    refuses, and as `scheduler.pending` and `inputs.require`.
    """
    require_slurm()
    root = Path(results_root).absolute()
    runs = _runs(profile, root, experiments)
    with _lock(_folder(profile, root)):
        # SLURM is asked before the files are: a job that ends in between has left its results by then.
        active = _queue(profile, root)
        missing = pending(list(runs.values()), replace)
        new = [run for run in missing if run.path not in active]
        require(new)
        jobs, left = 0, new
        while left:
            # A search may itself wait for another one. What others wait for shares no job with what nobody waits for.
            paths, awaited = {run.path for run in left}, {path for run in left for path in run.awaited}
            groups: dict[tuple[bool, bool], list[Run]] = {}
            for run in left:
                if paths.isdisjoint(run.awaited):
                    groups.setdefault((run.waits, run.path not in awaited), []).append(run)
            for (waits, _), group in sorted(groups.items()):
                active = _queue(profile, root) if waits else {}
                after = {active[path][0] for run in group for path in run.awaited if path in active}
                jobs += _submit_arrays(group, profile, root, site, replace, sorted(after))
            submitted = {run.path for group in groups.values() for run in group}
            left = [run for run in left if run.path not in submitted]
    return Submission(len(runs), len(runs) - len(missing), len(missing) - len(new), len(new), jobs)


def status(profile: Profile, results_root: str | Path, experiments: Sequence[str] = ()) -> pd.DataFrame:
    """Return one row per run: experiment, backbone, dataset, method, seed, state, and log.

    state: one of STATES.   log: the file to which its last job printed ("" before it started).

    done: the result file is there; running, queued: SLURM says so; failed: it was submitted, SLURM no longer
    has it, and there is no result; missing: it was never submitted; different: the result file is that of
    another configuration. Where nothing was ever submitted, SLURM is not needed.
    """
    root = Path(results_root).absolute()
    active = _queue(profile, root)
    logs = {root / path: log for paths, log in _jobs(_folder(profile, root)) for path in paths}
    rows, inputs = [], Inputs()
    for path, run in _runs(profile, root, experiments).items():
        state = run.state(inputs)
        if state != "done" and path in active:
            state = active[path][1]
        elif state == "missing" and path in logs:
            state = "failed"
        rows.append((run.experiment, run.backbone, run.dataset, run.method, run.seed, state, logs.get(path, "")))
    return pd.DataFrame(rows, columns=["experiment", "backbone", "dataset", "method", "seed", "state", "log"])


def describe(table: pd.DataFrame) -> str:
    """Format `status`: the number of runs in each state, and the last lines of the failed jobs' logs."""
    what = [table[name] for name in ("experiment", "backbone", "dataset")]
    counts = pd.get_dummies(table.state, dtype=int).groupby(what, sort=False).sum()
    counts = counts.reindex(columns=[s for s in STATES if s != "different" or s in counts], fill_value=0)
    counts.loc[("total", "", ""), :] = counts.sum()
    parts = [counts.to_string()]
    failed = list(table[table.state == "failed"].groupby("log", sort=False))
    for log, runs in failed[:LOGS]:
        names = ["/".join([*row[:4], f"seed{row[4]}"]) for row in runs.itertuples(index=False)]
        parts.append("\n".join([f"failed: {', '.join(names)}", log, *(f"  | {line}" for line in _tail(log))]))
    if len(failed) > LOGS:
        parts.append(f"and {len(failed) - LOGS} more jobs that failed")
    return "\n\n".join(parts)


def wait(profile: Profile, results_root: str | Path, experiments: Sequence[str] = (), seconds: float = 20) -> None:
    """Return when none of the profile's runs is queued or running. A progress bar counts the results."""
    root = Path(results_root).absolute()
    paths = list(_runs(profile, root, experiments))
    with tqdm(total=len(paths), desc="SLURM", unit="run", dynamic_ncols=True) as bar:
        while True:
            active = True
            try:
                active = not _queue(profile, root).keys().isdisjoint(paths)
            except InputError as error:  # the controller may be restarting: jobs do not mind, nor do we
                bar.write(str(error))
            bar.update(sum(path.exists() for path in paths) - bar.n)
            if not active:
                return
            time.sleep(seconds)


def code_version(root: Path = Path(__file__).resolve().parents[2]) -> dict:
    """{"pvera", "commit", "dirty"} of the code in `root`; the last two None outside a git checkout.

    dirty: the library or the experiments differ from the commit.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        dirty = bool(git("status", "--porcelain", "--", "pvera", "experiments"))
    except (OSError, subprocess.CalledProcessError):
        commit = dirty = None
    return {"pvera": __version__, "commit": commit, "dirty": dirty}


def _runs(profile: Profile, root: Path, experiments: Sequence[str] = ()) -> dict[Path, Run]:
    names = experiments or profile.experiments
    return {run.path: run for experiment in names for run in resolve(profile.runs(experiment, root))}


def _folder(profile: Profile, root: Path) -> Path:
    return root / profile.name / "slurm"


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Allow one submission at a time."""
    require_writable(folder)
    try:
        with FileLock(folder / "lock", timeout=0):
            yield
    except Timeout:
        raise InputError("another submission of this profile is under way") from None


def _chunks(items: Sequence, size: int) -> list[Sequence]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _submit_arrays(
    runs: list[Run], profile: Profile, root: Path, site: Site, replace: bool, after: Sequence[str] = ()
) -> int:
    """Submit `runs` packed into jobs, which start when the jobs `after` have ended; returns how many."""
    paths = [str(run.path.relative_to(root)) for run in runs]
    device, code = "cuda" if site.gpus else "cpu", code_version()
    jobs = [
        Job(profile, root, tuple(chunk), site.workers, device, replace, code)
        for chunk in _chunks(paths, site.runs_per_job)
    ]
    for array in _chunks(jobs, site.array_limit):
        _submit_array(array, _folder(profile, root), site, after)
    return len(jobs)


def _submit_array(jobs: Sequence[Job], folder: Path, site: Site, after: Sequence[str]) -> None:
    import submitit
    from submitit.core.utils import FailedJobError

    now = datetime.now().astimezone()
    target = folder / f"pvera-{jobs[0].profile.name}-{now:%Y%m%d-%H%M%S-%f}-{secrets.token_hex(2)}"
    record = {
        "submitted": now.isoformat(timespec="seconds"),
        "code": jobs[0].code,
        "site": asdict(site),
        "after": list(after),
        "jobs": [job.paths for job in jobs],
    }
    write_atomically(target / "submission.json", (json.dumps(record, indent=1) + "\n").encode())
    executor = submitit.SlurmExecutor(target, max_num_timeout=site.requeues)
    executor.update_parameters(
        job_name=target.name,
        partition=site.partition,
        account=site.account,
        time=site.minutes,
        mem=site.memory,
        cpus_per_task=site.cpus,
        gpus_per_node=site.gpus or None,
        array_parallelism=site.concurrent_jobs,
        dependency="afterany:" + ":".join(after) if after else None,
        stderr_to_stdout=True,
        srun_args=[f"--cpus-per-task={site.cpus}"],  # since SLURM 22.05 srun does not take it over from sbatch
        additional_parameters={"requeue": True, **site.options},
    )
    try:
        executor.submit_array(jobs)
    except FailedJobError as error:  # what sbatch says when it refuses
        shutil.rmtree(target)
        raise InputError(" ".join(str(error).split())) from None


def _records(folder: Path) -> dict[str, list[list[str]]]:
    """Return the result files of each job of each array, in the order of submission."""
    files = sorted(folder.glob("*/submission.json"))
    return {file.parent.name: json.loads(file.read_text())["jobs"] for file in files}


def _jobs(folder: Path) -> Iterator[tuple[list[str], str]]:
    """Yield result files and log of every job, in the order of submission."""
    for name, jobs in _records(folder).items():
        for index, paths in enumerate(jobs):
            # submitit submits a single job without an array, and its log then has no index.
            logs = (folder / name).glob(f"*_{index}_0_log.out" if len(jobs) > 1 else "*_0_log.out")
            yield paths, str(next(logs, ""))


def _queue(profile: Profile, root: Path) -> dict[Path, tuple[str, str]]:
    """Return the job's id, and "running" or "queued", of each run that SLURM still has, by its result file."""
    records = _records(_folder(profile, root))
    if not records:
        return {}
    _require("squeue")
    command = ["squeue", "--noheader", "--array", "--format=%i %T %j", f"--name={','.join(records)}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    except subprocess.TimeoutExpired:
        raise InputError("squeue does not answer") from None
    except subprocess.CalledProcessError as error:
        raise InputError(f"squeue failed: {' '.join(error.stderr.split())}") from None
    active = {}
    for line in answer.stdout.splitlines():
        job, state, name = line.split(maxsplit=2)
        index = int(job.partition("_")[2] or 0)
        waits = state in ("PENDING", "CONFIGURING") or state.startswith(("REQUEUE", "SPECIAL"))
        active |= {root / path: (job, "queued" if waits else "running") for path in records[name][index]}
    return active


def _tail(log: str) -> list[str]:
    """Return the last lines of a log; a progress bar counts as its last state."""
    if not log:
        return ["it never started"]
    lines = Path(log).read_text(errors="replace").split("\n")
    return [line.rpartition("\r")[2] for line in lines if line.strip()][-LOG_LINES:]
