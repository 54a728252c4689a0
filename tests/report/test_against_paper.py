"""The paper's numbers beside ours."""

from pathlib import Path

import pytest
from hand import parsed
from records import make_record

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


def test_published_grid_prints_as_the_paper():
    shown = against_paper.published_grid(PAPER).texts()
    assert shown["(a) Rank"].loc["LoRA"].to_dict() == {"32": "26", "64": "35", "128": "39"}
    assert list(shown["(b) Reduction ratio"]) == ["16", "8", "4"]
