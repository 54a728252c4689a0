"""docs/tutorial.ipynb runs as it stands, and its adapter learns."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.ipynb"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial_runs():
    notebook = nbformat.read(TUTORIAL, as_version=4)
    NotebookClient(notebook, timeout=900, kernel_name="python3").execute(cwd=TUTORIAL.parent)
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert float(re.search(r"test accuracy ([\d.]+) %", printed)[1]) > 30, "chance is 10 %"
    assert float(re.search(r"loading and merging: (\S+)", printed)[1]) < 1e-4
