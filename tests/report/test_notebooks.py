"""The execution of notebooks: what is skipped, and what a failure says."""

import json
import os
import signal
import sys
import time

import nbformat
import pytest
import scripts
from execution_root import COUNTING, execute, notebook, root  # noqa: F401  root is a fixture


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
    """Table 5 is made by experiments/train_language.py, which `demo` does not run."""
    (root / "analysis/count.ipynb").rename(root / "analysis/language.ipynb")
    (root / "results/demo/benchmark").mkdir()
    execute(root)
    assert not (root / "figures").exists()
    (root / "results/demo/language").mkdir()
    execute(root)
    assert runs(root) == 1


def test_a_notebook_sees_no_names_of_another(root):
    for name in ("count", "again", "third"):  # more than kernels
        notebook(root, 'print("left_over" in globals())\nleft_over = 1', name=name)
    execute(root)
    for name in ("count", "again", "third"):
        (cell,) = nbformat.read(root / f"figures/demo/{name}.ipynb", as_version=4).cells
        assert cell.outputs[0].text == "False\n"


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


def test_bad_input_of_a_cell_is_bad_input(root, capsys):
    notebook(root, "from pvera import InputError\nraise InputError('no results')")
    status, _, errors = scripts.outcome("execute_notebooks", capsys, "--root", root, "--profile", "demo")
    assert status == 2 and errors.endswith("error: count.ipynb: no results\n")


def test_in_place_twice_gives_the_same_bytes(root):
    path = root / "analysis/count.ipynb"
    execute(root, "--inplace")
    first = path.read_bytes()
    (root / "results/demo/tables/runs.txt").rename(root / "elsewhere.txt")
    (root / "results/demo/tables").rmdir()
    execute(root, "--inplace")
    assert runs(root) == 1 and path.read_bytes() == first
    assert json.loads(first)["cells"][0]["outputs"] and not (root / "figures").exists()


def test_a_profile_without_results_is_bad_input(root, capsys):
    error = scripts.refusal("execute_notebooks", capsys, "--root", root, "--profile", "mini")
    assert error.startswith("error: no results of 'mini'")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_ends_the_notebook_and_gives_130(root):
    started = root / "analysis/started"
    name = 'open("pid", "w").write(str(os.getpid())); os.rename("pid", "started")'
    notebook(root, f"import os, time; {name}; time.sleep(600)")
    process = scripts.start("execute_notebooks", "--profile", "demo", "--root", root)
    while not started.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
