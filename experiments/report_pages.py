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
    """Write the pages to build/report."""
    parser = Parser(__doc__)
    parser.add_argument("--profile", help="folder in results/, instead of the committed ones")
    profile = parser.parse_args().profile
    notebooks = ROOT / (f"figures/{profile}" if profile else "analysis")
    if not any(notebooks.glob("*.ipynb")):
        advice = f": `bash run_all.sh {shlex.quote(profile)}` makes them" if profile else ""
        raise InputError(f"no notebooks in {notebooks}{advice}")
    collect(notebooks, ROOT / "build/report" / (profile or "committed"))


def collect(notebooks: Path, pages: Path) -> None:
    """Write the pages.

    Args:
        notebooks: Folder of the executed notebooks.
        pages: Folder of the pages, which is replaced.
    """
    shutil.rmtree(pages, ignore_errors=True)
    for pattern in FILES:
        for file in ROOT.glob(pattern):
            copy(file, pages / file.relative_to(ROOT))
    copy(ROOT / "mkdocs/reference.md", pages / "reference.md")
    for notebook in notebooks.glob("*.ipynb"):
        write_notebook(notebook, pages / "analysis")
    write_notebook(ROOT / "docs/tutorial.ipynb", pages / "docs", code=True)


def copy(file: Path, page: Path) -> None:
    """Copy a file and make the folder of the copy."""
    page.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, page)


def write_notebook(executed: Path, folder: Path, code: bool = False) -> None:
    """Write the page and the pictures of an executed notebook.

    Args:
        executed: The notebook.
        folder: The folder of the page.
        code: Show code cells too.
    """
    name = executed.stem
    exporter = MarkdownExporter(exclude_input=not code)
    names = {"unique_key": name, "output_files_dir": f"{name}_files"}
    text, resources = exporter.from_filename(str(executed), names)
    # Each picture has the notebook's name as its alternative text.
    write_atomically(folder / f"{name}.md", text.replace("![png]", f"![{name}]"))
    for picture, content in resources["outputs"].items():
        write_atomically(folder / picture, content)


if __name__ == "__main__":
    run_script(main)
