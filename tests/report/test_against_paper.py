"""The paper's numbers: the CSV files, and what stands beside ours."""

from pathlib import Path

import pytest
from hand import parsed
from records import make_record

from pvera.report import published
from pvera.report.tables import against_paper

PAPER = published.load(Path(__file__).parents[2] / "results" / "published")


def on_vtab(values, images=1000):
    """Return records of {method: {data set: accuracy in % per seed}}."""
    return [
        make_record(method, "digits", seed, round(percent * images / 100), images)
        | {"dataset": dataset, "backbone": "dinov2_b", "category": "natural" if dataset == "cifar" else "structured"}
        for method, of_method in values.items()
        for dataset, seeds in of_method.items()
        for seed, percent in enumerate(seeds)
    ]


def test_same_data_and_backbone_are_compared_cell_by_cell():
    """Table 1 has for PVeRA 71.7 on CIFAR-100 and 83.3 on KITTI, for VeRA 70.1 and 84.0."""
    ours = {
        "vera": {"cifar": [70, 71], "kitti": [80, 82]},
        "pvera": {"cifar": [72.7, 72.7], "kitti": [80, 82.6]},
    }
    table = against_paper.accuracies(on_vtab(ours), PAPER)
    data = parsed(table).set_index(["method", "column"])
    for method, here, paper in (("vera", (70.5, 81), (70.1, 84.0)), ("pvera", (72.7, 81.3), (71.7, 83.3))):
        for dataset, value, printed in zip(("cifar", "kitti"), here, paper):
            assert data.at[(method, dataset), "difference"] == pytest.approx(value - printed)
        assert data.at[(method, "average"), "paper"] == pytest.approx(sum(paper) / 2)
        assert data.at[(method, "natural"), "here"] == pytest.approx(here[0])
    assert data.loc[(slice(None), "rank"), "here"].tolist() == [2, 1]
    assert "ViT-B/14 on 2 data sets, the same as here." in table.caption and "τ = " in table.caption


@pytest.mark.parametrize(
    ("backbone", "accuracy", "std", "stars"),
    [("dinov2_s", 9455.9, 207.4, 87), ("dinov2_b", 10339.6, 208.6, 85), ("dinov2_l", 10098.6, 348.0, 81)],
)
def test_sums_of_the_detailed_tables(backbone, accuracy, std, stars):
    """Sums over the matches of "a$^*$ ± b" in the paper's source."""
    detailed = PAPER.detailed[PAPER.detailed["backbone"] == backbone]
    assert detailed[["accuracy", "std", "star"]].sum().tolist() == pytest.approx([accuracy, std, stars])


def test_configurations_are_those_of_the_published_program():
    configurations = PAPER.configurations()
    assert [(method.rank, percent) for method, percent in configurations["lora"]] == [(32, 26), (64, 35), (128, 39)]
    assert all(method.same_draw for method, _ in configurations["lora"])
    assert {method.init for method, _ in configurations["pvera"]} == {"uniform"}
