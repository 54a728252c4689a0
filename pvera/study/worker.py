"""Workers: each takes the next job that is not done, locks it, executes it, and looks for more.

Any number of them can work on one folder of results: on a laptop, one per GPU, or as the jobs of a
SLURM array (`cluster`). A worker that is killed loses its lock, so its job is free again.
"""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from tqdm import tqdm

from pvera.errors import InputError, catch_os_errors
from pvera.files import write_atomically
from pvera.study.jobs import ENDED, Job
from pvera.study.plan import Plan

#: What to do about trainings whose members all diverged.
DIVERGED = "no member has a finite loss; try a lower --learning-rate, with --replace"

#: Called with a job, its epochs that are done and their number; with 0 of 0 when it has ended.
OnJobStep = Callable[[Job, int, int], None]


def failure_file(job: Job) -> Path:
    """Return the file that holds why a job failed, where it did."""
    return job.path.with_suffix(".failed")


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


def work(
    plan: Plan, device: str = "cpu", on_step: OnJobStep = lambda *_: None, keep_going: bool = False
) -> None:
    """Execute jobs of a plan until each is done, here or by another worker.

    Args:
        plan: Its jobs.
        device: Where this worker computes.
        on_step: Told of each epoch.
        keep_going: A job that fails leaves its traceback in `failure_file`, and all workers skip
            it; otherwise it ends the worker.

    Raises:
        InputError: As the job that failed.
        RuntimeError: A job failed for another reason.
    """
    if device == "cpu":
        torch.set_num_threads(1)  # numbers then do not depend on how many workers there are
    else:
        # Without it cuBLAS may sum in another order from call to call. It is read when CUDA starts.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    failed: list[Job] = []
    while jobs := [job for job in plan.missing() if not failure_file(job).exists()]:
        executed = 0
        for job in jobs:
            with claimed(job) as is_mine:
                if not is_mine or job.state() in ENDED:
                    continue
                executed += 1
                if not _succeeds(job, device, on_step, keep_going):
                    failed.append(job)
                on_step(job, 0, 0)
        if not executed:
            # Others hold all that is left, and what they find may let more start.
            with claimed(jobs[0], timeout=-1):
                pass
    if failed:
        raise RuntimeError(f"{len(failed)} runs failed, the first is {failed[0].name}")


def _succeeds(job: Job, device: str, on_step: OnJobStep, keep_going: bool) -> bool:
    """Execute a job; with `keep_going`, return whether it came to an end."""
    try:
        job.execute(device, partial(on_step, job))
    except Exception as error:
        if keep_going:
            traceback.print_exc()
            write_atomically(failure_file(job), traceback.format_exc())
            return False
        if isinstance(error, InputError):
            raise
        raise RuntimeError(f"{job.name}: {error}") from error
    return True


def work_together(plan: Plan, jobs: list[Job], workers: int, device: str) -> None:
    """Execute jobs, and what they let start, on this machine, with a progress bar.

    Args:
        plan: Has the jobs.
        jobs: Those that are missing.
        workers: Number of processes; one alone works in this process. The first failure ends the
            others.
        device: With "cuda", the processes take the machine's GPUs in turn.
    """
    for job in jobs:
        failure_file(job).unlink(missing_ok=True)
    workers = min(workers, len(jobs))
    options: dict[str, Any] = {"unit": "run", "dynamic_ncols": True, "smoothing": 0.1}
    with tqdm(total=len(jobs), desc=plan.profile.name, **options) as bar:

        def on_step(job: Job, step: int, limit: int) -> None:
            if limit:
                _, _, name = job.name.partition("/")
                bar.set_postfix_str(f"{name} {step}/{limit}", refresh=sys.stderr.isatty())
            else:
                bar.total = max(bar.total, bar.n + 1)
                bar.update()

        if workers == 1:
            work(plan, device, on_step)
        else:
            _in_processes(plan, workers, device, on_step)


def _in_processes(plan: Plan, workers: int, device: str, on_step: OnJobStep) -> None:
    """Work in several processes. Each has a pipe of its own, for its steps and for its error.

    They are forked from a server, so they inherit neither this process's threads nor its CUDA
    state.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["pvera.study.worker"])
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    processes: dict[Any, BaseProcess] = {}  # by the end of the pipe that is read here
    try:
        for number in range(workers):
            receiver, sender = server.Pipe(duplex=False)
            own_device = f"cuda:{number % gpus}" if gpus else device
            process = server.Process(target=_work, args=(plan, own_device, sender))
            processes[receiver] = process
            process.start()
            sender.close()  # the worker's is the last end that is open

        while processes:
            readable: list[Any] = connection.wait(list(processes))
            for receiver in readable:
                try:
                    message = receiver.recv()
                except (EOFError, OSError):
                    _require_success(processes.pop(receiver))
                    continue
                if isinstance(message, Exception):
                    raise message
                on_step(*message)
    finally:
        for left in processes.values():
            if left.pid is not None:  # it was started
                left.kill()


def _require_success(process: BaseProcess) -> None:
    """Raise RuntimeError where a process that closed its pipe did not end by itself."""
    process.join()
    status = process.exitcode or 0
    if status < 0:  # ended by a signal
        raise RuntimeError("a worker was killed, perhaps for lack of memory: try fewer --workers")
    if status:
        raise RuntimeError(
            f"a worker could not start (exit status {status}): its error is printed above"
        )


def _work(plan: Plan, device: str, steps: connection.Connection) -> None:
    """Work in a process that ends when its parent ends, and leaves Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if device.startswith("cuda"):
            torch.cuda.set_device(device)
        work(plan, device, lambda *step: steps.send(step))
    except InputError as error:
        steps.send(error)
    except Exception as error:
        traceback.print_exc()
        steps.send(RuntimeError(str(error)))  # others may not fit through a pipe


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
