"""A repository of one notebook that counts its runs, and its execution by the script."""

import nbformat
import pytest
import scripts

COUNTING = """\
import os
from pathlib import Path
profile = os.environ["PVERA_PROFILE"]
out = Path("..", "results", profile, "tables", "runs.txt")
out.parent.mkdir(exist_ok=True)
out.write_text((out.read_text() if out.exists() else "") + "run ")
print(profile, Path("..", "results", profile, "run.json").read_text())"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "analysis").mkdir()
    (tmp_path / "results/demo").mkdir(parents=True)
    (tmp_path / "results/demo/run.json").write_text("1")
    notebook(tmp_path, COUNTING)
    return tmp_path


def notebook(root, *sources, name="count"):
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbformat.write(made, root / f"analysis/{name}.ipynb")


def execute(root, *options):
    scripts.execute("execute_notebooks", "--profile", "demo", "--root", root, *options)
