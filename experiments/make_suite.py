"""Write the demonstration suite (twelve tasks of 32 x 32 images) in VTAB-1k's folder format."""

from pathlib import Path

from options import Parser
from tqdm import tqdm

from pvera.data import suite
from pvera.errors import InputError, run_script


def main(words: list[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--root", type=Path, default=Path("data/demo"), help="where to write (%(default)s)")
    names = list(suite.RECIPES)
    about = f"tasks to make, of {', '.join(names)} (all)"
    parser.add_argument("--task", nargs="+", metavar="NAME", choices=names, default=names, help=about)
    arguments = parser.parse_args(words)
    missing = [suite.RECIPES[name] for name in arguments.task]
    missing = [recipe for recipe in missing if not suite.is_made(recipe, arguments.root / recipe.name)]
    for folder in (arguments.root / recipe.name for recipe in missing):
        if folder.exists() and not (folder / suite.MANIFEST).exists():
            raise InputError(f"{folder} exists and was not made by this script: remove it")

    with tqdm(total=len(missing) * sum(suite.COUNTS.values()), unit="image", disable=not missing) as bar:
        for recipe in missing:
            bar.set_description(recipe.name)
            manifest = suite.write(recipe, suite.make(recipe), arguments.root, bar.update)
            if manifest["sha256"]["all"] != recipe.sha256:
                print(f"{recipe.name} differs from the published one: are the pinned versions installed?")
    print(f"{len(arguments.task)} tasks in {arguments.root}")


if __name__ == "__main__":
    run_script(main)
