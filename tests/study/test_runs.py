"""Runs, from a profile to result files: records, repetition, members, adapters; hashes of data are never stale."""

import json
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import scripts
import torch
from trained import make_profile

import pvera
from pvera import backbones
from pvera.data import image_folders, inputs, store
from pvera.data.image_folders import ImageData, load_split
from pvera.errors import InputError
from pvera.study import results
from pvera.study.plan import list_runs
from pvera.study.profiles import Profile
from pvera.study.training import TrainingConfig


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


# Hashes of data, kept in the store


@pytest.fixture
def profile(tmp_path, monkeypatch):
    """On weights in a file; the store is the test's own."""
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "cache"))
    state = backbones.load("tiny").model.state_dict()
    safetensors.torch.save_file(state, tmp_path / "mine.safetensors")
    return make_profile(
        tmp_path,
        ["digits"],
        seeds=[0],
        weights={"tiny": str(tmp_path / "mine.safetensors")},
        training=TrainingConfig(epochs=1),
    )


def test_done_runs_are_known_without_pixels(profile, tmp_path, monkeypatch):
    root = tmp_path / "results"
    search = {"methods": ["pvera"], "grid": {"beta": [1e-4, 1e-2]}}
    profile = profile.with_(experiments={"beta": search, "benchmark": {"take": ["beta"], "keep": True}})
    (search,) = list_runs(profile, "beta", root)
    search.execute()
    trainings = list_runs(profile, "benchmark", root)
    for run in trainings:
        run.execute()
    (analysis,) = list_runs(profile, "uncertainty", root)
    analysis.execute()
    done = (search, *trainings, analysis)
    scripts.forget()
    with monkeypatch.context() as patch:
        patch.setattr(image_folders, "load_split", None)
        assert {run.state() for run in done} == {"done"}
    (tmp_path / "data/digits/images/test3.png").touch()
    scripts.forget()
    assert {run.state() for run in done} == {"done"}, "the same pixels, read anew"
    state = safetensors.torch.load_file(tmp_path / "mine.safetensors")
    safetensors.torch.save_file(state | {"norm.bias": state["norm.bias"] + 1}, tmp_path / "mine.safetensors")
    scripts.forget()
    assert {run.state() for run in done} == {"different"}


def test_a_rewritten_image_is_noticed_by_the_next_process_and_not_within_one(profile, tmp_path):
    """Data that stays loaded keeps the digest of what was read."""
    run, other = list_runs(profile.with_(methods={"linear": {}}, seeds=[0, 1]), "benchmark", tmp_path / "results")
    run.execute()
    image = tmp_path / "data/digits/images/test5.png"
    image.write_bytes((tmp_path / "data/digits/images/test6.png").read_bytes())
    other.execute()
    scripts.forget()
    first, second = (results.read(run_.path)["config"]["data_sha256"] for run_ in (run, other))
    assert first == second and run.state() == other.state() == "different"


def test_all_data_is_decoded_before_the_first_run_trains(profile, tmp_path):
    image = tmp_path / "data/digits/images/test5.png"
    image.write_bytes(b"")
    planned = list_runs(profile, "benchmark", tmp_path / "results")
    inputs.prepare(planned, decode=False)
    with pytest.raises(InputError, match="images/test5.png cannot be read"):
        inputs.prepare(planned)
    image.unlink()
    with pytest.raises(InputError, match="images/test5.png does not exist"):
        inputs.prepare(planned, decode=False)
