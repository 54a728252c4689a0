"""The execution of notebooks, the report's pages, and the site that is built of them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

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
    (tmp_path / "analysis/report.yaml").write_text("{profiles: [demo], claims: [demo]}")
    (tmp_path / "results/demo").mkdir(parents=True)
    (tmp_path / "results/demo/run.json").write_text("1")
    notebook(tmp_path, COUNTING)
    return tmp_path


def notebook(root, *sources, name="count"):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), root / f"analysis/{name}.ipynb")


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
    """The notebook of Table 5 is for profiles on texts."""
    (root / "analysis/count.ipynb").rename(root / "analysis/language.ipynb")
    (root / "results/demo/benchmark/tiny/digits").mkdir(parents=True)
    execute(root)
    assert not (root / "figures").exists()
    (root / "results/demo/benchmark/minilm/rte").mkdir(parents=True)
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
    # Python prints a text to stderr and exits with 1.
    assert ended.value.code == f"error: fails.ipynb: {message}"
    assert not (root / "figures").exists()


def test_a_profile_without_results_is_bad_input(root, capsys):
    error = scripts.refusal("execute_notebooks", capsys, "--root", root, "--profile", "my 1")
    assert error.startswith("error: no results of 'my 1'") and "train.py --profile 'my 1'`" in error


# The report's pages


ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-site" / "bin" / "python"
CONFIGURATION = ROOT / "mkdocs/mkdocs.yml"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    scripts.execute("report_pages", "--folder", folder)
    return folder / "committed"


def test_a_notebook_becomes_a_page_without_code(pages):
    text = (pages / "analysis/components.md").read_text()
    assert "## Answer" in text and "| PVeRA is more accurate than VeRA |" in text
    assert "import" not in text
    picture, *_ = re.findall(r"!\[components\]\(([^)]+)\)", text)
    assert (pages / "analysis" / picture).stat().st_size > 10_000


def test_a_profile_shows_no_result_of_another(tmp_path, monkeypatch):
    (tmp_path / "figures/demo").mkdir(parents=True)
    shutil.copytree(ROOT / "analysis", tmp_path / "analysis")
    shutil.copytree(ROOT / "mkdocs", tmp_path / "mkdocs")
    shutil.copy(ROOT / "analysis/main_table.ipynb", tmp_path / "figures/demo")
    monkeypatch.setattr("options.ROOT", tmp_path)
    scripts.execute("report_pages", "--profile", "demo", "--folder", tmp_path / "report")
    folder = tmp_path / "report/demo/analysis"
    assert "no results" in (folder / "rank_and_position.md").read_text()
    assert "## Accuracy" in (folder / "main_table.md").read_text()


@pytest.mark.parametrize("folder, held", [("figures", "main_table.ipynb"), ("results", "rank.md")])
def test_pages_replace_nothing_that_they_are_made_of(folder, held, tmp_path, monkeypatch, capsys):
    for file in ("figures/demo/main_table.ipynb", "results/demo/tables/rank.md"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    monkeypatch.setattr("options.ROOT", tmp_path)
    arguments = ("--profile", "demo", "--folder", tmp_path / folder)
    refusal = scripts.refusal("report_pages", capsys, *arguments)
    assert f"{held}, which the pages are made of" in refusal
    assert len([*tmp_path.glob("*/demo/**/*.*")]) == 2


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
