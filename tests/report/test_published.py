"""The published numbers: the CSV files, and the tables made from them."""

import os
import re
from pathlib import Path

import pandas as pd
import pytest

from pvera import METHODS
from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.report import published
from pvera.study.results import CATEGORIES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "results" / "published"
SOURCE = Path(os.environ.get("PVERA_PAPER", ROOT.parent / "shared" / "paper" / "pvera.tex"))
needs_source = pytest.mark.skipif(not SOURCE.is_file(), reason="the paper's source is not here")


@pytest.fixture(scope="module")
def paper():
    return published.load(FOLDER)


# The files


def test_the_detailed_tables_are_complete(paper):
    keys = paper.detailed[["backbone", "method", "dataset"]]
    assert len(keys) == len(keys.drop_duplicates()) == 456 == 3 * 19 * len(METHODS)
    assert set(keys["method"]) == set(METHODS)
    assert set(keys["dataset"]) == set(published.DATASETS)
    assert paper.detailed["accuracy"].between(1, 100).all()
    assert paper.detailed["std"].between(0, 50).all()
    assert paper.detailed["star"].dtype == bool
    assert not paper.detailed.loc[paper.detailed["method"] == "pvera", "star"].any()


# Sums over matches of "a$^*$ ± b" in the source; test_sums_agree_with_a_plain_search_of_the_source repeats the search.
SUMS = {"dinov2_s": (9455.9, 207.4, 87), "dinov2_b": (10339.6, 208.6, 85), "dinov2_l": (10098.6, 348.0, 81)}


@pytest.mark.parametrize("backbone", SUMS)
def test_sums_of_the_detailed_tables(paper, backbone):
    detailed = paper.detailed[paper.detailed["backbone"] == backbone]
    accuracy, std, stars = SUMS[backbone]
    assert detailed["accuracy"].sum() == pytest.approx(accuracy)
    assert detailed["std"].sum() == pytest.approx(std)
    assert detailed["star"].sum() == stars


@needs_source
def test_sums_agree_with_a_plain_search_of_the_source():
    tables = re.split(r"\\label\{tab:detailed_results", SOURCE.read_text(encoding="utf-8"))
    cells = [re.findall(r"([\d.]+)(\$\^\*\$)? *\$\\pm\$ *([\d.]+)", table) for table in tables]
    cells = dict(zip(("dinov2_b", "dinov2_s", "dinov2_l"), filter(None, cells)))
    assert sum(map(len, cells.values())) == 456
    for name, part in cells.items():
        accuracy, star, std = zip(*part)
        sums = sum(map(float, accuracy)), sum(map(float, std)), sum(map(bool, star))
        assert sums == pytest.approx(SUMS[name])


def test_the_other_tables_are_complete(paper):
    assert len(paper.main) == 152 and paper.main_table().notna().all(axis=None)
    assert paper.main["accuracy"].sum() == pytest.approx(10339.7)
    assert paper.main["mark"].value_counts().to_dict() == {"": 112, "best": 24, "second": 16}
    assert paper.averages["source"].value_counts().to_dict() == {"Table 1": 8, "text": 6}
    assert paper.grid.groupby("method")["percent"].agg(["size", "sum"]).eq([3, 100]).all(axis=1).sum() == 5
    assert paper.rank["rank"].tolist() == [64, 128, 256, 512]
    assert paper.position["targets"].tolist() == ["q", "k", "v", "qk", "qv", "qkv"]
    assert paper.language.pivot(index="method", columns="task", values="score").shape == (7, 3)
    assert paper.quotes["quote"].is_unique


def test_losses_of_the_ablation_tables(paper):
    assert paper.rank["loss"].tolist() == [1.875, 1.821, 1.819, 1.824]
    assert paper.position["loss"].tolist() == [1.825, 1.827, 1.826, 1.835, 1.819, 1.821]


def test_configurations_are_those_of_the_published_program(paper):
    configurations = paper.configurations()
    assert [(method.rank, percent) for method, percent in configurations["lora"]] == [(32, 26), (64, 35), (128, 39)]
    assert all(method.same_draw for method, _ in configurations["lora"])
    assert {method.init for method, _ in configurations["pvera"]} == {"uniform"}


@pytest.mark.parametrize("name", ["main", "detailed"])
def test_categories_are_those_of_the_data_sets(paper, name):
    table = getattr(paper, name)
    assert (table["category"] == table["dataset"].map(lambda d: TASKS[d].category)).all()
    assert set(table["category"]) == set(CATEGORIES)


def test_wide_tables_have_the_cells_of_the_long_ones(paper):
    wide = paper.accuracies("dinov2_l", "std")
    assert list(wide.index) == list(METHODS) and list(wide.columns) == published.DATASETS
    row = paper.detailed.query("backbone == 'dinov2_l' and method == 'lora' and dataset == 'kitti'").iloc[0]
    assert wide.at["lora", "kitti"] == row["std"]
    assert paper.main_table("mark").at["linear", "oxford_flowers102"] == "best"


def test_bad_folders_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="main.csv: no such file"):
        published.load(tmp_path)
    (tmp_path / "main.csv").write_text("method,dataset,category,mark\n")
    with pytest.raises(InputError, match="lacks the column 'accuracy'"):
        published.load(tmp_path)


def test_numbers_are_written_as_printed(paper):
    text = pd.read_csv(FOLDER / "detailed.csv", dtype=str)
    assert text["accuracy"].str.fullmatch(r"\d+\.\d").all() and text["std"].str.fullmatch(r"\d+\.\d").all()
