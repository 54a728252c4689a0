"""Worker processes on one machine: how many fit, how they start, and that they end with their parent."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def context():
    """Workers are forked from a server that has imported what they need, once; spawned where that is not to
    be had. Neither inherits this process's threads or CUDA state."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    forkserver = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload(["pvera.analyses"])
    return forkserver


def follow_parent() -> None:
    """In a worker: Ctrl-C is the parent's to handle, and the worker ends when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sentinel = multiprocessing.parent_process().sentinel

    def wait():
        multiprocessing.connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
