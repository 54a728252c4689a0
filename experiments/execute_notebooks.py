"""Execute the notebooks in analysis/, two at a time.

    python experiments/execute_notebooks.py                    on the committed results
    python experiments/execute_notebooks.py --profile demo     on the results of one profile

The first shows the profiles in analysis/report.yaml and updates analysis/, results/tables and
figures/. The second writes executed copies and figures to figures/<profile>, and tables to
results/<profile>/tables.

A notebook is skipped while its code, the library and its results are unchanged. It is also skipped
where it is named after an experiment without results in the profile.
"""

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path

from options import ROOT, Parser

from pvera.data import glue
from pvera.errors import InputError, run_script
from pvera.files import read_json
from pvera.report.settings import read_report
from pvera.report.tables.speed import TITLES
from pvera.study.plan import ANALYSES

#: Notebook -> the experiments that it shows, where their names differ from its own.
SHOWN_IN = {"rank_and_position": ["rank", "position"], "paper_tuning": ["paper_tuning"]}
#: Key of a notebook's metadata: the profile, and the hash of what it was executed on.
STAMP = "pvera"
#: Suffixes of the result files that notebooks read.
READ = (".json", ".npz", ".csv")


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
    """Execute the notebooks that are out of date.

    Args:
        root: Folder of analysis/, results/ and figures/.
        profile: Whose results they show; without one, those of the report, in analysis/ itself.

    Raises:
        InputError: There are no results, or a notebook raised it.
    """
    results, analysis = root / "results", root / "analysis"
    if profile:
        require_results(results, profile)
    inputs = digest(root, [profile] if profile else read_report(root).profiles)
    tables = results / (profile or "") / "tables"
    target = root / "figures" / profile if profile else analysis

    stale = []
    for path in sorted(analysis.glob("*.ipynb")):
        if profile and not has_results(results / profile, path.stem):
            continue
        stamp = {"profile": profile, "inputs": with_cells(inputs, path)}
        executed = target / path.name
        if not (tables.exists() and has_stamp(executed, stamp)):
            stale.append((path, executed, {STAMP: stamp}))
    if stale:
        from pvera.report.execution import NotebookJob, execute_all  # takes seconds to import

        execute_all([NotebookJob(*job) for job in stale], profile)


def require_results(results: Path, profile: str) -> None:
    """Raise InputError, with the command that makes them, where a profile has no results."""
    if not any((results / profile).rglob("*.json")):
        command = shlex.join(["python", "experiments/train.py", "--profile", profile])
        raise InputError(f"no results of {profile!r}: `{command}` makes them")


def has_results(results: Path, notebook: str) -> bool:
    """Return whether a profile has results for a notebook.

    Args:
        results: Folder of the profile's results.
        notebook: Its name. One that is not named after an experiment needs none.
    """
    has_texts = any(any(results.glob(f"*/*/{name}")) for name in glue.GLUE)
    if has_texts or notebook == "language":
        return has_texts and notebook == "language"

    is_experiment = notebook in TITLES or notebook in ANALYSES
    experiments = SHOWN_IN.get(notebook, [notebook] if is_experiment else [])
    return not experiments or any(any(results.glob(f"{name}*")) for name in experiments)


def has_stamp(executed: Path, stamp: dict) -> bool:
    """Return whether an executed notebook exists and was executed on what `stamp` says."""
    return executed.exists() and read_json(executed)["metadata"].get(STAMP) == stamp


def with_cells(inputs: str, notebook: Path) -> str:
    """Return the SHA-256 of a notebook's cells without outputs, and of the digest of its inputs."""
    cells = read_json(notebook)["cells"]
    sources = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    return hashlib.sha256((inputs + repr(sources)).encode()).hexdigest()


def digest(root: Path, profiles: Sequence[str]) -> str:
    """Return the SHA-256 of names and contents of all files that a notebook may read.

    They are the library, and the results: of the profiles, the paper's printed numbers, the costs
    of the paper's sizes, and the timings.
    """
    paths = [*(ROOT / "pvera").rglob("*.py")]
    for name in (*profiles, "published", "paper/cost", "performance"):
        for path in (root / "results" / name).rglob("*.*"):
            is_output = not {"tables", "slurm"}.isdisjoint(path.parts)
            if path.suffix in READ and not is_output:
                paths.append(path)

    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


if __name__ == "__main__":
    run_script(main)
