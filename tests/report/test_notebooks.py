"""The execution of notebooks, the report's pages, and the site that is built of them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
import report_pages
import scripts
from nbclient.exceptions import CellExecutionError, DeadKernelError

PRINTING = """\
import os
from pathlib import Path
profile = os.environ["PVERA_PROFILE"]
print(profile, Path("..", "results", profile, "run.json").read_text())"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis/report.yaml").write_text("profiles: [demo]")
    (tmp_path / "results/demo").mkdir(parents=True)
    (tmp_path / "results/demo/run.json").write_text("1")
    notebook(tmp_path, PRINTING)
    return tmp_path


def notebook(root, *sources, name="prints"):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), root / f"analysis/{name}.ipynb")


def execute(root, *options):
    scripts.execute("execute_notebooks", "--profile", "demo", "--root", root, *options)


def printed(root):
    (cell,) = nbformat.read(root / "figures/demo/prints.ipynb", as_version=4).cells
    return cell.outputs[0].text


@pytest.mark.slow
def test_a_copy_is_executed_again_when_its_results_or_its_tables_change(root):
    source = (root / "analysis/prints.ipynb").read_bytes()
    execute(root)
    assert printed(root) == "demo 1\n", "the copy has the outputs on its profile"
    assert (root / "analysis/prints.ipynb").read_bytes() == source

    tables = root / "results/demo/tables"
    tables.mkdir()
    executed = root / "figures/demo/prints.ipynb"
    before = executed.stat().st_mtime_ns
    execute(root)
    assert executed.stat().st_mtime_ns == before, "nothing has changed"

    (root / "results/demo/run.json").write_text("2")
    execute(root)
    assert printed(root) == "demo 2\n"

    runs = root / "results/demo/benchmark"
    for change in (runs.mkdir, (runs / "other.json").touch, (runs / "other.json").unlink):
        change()
        before = executed.stat().st_mtime_ns
        execute(root)
        assert executed.stat().st_mtime_ns > before, change

    for shared in (
        "experiments/profiles/demo.yaml",
        "results/paper/cost/tiny.json",
        "results/published/main.csv",
    ):
        (root / shared).parent.mkdir(parents=True)
        (root / shared).touch()
        before = executed.stat().st_mtime_ns
        execute(root)
        assert executed.stat().st_mtime_ns > before, shared

    tables.rmdir()
    before = executed.stat().st_mtime_ns
    execute(root)
    assert executed.stat().st_mtime_ns > before


def test_a_notebook_has_no_names_of_another(root):
    notebook(root, "name = 1", name="first")
    notebook(root, "print('name' in globals())", name="second")
    execute(root)
    (cell,) = nbformat.read(root / "figures/demo/second.ipynb", as_version=4).cells
    assert cell.outputs[0].text == "False\n"


def test_an_input_error_names_its_notebook(root, capsys):
    notebook(root, "from pvera import InputError", "raise InputError('no such file')", name="bad")
    options = ("--profile", "demo", "--root", root)
    status, _, errors = scripts.outcome("execute_notebooks", capsys, *options)
    assert status == 2 and errors.endswith("\nerror: bad.ipynb: no such file\n")
    assert not (root / "figures").exists(), "nor is a later one executed"


@pytest.mark.parametrize(
    "source, message",
    [("assert 1 == 2", "assert 1 == 2"), ("import os; os._exit(3)", "Kernel died")],
)
def test_another_failure_has_its_traceback(source, message, root):
    notebook(root, source, name="bad")
    with pytest.raises((CellExecutionError, DeadKernelError), match=message):
        execute(root)


def test_a_profile_without_results_is_bad_input(root, capsys):
    error = scripts.refusal("execute_notebooks", capsys, "--root", root, "--profile", "my 1")
    assert error.startswith("error: no results of 'my 1'") and "train.py --profile 'my 1'`" in error


# The report's pages


ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-site" / "bin" / "python"
CONFIGURATION = ROOT / "mkdocs/mkdocs.yml"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "committed"
    report_pages.collect(ROOT / "analysis", folder)
    return folder


def test_a_notebook_becomes_a_page_without_code(pages):
    text = (pages / "analysis/components.md").read_text()
    assert "## Answer" in text and "| PVeRA is more accurate than VeRA |" in text
    assert "import" not in text
    picture, *_ = re.findall(r"!\[components\]\(([^)]+)\)", text)
    assert (pages / "analysis" / picture).stat().st_size > 10_000


def test_a_profile_shows_no_result_of_another(tmp_path, monkeypatch):
    (tmp_path / "figures/demo").mkdir(parents=True)
    shutil.copy(ROOT / "analysis/main_table.ipynb", tmp_path / "figures/demo")
    for name in ("analysis", "mkdocs", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.setattr("options.ROOT", tmp_path)
    scripts.execute("report_pages", "--profile", "demo")
    (page,) = (tmp_path / "build/report/demo/analysis").glob("*.md")
    assert "## Accuracy" in page.read_text()


def test_a_report_without_notebooks_is_bad_input(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("options.ROOT", tmp_path)
    message = scripts.refusal("report_pages", capsys)
    assert message == f"error: no notebooks in {tmp_path}/analysis"
    message = scripts.refusal("report_pages", capsys, "--profile", "my 1")
    assert message.endswith("/figures/my 1: `bash run_all.sh 'my 1'` makes them")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-site: `bash run_report.sh` makes it")
def test_the_site_is_built_with_all_links_formulas_and_nothing_from_the_network(pages):
    """The build fails where a link leads to no page or to no part of it."""
    folder = pages.parent / "site"
    command = [PYTHON, "-m", "mkdocs", "build", "--strict", "--quiet"]
    command += ["-f", CONFIGURATION, "-d", folder]
    environment = os.environ | {"REPORT": str(pages)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    loaded = re.compile(
        r'<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//|'
        r'<link\b[^>]*\brel="(?:stylesheet|preconnect)"[^>]*\bhref="(?:https?:)?//'
    )
    assert [path for path in folder.rglob("*.html") if loaded.search(path.read_text())] == []
    index = (folder / "index.html").read_text()
    assert "<math" in index and "arithmatex" not in index
    reference = (folder / "reference.html").read_text()
    assert re.search(r"<li>\s*(<p>)?<code>rank</code>: r, the size of the latent z", reference)
