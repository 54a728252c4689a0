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
from pvera.errors import InputError, run_script


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
    """Write the tasks that `root` lacks.

    Raises:
        InputError: A folder of another origin has a task's name.
    """
    missing = []
    for name in names:
        task = suite.SYNTHETIC_TASKS[name]
        folder = root / name
        if suite.is_made(task, folder):
            continue
        if folder.exists() and not (folder / suite.MANIFEST).exists():
            raise InputError(f"{folder} exists and was not made by this script: remove it")
        missing.append(task)

    images = len(missing) * sum(suite.COUNTS.values())
    with tqdm(total=images, unit="image", disable=not missing) as bar:
        for task in missing:
            bar.set_description(task.name)
            manifest = suite.write(task, suite.make(task), root, bar.update)
            if manifest["sha256"] != task.sha256:
                print(
                    f"{task.name} differs from the published one: "
                    "are the pinned versions installed?"
                )
    print(f"{len(names)} tasks in {root}")


if __name__ == "__main__":
    run_script(main)
