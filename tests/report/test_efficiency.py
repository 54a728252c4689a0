"""Costs in files, accuracy against them, and the script that counts them."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import scripts
import yaml
from records import make_record

from pvera import LoRA, PVeRA
from pvera.report import published
from pvera.report.tables import cost as tables
from pvera.study import cost_records

ROOT = Path(__file__).resolve().parents[2]
PROFILE = {
    "data": "nowhere",
    "backbones": ["tiny"],
    "fixed_grid": ["tiny"],
    "datasets": ["vessels", "digits"],
    "seeds": [0, 1],
    "protocol": "published",
    "methods": {
        "linear": {"grid": {"learning_rate": [1e-3, 1e-4]}, "most_chosen": 1e-3},
        "dora": {"grid": {"rank": [2, 4]}, "most_chosen": 4},
        "pvera": {"rank": 8, "grid": {"learning_rate": [1e-3, 1e-4]}, "most_chosen": 1e-3},
    },
}


@pytest.fixture
def folder(tmp_path):
    """A profile, and the counts of the paper's sizes, which take minutes."""
    shutil.copytree(ROOT / "results/paper/cost", tmp_path / "results/paper/cost")
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(PROFILE, sort_keys=False))
    return tmp_path


@pytest.fixture(scope="module")
def costs():
    return cost_records.load_costs(ROOT / "results", "mini", "paper")


@pytest.fixture(scope="module")
def paper():
    return published.load(ROOT / "results" / "published")


def arguments(folder, *more) -> list:
    return ["--profile", folder / "small.yaml", "--results", folder / "results", *more]


# Counting


def test_the_script_counts_missing_configurations_once(folder):
    scripts.execute("cost", *arguments(folder))
    path = folder / "results/small/cost/tiny.json"
    times = path.stat().st_mtime_ns
    record = json.loads(path.read_text())
    assert len(record["costs"]) == 4 and record["environment"]["torch"] and list(path.parent.iterdir()) == [path]
    scripts.execute("cost", *arguments(folder))
    assert path.stat().st_mtime_ns == times

    other = {"dora": {"grid": {"rank": [2, 8]}, "most_chosen": 8}}
    (folder / "small.yaml").write_text(yaml.safe_dump(PROFILE | {"methods": PROFILE["methods"] | other}))
    scripts.execute("cost", *arguments(folder))
    counted = cost_records.load_costs(folder / "results", "small")
    assert counted.query("method == 'dora'")["grid"].tolist() == [{"rank": 2}, {"rank": 8}]


# Accuracy against cost


def test_costs_of_the_papers_grid_by_hand(costs, paper):
    """LoRA's ranks 32, 64, 128 with shares of 26, 35 and 39 %; 12 layers, q and v, A and B of 768 × r."""
    points = tables.of_paper(costs, paper)
    mean = (26 * 32 + 35 * 64 + 39 * 128) / 100
    assert points.at["lora", "adapter_parameters"] == pytest.approx(12 * 2 * 2 * 768 * mean)
    assert points.at["lora", "layer_training"] == pytest.approx(2 * 2 * 257 * 768 * mean)
    assert points.at["lora", "layer_merged"] == 0 and np.isnan(points.at["bottleneck", "merged"])
    # DoRA as published multiplies each token with the whole weight; its shares sum to 101.
    rank = (18 * 32 + 37 * 64 + 46 * 128) / 101
    assert points.at["dora", "layer_training"] == pytest.approx(2 * (257 * 768**2 + rank * 768**2))
    assert points.at["pvera", "accuracy"] == pytest.approx(paper.accuracies("dinov2_b").loc["pvera"].mean())


def record(method, configuration, correct, **changes):
    config = {"members": [{"method": asdict(configuration), "beta": 0.0}]}
    return make_record(method, correct=correct, grid={"rank": [1]}, config=config, profile="mini", **changes)


def test_costs_of_runs_are_means_over_their_choices(costs):
    runs = [
        record("lora", LoRA(rank=4), 6), record("lora", LoRA(rank=16), 8, seed=1),
        record("pvera", PVeRA(rank=32), 9), record("pvera", PVeRA(rank=32), 0, seed=1, chosen=None),
    ]  # fmt: skip
    points = tables.of_runs(costs, runs)
    assert list(points.index) == ["lora", "pvera"]
    assert points.at["lora", "adapter_parameters"] == 4 * 2 * 2 * 96 * 10
    assert points.at["lora", "accuracy"] == pytest.approx(70)
    tiny = costs[costs["backbone"] == "tiny"].iloc[0]
    assert points.at["pvera", "parameters"] == tiny["backbone_parameters"] + 1280 + 2 * (96 * 64 + 32 * 96)
    assert points.at["pvera", "training"] - points.at["pvera", "inference"] == 4 * 2 * 17 * 32 * 96
