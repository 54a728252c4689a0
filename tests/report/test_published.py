"""The published numbers: the CSV files, and the tables made from them."""

from pathlib import Path

import pandas as pd
import pytest

from pvera import METHODS
from pvera.report import published

FOLDER = Path(__file__).parents[2] / "results" / "published"


@pytest.fixture(scope="module")
def paper():
    return published.load(FOLDER)


def test_the_detailed_tables_are_complete(paper):
    keys = paper.detailed[["backbone", "method", "dataset"]]
    assert len(keys) == len(keys.drop_duplicates()) == 456 == 3 * 19 * len(METHODS)
    assert set(keys["method"]) == set(METHODS) and set(keys["dataset"]) == set(published.DATASETS)
    assert paper.detailed["star"].dtype == bool
    text = pd.read_csv(FOLDER / "detailed.csv", dtype=str)  # written as printed
    assert text["accuracy"].str.fullmatch(r"\d+\.\d").all() and text["std"].str.fullmatch(r"\d+\.\d").all()


@pytest.mark.parametrize(
    ("backbone", "accuracy", "std", "stars"),
    [("dinov2_s", 9455.9, 207.4, 87), ("dinov2_b", 10339.6, 208.6, 85), ("dinov2_l", 10098.6, 348.0, 81)],
)
def test_sums_of_the_detailed_tables(paper, backbone, accuracy, std, stars):
    """Sums over the matches of "a$^*$ ± b" in the paper's source."""
    detailed = paper.detailed[paper.detailed["backbone"] == backbone]
    assert detailed["accuracy"].sum() == pytest.approx(accuracy) and detailed["std"].sum() == pytest.approx(std)
    assert detailed["star"].sum() == stars


def test_the_other_tables_are_complete(paper):
    assert len(paper.main) == 152 and paper.main_table().notna().all(axis=None)
    assert paper.main["accuracy"].sum() == pytest.approx(10339.7)
    assert paper.main["mark"].value_counts().to_dict() == {"": 112, "best": 24, "second": 16}
    assert paper.averages["source"].value_counts().to_dict() == {"Table 1": 8, "text": 6}
    assert paper.grid.groupby("method")["percent"].agg(["size", "sum"]).eq([3, 100]).all(axis=1).sum() == 5
    assert dict(zip(paper.rank["rank"], paper.rank["loss"])) == {64: 1.875, 128: 1.821, 256: 1.819, 512: 1.824}
    assert dict(zip(paper.position["targets"], paper.position["loss"])) == {
        "q": 1.825, "k": 1.827, "v": 1.826, "qk": 1.835, "qv": 1.819, "qkv": 1.821
    }  # fmt: skip
    assert paper.language.pivot(index="method", columns="task", values="score").shape == (7, 3)
    assert paper.quotes["quote"].is_unique


def test_configurations_are_those_of_the_published_program(paper):
    configurations = paper.configurations()
    assert [(method.rank, percent) for method, percent in configurations["lora"]] == [(32, 26), (64, 35), (128, 39)]
    assert all(method.same_draw for method, _ in configurations["lora"])
    assert {method.init for method, _ in configurations["pvera"]} == {"uniform"}
