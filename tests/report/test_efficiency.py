"""Costs in files, accuracy against them, and the script that counts them."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import closed_forms
import numpy as np
import pytest
import scripts
import yaml
from records import make_record

from pvera import DoRA, InputError, LoRA, PVeRA, backbones
from pvera.report import published
from pvera.report.tables import cost as tables
from pvera.report.tables.verdicts import Untestable
from pvera.study import cost_records
from pvera.study.profiles import Profile

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


def test_every_value_of_a_grid_is_counted_and_a_learning_rate_is_none(folder):
    entries = cost_records.config(Profile.read(folder / "small.yaml"), "tiny")["methods"]
    assert [(entry["method"], entry["grid"]) for entry in entries] == [
        ("linear", {}), ("dora", {"rank": 2}), ("dora", {"rank": 4}), ("pvera", {})
    ]  # fmt: skip
    as_published = DoRA(rank=2, norm="output", train_magnitude=False, scaled=False, transpose=False)
    assert entries[1]["hyperparameters"] == asdict(as_published)


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


# The committed counts


def test_committed_counts_are_the_closed_forms(costs):
    assert list(costs["backbone"].unique()) == ["tiny", "dinov2_s", "dinov2_b", "dinov2_l"]
    for name, rows in costs.groupby("backbone"):
        vit = backbones.shapes(name)
        for row in rows.itertuples():
            for counted, sampled in ((row.inference, False), (row.training, True)):
                assert counted == closed_forms.backbone(vit) + closed_forms.adapters(vit, row.configuration, sampled)
    merged = costs.loc[~costs["method"].isin(["bottleneck", "adaptformer"]), ["merged", "backbone_multiply_adds"]]
    assert costs["merged"].count() == len(merged) and merged.nunique(axis=1).eq(1).all()


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


@pytest.mark.parametrize(
    "configuration, backbone, message",
    [(LoRA(rank=5), "tiny", r"LoRA\(rank=5.* has no counted cost"),
     (LoRA(rank=4), "other", "no cost is counted for this profile and backbone; run experiments/cost.py")],
)  # fmt: skip
def test_costs_that_are_not_counted(configuration, backbone, message, costs):
    with pytest.raises(InputError, match=message):
        tables.of_runs(costs, [record("lora", configuration, 6, backbone=backbone)])


def test_claims(costs, paper):
    points = tables.of_paper(costs, paper)
    assert {count.verdict for count in tables.judged(points, True).values()} == {"holds"}
    worse = points.copy()
    worse.loc["pvera", "adapter_parameters"] = 1e9
    worse.loc["lora", "merged"] += 1e9
    worse.loc["bottleneck", "merged"] = worse.at["bottleneck", "training"]
    for text, count in tables.judged(worse, False).items():
        assert count.verdict == ("not testable here" if text.endswith("%") else "fails")
    with pytest.raises(Untestable, match="no runs of every method"):
        tables.judged(points.drop("lora"), False)
