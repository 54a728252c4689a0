"""Hashes of data are kept in the store: known without pixels, and never stale."""

import pytest
import safetensors.torch
import scripts
from trained import make_profile

from pvera import backbones
from pvera.data import image_folders, inputs, store
from pvera.errors import InputError
from pvera.study import results
from pvera.study.plan import list_runs
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
