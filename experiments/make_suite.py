"""Write the demonstration suite (twelve tasks of 32 x 32 images) in VTAB-1k's folder format."""

from pathlib import Path

from options import Parser
from tqdm import tqdm

from pvera.data import suite
from pvera.errors import InputError
from pvera.study import script
from pvera.study.validation import choose


def main(words: list[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--root", type=Path, default=Path("data/demo"), help="where to write (%(default)s)")
    names = list(suite.RECIPES)
    parser.several("--task", metavar="NAME", default=names, help=f"tasks to make, of {', '.join(names)} (all)")
    parser.add_argument("--force", action="store_true", help="make existing tasks again")
    arguments = parser.parse_args(words)
    for name in arguments.task:
        choose("task", name, suite.RECIPES)
    recipes = [suite.RECIPES[name] for name in arguments.task]
    manifests = {r.name: None if arguments.force else suite.manifest(r, arguments.root / r.name) for r in recipes}
    missing = [r for r in recipes if manifests[r.name] is None]
    for recipe in missing:
        folder = arguments.root / recipe.name
        if folder.exists() and not (folder / suite.MANIFEST).exists() and not arguments.force:
            raise InputError(f"{folder} exists and was not made by this script; --force replaces it")

    total = len(missing) * sum(suite.COUNTS.values())
    with tqdm(total=total, unit="image", disable=not missing) as bar:
        for recipe in missing:
            bar.set_description(recipe.name)
            manifests[recipe.name] = suite.write(recipe, suite.make(recipe), arguments.root, bar.update)

    print(f"{'task':<12}{'category':<13}{'classes':>7}{'images':>16}{'chance':>8}  measures")
    for recipe in recipes:
        images = "/".join(str(manifests[recipe.name]["images"][split]) for split in suite.COUNTS)
        print(
            f"{recipe.name:<12}{recipe.category:<13}{len(recipe.classes):>7}{images:>16}"
            f"{manifests[recipe.name]['chance']:>8.1%}  {recipe.measures}"
        )
        if manifests[recipe.name]["sha256"]["all"] != recipe.sha256:
            print(f"{'':<12}differs from the published {recipe.name}: are the pinned versions installed?")
    print(f"in {arguments.root}")


if __name__ == "__main__":
    script.run(main)
