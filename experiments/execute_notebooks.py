"""Execute the notebooks in analysis/, two at a time.

    python experiments/execute_notebooks.py                    on the committed results that analysis/report.yaml names
    python experiments/execute_notebooks.py --profile demo     on the results of one profile

The first updates analysis/, results/tables and figures/. The second writes executed copies and figures to
figures/<profile>, and tables to results/<profile>/tables. A notebook is skipped while its code, the library and its
results are unchanged, and where it is named after an experiment that the profile has no results of.
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

#: Notebook -> the experiments that it shows, where it has another name than they.
SHOWN_IN = {"rank_and_position": ["rank", "position"], "paper_tuning": ["paper_tuning"]}
STAMP = "pvera"  # key of a notebook's metadata: the profile and the hash of what it was executed on


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--profile", help="folder in results/, instead of the committed ones")
    parser.add_argument(
        "--root", type=Path, default=ROOT, help="folder of analysis/, results/ and figures/"
    )
    options = parser.parse_args()
    execute(options.root, options.profile)


def execute(root: Path, profile: str | None = None) -> None:
    """Execute the notebooks that are out of date. InputError without results.

    Args:
        root: Folder of analysis/, results/ and figures/.
        profile: Whose results they show; without one, those of the report, in analysis/ itself.
    """
    results = root / "results"
    names, tables, target_folder = read_report(root).profiles, results / "tables", root / "analysis"
    if profile:
        names, tables, target_folder = (
            [profile],
            results / profile / "tables",
            root / "figures" / profile,
        )
        if not any((results / profile).rglob("*.json")):
            command = shlex.join(["python", "experiments/train.py", "--profile", profile])
            raise InputError(f"no results of {profile!r}: `{command}` makes them")
    data, tables_exist = digest(root, names), tables.exists()

    stale = []
    for path in sorted((root / "analysis").glob("*.ipynb")):
        if profile and not has_results(results / profile, path.stem):
            continue
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in read_json(path)["cells"]]
        stamp = {
            "profile": profile,
            "inputs": hashlib.sha256((data + repr(cells)).encode()).hexdigest(),
        }
        target = target_folder / path.name
        if not (
            tables_exist and target.exists() and read_json(target)["metadata"].get(STAMP) == stamp
        ):
            stale.append((path, target, {STAMP: stamp}))
    if stale:
        from pvera.report.execution import execute_all  # takes seconds to import

        execute_all(stale, profile)


def has_results(results: Path, notebook: str) -> bool:
    """Return whether a profile has results of the experiment that a notebook is named after, if it is."""
    texts = [name for name in glue.GLUE if any(results.glob(f"*/*/{name}"))]
    if texts or notebook == "language":
        return bool(texts) and notebook == "language"
    experiments = SHOWN_IN.get(notebook, [notebook] if notebook in {*TITLES, *ANALYSES} else [])
    return not experiments or any(any(results.glob(f"{name}*")) for name in experiments)


def digest(root: Path, profiles: Sequence[str]) -> str:
    """Return the SHA-256 of names and contents of what a notebook may read: the library and results.

    Results are those of the profiles, the published ones, the costs of the paper's sizes, and the timings.
    """
    paths = [*(ROOT / "pvera").rglob("*.py")]
    for name in (*profiles, "published", "paper/cost", "performance"):
        for path in (root / "results" / name).rglob("*.*"):
            if path.suffix in (".json", ".npz", ".csv") and not {"tables", "slurm"}.intersection(
                path.parts
            ):
                paths.append(path)
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


if __name__ == "__main__":
    run_script(main)
