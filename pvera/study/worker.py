"""Workers: each takes the next job that is not done, locks it, executes it, and looks for more.

Any number of them can work on one folder of results: on a laptop, one per GPU, or as a job array
of SLURM (`cluster`). A worker that is killed loses its lock, so its job is free again.
"""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
import torch.multiprocessing
from filelock import FileLock, Timeout
from tqdm import tqdm

from pvera.errors import InputError, catch_os_errors
from pvera.files import write_atomically
from pvera.study.jobs import ENDED, Job
from pvera.study.plan import Plan


def failure_file(job: Job) -> Path:
    """Return the file that holds the traceback of a job that failed."""
    return job.path.with_suffix(".failed")


def failure_reason(job: Job) -> str:
    """Return why a job failed, in one line; empty where it has not."""
    file = failure_file(job)
    # Whoever runs the job again removes the file.
    with suppress(FileNotFoundError):
        *_, error = file.read_text(encoding="utf-8").splitlines() or ["an unknown error"]
        return f"{error}; {file} has all of it"
    return ""


@contextmanager
def claimed(job: Job, timeout: float = 0) -> Iterator[bool]:
    """Hold the lock file of a job inside.

    Args:
        job: To be locked.
        timeout: Seconds to wait for it; -1 waits without limit.

    Yields:
        Whether the lock is held; False where another worker held it all the time.
    """
    lock = FileLock(job.path.with_suffix(".lock"))
    with catch_os_errors(job.path):
        job.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=timeout, poll_interval=0.5)
        except Timeout:
            yield False
            return
    try:
        yield True
    finally:
        # Removed while it is held, so that no other worker's file goes; Windows does so on release.
        with suppress(PermissionError):
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def work(plan: Plan, device: str = "cpu") -> None:
    """Execute jobs of a plan until each is done or has failed, here or by another worker.

    A job that fails leaves its traceback in `failure_file`, and all workers skip it.

    Args:
        plan: Has the jobs.
        device: Where this worker computes.
    """
    if device == "cpu":
        torch.set_num_threads(1)  # numbers then do not depend on how many workers there are
    else:
        # Without it cuBLAS, which reads it at its start, may sum in another order each time.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    while jobs := [job for job in plan.missing() if not failure_file(job).exists()]:
        executed = 0
        for job in tqdm(jobs, plan.profile.name, unit="run", dynamic_ncols=True):
            with claimed(job) as is_mine:
                # Another worker may have ended it, or failed, since it was listed.
                if not is_mine or failure_file(job).exists() or job.state() in ENDED:
                    continue
                executed += 1
                try:
                    job.execute(device)
                except Exception:
                    write_atomically(failure_file(job), traceback.format_exc())
        if not executed:
            # Others hold all that is left, and what they find may let more start.
            with claimed(jobs[0], timeout=-1):
                pass


def require_success(plan: Plan) -> None:
    """Raise InputError, which says why, if a job of a plan has failed."""
    failed = [job for job in plan.jobs() if failure_file(job).exists()]
    if failed:
        first = failed[0]
        raise InputError(
            f"{len(failed)} runs failed, the first is {first.label}: {failure_reason(first)}"
        )


def work_together(plan: Plan, jobs: list[Job], workers: int, device: str) -> None:
    """Execute jobs, and what they let start, on this machine.

    Args:
        plan: Has the jobs.
        jobs: The jobs that are missing.
        workers: Number of processes, no more than there are jobs; one alone works in this process.
        device: With "cuda", the processes take the machine's GPUs in turn.

    Raises:
        InputError: A job failed.
    """
    for job in jobs:
        failure_file(job).unlink(missing_ok=True)
    workers = min(workers, len(jobs) + plan.count_waiting())
    if workers == 1:
        work(plan, device)
    else:
        # A server imports this module once, and the processes are its forks.
        multiprocessing.set_forkserver_preload([__name__])
        torch.multiprocessing.start_processes(
            _work, (plan, device), workers, daemon=True, start_method="forkserver"
        )
    require_success(plan)


def _work(number: int, plan: Plan, device: str) -> None:
    """Work in a process of its own, which Torch interrupts when the parent process ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    if device == "cuda":
        device = f"cuda:{number % torch.cuda.device_count()}"
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    work(plan, device)


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
