"""Execute notebooks with nbclient, two at a time."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from tqdm import tqdm

from pvera.errors import InputError
from pvera.files import write_atomically

#: Kernels. Each executes many notebooks, since imports take longer than cells.
KERNELS = 2
#: The cell after each notebook removes its names; modules stay imported.
RESET = nbformat.v4.new_code_cell("%reset -f")


@dataclass(frozen=True)
class NotebookJob:
    """A notebook to execute."""

    #: The notebook.
    path: Path
    #: The file for the notebook with its outputs.
    target: Path
    #: Metadata to add to it.
    metadata: dict


def execute_all(jobs: Sequence[NotebookJob], profile: str | None) -> None:
    """Execute notebooks that lie in one folder.

    Args:
        jobs: The notebooks. The first failure ends the others and is raised.
        profile: Whose results they show; None for those of the report.

    Raises:
        InputError: A cell raised InputError or OSError.
        SystemExit: A cell raised another exception; the message is one line.
    """
    kernels = [AsyncKernelManager() for _ in range(min(KERNELS, len(jobs)))]
    environment = os.environ | {"PVERA_PROFILE": profile or ""}
    options = {"cwd": str(jobs[0].path.parent), "env": environment}
    waiting = iter(jobs)

    # In threads, since nbclient handles Ctrl-C itself in the main one.
    with tqdm(total=len(jobs), unit="notebook") as bar, ThreadPoolExecutor(KERNELS) as pool:
        workers = [pool.submit(_execute_waiting, k, options, waiting, bar) for k in kernels]
        try:
            for worker in as_completed(workers):
                worker.result()
        finally:
            for _ in waiting:
                pass  # After a failure no other notebook starts.
            for kernel in kernels:
                asyncio.run(_end(kernel))


async def _end(kernel: AsyncKernelManager) -> None:
    await kernel.shutdown_kernel(now=True)


def _execute_waiting(
    kernel: AsyncKernelManager, options: dict, waiting: Iterator[NotebookJob], bar: tqdm
) -> None:
    """Execute one waiting notebook after the other in `kernel`, which the first one starts."""
    client = NotebookClient(
        RESET, kernel, record_timing=False, extra_arguments=["--log-level=ERROR"]
    )
    for job in waiting:
        _execute(client, options, job)
        bar.update()


def _execute(client: NotebookClient, options: dict, job: NotebookJob) -> None:
    notebook = nbformat.read(job.path, as_version=4)
    client.nb = notebook.copy()
    client.nb.cells = [*notebook.cells, RESET]
    # Copied, since the client adds the version of Python.
    metadata = notebook.metadata | job.metadata
    try:
        client.execute(**options)
    except DeadKernelError as error:
        raise SystemExit(f"error: {job.path.name}: its process died") from error
    except CellExecutionError as error:
        message = error.evalue.strip() or error.ename
        line = f"{job.path.name}: {message.splitlines()[-1]}"
        # OSError is that of a full disk.
        if error.ename in ("InputError", "OSError"):
            raise InputError(line) from error
        raise SystemExit(f"error: {line}") from error

    notebook.metadata = metadata
    write_atomically(job.target, nbformat.writes(notebook))
