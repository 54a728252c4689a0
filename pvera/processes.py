"""Processes on one machine: how many workers fit, how they start, that they end with their parent, and
locks."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from typing import IO


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def context():
    """Workers are forked from a server that has imported what they need, once; spawned where that is not to
    be had. Neither inherits this process's threads or CUDA state."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    forkserver = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload(["pvera.study.analyses"])
    return forkserver


def lock(file: IO) -> bool:
    """Lock an open file until it is closed or its process ends. False where another process holds it, and
    where the system has no such locks."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def follow_parent() -> None:
    """In a worker: Ctrl-C is the parent's to handle, and the worker ends when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sentinel = multiprocessing.parent_process().sentinel

    def wait():
        multiprocessing.connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
