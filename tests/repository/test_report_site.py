"""The built report, opened as files in Chromium: every page at the widths of a desktop and a telephone."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import scripts
import yaml

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-site" / "bin" / "python"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CONFIGURATION = ROOT / "mkdocs/mkdocs.yml"


def slowly(test):
    """Mark a test that builds the site."""
    for mark in (pytest.mark.slow, pytest.mark.timeout(1800)):
        test = mark(test)
    return pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-site: `bash run_report.sh` makes it")(test)


#: Opens each page in a frame as wide as a desktop's and a telephone's window, and lists the faults as JSON.
OPENED = """<!doctype html><body><iframe height=900></iframe><script>
const frame = document.querySelector("iframe"), faults = []
async function look() {
    for (const width of [1280, 390]) for (const page of PAGES) {
        frame.width = width
        await new Promise(loaded => { frame.onload = loaded; frame.src = page })
        await new Promise(drawn => setTimeout(drawn, 100))
        const opened = frame.contentDocument, root = opened.documentElement
        const wrong = [...opened.images].filter(image => !image.naturalWidth || !image.alt.trim())
        const found = wrong.map(image => image.src)
        if (root.scrollWidth > root.clientWidth) found.push("wider than its window")
        for (const entry of frame.contentWindow.performance.getEntriesByType("resource"))
            if (entry.name.startsWith("http")) found.push(entry.name)
        if (found.length) faults.push([width, page, found])
    }
    document.body.textContent = JSON.stringify(faults)
}
look()
</script></body>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    scripts.execute("report_pages", "--folder", folder)
    return folder / "mini"


@pytest.fixture(scope="module")
def site(pages):
    """Build the site, which fails where a link leads to no page or to no part of it."""
    folder = pages.parent / "site"
    command = [PYTHON, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", CONFIGURATION, "-d", folder]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"REPORT": str(pages)})
    assert ended.returncode == 0, ended.stderr
    (folder / "404.html").unlink()  # for servers: its links start at their root
    return folder


def test_navigation_has_every_notebook_and_document(pages):
    text = CONFIGURATION.read_text().split("\nnav:\n")[1].split("\nhooks:")[0]
    parts = yaml.safe_load(f"nav:\n{text}")["nav"]
    listed = [
        page for part in parts for (below,) in [part.values()] for page in ([below] if type(below) is str else below)
    ]
    names = [name if type(name) is str else next(iter(name.values())) for name in listed]
    wanted = {"README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))}
    wanted |= {f"analysis/{path.stem}.md" for path in (ROOT / "analysis").glob("*.ipynb")}
    assert wanted <= set(names) and len(names) == len(set(names))
    assert all((pages / name).exists() for name in names)


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


@pytest.mark.parametrize("arguments", [["none"], ["mini", "more"]])
def test_run_report_refuses_an_unknown_profile_before_the_set_up(tmp_path, arguments):
    shutil.copy(ROOT / "run_report.sh", tmp_path)
    ended = subprocess.run(["bash", tmp_path / "run_report.sh", *arguments], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"error: no profile '{' '.join(arguments)}' in experiments/profiles\n"


def test_a_profile_without_notebooks_is_bad_input(capsys):
    error = scripts.refusal("report_pages", capsys, "--profile", "none")
    assert error == "error: no notebooks of 'none': `bash run_all.sh none` makes them"


@slowly
def test_nothing_is_loaded_from_the_network(site):
    for path in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//[^"]+"', path.read_text())
        loaded += re.findall(
            r'<link\b[^>]*\brel="(?:stylesheet|preconnect)"[^>]*\bhref="(?:https?:)?//', path.read_text()
        )
        assert loaded == [], path


@slowly
def test_formulas_and_fields_are_drawn(site):
    index = (site / "index.html").read_text()
    assert "<math" in index and "arithmatex" not in index
    reference = (site / "reference.html").read_text()
    assert re.search(r"<li>\s*(<p>)?<code>rank</code>: r, the size of the latent z", reference)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@slowly
def test_every_page_opens_without_faults(site):
    pages = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html"))]
    (site / "opened.html").write_text(OPENED.replace("PAGES", json.dumps(pages)))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"]
    command = [CHROMIUM, *options, "--virtual-time-budget=600000", f"file://{site}/opened.html"]
    opened = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"HOME": str(site.parent)})
    (site / "opened.html").unlink()
    assert re.search("<body>(.*?)</body>", opened.stdout, re.DOTALL)[1] == "[]"
