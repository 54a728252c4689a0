"""Many runs on one machine: several single-threaded processes side by side; runs that are done are left out."""

import multiprocessing.resource_tracker
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import torch
from tqdm import tqdm

from pvera import processes
from pvera.errors import InputError
from pvera.files import require_writable
from pvera.study.inputs import Inputs
from pvera.study.runs import Run, side_by_side
from pvera.study.training import CUBLAS


def resolve(runs: Iterable[Run]) -> list[Run]:
    """Return the planned runs as they can be started now: with the β that a search chose.

    Analyses of a training that diverged are left out: there is no adapter.
    """
    return [resolved for run in runs if (resolved := run.resolved()) is not None]


def pending(runs: Iterable[Run], replace: bool = False) -> list[Run]:
    """Return the resolved runs whose result is missing.

    InputError where a result of another configuration lies in the place, unless `replace`. Then what waits for such a
    result waits until it is replaced.
    """
    inputs = Inputs()
    pairs = [(plan, run) for plan in runs if (run := plan.resolved()) is not None]
    states = [run.state(inputs) for _, run in pairs]
    different = [run for (_, run), state in zip(pairs, states, strict=True) if state == "different"]
    if different and not replace:
        raise InputError(
            f"{len(different)} result files were made with another configuration, the first is "
            f"{different[0].path}; use --replace to run them again, or --results for another folder"
        )
    replaced = {run.path for run in different}
    missing = []
    for (plan, run), state in zip(pairs, states, strict=True):
        if plan.waits and not replaced.isdisjoint(plan.awaited):
            missing.append(plan)
        elif state != "done":
            missing.append(run)
    return missing


def run_all(runs: Sequence[Run], title: str, workers: int = 1, device: str = "cpu", keep_going: bool = False) -> None:
    """Execute `runs` in `workers` processes, with a progress bar.

    The first failure ends the others, or with `keep_going` is reported at the end. InputError where results cannot be
    written, before any run starts.

    On "cuda" the workers take the machine's GPUs in turn. A worker on a GPU keeps torch's own number of
    threads; on CPU every worker has one, which is what makes its numbers independent of how many there are.
    """
    if not runs:
        return
    for folder in {run.results_root for run in runs}:
        require_writable(folder)
    # All kinds of runs: later calls in this process get their workers from the same server.
    context = processes.context("pvera.study.profiles", *sorted({type(run).__module__ for run in runs}))
    # A pipe without a lock: a worker that is killed while it writes leaves nothing locked.
    receiver, sender = context.Pipe(duplex=False)
    places = context.SimpleQueue()
    workers = min(workers, len(runs))
    for place in _places(device, workers):
        places.put(place)
    bar = tqdm(total=len(runs), desc=title, unit="run", dynamic_ncols=True, smoothing=0.1)
    # Not joblib's loky: devices, progress, signals and kills would need the same code, and each of its workers would
    # import torch, which takes seconds; a worker that is forked from the server has it.
    pool = ProcessPoolExecutor(workers, context, _start_worker, (places, sender))
    watcher = threading.Thread(target=_show_steps, args=(receiver, bar), daemon=True)
    watcher.start()
    failures: list[str] = []
    try:
        with _signals_kept_from_children():
            futures: dict[Future, list[Run]] = {pool.submit(_work, *group): group for group in side_by_side(runs)}
        for future in as_completed(futures):
            try:
                future.result()
            except BrokenProcessPool:
                raise RuntimeError(
                    "a worker process was killed, perhaps for lack of memory: try fewer --workers"
                ) from None
            except Exception as error:
                names = [run.name for run in futures[future]]
                if keep_going:
                    traceback.print_exception(error)
                    failures += [f"{name}: {error}" for name in names]
                elif isinstance(error, InputError):
                    raise
                else:
                    raise RuntimeError(f"{names[0]}: {error}") from error
            else:
                bar.update(len(futures[future]))
        pool.shutdown()
    except BaseException:
        children = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in children:
            process.kill()
        raise
    finally:
        sender.close()  # the last end that is open: the watcher reads to the end of the file
        watcher.join(timeout=5)
        bar.close()
    if failures:
        raise RuntimeError(f"{len(failures)} of {len(runs)} runs failed; {failures[0]}")


def _places(device: str, workers: int) -> list[str]:
    """Return the device of each worker: the machine's GPUs in turn for "cuda", otherwise `device` itself."""
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    return [f"cuda:{i % gpus}" if gpus else device for i in range(workers)]


@contextmanager
def _signals_kept_from_children() -> Iterator[None]:
    """Block, in processes started inside, the signals by which a cluster announces the end of a job.

    It sends them to the whole process tree; the parent decides what follows.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    signals = {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    # Python before 3.13 unblocks SIGTERM when it starts this helper process, so that is done first.
    multiprocessing.resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_device = _steps = _inputs = None


def _start_worker(places, steps) -> None:
    """Set up a worker: its device, on a CPU one thread, and what its runs read."""
    global _device, _steps, _inputs
    _device, _steps, _inputs = places.get(), steps, Inputs()
    processes.follow_parent()
    if _device == "cpu":
        torch.set_num_threads(1)
    elif _device.startswith("cuda"):
        os.environ.setdefault(*CUBLAS)  # read when CUDA starts
        torch.cuda.set_device(_device)


def _work(run: Run, *beside: Run) -> None:
    together = {"beside": beside} if beside else {}
    run.execute(_device, lambda step: _steps.send((run.name, step, run.steps)), _inputs, **together)
    _steps.send((run.name, None, run.steps))


def _show_steps(steps, bar) -> None:
    """Show in the bar's postfix which runs are under way, and how far each is."""
    running: dict[str, str] = {}
    while True:
        try:
            name, step, limit = steps.recv()
        except (EOFError, OSError):
            return
        running.pop(name, None)
        if step is not None:
            running[name] = f"{name.split('/', 1)[1]} {step}/{limit}"
        bar.set_postfix_str(", ".join(running.values()), refresh=False)
        if sys.stderr.isatty() or bar.n == bar.total:
            bar.refresh()
