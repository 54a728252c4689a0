"""Hashes of weights and data are remembered beside the store: known without weights or pixels, and never stale."""

import json
import os

import pytest
import safetensors.torch
import torch
from trained import make_adapters, make_profile

from pvera import backbones
from pvera.data import image_folders, splits, store
from pvera.study import inputs, results, runs
from pvera.study.inputs import Inputs
from pvera.study.scheduler import pending
from pvera.study.training import TrainingConfig


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


def forbid(monkeypatch):
    """Neither weights nor pixels may be read."""

    def refuse(*_, **__):
        raise AssertionError("weights or pixels were read")

    monkeypatch.setattr(backbones, "load", refuse)
    monkeypatch.setattr(image_folders, "load_split", refuse)


def change_weights(path):
    state = safetensors.torch.load_file(path)
    state["norm.bias"] = state["norm.bias"] + 1
    safetensors.torch.save_file(state, path)


def test_done_runs_are_known_without_weights_and_pixels(profile, tmp_path, monkeypatch):
    root = tmp_path / "results"
    profile = profile.with_(beta=[1e-4, 1e-2])
    (search,), trainings = profile.runs("beta", root), profile.runs("benchmark", root)
    for run in (search, *trainings):
        runs.execute(run)
    with monkeypatch.context() as patch:
        forbid(patch)
        assert pending([search, *trainings]) == []
    change_weights(tmp_path / "mine.safetensors")
    assert {run.state() for run in trainings} == {"different"}


def test_an_analysis_is_known_without_weights_and_pixels(profile, tmp_path, monkeypatch):
    root = tmp_path / "results"
    make_adapters(profile, root)
    (run,) = profile.runs("uncertainty", root)
    run.execute()
    with monkeypatch.context() as patch:
        forbid(patch)
        assert pending([run]) == []
    (tmp_path / "data/digits/images/test3.png").touch()
    assert run.state() == "done", "the same pixels, read anew"
    image = (tmp_path / "data/digits/images/test4.png").read_bytes()
    (tmp_path / "data/digits/images/test3.png").write_bytes(image)
    assert run.state() == "different"


def test_reading_for_a_run_corrects_the_cache(profile, tmp_path):
    """A memory that is wrong, as of a file that was changed within its times, ends with the first run."""
    (run,) = profile.with_(methods={"linear": {}}).runs("benchmark", tmp_path / "results")
    right = Inputs().describe_backbone(run), Inputs().splits_sha256(run)
    for folder, hashed in (("weights", "weights_sha256"), ("stamps", "digest")):
        (memory,) = (tmp_path / "cache/store" / folder).glob("*.json")
        memory.write_text(json.dumps(json.loads(memory.read_text()) | {hashed: "0"}))
    assert Inputs().describe_backbone(run)["weights_sha256"] == Inputs().splits_sha256(run) == "0"
    runs.execute(run)
    config = results.read(run.path)["config"]
    assert (config["weights_sha256"], config["data_sha256"]) == (right[0]["weights_sha256"], right[1])
    assert run.state() == "done"


def test_damaged_and_unwritable_caches_are_recomputed(tmp_path, monkeypatch):
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "cache"))
    file, calls = tmp_path / "weights", []
    file.write_text("a")

    def compute():
        calls.append(1)
        return {"sha256": file.read_text()}

    for expected in (1, 1):
        assert inputs.remembered([file], ["x"], compute) == {"sha256": "a"} and len(calls) == expected
    assert inputs.remembered([file], ["y"], compute) and len(calls) == 2, "about something else"
    (memory, _) = (tmp_path / "cache/store/weights").glob("*.json")
    for damaged in (tmp_path / "cache/store/weights").glob("*.json"):
        damaged.write_text("{")
    assert inputs.remembered([file], ["x"], compute) == {"sha256": "a"} and len(calls) == 3
    os.utime(file, ns=(1, 1))
    assert inputs.remembered([file], ["x"], compute) and len(calls) == 4, "its time changed"
    assert inputs.remembered([tmp_path / "gone"], ["x"], compute) and inputs.remembered([], ["x"], compute)
    assert len(calls) == 6, "nothing to remember it by"
    monkeypatch.setenv(store.VARIABLE, "/dev/null/cache")
    assert inputs.remembered([file], ["x"], compute) == {"sha256": "a"}


def test_a_rewritten_image_outside_the_sample_is_noticed_when_a_run_reads_it(profile, tmp_path, monkeypatch):
    """Until then, the remembered hash stands: to look at every image takes minutes on a slow network's disk."""
    monkeypatch.setattr(splits, "SAMPLE", 2)
    run, other = profile.with_(methods={"linear": {}}, seeds=[0, 1]).runs("benchmark", tmp_path / "results")
    runs.execute(run)
    image = tmp_path / "data/digits/images/test5.png"
    image.write_bytes((tmp_path / "data/digits/images/test6.png").read_bytes())
    assert run.state() == "done"
    runs.execute(other)
    assert run.state() == "different" and other.state() == "done"


def test_the_last_backbone_stays_loaded(profile, tmp_path):
    shared = Inputs()
    run, other = profile.with_(seeds=[0, 1], methods={"linear": {}}).runs("benchmark", tmp_path)
    assert shared.backbone(run) is shared.backbone(other) and shared.splits(run) is shared.splits(other)
    assert torch.equal(torch.from_numpy(shared.splits(run)[2].labels), torch.arange(40) % 10)


def test_the_same_bits_with_separate_or_shared_inputs(profile, tmp_path):
    """What a worker keeps loaded from run to run changes no number of the next."""
    shared, records = Inputs(), []
    for name, of in (("own", lambda: Inputs()), ("shared", lambda: shared)):
        for run in profile.runs("benchmark", tmp_path / name):
            runs.execute(run, inputs=of())
        (one,) = profile.runs("uncertainty", tmp_path / name)
        one.execute(inputs=of())
        arrays = results.read_arrays(one.path)
        records.append((results.read(run.path)["members"], {key: value.tobytes() for key, value in arrays.items()}))
    assert records[0] == records[1]
