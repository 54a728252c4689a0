"""Runs, from a profile to result files: records, repetition, resolved β, existing results."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from PIL import Image

import pvera
from pvera import backbones
from pvera.data.image_folders import ImageData, load_split
from pvera.report.scores import chosen_member
from pvera.study import results, runs, training
from pvera.study.analyses import Analysis, uncertainties
from pvera.study.description import Ablations, Effects
from pvera.study.profiles import Profile
from pvera.study.protocol import CORRECTED, PUBLISHED
from pvera.study.scheduler import pending, resolve
from pvera.study.training import TrainingConfig

CLASSES = 4
PARTS = {"train800": 48, "val200": 21, "test": 30}


def write_data(folder) -> None:
    """Write noisy images as the data set `folder`; the brightest colour channel depends on the class."""
    source = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for part, count in PARTS.items():
        lines = []
        for i in range(count):
            pixels = source.integers(0, 160, (32, 32, 3), dtype=np.uint8)
            pixels[..., i % CLASSES % 3] += 60 if i % CLASSES < 3 else 0
            Image.fromarray(pixels).save(folder / f"{part}{i}.png")
            lines.append(f"{part}{i}.png {i % CLASSES}\n")
        (folder / f"{part}.txt").write_text("".join(lines))


@pytest.fixture
def small_profile(tmp_path):
    """Two methods on a data set with few images."""
    write_data(tmp_path / "data" / "vessels")
    return Profile(
        name="small",
        data=str(tmp_path / "data"),
        backbones=["tiny"],
        datasets=["vessels"],
        seeds=[0, 1],
        protocol="corrected",
        methods={
            "pvera": {"rank": 4, "grid": {"learning_rate": [1e-2, 1e-3]}, "most_chosen": 1e-2},
            "lora": {"grid": {"rank": [2, 4]}, "most_chosen": 4},
        },
        training=TrainingConfig(epochs=2),
        beta=[1e-2, 1e-6],
    )


@pytest.fixture
def frozen():
    return backbones.load("tiny")


def opened(frozen, run, part: str) -> ImageData:
    return ImageData(load_split(run.data_root, run.dataset, part, 32), frozen, torch.device("cpu"))


def complete(profile: Profile, root) -> dict[str, dict]:
    """Run everything and return the records by path below `root`."""
    for experiment in ("beta", "benchmark"):
        for run in profile.runs(experiment, root):
            runs.execute(run)
    return {str(p.relative_to(root)): json.loads(p.read_text()) for p in sorted(root.rglob("*.json"))}


def test_records_state_their_origin_and_repeat_bit_for_bit(small_profile, tmp_path):
    first, second = (complete(small_profile, tmp_path / name) for name in ("a", "b"))
    assert len(first) == 1 + 2 * 2
    for path, record in first.items():
        one, other = ({k: v for k, v in r.items() if k not in ("cost", "sha256")} for r in (record, second[path]))
        assert one == other
        if record["experiment"] == "benchmark":
            a, b = (results.read_predictions(tmp_path / root / path) for root in "ab")
            assert np.array_equal(a[0], b[0]) and np.array_equal(a[1], b[1])
            a, b = ((tmp_path / root / path).with_suffix(results.ADAPTER).read_bytes() for root in "ab")
            assert a == b
    record = first["small/benchmark/tiny/vessels/lora/seed1.json"]
    assert record["chosen"]["grid"] == record["members"][record["chosen"]["member"]]["grid"]
    best = [m["best_validation_loss"] for m in record["members"]]
    assert record["chosen"]["member"] == int(np.argmin(best))
    assert record["members"][0]["best_validation_loss"] == pytest.approx(
        min(record["members"][0]["curve"]["validation_loss"]), rel=1e-5
    )
    assert record["test"]["correct"] == round(record["test"]["accuracy"] * 30)


def test_each_run_starts_a_new_peak_of_memory(small_profile, tmp_path, monkeypatch):
    reset = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset.append)
    for started in (False, True):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: started)
        for device in ("cpu", "cuda:1"):
            runs.reset_peak_memory(device)
        assert reset == ["cuda:1"] * started
    monkeypatch.setattr(runs, "reset_peak_memory", reset.append)
    for run in small_profile.with_(methods={"lora": {}}).runs("benchmark", tmp_path):
        runs.execute(run)
    assert reset == ["cuda:1", "cpu", "cpu"]


def test_runs_that_differ_in_their_seed_train_side_by_side(small_profile, tmp_path):
    """Each record is that of the run alone, but for what it says of its making."""
    profile = replace(small_profile, seeds=[0, 1, 2])
    listed = [run for run in profile.runs("benchmark", tmp_path / "alone") if run.method == "lora"]
    groups = runs.side_by_side(listed)
    assert [[run.seed for run in group] for group in groups] == [[0, 1], [2]], "four members at most"
    for run in listed:
        runs.execute(run)
    together = [run for run in profile.runs("benchmark", tmp_path / "together") if run.method == "lora"]
    first, *beside = runs.side_by_side(together)[0]
    first.execute(beside=beside)
    for one, other in zip(together[:2], listed[:2], strict=True):
        made, expected = results.read(one.path), results.read(other.path)
        assert made["environment"].pop("seeds_side_by_side") == [0, 1]
        assert made["environment"] == expected["environment"] and made["config"] == expected["config"]
        assert made["chosen"] == expected["chosen"]
        assert made["test"]["nll"] == pytest.approx(expected["test"]["nll"], rel=1e-4)
        for member, alone in zip(made["members"], expected["members"], strict=True):
            assert member["curve"]["validation_loss"] == pytest.approx(alone["curve"]["validation_loss"], rel=1e-4)
        scores, alone = (results.read_predictions(path)[0] for path in (one.path, other.path))
        np.testing.assert_allclose(scores, alone, atol=2e-3)  # kept as fp16
    assert not together[2].path.exists()


def test_what_trains_together_is_of_one_method_data_set_and_experiment(small_profile, tmp_path):
    listed = [run for name in ("beta", "benchmark") for run in small_profile.runs(name, tmp_path)]
    groups = runs.side_by_side(listed)
    assert sorted(len(group) for group in groups) == [1, 1, 1, 2]
    assert [run for group in groups for run in group if run.waits] == [run for run in listed if run.waits]
    assert all(len(group) == 1 for group in groups if group[0].waits), "what waits for β is not known yet"
    analyses = [Analysis.of(run, "uncertainty", uncertainties, (run.dataset,)) for run in listed]
    assert runs.side_by_side(analyses) == [[analysis] for analysis in analyses]


def test_a_record_says_when_members_ended_together(small_profile, frozen, tmp_path):
    """The chosen epoch is the chosen member's best, and the test uses its tensors of that epoch."""
    config = TrainingConfig(epochs=40, patience=1, tolerance=0.05)
    (run,) = replace(
        small_profile,
        methods={"lora": {"grid": {"rank": [1, 2, 4]}}},
        seeds=[0],
        training=config,
        protocol="published",
        learning_rate=1e-2,
    ).runs("benchmark", tmp_path)
    runs.execute(run)
    record = results.read(run.path)
    assert len({member["epochs"] for member in record["members"]}) == 1
    member = chosen_member(record)
    assert record["chosen"]["epoch"] == member["best_epoch"] < member["epochs"] - 1
    assert member["best_validation_loss"] == pytest.approx(
        member["curve"]["validation_loss"][member["best_epoch"]], rel=1e-5
    )
    model = pvera.load(frozen.model, run.path.with_suffix(results.ADAPTER)).eval()
    validation = opened(frozen, run, "val200")
    with torch.no_grad():
        logits = model(validation[slice(None)])[None]
    loss = training.classification_loss(logits, validation.labels, PUBLISHED).item()
    assert loss == pytest.approx(member["best_validation_loss"], rel=1e-4)
    model.unload()


def test_the_adapter_beside_a_record_makes_its_predictions(small_profile, frozen, tmp_path):
    complete(small_profile, tmp_path)
    for run in small_profile.runs("benchmark", tmp_path):
        model = pvera.load(frozen.model, run.path.with_suffix(results.ADAPTER)).eval()
        test = opened(frozen, run, "test")
        with torch.inference_mode():
            scores = model(test[slice(None)]).softmax(-1).numpy()
        kept, _ = results.read_predictions(run.path)
        np.testing.assert_allclose(scores, kept, atol=2e-3)
        model.unload()


def test_ablations_train_their_values_side_by_side(small_profile, tmp_path):
    one = replace(small_profile, seeds=[0], ablations=Ablations(["vessels"], [2, 4], ["q", "qkv"], search=False))
    assert [run.waits for run in one.runs("rank", tmp_path)] == [True]
    complete(one, tmp_path)
    (rank,), (position,) = resolve(one.runs("rank", tmp_path)), resolve(one.runs("position", tmp_path))
    assert [c.grid for c in rank.candidates] == [{"rank": 2}, {"rank": 4}]
    assert [(c.method.targets, c.method.rank, c.adapter_lr) for c in position.candidates] == [
        ("q", 4, 1e-2),
        ("qkv", 4, 1e-2),
    ]
    runs.execute(position)
    record = results.read(position.path)
    one_target, three = (member["adapter_parameters"] for member in record["members"])
    assert three == 3 * one_target
    searched = replace(one, ablations=replace(one.ablations, search=True)).runs("rank", tmp_path)[0]
    assert [c.grid for c in searched.candidates] == [
        {"rank": r, "learning_rate": rate} for r in (2, 4) for rate in (1e-2, 1e-3)
    ]
    assert one.with_(datasets=["digits"]).runs("rank", tmp_path) == []


def test_each_difference_of_the_protocols_is_an_experiment(small_profile, tmp_path):
    small_profile.methods["vera"] = {"rank": 4}  # a method whose name is part of another's
    profile = replace(
        small_profile, seeds=[0], effects=Effects(["vessels"], ["lora", "vera", "pvera", "dora"], [0], grids=["lora"])
    )
    listed = {(run.experiment, run.method): run for run in profile.runs("protocol", tmp_path)}
    differences = {"softmax_in_loss", "shuffle", "own_draws"}
    assert {m for e, m in listed if e == "protocol_pvera_kl"} == {"pvera"}
    everywhere = {f"protocol_{name}" for name in differences | {"corrected", "published"}}
    assert {e for e, m in listed if m == "lora"} == everywhere | {
        "protocol_lora_same_draw",
        "protocol_corrected_grid",
        "protocol_joint_stop",
    }
    assert {e for e, m in listed if m == "pvera"} == everywhere | {"protocol_pvera_init", "protocol_pvera_kl"}
    corrected = listed["protocol_corrected", "lora"]
    for name in differences:
        one, published = listed[f"protocol_{name}", "lora"], listed["protocol_published", "lora"]
        changed = [
            key
            for key, value in asdict(one.protocol).items()
            if key != "name" and value != getattr(corrected.protocol, key)
        ]
        assert changed == [name] and getattr(one.protocol, name) == getattr(published.protocol, name)
        assert one.candidates == corrected.candidates
    assert listed["protocol_lora_same_draw", "lora"].candidates[0].method == pvera.LoRA(rank=4, same_draw=True)
    grid = listed["protocol_corrected_grid", "lora"]
    assert grid.protocol == CORRECTED and len(grid.candidates) == 2 and grid.training == corrected.training
    together = listed["protocol_joint_stop", "lora"]
    assert together == replace(grid, experiment=together.experiment, protocol=together.protocol)
    assert asdict(together.protocol) == asdict(CORRECTED) | {"name": together.protocol.name, "joint_stop": True}
    names = {e: run.protocol.name for (e, _), run in listed.items() if e != "protocol_corrected_grid"}
    assert len(set(names.values())) == len(names), "names are unique"


def test_beta_of_the_benchmark_is_the_one_searched(small_profile, tmp_path):
    records = complete(small_profile, tmp_path)
    search = records["small/beta/tiny/vessels/pvera/seed0.json"]
    losses = {m["grid"]["beta"]: m["best_validation_loss"] for m in search["members"]}
    chosen = min(losses, key=losses.get)
    for seed in (0, 1):
        members = records[f"small/benchmark/tiny/vessels/pvera/seed{seed}.json"]["config"]["members"]
        assert [m["beta"] for m in members] == [chosen, chosen]


def test_fixed_grid_takes_the_most_chosen_value(small_profile):
    fixed = replace(small_profile, fixed_grid=["tiny"])
    assert {r.method: [c.grid for c in r.candidates] for r in fixed.runs("benchmark", "results")} == {
        "pvera": [{"learning_rate": 1e-2}],
        "lora": [{"rank": 4}],
    }


def test_existing_results_are_neither_repeated_nor_overwritten(small_profile, tmp_path):
    complete(small_profile, tmp_path)
    assert pending(small_profile.runs("benchmark", tmp_path)) == []
    missing = small_profile.runs("benchmark", tmp_path)[1]
    missing.path.unlink()
    assert pending(small_profile.runs("benchmark", tmp_path)) == [missing]
    other = small_profile.with_(training=TrainingConfig(epochs=3))
    with pytest.raises(pvera.InputError, match="another configuration.*--replace"):
        pending(other.runs("benchmark", tmp_path))
    assert len(pending(other.runs("benchmark", tmp_path), replace=True)) == 4


def test_members_draw_alike_or_on_their_own(small_profile, tmp_path):
    """Two equal members tie exactly under the corrected protocol, and differ when each draws its own noise."""
    single = replace(small_profile, methods={"lora": {"rank": 4}}, seeds=[0])
    for name, equal in (("corrected", True), ("published", False)):
        (run,) = single.with_(protocol=name).runs("benchmark", tmp_path / name)
        run = replace(run, candidates=run.candidates * 2)
        runs.execute(run)
        a, b = (m["curve"]["validation_loss"] for m in results.read(run.path)["members"])
        assert (a == b) is equal
