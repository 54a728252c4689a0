"""Execute the notebooks in analysis/ on the results of a profile.

    python experiments/execute_notebooks.py --profile demo

The executed copies and the figures go to figures/<profile>, the tables to results/<profile>/tables. A notebook is
skipped while its code, the library, its results and its outputs are unchanged. Notebooks run in parallel, one per
processor; with --inplace one after the other.
"""

import asyncio
import hashlib
import os
import signal
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from options import ROOT, Parser
from tqdm import tqdm

from pvera.errors import InputError
from pvera.processes import cores
from pvera.study.results import ADAPTER, write_atomically
from pvera.study.script import run

#: Errors of the input or the disk, not of a cell.
REFUSED = ("InputError", "OSError", "PermissionError")
STAMP = "pvera"  # key of a notebook's metadata: the inputs of its execution and the files that it wrote


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--profile", default="demo", help="folder in results/")
    parser.add_argument("--inplace", action="store_true", help="update analysis/, not figures/<profile>")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of analysis/, results/ and figures/")
    options = parser.parse_args()
    analysis, root = options.root / "analysis", options.root
    if not any((root / "results" / options.profile).rglob("*.json")):
        raise InputError(f"no results of {options.profile!r}: train first: experiments/train.py --profile")

    data = digest(files(root, options.profile))
    stale = []
    for path in sorted(analysis.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        target = path if options.inplace else root / "figures" / options.profile / path.name
        inputs = hashlib.sha256((data + repr([(c.cell_type, c.source) for c in notebook.cells])).encode())
        if not is_current(root, target, inputs.hexdigest()):
            stale.append((notebook, target, inputs.hexdigest()))

    # A file written while two notebooks run counts as written by both. Committed notebooks run one after the other, so
    # their stamps are reproducible.
    if stale:
        asyncio.run(execute_all(stale, root, options.profile, 1 if options.inplace else cores()))


async def execute_all(stale: list[tuple], root: Path, profile: str, workers: int) -> None:
    """Execute notebooks, `workers` at a time, and write each to its target with its stamp.

    The first failure ends the others.
    """
    free = asyncio.Semaphore(workers)
    cells = sum(cell.cell_type == "code" for notebook, _, _ in stale for cell in notebook.cells)

    async def execute_one(notebook, target: Path, inputs: str) -> None:
        async with free:
            bar.set_description(target.name)
            before = written(root, profile)
            await execute(notebook, root / "analysis", profile, on_cell_executed=lambda **_: bar.update())
            after = written(root, profile)
            outputs = sorted(name for name in after if after[name] != before.get(name))
            notebook.metadata[STAMP] = {"profile": profile, "inputs": inputs, "outputs": outputs}
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


def files(root: Path, profile: str) -> list[Path]:
    """List the files that a notebook may read: the library and results.

    Results are those of the profile, the published ones, the costs of the paper's sizes, the timings, and the runs
    compared with `mini` (half precision). Adapters and their page do not count: no notebook reads
    them, and a clone lacks some.
    """
    read = [*(ROOT / "pvera").rglob("*.py")]
    for name in dict.fromkeys([profile, "published", "paper/cost", "performance", "bfloat16", "mini"]):
        folder = root / "results" / name
        others = {folder / "tables", folder / "slurm"}
        results = (
            path
            for path in folder.rglob("[!.]*")
            if path.is_file() and path.suffix != ADAPTER and path.name != "README.md"
        )
        read += [path for path in results if others.isdisjoint(path.parents)]
    return read


def digest(paths: list[Path]) -> str:
    """Return the SHA-256 of names and contents; a fresh clone has other file times."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def written(root: Path, profile: str) -> dict[str, int]:
    """Return the files below the output folders, relative to `root`, and their modification times (ns)."""
    folders = (root / "results" / profile / "tables", root / "figures" / profile)
    outputs = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path.stat().st_mtime_ns for path in outputs}


def is_current(root: Path, target: Path, inputs: str) -> bool:
    """Return whether `target` was executed on these inputs and all its outputs exist."""
    if not target.exists():
        return False
    stamp = nbformat.read(target, as_version=4).metadata.get(STAMP, {})
    return stamp.get("inputs") == inputs and all((root / name).exists() for name in stamp["outputs"])


if __name__ == "__main__":
    run(main)
