"""The report's pages, and the site that is built of them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import scripts

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-site" / "bin" / "python"
CONFIGURATION = ROOT / "mkdocs/mkdocs.yml"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    scripts.execute("report_pages", "--folder", folder)
    return folder / "mini"


def test_a_notebook_becomes_a_page_without_code(pages):
    text = (pages / "analysis/components.md").read_text()
    assert "## Answer" in text and "| PVeRA is more accurate than VeRA |" in text and "import" not in text
    (picture,) = re.findall(r"!\[components\]\(([^)]+)\)", text)
    assert (pages / "analysis" / picture).stat().st_size > 10_000


def test_a_profile_shows_no_result_of_another(tmp_path, monkeypatch):
    (tmp_path / "figures/demo").mkdir(parents=True)
    shutil.copytree(ROOT / "analysis", tmp_path / "analysis")
    shutil.copytree(ROOT / "mkdocs", tmp_path / "mkdocs")
    shutil.copy(ROOT / "analysis/main_table.ipynb", tmp_path / "figures/demo")
    monkeypatch.setattr("options.ROOT", tmp_path)
    scripts.execute("report_pages", "--profile", "demo", "--folder", tmp_path / "report")
    folder = tmp_path / "report/demo/analysis"
    assert "no results" in (folder / "rank.md").read_text() and "## Accuracy" in (folder / "main_table.md").read_text()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-site: `bash run_report.sh` makes it")
def test_the_site_is_built_with_all_links_formulas_and_nothing_from_the_network(pages):
    """The build fails where a link leads to no page or to no part of it."""
    folder = pages.parent / "site"
    command = [PYTHON, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", CONFIGURATION, "-d", folder]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"REPORT": str(pages)})
    assert ended.returncode == 0, ended.stderr
    loaded = re.compile(r'<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//|'
                        r'<link\b[^>]*\brel="(?:stylesheet|preconnect)"[^>]*\bhref="(?:https?:)?//')  # fmt: skip
    assert [path for path in folder.rglob("*.html") if loaded.search(path.read_text())] == []
    index = (folder / "index.html").read_text()
    assert "<math" in index and "arithmatex" not in index
    reference = (folder / "reference.html").read_text()
    assert re.search(r"<li>\s*(<p>)?<code>rank</code>: r, the size of the latent z", reference)
