"""Workers as the jobs of a SLURM array, through submitit: submission and state.

Jobs carry a name that follows from what they run and the folder of results, so neither ids nor an accounting database
are needed to find them. Whether a run is done, under way or failed is told by the files at its place (`worker`).
"""

import shutil
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import pandas as pd
from pydantic import Field, NonNegativeInt, PositiveInt

from pvera.data.inputs import prepare
from pvera.errors import InputError, import_extra
from pvera.files import digest
from pvera.study.jobs import ENDED
from pvera.study.plan import Plan
from pvera.study.profiles import Settings, Text
from pvera.study.worker import DIVERGED, claimed, failure, work

STATES = ["done", "diverged", "running", "failed", "missing", "different"]
POLLED = 20  # seconds between two looks at the queue


class Site(Settings):
    """The cluster config: what a job may use and how many there are, from a YAML file like experiments/slurm.yaml."""

    minutes: PositiveInt
    memory: Annotated[str, Field(pattern=r"^[1-9]\d*[KMGT]?$")]
    cpus: PositiveInt
    gpus: Annotated[int, Field(ge=0, le=1)]
    workers: PositiveInt
    requeues: NonNegativeInt
    partition: Text | None = None
    account: Text | None = None
    options: dict[Text, Text | int | float | bool | None] = {}


@dataclass(frozen=True)
class Worker:
    """The work of one job: whatever of `plan` is missing when it starts, so it can be started any number of times.

    submitit requeues it before its time limit (`checkpoint`), SLURM after preemption.
    """

    plan: Plan
    device: str

    def __call__(self) -> None:
        work(self.plan, self.device, keep_going=True)

    def checkpoint(self):
        return import_extra("submitit", "slurm").helpers.DelayedSubmission(self)


def submit(plan: Plan, site: Site) -> int:
    """Submit as many workers as there are missing runs, at most `site.workers` with those that SLURM still has.

    Returns their number. InputError if sbatch refuses, and as `Plan.missing` and `inputs.prepare`.
    """
    submitit = import_extra("submitit", "slurm")
    if shutil.which("sbatch") is None:
        raise InputError("there is no SLURM here: sbatch is not on PATH")
    missing = plan.missing()
    count = min(site.workers, len(missing)) - active(plan)
    if count <= 0:
        return 0
    prepare(missing, decode=False)
    for run in missing:
        failure(run).unlink(missing_ok=True)
    folder = plan.root / plan.profile.name / "slurm" / f"{datetime.now():%Y%m%d-%H%M%S-%f}"
    executor = submitit.SlurmExecutor(folder, max_num_timeout=site.requeues)
    executor.update_parameters(
        job_name=_job_name(plan),
        partition=site.partition,
        account=site.account,
        time=site.minutes,
        mem=site.memory,
        cpus_per_task=site.cpus,
        gpus_per_node=site.gpus or None,
        array_parallelism=count,
        stderr_to_stdout=True,
        srun_args=[
            f"--cpus-per-task={site.cpus}"
        ],  # since SLURM 22.05 srun does not take it over from sbatch
        additional_parameters={"requeue": True, **site.options},
    )
    try:
        executor.submit_array([Worker(plan, "cuda" if site.gpus else "cpu")] * count)
    except submitit.core.utils.FailedJobError as error:  # what sbatch says when it refuses
        shutil.rmtree(folder)
        raise InputError(" ".join(str(error).split())) from None
    return count


def _job_name(plan: Plan) -> str:
    """Return the name of a plan's jobs, with a hash of what they run and of the folder of results."""
    runs = digest([str(plan.root), plan.experiments, plan.profile.model_dump()])[:8]
    return f"pvera-{plan.profile.name}-{runs}"


def active(plan: Plan) -> int:
    """Count the jobs that SLURM still has. InputError where it does not answer."""
    command = [
        "squeue",
        "--noheader",
        "--array",
        "--me",
        "--format=%T",
        f"--name={_job_name(plan)}",
    ]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        raise InputError(f"squeue failed: {' '.join(str(error.stderr or error).split())}") from None
    return len(answer.stdout.split())


def wait(plan: Plan) -> None:
    """Return when SLURM has none of the jobs any more. InputError where not all runs are done then."""
    left = 1
    while left:
        try:
            left = active(plan)
        except InputError as error:  # the controller may be restarting, while jobs go on
            print(error, flush=True)
        time.sleep(POLLED if left else 0)
    if not status(plan).state.isin(ENDED).all():
        raise InputError(f"not all runs are done\n{describe(plan)}")


def status(plan: Plan) -> pd.DataFrame:
    """Return one row per run that can be started: experiment, backbone, dataset, name, state, why.

    state: one of STATES. running: a worker holds its lock file. failed: why is its last error.
    The others are those of `Job.state`, without a look at data and weights.
    """
    rows = []
    for run in plan.jobs():
        state = run.state(compare_data=False)
        why = DIVERGED if state == "diverged" else ""
        if state not in ENDED and run.path.with_suffix(".lock").exists():
            with claimed(run) as free:
                state = state if free else "running"
        if state == "missing" and failure(run).exists():
            state, error = "failed", failure(run).read_text(encoding="utf-8").splitlines()[-1]
            why = f"{error}; all of it is in its .failed file"
        rows.append((run.experiment, run.backbone, run.dataset, run.name, state, why))
    return pd.DataFrame(rows, columns=["experiment", "backbone", "dataset", "name", "state", "why"])


def describe(plan: Plan) -> str:
    """Return the number of runs in each state, and why runs failed or diverged."""
    table = status(plan)
    places = [table.experiment, table.backbone, table.dataset]
    counts = pd.crosstab(places, table.state, margins=True, margins_name="total")
    explained = table[table.why != ""].itertuples()
    reasons = [f"{run.state}: {run.experiment}/{run.name}: {run.why}" for run in explained]
    return "\n".join([counts.reindex(columns=STATES, fill_value=0).to_string(), *reasons])
