"""The committed tables, figures, claims and audit follow from the committed results, by the notebooks."""

import io
import re
import shutil
import warnings
from dataclasses import fields
from functools import partialmethod
from pathlib import Path

import IPython.display
import matplotlib
import nbformat
import numpy as np
import pandas as pd
import pytest
from IPython.display import Image as Shown
from IPython.display import Markdown
from matplotlib.figure import Figure
from PIL import Image
from sklearn.metrics import accuracy_score

from pvera.report import claims, plots, published
from pvera.report.notebook import Page
from pvera.report.table import Table
from pvera.report.tables import out_of_distribution, uncertainty, verdicts
from pvera.study import results

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
COMMITTED = RESULTS / "mini" / "tables"
FIGURES = ROOT / "figures" / "mini"
NUMBER = re.compile(r"[+−-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
NOTEBOOKS = sorted(path.stem for path in (ROOT / "analysis").glob("*.ipynb"))


#: Other versions of matplotlib place texts differently.
SAME_PIXELS = matplotlib.__version__.startswith("3.11.")


def execute(name: str) -> None:
    """Execute the code cells of analysis/`name`.ipynb in this process, which is faster than a kernel."""
    notebook, names = nbformat.read(ROOT / f"analysis/{name}.ipynb", as_version=4), {}
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            exec(cell.source, names)


def displayed(name: str, root: Path, monkeypatch) -> str:
    """Execute a notebook as if the repository lay at `root`, without pictures; return its Markdown.

    A warning is an error.
    """
    (root / "pyproject.toml").touch()
    shown: list = []
    monkeypatch.setattr(IPython.display, "display", shown.append)
    monkeypatch.setenv("PVERA_PROFILE", "empty")
    monkeypatch.chdir(root)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        execute(name)
    assert {type(thing) for thing in shown} <= {Markdown, Shown}
    return "\n".join(thing.data for thing in shown if isinstance(thing, Markdown))


@pytest.fixture(scope="module", autouse=True)
def computed_once():
    """Tables, figures and claims compare the same samples: each comparison is computed once."""

    def remembered(function):
        results = {}

        def remember(x, y):
            key = np.asarray(x).tobytes(), np.asarray(y).tobytes()
            if key not in results:
                results[key] = function(x, y)
            return results[key]

        return remember

    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((out_of_distribution, "rank_sum"), (uncertainty, "rank_sum"), (uncertainty, "auroc")):
            patch.setattr(module, name, remembered(getattr(module, name)))
        yield


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name not in ("audit", "claims")])
def test_every_table_and_figure_follows_from_the_results(name, tmp_path, monkeypatch):
    """The tables of a notebook are the committed ones, and so are the pixels of its figures."""
    tables: list[Table] = []
    monkeypatch.setattr(Table, "write", lambda table, folder: tables.append(table))
    monkeypatch.setattr(Page, "say", lambda page, text: None)
    monkeypatch.setattr(Page, "draw", partialmethod(draw_and_compare, tmp_path))
    monkeypatch.delenv("PVERA_PROFILE", raising=False)
    monkeypatch.chdir(ROOT / "analysis")
    execute(name)
    assert tables
    for table in tables:
        same(table.csv(), (COMMITTED / f"{table.name}.csv").read_text(), f"{table.name}.csv")
        same(table.markdown(), (COMMITTED / f"{table.name}.md").read_text(), f"{table.name}.md")
        if table.in_paper:
            same(table.latex(), (COMMITTED / f"{table.name}.tex").read_text(), f"{table.name}.tex")


def test_every_table_of_the_paper_has_latex():
    names = {path.stem for path in COMMITTED.glob("*.tex")}
    assert names >= {"main", "rank", "position", "grid", "language", "detailed"}  # Table 1 to 5, and 6 to 8


def draw_and_compare(page: Page, folder: Path, figure: Figure, name: str, width: int = 0, source: str = "") -> None:
    """Save a figure below `folder` as `Page.draw` does, without the PDF file, and compare it with the committed one."""
    savefig = figure.savefig
    figure.savefig = lambda file, **options: savefig(file, **options) if options["format"] == "png" else None
    drawn, *_ = plots.save(figure, folder, name, f"Data: {source or f'results/{page.profile}'}")
    new, committed = (
        np.asarray(Image.open(path).convert("RGB"), dtype=int) for path in (drawn, FIGURES / f"{name}.png")
    )
    assert min(edge.min() for edge in (new[0], new[-1], new[:, 0], new[:, -1])) > 250, f"{name}.png is cut off"
    if SAME_PIXELS:
        assert new.shape == committed.shape, f"{name}.png has another size"
        different = (abs(new - committed).max(axis=2) > 64).sum()
        assert different < 20, f"{name}.png has {different} other pixels"


@pytest.fixture(scope="module")
def judged():
    return claims.judged(RESULTS, "mini")


@pytest.fixture(scope="module")
def others():
    return claims.on_other_sets(RESULTS, "mini")


def test_the_page_of_claims_follows_from_the_results(judged, others, tmp_path):
    claims.write(judged, tmp_path, "mini", others)
    for name in ("claims.csv", "claims.md"):
        same((tmp_path / "mini/tables" / name).read_text(), (COMMITTED / name).read_text(), name)


def test_every_line_of_the_registry_is_judged_once(judged):
    assert {claim.topic for claim in claims.CLAIMS} == set(claims.TOPICS) == set(judged["topic"])
    assert len(judged) == len(claims.CLAIMS) + sum(claim.topic == "Cost" for claim in claims.CLAIMS)  # two backbones
    assert not judged.duplicated(["topic", "backbone", "claim"]).any()
    assert {*judged["notebook"]} <= {*NOTEBOOKS}


def test_the_page_of_claims_links_to_notebooks(judged, others):
    page = claims.page(judged, "mini", "../../../analysis/", others)
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert 12 <= len(links) <= 16
    assert all((COMMITTED / link).resolve().is_file() for link in links)
    assert "nan" not in page and "{" not in page


def test_the_page_of_claims_says_what_other_test_images_would_add():
    variances = []
    for folder in sorted((RESULTS / "mini/benchmark/tiny").iterdir()):
        correct = {
            method: np.mean([is_correct(path) for path in sorted(folder.glob(f"{method}/seed[012].npz"))], axis=0)
            for method in ("vera", "pvera")
        }
        gain = 100 * (correct["pvera"] - correct["vera"])
        variances.append(gain.var(ddof=1) / len(gain))
    one, mean = np.mean(variances) ** 0.5, np.sum(variances) ** 0.5 / len(variances)
    assert f"{one:.1f} points on one data set, and {mean:.1f} on the mean of twelve" in verdicts.RULE
    assert len(variances) == 12


def is_correct(path: Path) -> np.ndarray:
    with np.load(path) as saved:
        return saved["probabilities"].argmax(1) == saved["labels"]


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name not in ("audit", "speed")])
def test_without_results_a_notebook_names_the_command_that_makes_them(name, tmp_path, monkeypatch):
    shutil.copytree(RESULTS / "paper/cost", tmp_path / "results/paper/cost")  # needs no run and is committed
    shutil.copytree(RESULTS / "published", tmp_path / "results/published")
    text = displayed(name, tmp_path, monkeypatch)
    (command,) = re.findall(r"`python experiments/(\w+\.py) --profile empty.*?` makes them", text)
    assert (ROOT / "experiments" / command).is_file()
    assert "nan" not in text and "None" not in text
    tables = {path.stem for path in (tmp_path / "results").rglob("empty/tables/*.csv")}
    assert all("published" in table or table in ("cost", "cost_claims", "claims") for table in tables), "the paper's"


def test_the_audit_needs_the_published_numbers_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "results/published").mkdir(parents=True)
    for field in fields(published.Published):
        shutil.copy(RESULTS / f"published/{field.name}.csv", tmp_path / "results/published")
    assert "| check | place |" in displayed("audit", tmp_path, monkeypatch)
    assert capsys.readouterr() == ("", "")
    audit = "results/published/audit.csv"
    assert (tmp_path / audit).read_bytes() == (ROOT / audit).read_bytes()


@pytest.mark.parametrize("experiment", ["benchmark", "language", "full_sets"])
def test_recorded_accuracies_are_scikit_learns_on_the_stored_scores(experiment):
    assert (runs := results.load_runs(RESULTS, "mini", experiment))
    for run in runs:
        scores, labels = results.read_predictions(results.path_of(RESULTS, run))
        highest = np.sort(scores, axis=1)[:, -2:]
        ties = (highest[:, 0] == highest[:, 1]).mean()  # in fp16
        assert len(labels) == run["test"]["images"]
        assert abs(accuracy_score(labels, scores.argmax(1)) - run["test"]["accuracy"]) <= ties + 1e-12


def same(new: str, committed: str, name: str) -> None:
    """Check equality up to the last digits, which depend on processors and library versions."""
    if name.endswith(".csv"):
        frames = (pd.read_csv(io.StringIO(text)) for text in (new, committed))
        pd.testing.assert_frame_equal(*frames, rtol=1e-4, check_dtype=False, obj=name)
        return
    assert NUMBER.sub("#", new) == NUMBER.sub("#", committed), name
    for ours, theirs in zip(*(NUMBER.findall(text) for text in (new, committed))):
        unit = 10.0 ** -len(ours.partition(".")[2]) if "e" not in ours else 0
        ours, theirs = (float(text.replace("−", "-")) for text in (ours, theirs))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1.01 * unit * (unit < 1), err_msg=name)


@pytest.mark.parametrize(
    "new, committed, name",
    [("a,b\n1.01,x\n", "a,b\n1,x\n", "t.csv"), ("a,b\n1,y\n", "a,b\n1,x\n", "t.csv"), ("a\n1\n", "a,b\n1,x\n", "t.csv"),
     ("| PVeRA | −1.5 |", "| PVeRA | −1.3 |", "t.md"), ("| VeRA | −1.3 |", "| PVeRA | −1.3 |", "t.md"),
     ("| PVeRA | **−1.3** |", "| PVeRA | −1.3 |", "t.md"), ("72 runs", "71 runs", "t.md")],
)  # fmt: skip
def test_the_comparison_notices_differences(new, committed, name):
    with pytest.raises(AssertionError):
        same(new, committed, name)


def test_the_comparison_lets_last_digits_differ():
    same("a,b\n1.000001,x\n", "a,b\n1,x\n", "t.csv")
    same("| PVeRA | −1.3 |", "| PVeRA | −1.4 |", "t.md")
