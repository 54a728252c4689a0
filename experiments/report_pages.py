"""Collect the pages of the report; `bash run_report.sh [profile]` calls it and builds the site.

    python experiments/report_pages.py                    of the committed results
    python experiments/report_pages.py --profile demo     of one profile's

Files keep their path in the repository, so their links hold. A notebook becomes a page without
code; the tutorial's page has its code. mkdocs/mkdocs.yml holds the navigation.
"""

import shlex
import shutil
from pathlib import Path

from nbconvert import MarkdownExporter
from options import ROOT, Parser

from pvera.errors import InputError, run_script
from pvera.files import write_atomically

#: The pages, and what they link to.
FILES = (
    "*.md",
    "LICENSE",
    "*.toml",
    "*.lock",
    "docs/*",
    "mkdocs/assets/*",
    "pvera/**/*.py",
    "pvera/**/*.md",
    "experiments/**/*.py",
    "experiments/**/*.yaml",
    "tests/golden/*.py",
    "tests/slurm/*",
    "results/**/*.md",
    "results/published/audit.csv",
    "results/performance/*.csv",
    "results/bfloat16/**/*.json",
    "results/vtab_tiny/benchmark/**/*.safetensors",
    "figures/*.png",
)


def main() -> None:
    """Write the pages."""
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
    # The folder of the pages is replaced.
    for file in [*files, *notebooks.glob("*.ipynb")]:
        if pages.resolve() in file.resolve().parents:
            raise InputError(
                f"{pages} holds {file}, which the pages are made of: name another --folder"
            )

    shutil.rmtree(pages, ignore_errors=True)
    for file in files:
        copy(file, pages / file.relative_to(ROOT))
    copy(ROOT / "mkdocs/reference.md", pages / "reference.md")
    for path in ROOT.glob("analysis/*.ipynb"):
        write_notebook(notebooks / path.name, pages / "analysis", path.stem)
    write_notebook(ROOT / "docs/tutorial.ipynb", pages / "docs", "tutorial", code=True)


def copy(file: Path, page: Path) -> None:
    """Copy a file and make the folder of the copy."""
    page.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, page)


def write_notebook(executed: Path, folder: Path, name: str, code: bool = False) -> None:
    """Write the page and the pictures of an executed notebook.

    Args:
        executed: The notebook; where it does not exist, the page says that it has no results.
        folder: Of the page.
        name: Of the page.
        code: Show code cells too.
    """
    page = folder / f"{name}.md"
    if not executed.exists():
        write_atomically(page, f"# {name}\n\nThe profile has no results for this notebook.\n")
        return
    exporter = MarkdownExporter(exclude_input=not code)
    names = {"unique_key": name, "output_files_dir": f"{name}_files"}
    text, resources = exporter.from_filename(str(executed), names)
    # Each picture has the notebook's name as its alternative text.
    write_atomically(page, text.replace("![png]", f"![{name}]"))
    for picture, content in resources["outputs"].items():
        write_atomically(folder / picture, content)


if __name__ == "__main__":
    run_script(main)
