"""Execute the notebooks in analysis/ on the results of a profile, two at a time.

    python experiments/execute_notebooks.py --profile demo

The executed copies and the figures go to figures/<profile>, the tables to results/<profile>/tables. A notebook is
skipped while its code, the library and its results are unchanged, and where it is named after an experiment that the
profile has no results of.
"""

import hashlib
import shlex
from pathlib import Path

from options import ROOT, Parser

from pvera.errors import InputError, run_script
from pvera.files import read_json
from pvera.report.tables.speed import TITLES
from pvera.study.analysis_plan import ANALYSES

STAMP = "pvera"  # key of a notebook's metadata: the profile and the hash of what it was executed on


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--profile", default="demo", help="folder in results/")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of analysis/, results/ and figures/")
    options = parser.parse_args()
    execute(options.root, options.profile)


def execute(root: Path, profile: str, in_place: bool = False) -> None:
    """Execute the notebooks that are out of date; `in_place`: update analysis/. InputError without results."""
    results, stale = root / "results" / profile, []
    if not any(results.rglob("*.json")):
        command = shlex.join(["python", "experiments/train.py", "--profile", profile])
        raise InputError(f"no results of {profile!r}: `{command}` makes them")
    data, tables_exist = digest(root, profile), (results / "tables").exists()
    for path in sorted((root / "analysis").glob("*.ipynb")):
        if path.stem in {*TITLES, *ANALYSES} and not any(results.glob(f"{path.stem}*")):
            continue
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in read_json(path)["cells"]]
        stamp = {"profile": profile, "inputs": hashlib.sha256((data + repr(cells)).encode()).hexdigest()}
        target = path if in_place else root / "figures" / profile / path.name
        if not (tables_exist and target.exists() and read_json(target)["metadata"].get(STAMP) == stamp):
            stale.append((path, target, {STAMP: stamp}))
    if stale:
        from pvera.report.execution import execute_all  # takes seconds to import

        execute_all(stale, profile)


def digest(root: Path, profile: str) -> str:
    """Return the SHA-256 of names and contents of what a notebook may read: the library and results.

    Results are those of the profile, the published ones, the costs of the paper's sizes, the timings, and the runs
    beside those of `mini`.
    """
    paths = [*(ROOT / "pvera").rglob("*.py")]
    beside = ["published", "paper/cost", "performance", "bfloat16", "mini", "vtab_tiny", "vtab_small"]
    for name in dict.fromkeys([profile, *beside]):
        for path in (root / "results" / name).rglob("*.*"):
            if path.suffix in (".json", ".npz", ".csv") and not {"tables", "slurm"}.intersection(path.parts):
                paths.append(path)
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


if __name__ == "__main__":
    run_script(main)
