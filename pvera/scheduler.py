"""Many runs on one machine: several single-threaded processes side by side, what exists is not run again."""

import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

import torch
from tqdm import tqdm

from . import processes
from .errors import InputError
from .runs import Run, execute


def pending(runs: Sequence[Run], replace: bool = False) -> list[Run]:
    """The runs whose result is missing. InputError where a result of another configuration lies in the place,
    unless `replace`."""
    states = [run.state() for run in runs]
    different = [run for run, state in zip(runs, states) if state == "different"]
    if different and not replace:
        raise InputError(
            f"{len(different)} result files were made with another configuration, the first is "
            f"{different[0].path}; use --replace to run them again, or --results for another folder"
        )
    return [run for run, state in zip(runs, states) if state != "done"]


def run_all(runs: Sequence[Run], title: str, workers: int = 1, device: str = "cpu") -> None:
    """Execute `runs` in `workers` processes, with a progress bar. The first failure ends the others.

    A single worker on a GPU keeps torch's own number of threads; on CPU every worker has one, which is what
    makes its numbers independent of how many there are.
    """
    if not runs:
        return
    context = processes.context()
    # A pipe without a lock: a worker that is killed while it writes leaves nothing locked.
    receiver, sender = context.Pipe(duplex=False)
    bar = tqdm(total=len(runs), desc=title, unit="run", dynamic_ncols=True, smoothing=0.1)
    pool = ProcessPoolExecutor(min(workers, len(runs)), context, _start_worker, (device, sender))
    watcher = threading.Thread(target=_show_epochs, args=(receiver, bar), daemon=True)
    watcher.start()
    try:
        futures: dict[Future, Run] = {pool.submit(_work, run, device): run for run in runs}
        for future in as_completed(futures):
            try:
                future.result()
            except InputError:
                raise
            except BrokenProcessPool:
                raise RuntimeError("a worker process was killed, perhaps for lack of memory: try fewer --workers")
            except Exception as error:
                raise RuntimeError(f"{futures[future].name}: {error}") from error
            bar.update()
        pool.shutdown()
    except BaseException:
        workers = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in workers:
            process.terminate()
        raise
    finally:
        sender.close()  # the last end that is open: the watcher reads to the end of the file
        watcher.join(timeout=5)
        bar.close()


_epochs = None


def _start_worker(device: str, epochs) -> None:
    """In each worker: one thread on a CPU."""
    global _epochs
    _epochs = epochs
    processes.follow_parent()
    if device == "cpu":
        torch.set_num_threads(1)


def _work(run: Run, device: str) -> None:
    limit = run.schedule.epochs
    execute(run, device, lambda epoch: _epochs.send((run.name, epoch, limit)))
    _epochs.send((run.name, None, limit))


def _show_epochs(epochs, bar) -> None:
    """The bar's postfix: which runs are under way, and at which epoch."""
    running: dict[str, str] = {}
    while True:
        try:
            name, epoch, limit = epochs.recv()
        except (EOFError, OSError):
            return
        running.pop(name, None)
        if epoch is not None:
            running[name] = f"{name.split('/', 1)[1]} {epoch}/{limit}"
        bar.set_postfix_str(", ".join(running.values()), refresh=False)
        if sys.stderr.isatty() or bar.n == bar.total:
            bar.refresh()
