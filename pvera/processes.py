"""Processes on one machine: processors, and the start and end of workers."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from multiprocessing.context import BaseContext


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def context(*preloaded: str) -> BaseContext:
    """Return how workers start: forked from a server that has imported the modules `preloaded`; spawned where
    forkserver is unavailable. Neither inherits this process's threads or CUDA state.

    A process has one server: it keeps what the first call that starts a worker preloads.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    forkserver = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload(list(preloaded))
    return forkserver


def follow_parent() -> None:
    """End this worker when its parent ends, and leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "only a worker has a parent"

    def wait() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
