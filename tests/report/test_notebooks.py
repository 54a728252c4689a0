"""The execution of notebooks: what is skipped, and what a failure says."""

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
    notebook_ = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbformat.write(notebook_, root / f"analysis/{name}.ipynb")


def execute(root, *options):
    scripts.execute("execute_notebooks", "--profile", "demo", "--root", root, *options)


def runs(root):
    return (root / "results/demo/tables/runs.txt").read_text().count("run")


def test_a_copy_is_executed_and_again_when_its_inputs_or_outputs_changed(root):
    source = (root / "analysis/count.ipynb").read_bytes()
    execute(root)
    (cell,) = nbformat.read(root / "figures/demo/count.ipynb", as_version=4).cells
    assert cell.outputs[0].text == "demo 1\n", "the copy has the outputs on its profile"
    assert (root / "analysis/count.ipynb").read_bytes() == source
    (root / "results/demo/run.safetensors").write_text("an adapter, which no notebook reads")
    execute(root)
    assert runs(root) == 1
    (root / "results/demo/run.json").write_text("2")
    execute(root)
    assert runs(root) == 2
    notebook(root, COUNTING + " # changed")
    execute(root)
    assert runs(root) == 3
    (root / "results/demo/tables/runs.txt").unlink()
    (root / "results/demo/tables").rmdir()
    execute(root)
    assert runs(root) == 1


def test_a_notebook_without_results_of_its_experiments_is_left_out(root):
    """Table 5 is notebook_ by experiments/train_language.py, which `demo` does not run."""
    (root / "analysis/count.ipynb").rename(root / "analysis/language.ipynb")
    (root / "results/demo/benchmark").mkdir()
    execute(root)
    assert not (root / "figures").exists()
    (root / "results/demo/language").mkdir()
    execute(root)
    assert runs(root) == 1


@pytest.mark.parametrize(
    "source, message",
    [
        ("raise ValueError('first line\\nthe last line')", "the last line"),
        ("assert False", "AssertionError"),
        ("import os; os._exit(3)", "its process died"),
    ],
)
def test_the_first_that_fails_is_named_and_ends_the_others(source, message, root):
    notebook(root, "1 + 1", source, name="fails")
    notebook(root, "import time; time.sleep(600)")
    with pytest.raises(SystemExit) as ended:
        execute(root)
    assert ended.value.code == f"error: fails.ipynb: {message}"  # Python prints a text to stderr and exits with 1
    assert not (root / "figures").exists()


def test_a_profile_without_results_is_bad_input(root, capsys):
    error = scripts.refusal("execute_notebooks", capsys, "--root", root, "--profile", "mini")
    assert error.startswith("error: no results of 'mini'")
