"""The benchmark's tables from hand-made records, and the notebook that shows them."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hand import HAND, judged, lines, parsed, runs_of
from notebook import run
from records import make_record, write_all
from scipy.stats import t

from pvera import adapters
from pvera.errors import InputError
from pvera.report import plots, published
from pvera.report.notebook import Page
from pvera.report.scores import ROWS, complete, score_frame
from pvera.report.table import marks, number
from pvera.report.tables import against_paper
from pvera.report.tables import benchmark as tables
from pvera.report.tables.verdicts import Claim, lead

ROOT = Path(__file__).parents[2]
PAPER = published.load(ROOT / "results" / "published")

MAIN = """\
**Test accuracy (%) of each method, mean over seeds.**

|  | Natural |  | Specialized | Averages |  |  |
| :-- | :-: | :-: | :-: | :-: | :-: | :-: |
|  | **Digits** | **Textures** | **Vessels** | **Average** | **Avg. natural** | **Avg. specialized** |
| Linear | 50.0 | **80.0** | 10.0 | 46.7 | <ins>65.0</ins> | 10.0 |
| LoRA | <ins>60.0</ins> | **80.0** | 20.0 | <ins>53.3</ins> | **70.0** | 20.0 |
| VeRA | <ins>60.0</ins> | 70.0 | <ins>30.0</ins> | <ins>53.3</ins> | <ins>65.0</ins> | <ins>30.0</ins> |
| PVeRA | **70.0** | 60.0 | **31.0** | **53.7** | <ins>65.0</ins> | **31.0** |
"""


def test_main_table_by_hand():
    table = tables.main(runs_of(HAND))
    assert table.markdown().startswith(MAIN)
    data = parsed(table).set_index("method")
    assert data.at["lora", "digits"] == 60.04 and data.at["pvera", "average"] == pytest.approx(161 / 3, rel=1e-5)
    assert list(data) == ["digits", "textures", "vessels", "average", "natural", "specialized"]


@pytest.mark.parametrize(
    "values, expected",
    [
        ([3.0, 1.0, 2.0], ["best", "", "second"]),
        ([2.0, 2.0, 1.0], ["best", "best", ""]),
        ([3.0, 2.0, 2.0, 1.0], ["best", "second", "second", ""]),
        ([90.04, 89.96, 89.9], ["best", "best", ""]),
        ([np.nan, 2.0, 1.0], ["", "best", "second"]),
        ([np.nan], [""]),
        ([], []),
    ],
)
def test_marks(values, expected):
    assert marks(values) == expected


def test_detailed_table_by_hand():
    """n = 2 seeds x 5 images, PVeRA 5 of 10: 2 of 10 has p = 56/1024, 1 of 10 has p = 11/1024."""
    correct = {"linear": [0, 1], "lora": [0, 2], "vera": [5, 5], "pvera": [2, 3]}
    table = tables.detailed(runs_of({m: {"digits": right} for m, right in correct.items()}, images=5))
    # Two values that differ by d have the sample standard deviation d / sqrt(2)
    assert lines(table) == [["Digits", r"10.0\* ± 14.1", "20.0 ± 28.3", "100.0 ± 0.0", "50.0 ± 14.1"]]
    data = parsed(table).set_index("method")
    assert data["significantly_lower"].to_dict() == {
        "linear": True,
        "lora": False,
        "vera": False,
        "pvera": False,
    }
    assert data["p_value"]["linear"] == pytest.approx(11 / 1024, rel=1e-5)
    assert data["p_value"]["lora"] == pytest.approx(56 / 1024, rel=1e-5)
    assert np.isnan(data["p_value"]["pvera"])


def test_stars_pool_the_seeds_that_both_methods_have():
    """On the common seed 1 of 5 against 4 of 5: p = .2^5 + 5 (.8) .2^4; against 5 of 10 it would be 6/32."""
    correct = {"vera": {"digits": [1, None]}, "pvera": {"digits": [4, 1]}}
    table = tables.detailed(runs_of(correct, images=5))
    assert lines(table) == [["Digits", r"20.0\*", "50.0 ± 42.4"]]
    assert parsed(table)["p_value"][0] == pytest.approx(0.00672)


def test_grid_table_by_hand():
    runs = [make_record("pvera", seed=seed, chosen=chosen) for seed, chosen in enumerate([0, 0, 1])]
    runs += [make_record("lora", seed=seed, chosen=chosen) for seed, chosen in enumerate([2, 2, 0])]
    runs += [make_record("lora", "vessels", chosen=None)]  # diverged: chose nothing
    runs += [make_record("bottleneck", seed=seed) for seed in range(3)]
    search = make_record("pvera", experiment="beta", grid={"beta": [1e-2, 1e-4, 0.0]}, chosen=1)
    table = tables.grid(runs, [search])
    shown = table.texts()
    assert {title: list(panel) for title, panel in shown.items()} == {
        "(a) Rank": ["4", "8", "16"],
        "(b) Reduction ratio": ["8"],
        "(c) Learning rate": ["10⁻³", "10⁻⁴"],
        "(d) KL weight β": ["10⁻²", "10⁻⁴", "0"],
    }
    rows = [list(row) for panel in shown.values() for row in panel.itertuples()]
    assert rows == [
        ["LoRA", "33", "0", "67"],
        ["Bottleneck", "fixed"],
        ["PVeRA", "67", "33"],
        ["PVeRA", "0", "100", "0"],
    ]
    data = parsed(table)
    assert data.groupby(["method", "hyperparameter"])["share"].sum().eq(1).all()
    lora = data[data["method"] == "lora"]
    assert lora["chosen"].tolist() == [1, 0, 2] and lora["runs"].eq(3).all() and not lora["fixed"].any()


def test_claims_by_hand():
    """PVeRA minus VeRA: 10, -10 and 1 by data set. Averages: 46.67, 53.35, 53.33 and PVeRA 53.67."""
    rows = judged("Main table", 100 * score_frame(runs_of(HAND)))
    half = t.ppf(0.975, 2) * np.std([10, -10, 1], ddof=1) / np.sqrt(3)
    against_vera = Claim("Main table", "PVeRA over VeRA", lead("pvera", "vera"), "{signed} points")
    first = pd.Series(against_vera.judge(100 * score_frame(runs_of(HAND))))
    assert (first["verdict"], first["reading"]) == ("undecided", "PVeRA − VeRA: +0.3 points")
    assert first[["low", "high", "seed0", "seed1"]].tolist() == pytest.approx([1 / 3 - half, 1 / 3 + half, -1, 5 / 3])
    assert rows.at["PVeRA has the highest average", "reading"] == "PVeRA − LoRA: +0.3 points"
    assert rows.at["Linear probing has the lowest average", "reading"] == "VeRA − Linear: +6.7 points"
    dora = rows.loc["DoRA is best on more data sets than any other"]
    assert (dora["verdict"], dora["reading"]) == ("not testable here", "no runs of DoRA")


def test_about_names_what_is_missing_and_diverged():
    runs = runs_of(HAND | {"vera": HAND["vera"] | {"digits": [6000, None], "vessels": [None, None]}})
    diverged = make_record("lora", "vessels", 1, chosen=None)
    runs = [run for run in runs if (run["method"], run["dataset"], run["seed"]) != ("lora", "vessels", 1)]
    runs[0]["members"][0]["status"] = "epoch limit"
    about = tables.describe_runs([*runs, diverged])
    assert "Profile mine, corrected protocol, backbone small ViT (32 px), seeds 0, 1, at most 30 epochs" in about
    assert "(this limit ended 1 of 20 chosen trainings, patience the others)" in about
    assert ". 21 runs. Missing: " in about
    assert "Missing: VeRA on Digits (seed 1)." in about  # of VeRA on Vessels there is no run, and its cell is empty
    assert "Diverged, and left out: LoRA on Vessels (seed 1)." in about
    assert tables.describe_runs(runs_of(HAND)).endswith(". 24 runs.")


def test_a_part_of_the_paper_s_table_is_marked_incomplete():
    runs = [make_record() | {"dataset": name, "category": "natural"} for name in ("cifar", "svhn")]
    assert tables.describe_runs(runs).endswith(". 2 runs. Incomplete: 2 of 19 data sets.")


def test_files(tmp_path):
    """A table of the paper is written as LaTeX too; of several backbones, names end in the backbone."""
    parts = {"tiny": runs_of(HAND), "large": [make_record(backbone="large")]}
    for kept, suffixes in ({"tiny": parts["tiny"]}, [""]), (parts, ["_tiny", "_large"]):
        Page(tmp_path, f"{len(kept)}").show_each(kept, tables.main)
        folder = tmp_path / "results" / f"{len(kept)}" / "tables"
        assert {p.name for p in folder.iterdir()} == {f"main{s}.{e}" for s in suffixes for e in ("md", "csv", "tex")}
        assert (folder / f"main{suffixes[0]}.md").read_text().startswith(MAIN)
        assert (folder / f"main{suffixes[0]}.csv").read_text() == tables.main(parts["tiny"]).csv()


def test_training_and_tables_import_no_drawing_and_no_transformers():
    program = """
import sys
sys.modules["transformers"] = None  # refuses to be imported
import pvera, pvera.report.tables, pvera.study.runs
print({"matplotlib", "seaborn"} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_every_method_has_a_unique_style():
    looks = [plots.style(key) for key in adapters.METHODS]
    assert len(looks) == 8 and [look.title for look in looks] == [m.title for m in adapters.METHODS.values()]
    for attribute, others in (("colour", plots.COLOURS), ("marker", plots.MARKERS)):
        assert len({*(getattr(look, attribute) for look in looks), *others}) == len(looks) + len(others)


def test_notebook(tmp_path, monkeypatch, capsys):
    """With two methods and a missing run; it shows no warning."""
    correct = {"vera": HAND["vera"] | {"digits": [6000, None]}, "pvera": HAND["pvera"]}
    write_all(tmp_path / "results", runs_of(correct))
    shown, _ = run("main_table.ipynb", tmp_path, "mine", monkeypatch)
    assert capsys.readouterr() == ("", "")
    assert "Missing: VeRA on Digits (seed 1)." in shown
    assert re.search(r"PVeRA has the highest average \|[^|]*\|[^|]*\| undecided ", shown)
    built = [tables.main(runs_of(correct)), against_paper.accuracies(runs_of(correct), PAPER)]
    for table in built:
        assert table.markdown(source=False).strip() in shown
    assert (tmp_path / "results/mine/tables/main.tex").read_text() == built[0].latex()
    assert {path.name for path in (tmp_path / "figures/mine").iterdir()} == {"main_tiny.png", "main_tiny.pdf"}


@pytest.mark.parametrize(
    "value, text",
    [(64, "64"), (16.0, "16"), (1e-3, "10⁻³"), (3e-3, "3·10⁻³"), (100.0, "10²"), (300.0, "300"), (0.5, "0.5"),
     (0.1, "0.1"), (0.0, "0"), (1.2e-3, "0.0012"), (1.0, "1"), ("qv", "qv")],
)  # fmt: skip
def test_values_of_grids(value, text):
    assert number(value) == text


def test_complete_scores_are_those_of_data_sets_with_every_method():
    index = pd.MultiIndex.from_tuples(
        [(category, name, seed) for category, name in ("ad", "bn", "cv") for seed in (0, 1)], names=ROWS
    )
    scores = pd.DataFrame({"vera": [1, np.nan, np.nan, np.nan, 3, 1.0], "pvera": np.arange(6.0)}, index)
    assert complete(scores).index.unique("dataset").tolist() == ["d", "v"] and complete(scores)["pvera"].sum() == 10
    with pytest.raises(InputError, match="no data set"):
        complete(scores.iloc[2:4])
