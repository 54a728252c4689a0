"""Write the suite of twelve synthetic tasks of 32 x 32 images, in VTAB-1k's folder format.

    python experiments/make_suite.py                   # all twelve, to data/demo: about a minute
    python experiments/make_suite.py --task counting   # one

Tasks that are there stay. Ends with "12 tasks in" the folder; a line more names each task whose
pixels differ from the published ones, as those of other packages may.
"""

from collections.abc import Sequence
from pathlib import Path

from options import ROOT, Parser
from tqdm import tqdm

from pvera.data import suite
from pvera.errors import run_script


def main() -> None:
    """Write the tasks of the command line."""
    parser = Parser(__doc__)
    text = "where to write (%(default)s)"
    parser.add_argument("--root", type=Path, default=ROOT / "data/demo", help=text)
    names = list(suite.SYNTHETIC_TASKS)
    text = f"tasks to make, of {', '.join(names)} (all)"
    parser.add_argument(
        "--task", nargs="+", metavar="NAME", choices=names, default=names, help=text
    )
    options = parser.parse_args()
    make(options.root, options.task)


def make(root: Path, names: Sequence[str]) -> None:
    """Write the tasks that `root` lacks."""
    missing = [name for name in names if not (root / name).exists()]
    for name in tqdm(missing, unit="task", disable=not missing):
        if suite.write(suite.SYNTHETIC_TASKS[name], root) != suite.SHA256[name]:
            print(f"{name} differs from the published one: are the pinned versions installed?")
    print(f"{len(names)} tasks in {root}")


if __name__ == "__main__":
    run_script(main)
