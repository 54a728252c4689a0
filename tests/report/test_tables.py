"""The benchmark's tables, costs, captions and the text of numbers, of hand-made records."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import scripts
from hand import HAND, cells, parsed, runs_of
from records import make_record
from small import PROFILE, profile_with

from pvera import LoRA, PVeRA, VeRA, adapters
from pvera.data import vtab
from pvera.report import paper_numbers
from pvera.report.captions import caption_source
from pvera.report.plots.violins import stars
from pvera.report.table import marks
from pvera.report.tables import benchmark as tables
from pvera.report.tables import cost as cost_tables
from pvera.report.tables.components import Components
from pvera.report.text import bounds, decimal, grid_value, interval, signed
from pvera.study import cost_records

NAN = np.nan

MAIN = """\
**Test accuracy (%) of each method, mean over seeds.**

|  | Natural |  | Specialized | Averages |  |  |
| :-- | :-: | :-: | :-: | :-: | :-: | :-: |
|  | **Digits** | **Textures** | **Vessels** | **Average** | **Avg. natural** | \
**Avg. specialized** |
| Linear | 50.0 | **80.0** | 10.0 | 46.7 | <ins>65.0</ins> | 10.0 |
| LoRA | <ins>60.0</ins> | **80.0** | 20.0 | <ins>53.3</ins> | **70.0** | 20.0 |
| VeRA | <ins>60.0</ins> | 70.0 | <ins>30.0</ins> | <ins>53.3</ins> | <ins>65.0</ins> | \
<ins>30.0</ins> |
| PVeRA | **70.0** | 60.0 | **31.0** | **53.7** | <ins>65.0</ins> | **31.0** |
"""


def test_main_table_by_hand():
    table = tables.main_table(runs_of(HAND))
    assert table.markdown().startswith(MAIN)
    data = parsed(table).set_index("method")
    assert data.at["lora", "digits"] == 60.04 and data.at["pvera", "average"] == pytest.approx(
        161 / 3, rel=1e-5
    )
    lacking = HAND | {"vera": HAND["vera"] | {"vessels": [None, None]}}
    vera = parsed(tables.main_table(runs_of(lacking))).set_index("method").loc["vera"]
    assert vera["natural"] == 65 and vera[["average", "specialized"]].isna().all(), (
        "not the mean of other data sets"
    )


@pytest.mark.parametrize(
    "values, expected",
    [
        ([3.0, 2.0, 2.0, 1.0], ["best", "second", "second", ""]),
        ([90.04, 89.96, 89.9], ["best", "best", ""]),
        ([NAN, 2.0, 1.0], ["", "best", "second"]),
        ([], []),
    ],
)
def test_marks(values, expected):
    assert marks(values) == expected


def test_stars_pool_the_seeds_that_both_methods_have():
    """On the common seed 1 of 5 against 4 of 5: p = .2^5 + 5 (.8) .2^4.

    Against 5 of 10 it would be 6 / 32.
    """
    correct = {"vera": {"digits": [1, None]}, "pvera": {"digits": [4, 1]}}
    table = tables.detailed_table(runs_of(correct, images=5))
    assert cells(table) == {"Digits": [r"20.0\*", "50.0 ± 42.4"]}
    assert parsed(table)["p_value"][0] == pytest.approx(0.00672)


def test_grid_table_by_hand():
    """Three seeds search LoRA's ranks; VeRA's second seed inherits the choice of the first."""
    runs = [make_record("lora", seed=seed, chosen=chosen) for seed, chosen in enumerate([2, 2, 0])]
    runs += [make_record("lora", "vessels", chosen=None)]  # diverged: chose nothing
    runs += [
        make_record("vera", chosen=1),
        make_record("vera", seed=1, grid={"learning_rate": [1e-4]}),
    ]
    runs += [make_record("bottleneck", seed=seed) for seed in range(3)]
    betas = {"experiment": "beta", "grid": {"beta": [1e-2, 1e-4, 0.0]}}
    search = make_record("pvera", chosen=1, **betas)
    elsewhere = make_record("pvera", "sprites", chosen=2, **betas)  # where nothing else was trained
    table = tables.grid_table(runs, [search, elsewhere])
    panels = {
        name: [list(panel), *map(list, panel.itertuples())]
        for name, panel in table.printed_panels().items()
    }
    assert panels == {
        "(a) Rank": [["4", "8", "16"], ["LoRA", "33", "0", "67"]],
        "(b) Reduction ratio": [["8"], ["Bottleneck", "fixed"]],
        "(c) Learning rate": [["0.001", "0.0001"], ["VeRA", "0", "100"]],
        "(d) KL weight β": [["0.01", "0.0001", "0"], ["PVeRA", "0", "100", "0"]],
    }
    counts = parsed(table).groupby("method")[["chosen", "runs"]].agg(list)
    assert counts.loc["lora"].tolist() == [[1, 0, 2], [3, 3, 3]] and counts.loc[
        "vera"
    ].tolist() == [[0, 1], [1, 1]]


def test_the_description_counts_what_is_missing_and_diverged():
    runs = runs_of(
        HAND | {"vera": HAND["vera"] | {"digits": [6000, None], "vessels": [None, None]}}
    )
    diverged = make_record("lora", "vessels", 1, chosen=None)
    runs = [
        run
        for run in runs
        if (run["method"], run["dataset"], run["seed"]) != ("lora", "vessels", 1)
    ]
    runs[0]["members"][0]["status"] = "epoch limit"
    description = caption_source([*runs, diverged])
    start = "Profile mine, corrected protocol; seeds 0, 1; data sets: Digits, Textures, Vessels; "
    limit = "at most 30 epochs (1 of 20 chosen trainings reached this limit). 21 runs."
    assert description.startswith(start + limit)
    # VeRA has no run on Vessels, and its cell is empty.
    assert "Missing: 1 of 22. Diverged and left out: 1." in description
    # Two components may be the same trainings.
    assert caption_source([diverged, diverged]).endswith("1 run. Diverged and left out: 1.")


def test_the_description_names_the_copy_of_the_data():
    names = vtab.NAMES[:6]
    runs = [make_record() | {"dataset": name, "category": "natural"} for name in names]
    assert "; data sets: Caltech101, CIFAR-100, " in caption_source(runs)
    one_more = runs[0] | {"dataset": vtab.NAMES[6]}
    assert "; 7 data sets; " in caption_source([*runs, one_more])
    other = [run | {"data_copy": "lossy", "data_differs": ["test: 9 images"]} for run in runs]
    copy = "copy of the data: lossy (Caltech101 test: 9 images; CIFAR-100 test: 9 images; "
    assert f"; {copy}" in caption_source(other)
    analysis = {"record": 0} | make_record(config={"images": 8})
    del analysis["members"], analysis["config"]["max_epochs"]
    described = caption_source([(analysis, {})])
    assert described.endswith(
        "data sets: Digits; a trial on the first 8 samples of each split. 1 run."
    )


@pytest.mark.parametrize("member", range(3))
def test_a_training_reaches_the_limit_of_epochs_if_its_chosen_member_does(member):
    run = make_record("lora", chosen=1)
    run["members"][member]["status"] = "epoch limit"
    text = caption_source([run, make_record("lora", seed=1, chosen=None)])
    assert ("(1 of 1 chosen trainings reached this limit)" in text) == (member == 1)


def test_every_method_has_a_unique_style():
    # The last is for methods that define none.
    looks = [*adapters.METHODS.values(), adapters.Method]
    for attribute in ("colour", "marker"):
        assert len({getattr(look, attribute) for look in looks}) == 9


@pytest.mark.parametrize(
    "value, text",
    [
        (16.0, "16"),
        (3e-3, "0.003"),
        (1e-5, "1e-05"),
        (0.0, "0"),
        ("qv", "qv"),
    ],
)
def test_values_of_grids_as_text(value, text):
    assert grid_value(value) == text


@pytest.mark.parametrize(
    "value, without_sign, with_sign",
    [
        (0.016, "0.02", "+0.02"),
        (-0.016, "−0.02", "−0.02"),
        (0.004, "0.00", "0.00"),
        (-0.004, "0.00", "0.00"),
        (-12.0, "−12.00", "−12.00"),
        (NAN, "–", "–"),
    ],
)
def test_numbers_as_text(value, without_sign, with_sign):
    assert (decimal(value, 2), signed(value, 2)) == (without_sign, with_sign)


def test_an_end_near_zero_shows_on_which_side_it_lies():
    assert interval(0.5, 0.0164, 1.07) == "0.5 [0.02, 1.1]"
    assert bounds(-0.003, 3.2) == "[−0.003, 3.2]"
    assert bounds(0.0, 0.96) == "[0.0, 1.0]"


@pytest.mark.parametrize(
    "p, text", [(1e-4, "****"), (1e-3, "***"), (0.01, "**"), (0.05, "*"), (0.051, "ns")]
)
def test_significance_as_stars(p, text):
    assert stars(p) == text


# Costs in files, and accuracy against them


ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def costs():
    return cost_records.load_costs(ROOT / "results", "synthetic", "paper")


@pytest.fixture(scope="module")
def paper():
    return paper_numbers.load_paper(ROOT / "results" / "published")


# Counting


def test_the_script_counts_missing_configurations_once(folder):
    shutil.copytree(
        ROOT / "results/paper/cost", folder / "results/paper/cost"
    )  # counting these takes minutes
    files = ("--profile", folder / "small.yaml", "--results", folder / "results")
    scripts.execute("cost", *files)
    path = folder / "results/small/cost/tiny.json"
    times = path.stat().st_mtime_ns
    record = json.loads(path.read_text())
    assert len(record["costs"]) == 4 and list(path.parent.iterdir()) == [path]
    scripts.execute("cost", *files)
    assert path.stat().st_mtime_ns == times

    profile_with(folder, methods=PROFILE["methods"] | {"lora": {"grid": {"rank": [2, 8]}}})
    scripts.execute("cost", *files)
    counted = cost_records.load_costs(folder / "results", "small")
    assert counted.query("method == 'lora'")["grid"].tolist() == [{"rank": 2}, {"rank": 8}]


# Accuracy against cost


def test_costs_of_the_papers_grid_by_hand(costs, paper):
    """LoRA's ranks 32, 64, 128 have shares of 26, 35 and 39 %.

    There are 12 layers, q and v, and A and B of 768 × r.
    """
    points = cost_tables.paper_accuracy_and_cost(costs, paper)
    mean = (26 * 32 + 35 * 64 + 39 * 128) / 100
    assert points.at["lora", "adapter_parameters"] == pytest.approx(12 * 2 * 2 * 768 * mean)
    assert points.at["lora", "layer_training"] == pytest.approx(2 * 2 * 257 * 768 * mean)
    assert points.at["lora", "layer_merged"] == 0 and np.isnan(points.at["bottleneck", "merged"])
    # DoRA as published multiplies each token with the whole weight; its shares sum to 101.
    rank = (18 * 32 + 37 * 64 + 46 * 128) / 101
    assert points.at["dora", "layer_training"] == pytest.approx(2 * (257 * 768**2 + rank * 768**2))
    assert points.at["pvera", "accuracy"] == pytest.approx(
        paper.accuracies("dinov2_b").loc["pvera"].mean()
    )


def record(method, configuration, correct, **changes):
    config = {"members": [{"method": asdict(configuration), "beta": 0.0}]}
    return make_record(
        method, correct=correct, grid={"rank": [1]}, config=config, profile="synthetic", **changes
    )


def test_costs_of_runs_are_means_over_their_choices(costs):
    runs = [
        record("lora", LoRA(rank=4), 6),
        record("lora", LoRA(rank=16), 8, seed=1),
        record("pvera", PVeRA(rank=32), 9),
        record("pvera", PVeRA(rank=32), 0, seed=1, chosen=None),
    ]
    points = cost_tables.run_accuracy_and_cost(costs, runs)
    assert list(points.index) == ["lora", "pvera"]
    assert points.at["lora", "adapter_parameters"] == 4 * 2 * 2 * 96 * 10
    assert points.at["lora", "accuracy"] == pytest.approx(70)
    tiny = costs[costs["backbone"] == "tiny"].iloc[0]
    assert points.at["pvera", "parameters"] == tiny["backbone_parameters"] + 1280 + 2 * (
        96 * 64 + 32 * 96
    )
    assert points.at["pvera", "training"] - points.at["pvera", "inference"] == 4 * 2 * 17 * 32 * 96


def test_parameters_beside_accuracy(costs):
    """Latent dropout trains what VeRA trains; intervals need two seeds."""
    runs = {
        "vera": [record("vera", VeRA(rank=32), 4), record("vera", VeRA(rank=32), 6, seed=1)],
        "latent_dropout": [record("vera", VeRA(rank=32, dropout=0.5), 7)],
        "pvera": [record("pvera", PVeRA(rank=32), 9)],
    }
    points = cost_tables.parameters_and_accuracy(costs, Components(runs, {}))
    assert list(points.index) == ["vera", "pvera", "latent_dropout"]
    assert points["parameters"].to_list() == [1024, 1280, 1024]
    assert points["mean"].to_list() == pytest.approx([50, 90, 70])
    # Two seeds, 40 and 60: the standard error is 10, and t with one degree of freedom 12.706.
    assert points.at["vera", "high"] == pytest.approx(50 + 127.06, abs=0.01)
    assert np.isnan(points.at["pvera", "high"])
