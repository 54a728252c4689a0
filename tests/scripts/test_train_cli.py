"""experiments/train.py from the outside: its results, resuming after a kill, refusals."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import scripts
import torch
import yaml
from PIL import Image

from pvera import backbones

SCRIPT = scripts.EXPERIMENTS / "train.py"
PROFILE = {
    "backbones": ["tiny"],
    "datasets": ["vessels"],
    "seeds": [0, 1],
    "protocol": "corrected",
    "schedule": {"epochs": 2},
    "beta": [1e-2, 1e-6],
    "methods": {
        "linear": {"grid": {"learning_rate": [1e-3, 1e-4]}},
        "lora": {"grid": {"rank": [2, 4]}},
        "pvera": {"rank": 8, "grid": {"learning_rate": [1e-3, 1e-4]}, "most_chosen": 1e-3},
    },
}


@pytest.fixture
def folder(tmp_path):
    """A small data set named like one of the demonstration suite, and a profile that reads it."""
    source = np.random.default_rng(0)
    (tmp_path / "data" / "vessels" / "images").mkdir(parents=True)
    for part, count in {"train800": 64, "val200": 32, "test": 40}.items():
        lines = []
        for i in range(count):
            image = source.integers(0, 120, (32, 32, 3), dtype=np.uint8) + np.uint8(40 * (i % 4))
            Image.fromarray(image).save(tmp_path / "data" / "vessels" / "images" / f"{part}{i}.png")
            lines.append(f"images/{part}{i}.png {i % 4}\n")
        (tmp_path / "data" / "vessels" / f"{part}.txt").write_text("".join(lines))
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(PROFILE | {"data": str(tmp_path / "data")}))
    return tmp_path


def arguments(folder, results="results", *more) -> list[str]:
    return [
        "--profile",
        str(folder / "small.yaml"),
        "--device",
        "cpu",
        "--results",
        str(folder / results),
        "--workers",
        "2",
        *more,
    ]


def command(folder, *more) -> list[str]:
    return [sys.executable, str(SCRIPT), *arguments(folder, *more)]


def numbers(folder, results) -> dict:
    """Return every record by path, without time, memory, and the hash that covers them."""
    records = {
        p.relative_to(folder / results): json.loads(p.read_text()) for p in sorted((folder / results).rglob("*.json"))
    }
    return {str(p): {k: v for k, v in r.items() if k not in ("cost", "sha256")} for p, r in records.items()}


@pytest.mark.xdist_group("fork server")
def test_workers_take_weights_determinism_and_few_images(folder):
    """Two worker processes; the script itself runs in this one."""
    state = backbones.load("tiny", pretrained=False).model.state_dict()
    safetensors.torch.save_file(state, folder / "mine.safetensors")
    weights = ("--weights", f"tiny={folder / 'mine.safetensors'}")
    options = (*weights, "--methods", "lora", "--deterministic", "--images", 16)
    scripts.execute("train", *arguments(folder, "results", *options))
    record = json.loads((folder / "results/small/benchmark/tiny/vessels/lora/seed0.json").read_text())
    file = hashlib.sha256((folder / "mine.safetensors").read_bytes()).hexdigest()
    assert record["environment"]["weights_file_sha256"] == file
    assert record["config"]["weights_sha256"] == backbones.weights_sha256(state)
    assert record["environment"]["deterministic"] is True, "the worker recorded its own setting"
    assert (record["config"]["images"], record["test"]["images"]) == (16, 16)


@pytest.mark.timeout(1800)  # a busy machine takes long
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_killed_runs_resume_and_end_with_the_same_results_whatever_the_number_of_workers(folder, in_process):
    scripts.execute("train", *arguments(folder, "whole"))
    whole = numbers(folder, "whole")
    assert len(whole) == 1 + 3 * 2

    for wait, workers in ((1, "1"), (4, "3")):  # results that must exist before the kill
        process = start(folder, "killed", "--workers", workers)
        until(lambda: len(list((folder / "killed").rglob("*.json"))) >= wait, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not marked(folder))  # its workers must end without a signal
    before = {p: p.stat().st_mtime_ns for p in (folder / "killed").rglob("*.json")}
    scripts.execute("train", *arguments(folder, "killed"))
    resumed = numbers(folder, "killed")
    assert resumed.keys() == whole.keys()
    # A kill between the files of two seeds leaves the second to train alone: the same numbers, up to rounding.
    alone = [p for p in whole if beside(resumed[p]) != beside(whole[p])]
    assert len(alone) < 4
    for path in alone:
        assert validation_losses(resumed[path]) == pytest.approx(validation_losses(whole[path]), rel=1e-4)
        assert resumed[path]["chosen"] == whole[path]["chosen"]
    assert all(resumed[p] == whole[p] for p in whole if p not in alone)
    assert all(p.stat().st_mtime_ns == t for p, t in before.items()), "existing results are not rewritten"


def beside(record) -> list[int]:
    """Return the seeds that trained side by side with a record's own."""
    return record["environment"].get("seeds_side_by_side", [])


def validation_losses(record) -> list[float]:
    return [loss for member in record["members"] for loss in member["curve"]["validation_loss"]]


def start(folder, *more) -> subprocess.Popen:
    return subprocess.Popen(
        command(folder, *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"STARTED_BY_TEST": str(folder)},
    )


def until(condition, process: subprocess.Popen | None = None) -> None:
    """Wait for `condition` while `process` runs; the test's timeout ends an endless wait."""
    while not condition():
        assert process is None or process.poll() is None, "it ended too early"
        time.sleep(0.05)


def marked(folder) -> list[Path]:
    """Return the /proc folders of the running processes that `start` started."""
    places = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            if f"STARTED_BY_TEST={folder}\0".encode() in (place / "environ").read_bytes():
                places.append(place)
    return places


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_ctrl_c_ends_at_once_with_130(folder):
    process = start(folder, "stopped", "--epochs", "5000")
    until(
        lambda: any(reads(place, "train800-32-") for place in marked(folder) if place.name != str(process.pid)), process
    )
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not list((folder / "stopped").rglob("*"))


def reads(process: Path, name: str) -> bool:
    """Return whether the process maps a file with `name` in its path; a training worker does."""
    with suppress(OSError):
        return name in (process / "maps").read_text()
    return False


def profile_with(folder, **changes) -> None:
    (folder / "small.yaml").write_text(yaml.safe_dump(PROFILE | {"data": str(folder / "data")} | changes))


def edit(folder, line: str) -> None:
    (folder / "data" / "vessels" / "val200.txt").write_text(line)


SCRIPTS = sorted(p.stem for p in scripts.EXPERIMENTS.glob("*.py") if "__main__" in p.read_text())


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script, capsys):
    status, output, errors = scripts.outcome(script, capsys, "--help")
    assert (status, errors) == (0, "") and output.startswith(f"usage: {script}.py ") and len(output) > 200


BAD = {
    "unknown method": (["--methods", "lara"], "unknown method 'lara'"),
    "unknown profile": (["--profile", "midi"], "unknown profile 'midi'"),
    "unknown data set": (["--datasets", "imagenet"], "unknown data set 'imagenet'"),
    "unknown backbone": (["--backbones", "dinov9"], "unknown backbone 'dinov9'"),
    "unknown protocol": (["--protocol", "both"], "unknown protocol 'both'"),
    "unknown precision": (["--precision", "float8"], "unknown precision 'float8'"),
    "weights without a file": (
        ["--weights", "tiny"],
        "--weights takes NAME=FILE, NAME out of tiny, not 'tiny'",
    ),
    "weights of another": (["--weights", "tin=a.pth"], "not 'tin=a.pth'"),
    "missing weights": (["--weights", "tiny=/a.pth"], "/a.pth: no such file"),
    "weights in the profile": (lambda f: profile_with(f, weights={"tin": "a.pth"}), "weights: 'tin' is none of"),
    "no images": (["--images", "0"], "--images: must be a whole number from 1, not 0"),
    "no epochs": (["--epochs", "0"], "--epochs: must be a whole number from 1, not 0"),
    "no workers": (["--workers", "0"], "--workers: must be a whole number from 1, not 0"),
    "negative workers": (["--workers", "-2"], "--workers: must be a whole number from 1, not -2"),
    "negative seed": (["--seeds", "-1"], "--seeds: must be a whole number from 0, not -1"),
    "half a seed": (["--seeds", "0.5"], "--seeds: must be a whole number from 0, not 0.5"),
    "seed twice": (["--seeds", "0", "0"], "--seeds: 0 stands twice"),
    "data set twice": (["--datasets", "vessels", "vessels"], "--datasets: vessels stands twice"),
    "unknown experiment": (["--experiments", "gamma"], "--experiments: invalid choice: 'gamma'"),
    "unknown option of the script": (["--epoch-count", "3"], "unrecognized arguments: --epoch-count 3"),
    "no value": (["--datasets"], "--datasets: expected at least one argument"),
    "device": (["--device", "tpu"], "--device: must be cpu, cuda, or one such as cuda:1, not 'tpu'"),
    "no GPU": (["--device", "cuda"], "--device: there is no CUDA device here"),
    "wait without SLURM": (["--wait"], "--wait is for --slurm"),
    "results in a file": (["--results", "/dev/null"], "cannot write /dev/null"),
    "profile in a folder": (["--profile", "."], "unknown profile '.'"),
    "rank 0": (lambda f: profile_with(f, methods={"lora": {"rank": 0}}), "lora.rank: must be a whole number from 1"),
    "binary profile": (lambda f: (f / "small.yaml").write_bytes(b"\x80\xff"), "small.yaml is no text, so no YAML"),
    "position": (lambda f: profile_with(f, methods={"vera": {"targets": "qo"}}), "letters out of q, k, v"),
    "unknown option": (lambda f: profile_with(f, methods={"lora": {"rnak": 4}}), "rnak"),
    "unknown key": (lambda f: profile_with(f, metods={}), "metods"),
    "missing split": (lambda f: (f / "data/vessels/val200.txt").unlink(), "val200.txt does not exist"),
    "empty split": (lambda f: edit(f, ""), "val200.txt is empty"),
    "label": (
        lambda f: edit(f, "images/test0.png 4\n"),
        "val200.txt, line 1: label 4 is not one of 4 classes",
    ),
    "image": (lambda f: (f / "data/vessels/images/test3.png").write_bytes(b"\x89PNG no"), "test3.png"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(folder, case, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    cause, message = BAD[case]
    if callable(cause):
        cause(folder)
        cause = []
    assert message in scripts.refusal("train", capsys, *arguments(folder, "bad", *cause))
    assert not list((folder / "bad").rglob("*.json"))
