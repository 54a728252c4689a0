"""The execution of notebooks in a few kernels, one notebook after the other in each: imports take longer than cells."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from tqdm import tqdm

from pvera.errors import InputError
from pvera.files import write_atomically

WORKERS = 2
RESET = nbformat.v4.new_code_cell("%reset -f")  # removes a notebook's names; modules stay imported
Job = tuple[Path, Path, dict]


def execute_all(jobs: Sequence[Job], profile: str | None) -> None:
    """Execute notebooks of one folder on the results of `profile`, or of the report, `WORKERS` at a time.

    jobs: path and target of each notebook, and metadata to add. The first failure ends the others and is raised:
    InputError for bad input, SystemExit with one line for another exception of a cell.
    """
    kernels = [AsyncKernelManager() for _ in range(min(WORKERS, len(jobs)))]
    environment = os.environ | {"PVERA_PROFILE": profile or ""}
    options = {"cwd": str(jobs[0][0].parent), "env": environment}
    waiting = iter(jobs)
    # In threads, since in the main one nbclient would take Ctrl-C.
    with tqdm(total=len(jobs), unit="notebook") as bar, ThreadPoolExecutor(WORKERS) as pool:
        workers = [
            pool.submit(asyncio.run, _work(kernel, options, waiting, bar)) for kernel in kernels
        ]
        try:
            for worker in as_completed(workers):
                worker.result()
        finally:
            list(waiting)  # after a failure nobody starts another
            for kernel in kernels:
                asyncio.run(kernel.shutdown_kernel(now=True))


async def _work(
    kernel: AsyncKernelManager, options: dict, waiting: Iterator[Job], bar: tqdm
) -> None:
    """Execute waiting notebooks in one kernel, which the first of them starts."""
    client = NotebookClient(
        RESET, kernel, record_timing=False, extra_arguments=["--log-level=ERROR"]
    )
    try:
        for path, target, added in waiting:
            notebook = nbformat.read(path, as_version=4)
            client.nb = notebook.copy()
            client.nb.cells = [*notebook.cells, RESET]
            metadata = (
                notebook.metadata | added
            )  # without what the client adds: the version of Python
            try:
                await client.async_execute(**options)
            except DeadKernelError as error:
                raise SystemExit(f"error: {path.name}: its process died") from error
            except CellExecutionError as error:
                line = f"{path.name}: {(error.evalue.strip() or error.ename).splitlines()[-1]}"
                if error.ename in ("InputError", "OSError"):  # the second of a full disk
                    raise InputError(line) from error
                raise SystemExit(f"error: {line}") from error
            notebook.metadata = metadata
            write_atomically(target, nbformat.writes(notebook))
            bar.update()
    finally:
        if client.kc:
            client.kc.stop_channels()
