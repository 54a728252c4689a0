"""The profile `paper`, shrunk, from folders of VTAB-1k's shape to the paper's tables, by the commands of a
user.

The training and validation splits have their real sizes and pass the check. Test splits are shortened to 32
images and say so; `--images` then has each run read a few images of every split, in one epoch. All of it on a
ViT-S of the real shape takes four minutes on two cores:

    bash run_tests.sh -m slow -k paper

The rehearsal (`bash run_all.sh rehearsal`) does every stage of `paper`, in a copy of the repository.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import scripts
import torch
import vtab_like

from pvera import backbones
from pvera.data import tasks, vtab
from pvera.processes import cores
from pvera.report.tables import benchmark
from pvera.study import results
from pvera.study.profiles import Profile
from pvera.study.protocol import PUBLISHED_BETA

ROOT = Path(__file__).resolve().parents[2]
PAPER = Profile.read(ROOT / "experiments" / "profiles" / "paper.yaml")
COPY = "lossless, differs from VTAB-1k"


@pytest.fixture
def script(capsys):
    """Run experiments/<name>.py in this process and return its output."""

    def call(name: str, *arguments) -> str:
        capsys.readouterr()
        scripts.execute(name, *arguments)  # SystemExit where it fails
        return capsys.readouterr().out

    return call


def prepare(script, folder: Path, names, size: int) -> None:
    """Install, check and decode data sets in the format of the lossless copy."""
    for suffix in ("png", "jpg"):
        some = [name for name in names if (name in vtab.LOSSLESS_ORIGINALS) == (suffix == "png")]
        vtab_like.write(folder / "copy" / "vtab-1k", some, suffix=suffix, side=64)
    printed = script(
        "prepare_vtab",
        "--source",
        folder / "copy",
        "--root",
        folder / "data",
        "--datasets",
        *names,
        "--accept",
        "--size",
        size,
    )
    assert f"{len(names)} of {len(names)} data sets can be used" in printed and f"copy: {COPY}" in printed


def train(script, folder: Path, backbone: str, names, images: int, *more) -> list[dict]:
    """Train the benchmark with one seed, one epoch and few images; return its records."""
    arguments = [
        "--profile",
        "paper",
        "--experiments",
        "benchmark",
        "--backbones",
        backbone,
        "--datasets",
        *names,
        "--seeds",
        0,
        "--epochs",
        1,
        "--images",
        images,
        "--data",
        folder / "data",
        "--device",
        "cpu",
        "--results",
        folder / "results",
        *more,
    ]
    script("train", *arguments)
    count = len(names) * len(PAPER.methods)
    assert f"paper, benchmark: {count} of {count} runs are there" in script("train", *arguments, "--list")
    return results.load_runs(folder / "results", "paper")


def check_records(runs: list[dict], images: int) -> None:
    assert {run["data_copy"] for run in runs} == {COPY}
    assert {run["protocol"] for run in runs} == {"published"}
    for run in runs:
        classes = tasks.task(run["dataset"]).classes
        width = run["members"][0]["head_parameters"] // classes - 1
        assert all(member["head_parameters"] == (width + 1) * classes for member in run["members"])
        ((name, values),) = PAPER.methods[run["method"]]["grid"].items()
        assert [member["grid"] for member in run["members"]] == [{name: value} for value in values]
        beta = PUBLISHED_BETA[run["dataset"]] if run["method"] == "pvera" else 0
        assert {member["beta"] for member in run["config"]["members"]} == {beta}
        assert run["test"]["images"] == images
        losses = [member["best_validation_loss"] for member in run["members"]]
        assert run["chosen"]["member"] == int(np.argmin(losses))


def check_tables(folder: Path, runs: list[dict], backbone: str, images: int) -> None:
    """The written main table has the records' accuracies, per data set and on average."""
    table = benchmark.main(runs)
    assert f"copy of the data: {COPY}, a trial on the first {images} samples of each split" in table.about
    table.write(folder / "tables")
    written = pd.read_csv(folder / "tables" / "main.csv", index_col="method")
    expected = {run["dataset"]: {} for run in runs}
    for run in runs:
        expected[run["dataset"]][run["method"]] = 100 * run["test"]["accuracy"]
    expected = pd.DataFrame(expected)
    assert sorted(written.index) == sorted(PAPER.methods)
    np.testing.assert_allclose(written[expected.columns], expected.loc[written.index], atol=1e-3)
    np.testing.assert_allclose(written["average"], expected.mean(axis=1)[written.index], atol=1e-3)


@pytest.mark.xdist_group("fork server")
def test_two_data_sets_on_the_small_backbone(script, tmp_path):
    names, images = ["dtd", "kitti"], 16
    prepare(script, tmp_path, names, 32)
    runs = train(script, tmp_path, "tiny", names, images)
    assert len(runs) == 2 * 8
    check_records(runs, images)
    check_tables(tmp_path, runs, "tiny", images)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_data_sets_on_a_vit_s(script, tmp_path):
    """DINOv2's ViT-S with random weights, from a file for 518 pixels like the published one."""
    images = 2
    small = backbones.load("dinov2_s", pretrained=False)
    state = dict(small.model.state_dict())
    source = torch.Generator().manual_seed(0)
    state["pos_embed"] = 0.02 * torch.randn(1, 1 + 37 * 37, 384, generator=source)
    safetensors.torch.save_file(state, tmp_path / "model.safetensors")
    prepare(script, tmp_path, vtab.NAMES, 224)
    runs = train(
        script,
        tmp_path,
        "dinov2_s",
        vtab.NAMES,
        images,
        "--weights",
        f"dinov2_s={tmp_path / 'model.safetensors'}",
        "--precision",
        "bfloat16",
    )
    assert len(runs) == 19 * 8
    check_records(runs, images)
    file = hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()
    assert {run["environment"]["weights_file_sha256"] for run in runs} == {file}
    assert {(run["config"]["image_size"], run["config"]["precision"]) for run in runs} == {(224, "bfloat16")}
    vera = next(run for run in runs if run["method"] == "vera")
    assert vera["members"][0]["adapter_parameters"] == 12 * 2 * (256 + 384)
    check_tables(tmp_path, runs, "dinov2_s", images)
    (tmp_path / "pyproject.toml").touch()  # by which notebooks find the root
    shutil.copytree(ROOT / "results" / "published", tmp_path / "results" / "published")
    (tmp_path / "analysis").mkdir()
    notebook = ROOT / "analysis" / "main_table.ipynb"
    (tmp_path / "analysis" / notebook.name).write_text(notebook.read_text())
    script("execute_notebooks", "--root", tmp_path, "--profile", "paper")
    assert json.loads((tmp_path / "figures" / "paper" / notebook.name).read_text())["cells"]
    assert (tmp_path / "figures" / "paper" / "main_dinov2_s.png").stat().st_size > 10_000


def test_the_rehearsal_is_the_paper_in_small():
    rehearsal = Profile.read(ROOT / "experiments/profiles/rehearsal.yaml")
    for key in ("experiments", "methods", "protocol", "precision", "learning_rate", "search_once"):
        assert getattr(rehearsal, key) == getattr(PAPER, key), key
    for key in ("rank", "targets", "search"):
        assert getattr(rehearsal.ablations, key) == getattr(PAPER.ablations, key), key
    for key in ("backbones", "datasets", "methods", "beta"):
        assert getattr(rehearsal.language, key) == getattr(PAPER.language, key), key
    assert len({tasks.task(name).category for name in rehearsal.datasets}) == 3
    assert (rehearsal.images, rehearsal.training.epochs) == (16, 1)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_rehearsal_makes_marked_tables_and_figures_in_ten_minutes(tmp_path):
    for name in ("pvera", "experiments", "analysis"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "results").mkdir()
    for name in ("published", "paper", "performance", "bfloat16", "mini"):
        (tmp_path / "results" / name).symlink_to(ROOT / "results" / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "experiments/run_profile.py", "rehearsal"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    seconds, busy = time.monotonic() - started, max(1, os.getloadavg()[1] / cores())
    assert seconds < 600 * busy, f"{seconds:.0f} seconds, while programs shared {busy:.1f} to one core"

    runs = {
        name: results.load_runs(tmp_path / "results", "rehearsal", name) for name in ("benchmark", "rank", "position")
    }
    assert {name: len(listed) for name, listed in runs.items()} == {"benchmark": 3 * 8 * 2, "rank": 1, "position": 1}
    for name in ("uncertainty", "out_of_distribution", "latents", "cost", "language", "language_beta"):
        assert list((tmp_path / "results/rehearsal" / name).rglob("*.json")), name
    tables = list((tmp_path / "results/rehearsal/tables").glob("*.md"))
    assert {"main", "detailed", "grid", "rank", "position", "language", "uncertainty"} <= {path.stem for path in tables}
    assert all("ehearsal" in path.read_text().partition("\n")[0] for path in tables)
    main = (tmp_path / "results/rehearsal/tables/main.md").read_text()
    assert "Incomplete: 3 of 19 data sets, 2 of 3 seeds" in main
    assert {"main_test_vit.png", "rank.png", "main_table.ipynb"} <= {
        path.name for path in (tmp_path / "figures/rehearsal").iterdir()
    }
