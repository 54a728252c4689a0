"""The committed tables and figures of `mini` follow from the committed results."""

import io
import re
import shutil
from functools import partialmethod
from pathlib import Path

import matplotlib
import nbformat
import notebook
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image
from sklearn.metrics import accuracy_score

from pvera.report import claims, plots, published
from pvera.report.notebook import Page
from pvera.report.table import Table
from pvera.study import results

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
COMMITTED = RESULTS / "mini" / "tables"
FIGURES = ROOT / "figures" / "mini"
NUMBER = re.compile(r"[+−-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
NOTEBOOKS = sorted(path.stem for path in (ROOT / "analysis").glob("*.ipynb"))


#: Other versions of matplotlib place texts differently.
SAME_PIXELS = matplotlib.__version__.startswith("3.11.")


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name not in ("audit", "claims")])
def test_every_table_and_figure_follows_from_the_results(name, tmp_path, monkeypatch):
    """The tables of a notebook are the committed ones, and so are the pixels of its figures."""
    tables: list[Table] = []
    monkeypatch.setattr(Table, "write", lambda table, folder: tables.append(table))
    monkeypatch.setattr(Page, "say", lambda page, text: None)
    monkeypatch.setattr(Page, "draw", partialmethod(draw_and_compare, tmp_path))
    monkeypatch.delenv("PVERA_PROFILE", raising=False)
    monkeypatch.chdir(ROOT / "analysis")
    names = {}
    for cell in nbformat.read(f"{name}.ipynb", as_version=4).cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
    assert tables
    for table in tables:
        same(table.csv(), (COMMITTED / f"{table.name}.csv").read_text(), f"{table.name}.csv")
        same(table.markdown(), (COMMITTED / f"{table.name}.md").read_text(), f"{table.name}.md")
        if table.in_paper:
            same(table.latex(), (COMMITTED / f"{table.name}.tex").read_text(), f"{table.name}.tex")


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


def test_the_page_of_claims_follows_from_the_results():
    paper = published.load(RESULTS / "published")
    rows, others = claims.judged(RESULTS, "mini", paper), claims.on_other_sets(RESULTS, "mini", paper)
    same(claims.csv(rows), (COMMITTED / "claims.csv").read_text(), "claims.csv")
    same(claims.page(rows, "mini", others), (COMMITTED / "claims.md").read_text(), "claims.md")


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name not in ("audit", "speed")])
def test_without_results_a_notebook_names_the_command_that_makes_them(name, tmp_path, monkeypatch):
    shutil.copytree(RESULTS / "paper/cost", tmp_path / "results/paper/cost")  # needs no run and is committed
    text, _ = notebook.run(f"{name}.ipynb", tmp_path, "empty", monkeypatch)
    (command,) = re.findall(r"`python experiments/(\w+\.py) --profile empty.*?` makes them", text)
    assert (ROOT / "experiments" / command).is_file()
    assert "nan" not in text and "None" not in text
    tables = {path.stem for path in (tmp_path / "results").rglob("empty/tables/*.csv")}
    assert all("published" in table or table in ("cost", "cost_claims", "claims") for table in tables), "the paper's"


@pytest.mark.parametrize("experiment", ["benchmark", "language", "full_sets"])
def test_recorded_accuracies_are_scikit_learns_on_the_stored_scores(experiment):
    for run in results.load_runs(RESULTS, "mini", experiment):
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
