"""Runs, from a profile to result files: records, repetition, members, adapters."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import pvera
from pvera import backbones
from pvera.data.image_folders import ImageData, load_split
from pvera.study import results
from pvera.study.plan import list_runs
from pvera.study.profiles import Profile


@pytest.fixture
def small_profile(folder):
    return Profile.read(folder / "small.yaml")


@pytest.fixture
def frozen():
    return backbones.load("tiny")


def opened(frozen, run, part: str) -> ImageData:
    return ImageData(load_split(run.data_root, run.dataset, part, 32), frozen, torch.device("cpu"))


def complete(profile: Profile, root) -> dict[str, dict]:
    """Run everything and return the records by path below `root`."""
    for experiment in ("beta", "benchmark"):
        for run in list_runs(profile, experiment, root):
            run.execute()
    return {str(p.relative_to(root)): json.loads(p.read_text()) for p in sorted(root.rglob("*.json"))}


def test_records_state_their_origin_and_repeat_bit_for_bit(small_profile, frozen, tmp_path):
    first, second = (complete(small_profile, tmp_path / name) for name in ("a", "b"))
    assert len(first) == 1 + 3 * 2
    for path, record in first.items():
        numbers, repeated = ({k: v for k, v in r.items() if k != "cost"} for r in (record, second[path]))
        assert numbers == repeated
        if record["experiment"] == "benchmark":
            for suffix in (results.ARRAYS, results.ADAPTER):
                a, b = ((tmp_path / root / path).with_suffix(suffix).read_bytes() for root in "ab")
                assert a == b
    record = first["small/benchmark/tiny/vessels/lora/seed1.json"]
    best = [m["best_validation_loss"] for m in record["members"]]
    assert record["chosen"]["member"] == int(np.argmin(best))
    assert record["chosen"]["grid"] == record["members"][record["chosen"]["member"]]["grid"]
    assert best[0] == pytest.approx(min(record["members"][0]["curve"]["validation_loss"]), rel=1e-5)
    assert record["test"]["correct"] == round(record["test"]["accuracy"] * 40)
    search = first["small/beta/tiny/vessels/pvera/seed0.json"]
    losses = {m["grid"]["beta"]: m["best_validation_loss"] for m in search["members"]}
    for seed in (0, 1):
        members = first[f"small/benchmark/tiny/vessels/pvera/seed{seed}.json"]["config"]["members"]
        assert {m["beta"] for m in members} == {min(losses, key=losses.get)}, "β is the one searched"
    for run in list_runs(small_profile, "benchmark", tmp_path / "a"):
        model = pvera.load(frozen.model, run.path.with_suffix(results.ADAPTER)).eval()
        with torch.inference_mode():
            scores = model(opened(frozen, run, "test")[slice(None)]).softmax(-1).numpy()
        np.testing.assert_allclose(scores, results.read_predictions(run.path)[0], atol=2e-3)
        model.unload()


def with_rates(run, *rates: float):
    """`run` with one member per learning rate."""
    (first, *_) = run.members
    grids = [{"learning_rate": rate} for rate in rates]
    members = [replace(first, adapter_lr=r, head_lr=r, grid=grid) for r, grid in zip(rates, grids, strict=True)]
    return replace(run, members=tuple(members))


def test_a_diverged_member_is_recorded_and_the_others_are_chosen_from(small_profile, tmp_path):
    run = list_runs(small_profile.with_(methods={"lora": {}}), "benchmark", tmp_path)[0]
    with_rates(run, 1e30, 1e-3).execute()
    record = results.read(run.path)
    broken, healthy = record["members"]
    assert (broken["status"], healthy["status"]) == ("diverged", "epoch limit")
    assert broken["curve"]["validation_loss"] == [None] and len(healthy["curve"]["validation_loss"]) == 2
    assert record["chosen"] == {"member": 1, "epoch": healthy["best_epoch"], "grid": healthy["grid"]}
    assert broken["best_epoch"] != healthy["best_epoch"] and record["test"]["accuracy"] > 0

    run = with_rates(run, 1e30, 1e31)
    run.execute()
    record = results.read(run.path)
    assert [m["status"] for m in record["members"]] == ["diverged"] * 2
    assert record["chosen"] is None and record["test"] is None and run.state() == "done"
    assert [path.name for path in run.path.parent.iterdir()] == [run.path.name], "no member can predict"


def test_members_draw_alike_or_on_their_own(small_profile, tmp_path):
    """Two equal members tie exactly under the corrected protocol, and differ when each draws its own noise."""
    single = small_profile.with_(methods={"lora": {"rank": 4}}, seeds=[0])
    for name, equal in (("corrected", True), ("published", False)):
        (run,) = list_runs(single.with_(protocol=name), "benchmark", tmp_path / name)
        run = replace(run, members=run.members * 2)
        run.execute()
        a, b = (m["curve"]["validation_loss"] for m in results.read(run.path)["members"])
        assert (a == b) is equal
