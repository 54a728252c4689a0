"""Write the demonstration suite (twelve tasks of 32 x 32 images) in VTAB-1k's folder format."""

from collections.abc import Sequence
from pathlib import Path

from options import ROOT, Parser
from tqdm import tqdm

from pvera.data import suite
from pvera.errors import InputError, run_script


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument(
        "--root", type=Path, default=ROOT / "data/demo", help="where to write (%(default)s)"
    )
    names = list(suite.RECIPES)
    text = f"tasks to make, of {', '.join(names)} (all)"
    parser.add_argument(
        "--task", nargs="+", metavar="NAME", choices=names, default=names, help=text
    )
    options = parser.parse_args()
    make(options.root, options.task)


def make(root: Path, names: Sequence[str]) -> None:
    """Write the tasks that `root` lacks. InputError for a folder that is in the way."""
    missing = [
        suite.RECIPES[name] for name in names if not suite.is_made(suite.RECIPES[name], root / name)
    ]
    for folder in (root / recipe.name for recipe in missing):
        if folder.exists() and not (folder / suite.MANIFEST).exists():
            raise InputError(f"{folder} exists and was not made by this script: remove it")

    with tqdm(
        total=len(missing) * sum(suite.COUNTS.values()), unit="image", disable=not missing
    ) as bar:
        for recipe in missing:
            bar.set_description(recipe.name)
            manifest = suite.write(recipe, suite.make(recipe), root, bar.update)
            if manifest["sha256"] != recipe.sha256:
                print(
                    f"{recipe.name} differs from the published one: are the pinned versions installed?"
                )
    print(f"{len(names)} tasks in {root}")


if __name__ == "__main__":
    run_script(main)
