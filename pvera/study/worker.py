"""Workers: each takes the next run that is not done, claims it by a lock file, executes it, and looks for more.

Any number of them can work on one folder of results: on a laptop, one per GPU, or as the jobs of a SLURM array
(`cluster`). A worker that is killed loses its lock, so its run is free.
"""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from tqdm import tqdm

from pvera.errors import InputError, catch_os_errors
from pvera.files import write_atomically
from pvera.study.profiles import Profile
from pvera.study.runs import ENDED, Job, list_runs

#: What to do about trainings whose members all diverged.
DIVERGED = "no member has a finite loss; try a lower --learning-rate, with --replace"

OnStep = Callable[
    [Job, int, int], None
]  # takes a run, its steps done and their number; 0 of 0: it is over


@dataclass(frozen=True)
class Plan:
    """The runs of some experiments of a profile, with results below `root`.

    replace: results of another configuration are made again.
    """

    profile: Profile
    experiments: tuple[str, ...]
    root: Path
    replace: bool = False

    def runs(self) -> list[Job]:
        """List what can be started now, done or not, in the order of the experiments."""
        return [
            run for name in self.experiments for run in list_runs(self.profile, name, self.root)
        ]

    def states(self, runs: list[Job], measure: bool = True) -> dict[Job, str]:
        """Return the `Job.state` of each of `runs`, in their order.

        InputError for a result of another configuration, unless `replace`.
        """
        states = {run: run.state(measure) for run in runs}
        different = [run for run, state in states.items() if state == "different"]
        if different and not self.replace:
            raise InputError(
                f"{len(different)} result files were made with another configuration, the first is "
                f"{different[0].path}; use --replace to run them again, or --results for another folder"
            )
        return states

    def missing(self) -> list[Job]:
        """List the runs that are still to be executed, as `unfinished`. InputError as `states`."""
        return unfinished(self.states(self.runs()))


def unfinished(states: dict[Job, str]) -> list[Job]:
    """List the runs that have no result, trainings of large grids first.

    Workers that share them then end together.
    """
    runs = [run for run, state in states.items() if state not in ENDED]
    return sorted(runs, key=lambda run: -len(getattr(run, "members", ())))


def failure(run: Job) -> Path:
    """Return the file that holds why a run failed, where it did."""
    return run.path.with_suffix(".failed")


@contextmanager
def claimed(run: Job, timeout: float = 0) -> Iterator[bool]:
    """Hold the lock file of a run inside. False where another worker holds it longer than `timeout` (-1: any time)."""
    lock = FileLock(run.path.with_suffix(".lock"))
    with catch_os_errors(run.path):
        run.path.parent.mkdir(parents=True, exist_ok=True)
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
    plan: Plan, device: str = "cpu", on_step: OnStep = lambda *_: None, keep_going: bool = False
) -> None:
    """Execute runs of `plan` until each is done, here or by another worker.

    A run that fails ends the worker, or with `keep_going` leaves its traceback beside its place, where every worker
    passes it by; RuntimeError at the end.
    """
    if device == "cpu":
        torch.set_num_threads(1)  # which makes numbers independent of how many workers there are
    else:
        # Without it cuBLAS may sum in another order from call to call. It is read when CUDA starts.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    failed = []
    while runs := [run for run in plan.missing() if not failure(run).exists()]:
        executed = 0
        for run in runs:
            with claimed(run) as mine:
                if not mine or run.state() in ENDED:
                    continue
                executed += 1
                try:
                    run.execute(device, partial(on_step, run))
                except Exception as error:
                    if not keep_going and isinstance(error, InputError):
                        raise
                    if not keep_going:
                        raise RuntimeError(f"{run.name}: {error}") from error
                    traceback.print_exc()
                    write_atomically(failure(run), traceback.format_exc())
                    failed.append(run)
                on_step(run, 0, 0)
        if not executed:
            with claimed(runs[0], timeout=-1):
                pass  # others hold all that is left, and what they find may let more start
    if failed:
        raise RuntimeError(f"{len(failed)} runs failed, the first is {failed[0].name}")


def work_together(plan: Plan, runs: list[Job], workers: int, device: str) -> None:
    """Execute `runs`, and what they let start, in `workers` processes on this machine, with a progress bar.

    One alone works in this process. On "cuda" they take the machine's GPUs in turn. The first failure ends the others.
    """
    for run in runs:
        failure(run).unlink(missing_ok=True)
    workers = min(workers, len(runs))
    with tqdm(
        total=len(runs), desc=plan.profile.name, unit="run", dynamic_ncols=True, smoothing=0.1
    ) as bar:

        def on_step(run: Job, step: int, limit: int) -> None:
            if limit:
                bar.set_postfix_str(
                    f"{run.name.partition('/')[2]} {step}/{limit}", refresh=sys.stderr.isatty()
                )
            else:
                bar.total = max(bar.total, bar.n + 1)
                bar.update()

        if workers == 1:
            work(plan, device, on_step)
        else:
            _in_processes(plan, workers, device, on_step)


def _in_processes(plan: Plan, workers: int, device: str, on_step: OnStep) -> None:
    """Work in several processes. Each has a pipe of its own, which says its steps and why it failed.

    They are forked from a server, and so inherit neither this process's threads nor its CUDA state.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["pvera.study.worker"])
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    working = {}
    try:
        for i in range(workers):
            receiver, sender = server.Pipe(duplex=False)
            place = f"cuda:{i % gpus}" if gpus else device
            working[receiver] = server.Process(target=_work, args=(plan, place, sender))
            working[receiver].start()
            sender.close()  # the worker's is the last end that is open
        while working:
            for receiver in connection.wait(list(working)):
                try:
                    message = receiver.recv()
                except (EOFError, OSError):
                    process = working.pop(receiver)
                    process.join()
                    if process.exitcode:
                        reason = (
                            "a worker was killed, perhaps for lack of memory: try fewer --workers"
                        )
                        raise RuntimeError(reason) from None
                    continue
                if isinstance(message, Exception):
                    raise message
                on_step(*message)
    finally:
        for process in working.values():
            process.kill()


def _work(plan: Plan, device: str, steps: connection.Connection) -> None:
    """Work in a process that ends when its parent ends, and leaves Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow_parent() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow_parent, daemon=True).start()
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    try:
        work(plan, device, lambda *step: steps.send(step))
    except Exception as error:
        if not isinstance(error, InputError):
            traceback.print_exc()
        steps.send(error)


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
