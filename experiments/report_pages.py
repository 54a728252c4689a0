"""Collect the pages of the report; `bash run_report.sh [profile]` calls it and builds the site.

    python experiments/report_pages.py                    of the committed results
    python experiments/report_pages.py --profile demo     of one profile's

Files keep their place in the repository, so their links hold. A notebook, executed for the profile, becomes a page
without code; the tutorial's page has its code. mkdocs/mkdocs.yml holds the navigation.
"""

import shlex
import shutil
from pathlib import Path

from nbconvert import MarkdownExporter
from options import ROOT, Parser

from pvera.errors import InputError, run_script
from pvera.files import write_atomically

#: The pages, and what they link to.
FILES = ("*.md", "LICENSE", "*.toml", "*.lock", "docs/*", "mkdocs/assets/*", "pvera/**/*.py", "pvera/**/*.md",
         "experiments/**/*.py", "experiments/**/*.yaml", "tests/golden/*.py", "tests/slurm/*", "results/**/*.md",
         "results/published/audit.csv", "results/performance/*.csv", "results/bfloat16/**/*.json",
         "results/vtab_tiny/benchmark/**/*.safetensors", "figures/*.png")  # fmt: skip


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--profile", help="folder in results/, instead of the committed ones")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build/report", help="of the pages (%(default)s)"
    )
    options = parser.parse_args()
    notebooks = ROOT / (f"figures/{options.profile}" if options.profile else "analysis")
    if not any(notebooks.glob("*.ipynb")):
        command = shlex.join(["bash", "run_all.sh", options.profile])
        raise InputError(f"no notebooks of {options.profile!r}: `{command}` makes them")
    pages = options.folder / (options.profile or "committed")
    files = [file for pattern in FILES for file in ROOT.glob(pattern)]
    for file in [*files, *notebooks.glob("*.ipynb")]:
        if pages.resolve() in file.resolve().parents:
            raise InputError(
                f"{pages} holds {file}, which the pages are made of: name another --folder"
            )

    shutil.rmtree(pages, ignore_errors=True)
    for file in files:
        page = pages / file.relative_to(ROOT)
        page.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, page)
    shutil.copyfile(ROOT / "mkdocs/reference.md", pages / "reference.md")
    for path in ROOT.glob("analysis/*.ipynb"):
        write_notebook(notebooks / path.name, pages / "analysis", path.stem)
    write_notebook(ROOT / "docs/tutorial.ipynb", pages / "docs", "tutorial", code=True)


def write_notebook(executed: Path, folder: Path, name: str, code: bool = False) -> None:
    """Write the page and the pictures of an executed notebook; where it was not executed, say so."""
    if not executed.exists():
        write_atomically(
            folder / f"{name}.md", f"# {name}\n\nThe profile has no results for this notebook.\n"
        )
        return
    names = {"unique_key": name, "output_files_dir": f"{name}_files"}
    text, resources = MarkdownExporter(exclude_input=not code).from_filename(executed, names)
    write_atomically(folder / f"{name}.md", text.replace("![png]", f"![{name}]"))
    for picture, content in resources["outputs"].items():
        write_atomically(folder / picture, content)


if __name__ == "__main__":
    run_script(main)
