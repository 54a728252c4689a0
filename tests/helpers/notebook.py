"""A notebook's code cells and outputs, in this process, which is faster than a kernel."""

import shutil
import warnings
from pathlib import Path

import IPython.display
import nbformat
from IPython.display import Image, Markdown

ROOT = Path(__file__).resolve().parents[2]


def run(name: str, root: Path, profile: str, monkeypatch) -> tuple[str, list[Path]]:
    """Run analysis/`name` as if the repository lay at `root`; return its Markdown and the pictures that it shows.

    A warning is an error.
    """
    notebook = nbformat.read(ROOT / "analysis" / name, as_version=4)
    nbformat.validate(notebook)
    (root / "pyproject.toml").touch()
    if not (root / "results/published").exists():
        shutil.copytree(ROOT / "results/published", root / "results/published")
    displayed = []
    monkeypatch.setattr(IPython.display, "display", displayed.append)
    monkeypatch.setenv("PVERA_PROFILE", profile)
    monkeypatch.chdir(root)
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for cell in notebook.cells:
            if cell.cell_type == "code":
                exec(cell.source, names)
    assert {type(thing) for thing in displayed} <= {Markdown, Image}
    texts = [thing.data for thing in displayed if isinstance(thing, Markdown)]
    return "\n".join(texts), [
        Path(thing.filename) for thing in displayed if isinstance(thing, Image) and thing.filename
    ]
