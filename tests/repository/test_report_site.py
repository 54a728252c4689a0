"""The built report, opened as files in Chromium: every page at the widths of a desktop and a telephone."""

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import browser
import pytest
from report_pages import write_report

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-site" / "bin" / "python"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-site: `bash run_report.sh` makes it"),
]
FAULTS = """({
    wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
    broken: [...document.images].filter(image => !image.complete || !image.naturalWidth).map(image => image.src),
    undescribed: [...document.images].filter(image => !image.alt.trim()).map(image => image.src),
    hidden: [...document.querySelectorAll(".md-typeset table")].filter(table => {
        const frame = table.closest(".md-typeset__scrollwrap, .highlight")
        return table.offsetWidth > innerWidth && !(frame && getComputedStyle(frame).overflowX === "auto")
    }).length,
})"""
FAULTLESS = {"wide": False, "broken": [], "undescribed": [], "hidden": 0}
SEARCH = """new Promise((found, failed) => {
    const query = document.querySelector("[data-md-component=search-query]")
    document.querySelector("#__search").click()
    query.focus()
    query.value = "calibration"
    query.dispatchEvent(new Event("input", {bubbles: true}))
    query.dispatchEvent(new KeyboardEvent("keyup", {key: "n", bubbles: true}))
    const end = Date.now() + 60000
    const look = () => {
        const results = document.querySelectorAll(".md-search-result__item")
        if (results.length || Date.now() > end) found(results.length)
        else setTimeout(look, 100)
    }
    look()
})"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_report(ROOT, "mini", folder)
    command = [PYTHON, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", folder / "mkdocs.yml"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    (folder / "site/404.html").unlink()  # for servers: its links start at their root
    return folder / "site"


class Links(HTMLParser):
    """A page's resources, links and anchors."""

    def __init__(self, page: Path):
        super().__init__()
        self.targets, self.anchors = set(), {""}
        self.feed(page.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.targets |= {attributes[name] for name in ("href", "src") if attributes.get(name)}
        self.anchors |= {attributes[name] for name in ("id", "name") if attributes.get(name)}


def test_links_lead_to_pages_and_their_parts(site):
    pages = {path: Links(path) for path in site.rglob("*.html")}
    assert len(pages) > 100
    lost = []
    for path, page in pages.items():
        for target in page.targets:
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = unquote(target).partition("#")
            other = (path.parent / name).resolve() if name else path
            if not other.is_file() or (other in pages and anchor not in pages[other].anchors):
                lost.append(f"{path.relative_to(site)}: {target}")
    assert lost == []


def test_nothing_is_loaded_from_the_network(site):
    for path in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//[^"]+"', path.read_text())
        loaded += re.findall(
            r'<link\b[^>]*\brel="(?:stylesheet|preconnect)"[^>]*\bhref="(?:https?:)?//', path.read_text()
        )
        assert loaded == [], path


def test_formulas_and_fields_are_drawn(site):
    index = (site / "index.html").read_text()
    assert "<math" in index and "arithmatex" not in index
    reference = (site / "api/pvera.adapters.pvera.html").read_text()
    assert re.search(r"<li>\s*(<p>)?<code>rank</code>: r, the size of the latent z", reference)


@pytest.mark.skipif(browser.executable() is None, reason="Chromium is not installed")
def test_every_page_opens_without_faults(site, tmp_path):
    faults = []
    with browser.Browser(tmp_path) as tab:
        for width in (1280, 390):
            tab.resize(width)
            for path in sorted(site.rglob("*.html")):
                complaints, state = tab.open(path.as_uri()), tab.evaluate(FAULTS)
                if complaints or state != FAULTLESS:
                    faults.append((width, path.relative_to(site).as_posix(), complaints, state))
    assert faults == []


@pytest.mark.skipif(browser.executable() is None, reason="Chromium is not installed")
def test_search_finds_pages_of_a_site_that_is_opened_as_files(site, tmp_path):
    with browser.Browser(tmp_path) as tab:
        assert tab.open((site / "paper/rank.html").as_uri()) == []
        assert tab.evaluate(SEARCH) > 3
