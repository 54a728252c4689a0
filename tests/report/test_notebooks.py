"""Notebooks run on a profile's results when something changed; errors name the notebook."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import kernels
import nbformat
import pytest
import scripts

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "experiments/execute_notebooks.py"
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


def notebook(root, *sources):
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbformat.write(made, root / "analysis/count.ipynb")


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


CLEAN = """\
import builtins, sys
print(hasattr(builtins, "left_over"), "left_over" in globals(), "pvera.report.claims" in sys.modules)
builtins.left_over = left_over = 1"""


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no fork server")
def test_each_kernel_has_the_imports_done_and_is_otherwise_new(root):
    notebook(root, CLEAN)
    (root / "analysis/again.ipynb").write_bytes((root / "analysis/count.ipynb").read_bytes())
    subprocess.run([sys.executable, SCRIPT, "--profile", "demo", "--root", root], check=True)
    for name in ("again", "count"):
        (cell,) = nbformat.read(root / f"figures/demo/{name}.ipynb", as_version=4).cells
        assert cell.outputs[0].text == "False False True\n"


def test_the_server_finds_what_it_is_to_import():
    """It says nothing of a module that it does not find; before Python 3.13 it looks among installed ones only."""
    found = [find_spec(name) for name in kernels.IMPORTED]
    assert all(spec and not Path(spec.origin).is_relative_to(SCRIPT.parent) for spec in found)


def test_as_many_side_by_side_as_there_are_processors(root, monkeypatch):
    """Two notebooks wait for each other's file; a third starts when one of them has ended."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    (root / "analysis/count.ipynb").unlink()
    meet = """\
import time
from pathlib import Path
Path("{0}").touch()
end = time.monotonic() + 60
while not Path("{1}").exists():
    assert time.monotonic() < end
    time.sleep(0.05)"""
    for name, source in {"a": meet.format("a", "b"), "b": meet.format("b", "a"), "c": "'third'"}.items():
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
        nbformat.write(made, root / "analysis" / f"{name}.ipynb")
    execute(root)
    assert sorted(path.name for path in (root / "figures/demo").glob("*.ipynb")) == ["a.ipynb", "b.ipynb", "c.ipynb"]


def test_the_first_that_fails_is_named_and_ends_the_others(root, monkeypatch, capfd):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    notebook(root, "1 + 1", "raise ValueError('first line\\nthe last line')")
    (root / "analysis/count.ipynb").rename(root / "analysis/fails.ipynb")
    notebook(root, "import time; time.sleep(600)")
    with pytest.raises(SystemExit) as ended:
        execute(root)
    assert ended.value.code == "error: fails.ipynb: the last line"  # Python prints a text to stderr and exits with 1
    assert not (root / "figures").exists() and "Traceback" not in capfd.readouterr().err


def test_in_place_twice_gives_the_same_bytes(root):
    path = root / "analysis/count.ipynb"
    execute(root, "--inplace")
    first = path.read_bytes()
    (root / "results/demo/tables/runs.txt").unlink()
    execute(root, "--inplace")
    assert runs(root) == 1 and path.read_bytes() == first
    assert json.loads(first)["cells"][0]["outputs"]
    assert not (root / "figures").exists()


def test_a_dead_kernel_is_named(root):
    notebook(root, "import os; os._exit(3)")
    with pytest.raises(SystemExit) as ended:
        execute(root)
    assert ended.value.code == "error: count.ipynb: its kernel died"


def test_a_profile_without_results_is_bad_input(root, capsys):
    error = scripts.refusal("execute_notebooks", capsys, "--root", root, "--profile", "mini")
    assert error.startswith("error: no results of 'mini'")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_ends_the_kernel_and_gives_130(root):
    notebook(
        root,
        """\
import os, pathlib, time
pathlib.Path("pid").write_text(str(os.getpid()))
os.rename("pid", "started")
time.sleep(600)""",
    )
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "--profile", "demo", "--root", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (root / "analysis/started").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int((root / "analysis/started").read_text()), 0)
