"""The execution of notebooks, by kernels that are each forked from a server that has imported what notebooks import.

A kernel that starts Python imports torch, pandas and matplotlib anew, which takes longer than what most notebooks do.
A fork has these modules imported and has executed nothing, so every notebook begins as it does in a new kernel.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from multiprocessing import forkserver
from pathlib import Path

import nbformat
from ipykernel.kernelapp import IPKernelApp
from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from tqdm import tqdm

from pvera import processes
from pvera.errors import InputError
from pvera.files import write_atomically

NAME = "forked"
#: The modules that the server imports, once: what this module and most notebooks import, and what matplotlib imports
#: to save a figure. Installed ones: before Python 3.13 the server finds no others, and says nothing.
IMPORTED = (
    "ipykernel.kernelapp",
    "nbclient",
    "nbformat",
    "tqdm",
    "pvera.report.claims",
    "pvera.report.notebook",
    "matplotlib.backends.backend_pdf",
    "scipy.stats",
)
#: Errors of the input or the disk, not of a cell.
REFUSED = ("InputError", "OSError", "PermissionError")


def execute_all(stale: Sequence[tuple[Path, Path, str]], root: Path, profile: str, workers: int, stamp: str) -> None:
    """Execute notebooks, `workers` at a time, and write each to its target with its stamp.

    stale: notebook, target and hash of inputs.   stamp: the stamp's key in a notebook's metadata.
    The first failure ends the others.
    """
    start_server()
    read = [(nbformat.read(path, as_version=4), target, inputs) for path, target, inputs in stale]
    asyncio.run(_execute_all(read, root, profile, workers, stamp))


async def _execute_all(stale: list[tuple], root: Path, profile: str, workers: int, stamp: str) -> None:
    free = asyncio.Semaphore(workers)
    cells = sum(cell.cell_type == "code" for notebook, _, _ in stale for cell in notebook.cells)

    async def execute_one(notebook, target: Path, inputs: str) -> None:
        async with free:
            bar.set_description(target.name)
            before = written(root, profile)
            await execute(notebook, root / "analysis", profile, on_cell_executed=lambda **_: bar.update())
            after = written(root, profile)
            outputs = sorted(name for name in after if after[name] != before.get(name))
            notebook.metadata[stamp] = {"profile": profile, "inputs": inputs, "outputs": outputs}
            write_atomically(target, nbformat.writes(notebook).encode())

    # Kernels end with the loop, on Ctrl-C or when another notebook fails; that needs no message.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    with tqdm(total=cells, unit="cell") as bar:
        tasks = {asyncio.create_task(execute_one(*one)): one[1].name for one in stale}
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failed = [(tasks[task], task.exception()) for task in done if task.exception()]
    for name, error in failed:  # the loop cancels those that still run
        if isinstance(error, DeadKernelError):
            sys.exit(f"error: {name}: its kernel died")
        if not isinstance(error, CellExecutionError):
            raise error
        line = f"{error.ename}: {error.evalue}".strip().splitlines()[-1]
        if error.ename in REFUSED:
            raise InputError(f"{name}: {line.partition(': ')[2]}")
        sys.exit(f"error: {name}: {line}")


async def execute(notebook, folder: Path, profile: str, **hooks) -> None:
    """Run all cells in `folder` and keep their outputs, without times, which differ on every run."""
    resources = {"metadata": {"path": str(folder)}}
    # On Ctrl-C nbclient would end the kernel and report its death, instead of raising KeyboardInterrupt.
    hooks["on_notebook_start"] = lambda **_: asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    client = NotebookClient(
        notebook, timeout=None, record_timing=False, resources=resources, shutdown_kernel="immediate", **hooks
    )
    client.create_kernel_manager().transport_encryption = "auto"  # other users of the machine could listen
    await client.async_execute(env={**os.environ, "PVERA_PROFILE": profile})


def written(root: Path, profile: str) -> dict[str, int]:
    """Return the files below the output folders, relative to `root`, and their modification times (ns)."""
    folders = (root / "results" / profile / "tables", root / "figures" / profile)
    outputs = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path.stat().st_mtime_ns for path in outputs}


def start_server() -> None:
    """Let the server begin with its imports, which take seconds; kernels of this process then come from it."""
    if processes.context(*IMPORTED).get_start_method() == "forkserver":
        forkserver.ensure_running()
        provisioners = KernelProvisionerFactory.instance()
        provisioners.provisioners[NAME] = EntryPoint(NAME, f"{__name__}:Forked", provisioners.GROUP_NAME)
        provisioners.default_provisioner_name = NAME


class Forked(LocalProvisioner):
    """A provisioner whose kernels are forks of the server."""

    async def launch_kernel(self, cmd: list[str], **kwargs) -> dict:
        options = cmd[cmd.index("-m") + 2 :]  # after "python -m ipykernel_launcher", as kernels are specified
        process = processes.context(*IMPORTED).Process(
            target=_serve, args=(options, kwargs["cwd"], kwargs["env"]), daemon=True
        )
        process.start()
        self.process, self.cwd = _Popen(process), kwargs["cwd"]
        self.pid = self.pgid = process.pid  # `_serve` makes it the leader of a group, as Popen would
        return self.connection_info


class _Popen:
    """A process of multiprocessing with the methods of `subprocess.Popen` that a provisioner calls."""

    stdin = stdout = stderr = None

    def __init__(self, process):
        self.process, self.pid = process, process.pid
        self.kill, self.terminate = process.kill, process.terminate

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self) -> int | None:
        self.process.join()
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def _serve(options: Sequence[str], folder: str, environment: dict[str, str]) -> None:
    """Become a kernel."""
    os.setsid()  # Ctrl-C is for the parent
    gc.freeze()  # statsmodels collects garbage in every test: not among what the server has imported
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    IPKernelApp.launch_instance([*options, f"--IPKernelApp.parent_handle={os.getppid()}"])
