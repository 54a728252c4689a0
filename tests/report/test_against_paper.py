"""The paper's numbers beside ours."""

from pathlib import Path

import numpy as np
import pytest
from hand import HAND, lines, parsed, runs_of
from records import make_record
from scipy import stats

from pvera.report import published
from pvera.report.tables import against_paper

PAPER = published.load(Path(__file__).parents[2] / "results" / "published")


def on_vtab(values, backbone="dinov2_b", images=1000):
    """Return records of {method: {data set: accuracy in % per seed}}."""
    runs = []
    for method, of_method in values.items():
        for dataset, seeds in of_method.items():
            for seed, percent in enumerate(seeds):
                run = make_record(method, "digits", seed, round(percent * images / 100), images)
                category = "natural" if dataset in ("cifar", "dtd") else "structured"
                runs.append(run | {"dataset": dataset, "backbone": backbone, "category": category})
    return runs


def test_same_data_and_backbone_are_compared_cell_by_cell():
    """Table 1 has for PVeRA 71.7 on CIFAR-100 and 83.3 on KITTI, for VeRA 70.5 and 84.0."""
    ours = {
        "vera": {"cifar": [70, 71], "kitti": [80, 82]},
        "pvera": {"cifar": [72.7, 72.7], "kitti": [80, 82.6]},
    }
    table = against_paper.accuracies(on_vtab(ours), PAPER)
    theirs = PAPER.main_table().loc[["vera", "pvera"], ["cifar", "kitti"]]
    assert theirs.loc["pvera"].tolist() == [71.7, 83.3]
    data = parsed(table).set_index(["method", "column"])
    for method, here in (("vera", (70.5, 81)), ("pvera", (72.7, 81.3))):
        for dataset, value in zip(("cifar", "kitti"), here):
            assert data.at[(method, dataset), "difference"] == pytest.approx(value - theirs.at[method, dataset])
        assert data.at[(method, "average"), "paper"] == pytest.approx(theirs.loc[method].mean())
        assert data.at[(method, "natural"), "here"] == pytest.approx(here[0])
    assert data.loc[(slice(None), "rank"), "here"].tolist() == [2, 1] and "τ = " in table.caption
    assert "ViT-B/14 on 2 data sets, the same as here." in table.caption
    titles = ["CIFAR-100", "KITTI-Dist", "Average", "Avg. natural", "Avg. structured", "Mean rank"]
    assert list(table.texts()["(c) Difference"]) == titles


def test_a_smaller_backbone_is_compared_with_its_own_table():
    table = against_paper.accuracies(on_vtab({"pvera": {"cifar": [58.5]}}, "dinov2_s"), PAPER)
    data = parsed(table).set_index("column")
    assert data.at["cifar", "paper"] == 58.5 and data.at["cifar", "difference"] == pytest.approx(0)
    assert "ViT-S/14" in table.caption and "τ = –" in table.caption  # one method has no order


def test_other_data_are_compared_by_averages_alone():
    """Averages of HAND: 46.67, 53.35, 53.33, 53.67; of the paper 57.0, 70.5, 70.0, 71.4: VeRA and LoRA the
    same way."""
    table = against_paper.accuracies(runs_of(HAND), PAPER)
    titles = ["Average", "Avg. natural", "Avg. specialized", "Avg. structured", "Mean rank"]
    assert list(table.texts()["(a) Here"]) == titles
    assert "the differences do not test the paper's numbers" in table.caption and "τ = +1.00" in table.caption
    data = parsed(table).set_index(["method", "column"])
    assert data.at[("pvera", "average"), "here"] == pytest.approx(161 / 3, rel=1e-5)
    assert data.at[("pvera", "average"), "paper"] == pytest.approx(71.38, abs=0.005)
    assert np.isnan(data.at[("pvera", "structured"), "here"])
    # Ranks of PVeRA: 1, 4 and 1; of the paper's among these four methods.
    assert data.at[("pvera", "rank"), "here"] == 2
    four = PAPER.main_table().loc[["linear", "lora", "vera", "pvera"]]
    assert data.at[("pvera", "rank"), "paper"] == pytest.approx(
        four.rank(ascending=False).loc["pvera"].mean(), rel=1e-5
    )


def test_published_detailed_table_prints_as_the_paper():
    table = against_paper.published_detailed(PAPER, "dinov2_l")
    shown = {row[0]: row[1:] for row in lines(table)}
    assert len(shown) == 19
    assert shown["CIFAR-100"][1] == r"50.9\* ± 35.3" and shown["sNORB-Elev"][-1] == "36.6 ± 2.2"
    assert "Table 8" in table.about
    assert len(table.data) == 152


def test_published_leads_by_hand():
    """PVeRA over LoRA on ViT-B/14, paired over the 19 data sets."""
    table = against_paper.published_leads(PAPER)
    accuracies = PAPER.accuracies("dinov2_b")
    gaps = accuracies.loc["pvera"] - accuracies.loc["lora"]
    low, high = stats.t.interval(0.95, 18, gaps.mean(), gaps.sem())
    assert table.texts()[""].at["LoRA", "ViT-B/14"] == f"{gaps.mean():.1f} [{low:.1f}, {high:.1f}]".replace("-", "−")
    assert len(table.data) == 3 * 7


def test_published_grid_prints_as_the_paper():
    shown = against_paper.published_grid(PAPER).texts()
    assert shown["(a) Rank"].loc["LoRA"].to_dict() == {"32": "26", "64": "35", "128": "39"}
    assert list(shown["(b) Reduction ratio"]) == ["16", "8", "4"]
