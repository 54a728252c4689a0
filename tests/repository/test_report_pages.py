"""The report has every result, notebook and document, and its links work. No site is built here."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
import report_pages
import scripts
from report_pages import PRINTED, Pages, Topic, write_report

from pvera.errors import InputError
from pvera.study.experiments import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_report(ROOT, "mini", folder)
    return folder


def listed(navigation) -> list[str]:
    """Return all pages below a part of the navigation."""
    if isinstance(navigation, str):
        return [navigation]
    parts = navigation.values() if isinstance(navigation, dict) else navigation
    return [page for part in parts for page in listed(part)]


def pages(report) -> dict[str, str]:
    names = listed(json.loads((report / "mkdocs.yml").read_text())["nav"])
    assert len(names) == len(set(names))
    return {name: (report / "pages" / name).read_text() for name in names}


def test_navigation_has_every_notebook_document_and_module(report):
    names = set(pages(report))
    assert {"README.md"} | {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} <= names
    assert {f"analysis/{path.stem}.md" for path in (ROOT / "analysis").glob("*.ipynb")} <= names
    assert {"api/pvera.md", "api/pvera.adapters.pvera.md", "api/pvera.report.tables.md"} <= names


def test_pages_of_results_have_every_table_and_figure(report):
    shown = {name: text for name, text in pages(report).items() if not name.startswith(("analysis/", "README"))}
    text = "\n".join(shown.values())
    figures = [path for path in (ROOT / "figures/mini").glob("*.png") if f"(../figures/mini/{path.name})" not in text]
    assert figures == []
    for path in (ROOT / "results/mini/tables").glob("*.md"):
        rows = [line for line in path.read_text().splitlines() if line.startswith("|") and "](" not in line]
        assert rows and [row for row in rows if row not in text] == [], path.name


def numbered(places: str) -> set[str]:
    """Return each figure, table and algorithm in a text such as "Figures 3 and 4, Tables 1, 4 and 6 to 8"."""
    single, kind = set(), ""
    for word, first, last in re.findall(r"(Figure|Table|Algorithm)s?|(\d+)(?: to (\d+))?", places):
        kind = word or kind
        single |= {f"{kind} {number}" for number in range(int(first), int(last or first) + 1)} if first else set()
    return single


def test_every_place_in_the_paper_that_an_experiment_reproduces_has_its_page():
    assert numbered("Figures 3 and 4, Tables 1, 4 and 6 to 8") == {
        *("Figure 3", "Figure 4", "Table 1", "Table 4", "Table 6", "Table 7", "Table 8")
    }
    notebook = {place: topic.notebook for topic in Topic.all() for place in numbered(topic.place)}
    for experiment in EXPERIMENTS.values():
        for place in numbered(experiment.paper):
            assert notebook[place] in experiment.notebooks, place
    assert set(notebook) == {*numbered("Figures 1 to 9"), *numbered("Tables 1 to 8"), *numbered("Algorithms 1 to 2")}


def test_every_notebook_has_a_topic_but_the_claims():
    assert {topic.notebook for topic in Topic.all()} == {p.stem for p in (ROOT / "analysis").glob("*.ipynb")} - {
        "claims"
    }


def test_a_notebook_s_rows_share_a_page():
    topic = next(topic for topic in Topic.all() if topic.notebook == "intervals")
    assert topic.heading == "Figure 1b, Figures 8 and 9: An interval; interval widths; examples"
    assert topic.page == "paper/intervals.md" and topic.stems == ["teaser", "intervals"]
    assert set(PRINTED) <= {topic.notebook for topic in Topic.all()}


def test_a_page_shows_drawings_and_links_to_what_makes_it(report):
    protocol = pages(report)["paper/protocol.md"]
    assert "](../docs/pvera.svg){ width" in protocol
    assert "[`pvera/adapters/vera.py`](../pvera/adapters/vera.py.md)" in protocol


def test_a_table_without_a_place_is_named(root):
    (root / "results/mini/tables").mkdir()
    (root / "results/mini/tables/nowhere.md").write_text("# Nowhere\n")
    with pytest.raises(InputError, match="no pattern in PLACES fits nowhere"):
        Pages(root, "mini", root / "build").results()


def test_the_paper_s_numbers_stand_beside_ours(report):
    main = pages(report)["paper/main_table.md"]
    _, printed = main.split("## The paper's numbers")
    row = next(line for line in printed.splitlines() if line.startswith("| Caltech101 |"))
    assert row.split(" | ")[1] == "85.1"  # of linear probing, in the paper's Table 1


def test_pictures_are_described_and_local(report):
    for name, text in pages(report).items():
        assert re.findall(r"!\[\s*\]\(", text) == [], name
        assert [image for image in re.findall(r"<img\b[^>]*>", text) if not re.search(r'alt="[^"]+"', image)] == [], (
            name
        )
        assert re.findall(r'!\[[^\]]*\]\(https?:|<img\b[^>]*src="https?:', text) == [], name


@pytest.fixture
def root(tmp_path):
    """A small repository with one document."""
    for name in ("docs/a.md", "docs/b.md", "pvera/x.py", "analysis/c.ipynb", "results/mini/kept/README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("content\n")
    (tmp_path / "results/mini/runs").mkdir()
    cells = [nbformat.v4.new_markdown_cell("# Title\n\n[a](../docs/a.md)"), nbformat.v4.new_code_cell("`1`")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "analysis/c.ipynb")
    return tmp_path


@pytest.mark.parametrize(
    "written, becomes",
    [
        ("[b](b.md#part)", "[b](b.md#part)"),
        ("[c](../analysis/c.ipynb)", "[c](../analysis/c.md)"),
        ("[`x`](../pvera/x.py#L3)", "[`x`](../pvera/x.py.md)"),
        ("[kept](../results/mini/kept)", "[kept](../results/mini/kept/README.md)"),
        ("[runs](../results/mini/runs)", "runs"),
        ('<a href="b.md#part">b</a>', '<a href="b.html#part">b</a>'),
        ('<a href="../results/mini/kept">b</a>', '<a href="../results/mini/kept/index.html">b</a>'),
        ("[site](https://example.org)", "[site](https://example.org)"),
        ("[![badge](https://example.org/x.svg)](b.md)", "[badge](b.md)"),
        ('<img src="https://example.org/x.svg" alt="badge">', "badge"),
        ('<img alt="badge" src="https://example.org/x.svg">', "badge"),
        ("```\n[no](link.md)\n```", "```\n[no](link.md)\n```"),
    ],
)
def test_links_between_files_are_links_between_pages(root, written, becomes):
    (root / "docs/a.md").write_text(f"{written}\n")
    made = Pages(root, "mini", root / "build")
    assert made.add(root / "docs/a.md") == "docs/a.md"
    assert (root / "build/docs/a.md").read_text() == f"{becomes}\n"
    if (inside := re.search(r"\]\(([^):#]+\.md)", becomes)) and not becomes.startswith("`"):
        assert (root / "build/docs" / inside[1]).exists()


def test_a_link_that_leads_nowhere_is_named(root):
    (root / "docs/a.md").write_text("[gone](gone.md)")
    with pytest.raises(InputError, match=r"docs/a\.md: its link to gone\.md leads nowhere"):
        Pages(root, "mini", root / "build").add(root / "docs/a.md")


def test_a_notebook_page_has_collapsed_code_and_outputs(root):
    page = (root / "build" / Pages(root, "mini", root / "build").add(root / "analysis/c.ipynb")).read_text()
    assert "# Title\n\n[a](../docs/a.md)" in page
    assert '??? note "Code"\n\n    ```python\n    `1`\n    ```' in page


def test_a_notebook_that_was_not_executed_for_the_profile_is_named(root):
    with pytest.raises(InputError, match=r"figures/demo/c\.ipynb is missing: `bash run_all\.sh demo` makes it"):
        Pages(root, "demo", root / "build").add(root / "analysis/c.ipynb")


def test_a_notebook_without_results_of_the_profile_shows_nothing_of_another(root):
    (root / "results/demo/benchmark").mkdir(parents=True)
    cell = nbformat.v4.new_code_cell("1", outputs=[nbformat.v4.new_output("stream", text="shown for mini")])
    cells = [nbformat.v4.new_markdown_cell("# Title"), cell]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), root / "analysis/language.ipynb")
    page = (root / "build" / Pages(root, "demo", root / "build").add(root / "analysis/language.ipynb")).read_text()
    assert page.endswith("The profile demo has no results for this notebook.\n") and "# Title" in page
    assert "shown" not in page


@pytest.mark.parametrize("arguments", [["none"], ["mini", "more"]])
def test_run_report_refuses_an_unknown_profile_before_the_set_up(tmp_path, arguments):
    shutil.copy(ROOT / "run_report.sh", tmp_path)
    ended = subprocess.run(["bash", tmp_path / "run_report.sh", *arguments], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"error: no profile '{' '.join(arguments)}' in experiments/profiles\n"


def test_a_profile_without_tables_is_bad_input(capsys):
    error = scripts.refusal("report_pages", capsys, "--profile", "none")
    assert error == "error: no tables of 'none': `bash run_all.sh none` makes them"
    assert report_pages.ROOT == ROOT
