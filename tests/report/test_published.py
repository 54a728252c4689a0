"""The published numbers: the CSV files, and the tables made from them."""

from pathlib import Path

import pytest

from pvera.report import published

FOLDER = Path(__file__).parents[2] / "results" / "published"


@pytest.fixture(scope="module")
def paper():
    return published.load(FOLDER)


@pytest.mark.parametrize(
    ("backbone", "accuracy", "std", "stars"),
    [("dinov2_s", 9455.9, 207.4, 87), ("dinov2_b", 10339.6, 208.6, 85), ("dinov2_l", 10098.6, 348.0, 81)],
)
def test_sums_of_the_detailed_tables(paper, backbone, accuracy, std, stars):
    """Sums over the matches of "a$^*$ ± b" in the paper's source."""
    detailed = paper.detailed[paper.detailed["backbone"] == backbone]
    assert detailed["accuracy"].sum() == pytest.approx(accuracy) and detailed["std"].sum() == pytest.approx(std)
    assert detailed["star"].sum() == stars


def test_configurations_are_those_of_the_published_program(paper):
    configurations = paper.configurations()
    assert [(method.rank, percent) for method, percent in configurations["lora"]] == [(32, 26), (64, 35), (128, 39)]
    assert all(method.same_draw for method, _ in configurations["lora"])
    assert {method.init for method, _ in configurations["pvera"]} == {"uniform"}
