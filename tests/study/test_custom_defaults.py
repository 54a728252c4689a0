"""Training on own pictures, where no more than their folder is said: what is trained, how long, and where it lies."""

import json
import re

import pytest
import scripts
from photographs import pictures  # noqa: F401  fixture

from pvera.study import results
from pvera.study.training import TrainingConfig, duration


def options(tmp_path, pictures, *more) -> tuple:
    folders = ("--data", tmp_path / "data", "--results", tmp_path / "results")
    return *folders, "--device", "cpu", "--workers", 1, "--data-set", f"photos={pictures}", *more


def test_the_folder_alone_trains_pvera_with_one_seed_under_the_corrected_protocol(
    pictures, tmp_path, capsys, in_process
):
    plain = options(tmp_path, pictures, "--epochs", 3)
    status, output, errors = scripts.outcome("train", capsys, *plain)
    assert status == 0, errors
    first, last = output.splitlines()[1], output.splitlines()[-1]
    assert first.startswith("protocol corrected; backbones ['tiny']; methods ['pvera']; seeds [0]; β [0.0001, 1e-06]")
    assert "learning_rate" in first and "2 trainings of at most 3 epochs, on cpu" in first
    assert "photos/pvera/seed0: what is left takes 0:0" in errors
    (run,) = results.load_runs(tmp_path / "results", "own")
    assert (run["method"], run["seed"], run["protocol"]) == ("pvera", 0, "corrected")
    adapter, command = re.fullmatch(r"adapter: (\S+); evaluate it: python experiments/evaluate.py (\S+)", last).groups()
    assert adapter == command == str(tmp_path / "results/own/benchmark/tiny/photos/pvera/seed0.safetensors")
    scripts.execute("evaluate", adapter, "--data", tmp_path / "data", "--metrics", tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["metrics"] == run["test"]


def listed(tmp_path, pictures, capsys, monkeypatch, *more) -> list[str]:
    import custom_training

    monkeypatch.setattr(custom_training, "seconds_per_image", lambda *_: 0.125)
    status, output, errors = scripts.outcome("train", capsys, *options(tmp_path, pictures, "--list", *more))
    assert status == 0, errors
    assert not list((tmp_path / "results").rglob("*.json"))
    return output.splitlines()


def test_the_list_says_how_long_it_takes(pictures, tmp_path, capsys, monkeypatch):
    """52 training pictures and 12 for validation, which take a third: 56 times an eighth of a second."""
    lines = listed(tmp_path, pictures, capsys, monkeypatch, "--epochs", 20, "--methods", "pvera", "linear")
    assert "3 trainings of at most 20 epochs" in lines[1]
    assert lines[-1].endswith(
        "3 trainings one after the other take 0:03:51 to 0:07:00 (h:mm:ss), as patience ends them"
    )


def test_the_step_is_measured(pictures, tmp_path, capsys):
    status, output, errors = scripts.outcome("train", capsys, *options(tmp_path, pictures, "--list"))
    assert status == 0, errors
    least, most = re.search(r"2 trainings one after the other take (\S+) to (\S+) ", output).groups()
    assert "0:00:00" < least < most < "9:00:00"


@pytest.mark.parametrize(
    "more, said",
    [
        (("--backbone", "dinov2_b"), "protocol corrected; backbones ['dinov2_b']; methods ['pvera']; seeds [0]"),
        (("--protocol", "published"), "protocol published; backbones ['tiny']"),
        (("--profile", "paper", "--backbones", "dinov2_s"), "protocol corrected; backbones ['dinov2_s']"),
        (("--learning-rate", "0.01", "--batch-size", 4, "--seeds", 0, 1), "seeds [0, 1]; β [0.0001, 1e-06]; grids {}"),
    ],
)  # fmt: skip
def test_more_may_be_said(more, said, pictures, tmp_path, capsys, monkeypatch):
    lines = listed(tmp_path, pictures, capsys, monkeypatch, *more)
    assert lines[1].startswith(said) or said in lines[1]


def test_options_reach_the_training(pictures, tmp_path, capsys, in_process):
    more = ("--epochs", 1, "--methods", "linear", "--learning-rate", 0.02, "--batch-size", 4)
    assert scripts.outcome("train", capsys, *options(tmp_path, pictures, *more))[0] == 0
    (run,) = results.load_runs(tmp_path / "results", "own")
    assert run["config"]["batch_size"] == 4
    assert [member["adapter_lr"] for member in run["config"]["members"]] == [0.02]


def test_the_duration_by_hand():
    assert (
        duration(2.0, TrainingConfig(epochs=100, patience=9), 3)
        == "0:01:00 to 0:10:00 (h:mm:ss), as patience ends them"
    )
    assert duration(2.0, TrainingConfig(epochs=5, patience=9)).startswith("0:00:10 to 0:00:10")
