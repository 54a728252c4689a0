"""Committed tables, figures, claims and audit follow from the committed results."""

import contextlib
import io
import re
import shutil
import warnings
from dataclasses import fields
from functools import partial
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

from pvera.report import claims, paper_numbers, run_list
from pvera.report.notebook import Page
from pvera.report.plots import base
from pvera.report.settings import ResultFiles, read_profiles, read_report
from pvera.report.table import Table
from pvera.report.tables import out_of_distribution, uncertainty
from pvera.study import results

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
COMMITTED = RESULTS / "tables"
FIGURES = ROOT / "figures"
NUMBER = re.compile(r"[+−-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
SAVE = base.save
NOTEBOOKS = sorted(path.stem for path in (ROOT / "analysis").glob("*.ipynb"))


#: Other versions of matplotlib place texts differently.
SAME_PIXELS = matplotlib.__version__.startswith("3.11.")


def execute(name: str) -> None:
    """Execute the code cells of a notebook in this process, which is faster than a kernel."""
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
    monkeypatch.setenv("PVERA_PROFILE", "demo")
    shutil.copytree(ROOT / "experiments/profiles", root / "experiments/profiles")
    monkeypatch.chdir(root)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        execute(name)
    assert {type(thing) for thing in shown} <= {Markdown, Shown}
    return "\n".join(thing.data for thing in shown if isinstance(thing, Markdown))


@pytest.fixture(scope="module", autouse=True)
def computed_once():
    """Tables, figures and claims compare the same samples: each comparison is computed once."""

    def cached(function):
        results = {}

        def call(x, y):
            key = np.asarray(x).tobytes(), np.asarray(y).tobytes()
            if key not in results:
                results[key] = function(x, y)
            return results[key]

        return call

    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (out_of_distribution, "rank_sum"),
            (uncertainty, "rank_sum"),
            (uncertainty, "auroc"),
        ):
            patch.setattr(module, name, cached(getattr(module, name)))
        yield


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name not in ("audit", "claims")])
def test_every_table_and_figure_follows_from_the_results(name, tmp_path, monkeypatch):
    """The tables of a notebook are the committed ones, and so are the pixels of its figures."""
    tables: list[Table] = []
    monkeypatch.setattr(Table, "write", lambda table, folder: tables.append(table))
    said: list[str] = []
    monkeypatch.setattr(Page, "say", lambda page, text: said.append(text))
    monkeypatch.setattr(base, "save", partial(save_and_compare, tmp_path))
    monkeypatch.setattr(run_list, "write_runs", lambda files, path: None)
    monkeypatch.delenv("PVERA_PROFILE", raising=False)
    monkeypatch.chdir(ROOT / "analysis")
    execute(name)
    assert tables or said
    for table in tables:
        same(table.csv(), (COMMITTED / f"{table.name}.csv").read_text(), f"{table.name}.csv")
        same(table.markdown(), (COMMITTED / f"{table.name}.md").read_text(), f"{table.name}.md")
        if table.has_latex:
            same(table.latex(), (COMMITTED / f"{table.name}.tex").read_text(), f"{table.name}.tex")


def test_every_table_of_the_paper_has_latex():
    names = {path.stem.partition("_")[0] for path in COMMITTED.glob("*.tex")}
    assert names >= {"main", "rank", "position", "grid", "language", "detailed"}  # Tables 1 to 8


def test_latex_has_a_command_for_every_sign():
    for path in COMMITTED.glob("*.tex"):
        assert path.read_text(encoding="utf-8").isascii(), path.name


def save_and_compare(folder: Path, figure: Figure, _, name: str) -> list[Path]:
    """Save a figure below `folder` without the PDF file, and compare it with the committed one."""
    savefig = figure.savefig
    figure.savefig = lambda file, **options: (
        savefig(file, **options) if options["format"] == "png" else None
    )
    drawn, *_ = paths = SAVE(figure, folder, name)
    new, committed = (
        np.asarray(Image.open(path).convert("RGB"), dtype=int)
        for path in (drawn, FIGURES / f"{name}.png")
    )
    assert min(edge.min() for edge in (new[0], new[-1], new[:, 0], new[:, -1])) > 250, (
        f"{name}.png is cut off"
    )
    if SAME_PIXELS:
        assert new.shape == committed.shape, f"{name}.png has another size"
        different = (abs(new - committed).max(axis=2) > 64).sum()
        assert different < 20, f"{name}.png has {different} other pixels"
    return paths


def test_the_main_claims_have_a_page_with_links_to_their_notebooks(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(Page, "say", lambda page, text: said.append(text))
    monkeypatch.delenv("PVERA_PROFILE", raising=False)
    monkeypatch.chdir(ROOT / "analysis")
    execute("claims")
    (text,) = said
    main = [claim for topic in claims.TOPICS.values() for claim in topic.claims if claim.is_main]
    assert len(main) <= 14
    for name, topic in claims.TOPICS.items():
        profiles = read_report(ROOT)["claims"]
        tables = [COMMITTED / f"claims_{name}_{profile}.csv" for profile in profiles]
        judged = [claim for table in tables if table.exists() for claim in pd.read_csv(table).claim]
        for claim in topic.claims:
            assert (f"| [{claim.text}](" in text) == (claim.is_main and claim.text in judged)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert set(links) == {f"{name}.ipynb" for name in claims.TOPICS if f"({name}.ipynb)" in text}
    assert len(set(links)) > 5 and all((ROOT / "analysis" / link).is_file() for link in links)
    assert "nan" not in text and "{" not in text


def test_runs_csv_follows_from_the_records_and_gives_the_averages_of_the_main_table():
    profiles = read_profiles(ROOT, read_report(ROOT)["profiles"])
    frame = run_list.runs_frame(ResultFiles(RESULTS, profiles))
    new = frame.to_csv(index=False, float_format="%.6g")
    same(new, (RESULTS / "runs.csv").read_text(), "runs.csv")
    (code,) = re.findall(r"```python\n(.*?)```", (RESULTS / "README.md").read_text(), re.DOTALL)
    names = {}
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(io.StringIO()) as printed,
    ):
        patch.chdir(ROOT)
        exec(code, names)
    main = pd.read_csv(COMMITTED / "main_vtab_tiny.csv").set_index("method")["average"]
    means = names["accuracy"].groupby("dataset").mean().mean()
    np.testing.assert_allclose(means[main.index], main, atol=1e-3)
    differences = (
        pd.read_csv(COMMITTED / "differences_vtab_tiny.csv")
        .set_index("difference")
        .loc["PVeRA − VeRA"]
    )
    half = (differences["high"] - differences["low"]) / 2
    assert (
        printed.getvalue().splitlines()[-1]
        == f"PVeRA − VeRA: {differences['mean']:.1f} ± {half:.1f}"
    )


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name not in ("audit", "speed")])
def test_without_results_a_notebook_names_the_command_that_makes_them(name, tmp_path, monkeypatch):
    shutil.copytree(
        RESULTS / "paper/cost", tmp_path / "results/paper/cost"
    )  # needs no run and is committed
    shutil.copytree(RESULTS / "published", tmp_path / "results/published")
    text = displayed(name, tmp_path, monkeypatch)
    if name != "claims":
        commands = set(
            re.findall(r"`python experiments/(\w+\.py) --profile demo.*?` makes them", text)
        )
        assert commands and all((ROOT / "experiments" / command).is_file() for command in commands)
    assert "nan" not in text and "None" not in text
    tables = {path.stem for path in (tmp_path / "results").rglob("demo/tables/*.csv")}
    assert all("published" in table or table == "cost" for table in tables), "the paper's"


def test_the_audit_needs_the_published_numbers_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "results/published").mkdir(parents=True)
    for field in fields(paper_numbers.PaperNumbers):
        shutil.copy(RESULTS / f"published/{field.name}.csv", tmp_path / "results/published")
    assert "| check | place |" in displayed("audit", tmp_path, monkeypatch)
    assert capsys.readouterr() == ("", "")
    audit = "results/published/audit.csv"
    assert (tmp_path / audit).read_bytes() == (ROOT / audit).read_bytes()


@pytest.mark.parametrize(
    "profile, experiment",
    [("vtab_tiny", "benchmark"), ("text", "benchmark"), ("text", "full_sets")],
)
def test_recorded_accuracies_are_scikit_learns_on_the_stored_scores(profile, experiment):
    stored = [
        run
        for run in results.load_runs(RESULTS, profile, experiment)
        if results.path_of(RESULTS, run).with_suffix(results.ARRAYS_SUFFIX).exists()
    ]
    assert stored
    for run in stored:
        scores, labels = results.read_predictions(results.path_of(RESULTS, run))
        highest = np.sort(scores, axis=1)[:, -2:]
        ties = (highest[:, 0] == highest[:, 1]).mean()  # in fp16
        assert len(labels) == run["test"]["images"]
        assert (
            abs(accuracy_score(labels, scores.argmax(1)) - run["test"]["accuracy"]) <= ties + 1e-12
        )


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
        np.testing.assert_allclose(
            ours, theirs, rtol=1e-4, atol=1.01 * unit * (unit < 1), err_msg=name
        )


@pytest.mark.parametrize(
    "new, committed, name",
    [
        ("a,b\n1.01,x\n", "a,b\n1,x\n", "t.csv"),
        ("a,b\n1,y\n", "a,b\n1,x\n", "t.csv"),
        ("a\n1\n", "a,b\n1,x\n", "t.csv"),
        ("| PVeRA | −1.5 |", "| PVeRA | −1.3 |", "t.md"),
        ("| VeRA | −1.3 |", "| PVeRA | −1.3 |", "t.md"),
        ("| PVeRA | **−1.3** |", "| PVeRA | −1.3 |", "t.md"),
        ("72 runs", "71 runs", "t.md"),
    ],
)
def test_the_comparison_notices_differences(new, committed, name):
    with pytest.raises(AssertionError):
        same(new, committed, name)


def test_the_comparison_lets_last_digits_differ():
    same("a,b\n1.000001,x\n", "a,b\n1,x\n", "t.csv")
    same("| PVeRA | −1.3 |", "| PVeRA | −1.4 |", "t.md")
