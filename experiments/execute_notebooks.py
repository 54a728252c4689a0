"""Execute the notebooks in analysis/, one after the other.

    python experiments/execute_notebooks.py                    on the committed results
    python experiments/execute_notebooks.py --profile demo     on the results of one profile

The first shows the profiles in analysis/report.yaml and updates analysis/, results/tables and
figures/. The second writes executed copies and figures to figures/<profile>, and tables to
results/<profile>/tables. A notebook without results names the command that makes them. The copies
of a profile that are newer than all results that they show, and than the program, are kept.
"""

import os
import shlex
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from options import ROOT, Parser
from tqdm import tqdm

from pvera.errors import InputError, run_script
from pvera.files import write_atomically


def main() -> None:
    """Execute the notebooks that the command line asks for."""
    parser = Parser(__doc__)
    parser.add_argument("--profile", help="folder in results/, instead of the committed ones")
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="folder of analysis/, results/ and figures/"
    )
    options = parser.parse_args()
    execute(options.root, options.profile)


def execute(root: Path, profile: str | None = None) -> None:
    """Execute all notebooks; the first failure ends it.

    Args:
        root: Folder of analysis/, results/ and figures/.
        profile: Whose results they show; without one, those of the report, in analysis/ itself.

    Raises:
        InputError: There are no results, or a notebook raised it.
    """
    target = root / "analysis"
    if profile:
        target = root / "figures" / profile
        if not any((root / "results" / profile).rglob("*.json")):
            command = shlex.join(["python", "experiments/train.py", "--profile", profile])
            raise InputError(f"no results of {profile!r}: `{command}` makes them")
        if is_current(root, profile):
            return

    quiet = ["--log-level=ERROR"]
    client = NotebookClient(nbformat.v4.new_notebook(), record_timing=False, extra_arguments=quiet)
    environment = os.environ | {"PVERA_PROFILE": profile or ""}
    # One kernel executes all notebooks, since its imports take longer than most of them.
    with client.setup_kernel(cwd=str(root / "analysis"), env=environment):
        for path in tqdm(sorted(root.glob("analysis/*.ipynb")), unit="notebook"):
            execute_notebook(client, path)
            write_atomically(target / path.name, nbformat.writes(client.nb))
            # The next one starts without names; modules stay imported.
            client.execute_cell(nbformat.v4.new_code_cell("%reset -f"), 0)


def is_current(root: Path, profile: str) -> bool:
    """Return whether a profile's executed notebooks are newer than notebooks, code and results."""
    notebooks = sorted(root.glob("analysis/*.ipynb"))
    executed = [root / "figures" / profile / path.name for path in notebooks]
    results = root / "results"
    tables = results / profile / "tables"
    if not tables.exists() or not all(path.exists() for path in executed):
        return False

    inputs = [*notebooks, *(ROOT / "pvera").rglob("*.py")]
    inputs += root.glob("experiments/profiles/*.yaml")
    # Folders too: one is as new as the last file that was deleted from it.
    found = (results / profile).rglob("*")
    inputs += (path for path in found if tables not in (path, path.parent))
    for shared in ("paper/cost/*", "published/*", "performance/*"):
        inputs += results.glob(shared)
    newest_input = max(path.stat().st_mtime for path in inputs)
    return newest_input < min(path.stat().st_mtime for path in executed)


def execute_notebook(client: NotebookClient, path: Path) -> None:
    """Execute the cells of a notebook, which becomes `client.nb` with its outputs."""
    client.nb = nbformat.read(path, as_version=4)
    client.reset_execution_trackers()
    try:
        for index, cell in enumerate(client.nb.cells):
            client.execute_cell(cell, index, execution_count=client.code_cells_executed + 1)
    except CellExecutionError as error:
        # OSError is that of a full disk.
        if error.ename not in ("InputError", "OSError"):
            raise
        raise InputError(f"{path.name}: {error.evalue}") from error


if __name__ == "__main__":
    run_script(main)
