"""The execution of notebooks, each in a process of its own that is forked from one with the imports done."""

import gc
import os
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.pool import ThreadPool
from pathlib import Path

import nbformat
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from tqdm import tqdm
from traitlets.config import Config

from pvera import processes
from pvera.errors import InputError
from pvera.files import write_atomically

WORKERS = 2
#: What most notebooks import, and what matplotlib imports to save a figure.
IMPORTED = (__name__, "pvera.report.claims", "pvera.report.notebook", "matplotlib.backends.backend_pdf", "scipy.stats")


def execute_all(jobs: Sequence[tuple[Path, Path, str, dict]]) -> None:
    """Call `execute` on each job, `WORKERS` at a time. The first failure ends the others and is raised."""
    context = processes.context(*IMPORTED)

    def failure(job: tuple) -> BaseException | None:
        read, write = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(write, *job), daemon=True)
        process.start()
        write.close()
        try:
            return read.recv()
        except EOFError:
            return SystemExit(f"error: {job[0].name}: its process died")

    with ThreadPool(WORKERS) as pool:
        for error in tqdm(pool.imap_unordered(failure, jobs), total=len(jobs), unit="notebook"):
            if error:
                raise error


def _work(answer: Connection, *job) -> None:
    processes.follow_parent()
    gc.freeze()  # statsmodels collects garbage in every test: not among what was imported
    try:
        answer.send(execute(*job))
    except BaseException as error:
        answer.send(error)


def execute(path: Path, target: Path, profile: str, metadata: dict) -> None:
    """Execute the notebook `path` in this process, in its folder, and write it with `metadata` and outputs to `target`.

    InputError for bad input and for a disk that refuses; SystemExit with one line for another exception of a cell.
    """
    os.environ["PVERA_PROFILE"] = profile
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.update(metadata)
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    os.chdir(path.parent)
    for count, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        with capture_output() as shown:
            result = shell.run_cell(cell.source)
        try:
            result.raise_error()
        except (InputError, OSError) as error:
            raise InputError(f"{path.name}: {error}") from error
        except Exception as error:
            line = (str(error) or type(error).__name__).splitlines()[-1]
            raise SystemExit(f"error: {path.name}: {line}") from error
        texts = [nbformat.v4.new_output("stream", name="stdout", text=shown.stdout)] if shown.stdout else []
        things = (
            nbformat.v4.new_output("display_data", data=thing.data, metadata=thing.metadata) for thing in shown.outputs
        )
        cell.execution_count, cell.outputs = count, [*texts, *things]
    write_atomically(target, nbformat.writes(notebook).encode())
