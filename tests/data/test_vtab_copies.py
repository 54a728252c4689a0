"""VTAB-1k's two copies, distinguished by content, and photographs from an archive to a result."""

import json
import os
import shutil
import zipfile

import numpy as np
import pytest
import vtab_like
from PIL import Image
from vtab_like import cache, call  # noqa: F401  fixtures

from pvera.data import image_folders, vtab
from pvera.study import inputs
from pvera.study.experiments import list_runs
from pvera.study.profiles import Profile
from pvera.study.training import TrainingConfig

# The two copies


def test_the_copies_are_distinguished_by_content(tmp_path):
    assert vtab.copy_name(tmp_path) is None
    vtab_like.write(tmp_path, ["caltech101"], suffix="jpg")
    assert vtab.copy_name(tmp_path) is None, "its originals are JPEG files"
    vtab_like.write(tmp_path, ["cifar"], suffix="jpg")
    assert vtab.copy_name(tmp_path) == "lossy"
    vtab_like.write(tmp_path, ["svhn"])
    assert vtab.copy_name(tmp_path) == vtab.copy_name(tmp_path, "caltech101") == "mixed"
    assert [vtab.copy_name(tmp_path, name) for name in ("cifar", "svhn", "kitti")] == ["lossy", "lossless", None]
    shutil.rmtree(tmp_path / "cifar")
    assert vtab.copy_name(tmp_path) == "lossless"
    for split in image_folders.SPLITS:
        path = (tmp_path / "svhn" / f"{split}.txt").read_text().split()[0]
        image = tmp_path / "svhn" / path
        image.unlink(missing_ok=True)
        Image.new("RGB", (8, 8)).save(image, "JPEG")
    assert vtab.copy_name(tmp_path) == "lossy", "file names do not matter"


def test_mixed_copies_are_not_right(tmp_path, call):
    vtab_like.write(tmp_path, ["cifar"], suffix="jpg")
    vtab_like.write(tmp_path, ["svhn"])
    arguments = ("--root", tmp_path, "--check", "--no-decode", "--test-images", 32, "--datasets")
    code, output, _ = call(*arguments, "cifar", "svhn")
    assert vtab.copy_name(tmp_path, "svhn") == "lossless, 32 test images"
    assert vtab.copy_name(tmp_path, "kitti") == "32 test images"
    assert code == 1 and "2 of 2 data sets are right" in output and "must not share a table" in output


# Real photographs


#: A zip of <class>/<number>.jpg.
PHOTOGRAPHS = os.environ.get("PVERA_CIFAR10_ZIP")


@pytest.mark.skipif(not PHOTOGRAPHS, reason="set PVERA_CIFAR10_ZIP to an archive of CIFAR-10's photographs")
def test_photographs_through_preparation_store_and_training(tmp_path, call):
    """CIFAR-10 replaces SVHN, which also has ten classes."""
    source = tmp_path / "source" / "svhn"
    with zipfile.ZipFile(PHOTOGRAPHS) as members:
        names = [name for name in members.namelist() if name.endswith(".jpg")]
        classes = sorted({name.split("/")[0] for name in names})
        drawn = np.random.default_rng(0).choice(sorted(names), 1400, replace=False)
        members.extractall(source, drawn)
    lines = [f"{name} {classes.index(name.split('/')[0])}\n" for name in drawn]
    parts = {
        "train800": slice(800),
        "val200": slice(800, 1000),
        "train800val200": slice(1000),
        "test": slice(1000, 1400),
    }
    for split, part in parts.items():
        (source / f"{split}.txt").write_text("".join(lines[part]))

    arguments = ("--root", tmp_path / "data", "--datasets", "svhn", "--test-images", 400, "--size", 32)
    code, output, errors = call(*arguments, "--source", source.parent)
    assert code == 0 and "copy: lossy, 400 test images" in output, errors
    profile = Profile(
        name="small",
        data=str(tmp_path / "data"),
        backbones=["tiny"],
        datasets=["svhn"],
        seeds=[0],
        protocol="corrected",
        methods={"linear": {"learning_rate": 1e-2}},
        training=TrainingConfig(epochs=5),
    )
    (run,) = list_runs(profile, "benchmark", tmp_path / "results")
    inputs.prepare([run])
    run.execute()
    record = json.loads(run.path.read_text())
    assert record["data_copy"] == "lossy, 400 test images"
    assert record["test"]["images"] == 400
    assert record["test"]["accuracy"] > 0.5, "the backbone was trained on such photographs"
