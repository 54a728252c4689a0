"""Workers as a job array of SLURM, through submitit.

The name of a job array follows from what it runs and from the folder of results, so neither ids
nor an accounting database are needed to find them. What has become of the jobs follows from their
files (`status`).
"""

import shutil
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt

from pvera.data.inputs import check_inputs
from pvera.errors import InputError, import_extra
from pvera.files import digest
from pvera.study.checked import OneLine, StrictModel
from pvera.study.jobs import Job
from pvera.study.plan import Plan, unfinished
from pvera.study.status import describe
from pvera.study.worker import failure_file, require_success, work

submitit = import_extra("submitit", "slurm")
POLL_SECONDS = 20  # between two looks at the queue


class Site(StrictModel):
    """What workers may use and how many there are, from a YAML file like experiments/slurm.yaml."""

    minutes: PositiveInt
    memory: Annotated[str, Field(pattern=r"^[1-9]\d*[KMGT]?$")]
    cpus: PositiveInt
    gpus: Annotated[int, Field(ge=0, le=1)]
    workers: PositiveInt
    requeues: NonNegativeInt
    partition: OneLine | None = None
    account: OneLine | None = None
    options: dict[OneLine, OneLine | int | float | bool | None] = {}


@dataclass(frozen=True)
class Worker:
    """The work of one worker: whatever of the plan is missing when it starts.

    So it can be started any number of times. submitit requeues it before its time limit
    (`checkpoint`), and SLURM after preemption.
    """

    plan: Plan
    device: str

    def __call__(self) -> None:
        """Work until nothing is missing."""
        work(self.plan, self.device)
        require_success(self.plan)

    def checkpoint(self) -> Any:
        """Return what submitit submits again."""
        return submitit.helpers.DelayedSubmission(self)


def submit(plan: Plan, missing: list[Job], site: Site) -> int:
    """Submit a worker for each missing job.

    Args:
        plan: Has the jobs.
        missing: Those that are missing and can start.
        site: Limits the number of workers, those that SLURM still has included.

    Returns:
        The number of submitted workers.

    Raises:
        InputError: sbatch is missing or refuses, or as `inputs.check_inputs`.
    """
    if shutil.which("sbatch") is None:
        raise InputError("there is no SLURM here: sbatch is not on PATH")
    count = min(site.workers, len(missing) + plan.count_waiting()) - count_workers(plan)
    if count <= 0 or not missing:
        return 0
    check_inputs(missing, decode=False)
    for job in missing:
        failure_file(job).unlink(missing_ok=True)

    folder = plan.root / plan.profile.name / "slurm" / f"{datetime.now():%Y%m%d-%H%M%S-%f}"
    executor = submitit.SlurmExecutor(folder, max_num_timeout=site.requeues)
    executor.update_parameters(**_sbatch_parameters(plan, site, count))
    worker = Worker(plan, "cuda" if site.gpus else "cpu")
    try:
        executor.submit_array([worker] * count)
    except submitit.core.utils.FailedJobError as error:  # what sbatch says when it refuses
        shutil.rmtree(folder)
        raise InputError(" ".join(str(error).split())) from None
    return count


def _sbatch_parameters(plan: Plan, site: Site, count: int) -> dict[str, Any]:
    return {
        "job_name": _job_name(plan),
        "partition": site.partition,
        "account": site.account,
        "time": site.minutes,
        "mem": site.memory,
        "cpus_per_task": site.cpus,
        "gpus_per_node": site.gpus or None,
        "array_parallelism": count,
        "stderr_to_stdout": True,
        # Since SLURM 22.05 srun no longer inherits it from sbatch.
        "srun_args": [f"--cpus-per-task={site.cpus}"],
        "additional_parameters": {"requeue": True, **site.options},
    }


def _job_name(plan: Plan) -> str:
    """Return the name of a plan's job arrays: a hash of what they run and where results go."""
    content = {
        "root": str(plan.root),
        "experiments": plan.names,
        "profile": plan.profile.model_dump(),
    }
    return f"pvera-{plan.profile.name}-{digest(content)[:8]}"


def count_workers(plan: Plan) -> int:
    """Count the workers that SLURM still has.

    Raises:
        InputError: SLURM does not answer.
    """
    name = f"--name={_job_name(plan)}"
    command = ["squeue", "--noheader", "--array", "--me", "--format=%T", name]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        raise InputError(f"squeue failed: {' '.join(str(error.stderr or error).split())}") from None
    return len(answer.stdout.split())


def wait(plan: Plan) -> None:
    """Return when SLURM has none of the workers any more.

    Raises:
        InputError: Not all jobs are done then.
    """
    while True:
        try:
            if not count_workers(plan):
                break
        except InputError as error:  # the controller may be restarting, while workers go on
            print(error, flush=True)
        time.sleep(POLL_SECONDS)
    if unfinished(plan.states(plan.jobs(), compare_data=False)):
        raise InputError(f"not all runs are done\n{describe(plan)}")
