"""The checks of VTAB-1k, by the script and before training, on small folders with its layout."""

import json
import re
import shutil

import pytest
import vtab_like
from PIL import Image
from vtab_like import ROOT, SCRIPT, cache, call, edit, state, whole  # noqa: F401  fixtures among them

from pvera.data import image_folders, inputs, store, tasks, vtab
from pvera.errors import InputError
from pvera.study import results, runs
from pvera.study.plan import list_runs
from pvera.study.profiles import Profile
from pvera.study.training import TrainingConfig


def test_all_nineteen_from_a_folder_to_the_store(tmp_path, call):
    vtab_like.write(tmp_path / "mine" / "vtab-1k")
    root = tmp_path / "data"
    code, output, _ = call("--root", root, "--source", tmp_path / "mine", "--accept")
    assert code == 0 and "19 of 19 data sets can be used" in output
    assert all(state(output, name) == "accepted as it is" for name in vtab.NAMES)
    assert "say 'differs from VTAB-1k'" in output and "copy:" not in output
    for name in vtab.NAMES:
        assert image_folders.load_split(root, name, "test", 16).images.shape == (32, 16, 16, 3)
    assert json.loads((root / vtab.RECORD).read_text())["kitti"] == ["test: 32 images, not 711"]


@pytest.fixture
def kitti(whole, tmp_path):
    vtab_like.copy(whole / "kitti", tmp_path / "data" / "kitti")
    return tmp_path / "data"


#: List, its new first line ("": none), finding. Other wrong lines are those of `image_folders.read_split_file`.
DAMAGES = [
    ("val200", "", "val200: 199 images, not 200"),
    ("val200", "images/val200/0.png 4", "val200: val200.txt, line 1: expected 'relative/path label', of 4 labels"),
    ("test", "images/test/zero.png 0", "test: 1 images do not exist as files, one is images/test/zero.png"),
    ("test", "images/test/../train800/5.png 1", "test: 1 images are train800 images as well, one is images/train800/5"),
    ("test", "images/val200/5.png 1", "test: 1 images are val200 images as well, one is images/val200/5.png"),
    ("val200", "images/train800/5.png 1", "val200: 1 images are train800 images as well"),
]


@pytest.mark.parametrize("split, line, finding", DAMAGES)
def test_wrong_files_are_reported(kitti, split, line, finding):
    assert vtab.check(kitti, "kitti") == []
    edit(kitti / f"kitti/{split}.txt", lambda lines: [f"{line}\n", *lines[1:]])
    assert vtab.check(kitti, "kitti")[0].startswith(finding)


@pytest.mark.parametrize("name", vtab.NAMES)
def test_training_images_show_all_classes_but_those_of_sun397(tmp_path, name):
    """VTAB-1k's own lists of SUN397 show 309 of 397 classes in train800, 136 in val200, 325 in both."""
    task, folder = tasks.task(name), tmp_path / name
    first, second = (range(309), range(189, 325)) if name == "sun397" else [range(task.classes)] * 2
    shown, few = len({*first, *second}), f"test: 400 images, not {task.test_images}"
    folder.mkdir()
    for split, labels in {"train800": first, "val200": second, "test": range(task.classes)}.items():
        lines = [f"{split}/{i} {labels[i % len(labels)]}\n" for i in range(vtab.TRAINING.get(split, 400))]
        (folder / f"{split}.txt").write_text("".join(lines))
    assert vtab.check(tmp_path, name, images=False) == [few]
    for file in folder.iterdir():
        edit(file, lambda lines: [re.sub(f" {shown - 1}\n", " 0\n", line) for line in lines])
    lost = [
        f"{part}: images of {n - 1} classes, not {n}" for part, n in {"training": shown, "test": task.classes}.items()
    ]
    assert vtab.check(tmp_path, name, images=False) == [few, *lost]


def test_missing_splits_and_data_sets(kitti, tmp_path, call):
    (kitti / "kitti" / "test.txt").unlink()
    vtab_like.write(tmp_path / "other", ["svhn"])
    code, output, _ = call("--root", kitti, "--source", tmp_path / "other", "--datasets", "kitti", "dtd", "svhn")
    assert code == 1 and "missing: dtd\n0 of 3 data sets can be used" in output and "--accept uses" in output
    assert not (kitti / vtab.RECORD).exists() and not (kitti / "svhn").exists()
    assert state(output, "kitti") == "wrong" and state(output, "svhn") == "left out"
    assert "test: test.txt does not exist" in output and "test: 32 images, not 26032" in output


BAD = {
    "--datasets: invalid choice: 'mnist'": ["--datasets", "mnist"],
    "/nowhere.zip does not exist": ["--source", "/nowhere.zip"],
    "is neither a folder nor an archive": ["--source", str(SCRIPT)],
    "holds none of caltech101, cifar": ["--source", str(ROOT / "analysis")],
    "vtab-1k.json is damaged": [],
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, call, message):
    if "damaged" in message:
        (tmp_path / vtab.RECORD).write_text("{")
    code, output, errors = call("--root", tmp_path, *BAD[message])
    assert code == 2 and output == "" and errors.count("\n") == 1
    assert errors.startswith("error: ") and message in errors


# Which data train


def wanted(root, *names) -> list[runs.Run]:
    profile = Profile(
        name="small",
        data=str(root),
        backbones=["tiny"],
        datasets=list(names),
        seeds=[0],
        protocol="corrected",
        methods={"linear": {"learning_rate": 1e-2}},
        training=TrainingConfig(epochs=1),
    )
    return list_runs(profile, "benchmark", root / "results")


def own_data(root) -> None:
    """Three classes named EuroSAT, with 60 training, 20 validation and 30 test images."""
    (root / "eurosat" / "mine").mkdir(parents=True)
    for split, count in {"train800": 60, "val200": 20, "test": 30}.items():
        for i in range(count):
            Image.new("RGB", (8, 8), (80 * (i % 3), i, 0)).save(root / f"eurosat/mine/{split}{i}.png")
        lines = [f"mine/{split}{i}.png {i % 3}\n" for i in range(count)]
        (root / "eurosat" / f"{split}.txt").write_text("".join(lines))


@pytest.mark.parametrize("decode", [True, False])
def test_own_data_does_not_train_as_vtab(kitti, decode):
    """All data sets are checked before the first is decoded."""
    own_data(kitti)
    with pytest.raises(InputError) as caught:
        inputs.prepare(wanted(kitti, "kitti", "eurosat"), decode)
    message = str(caught.value)
    assert message.startswith(f"{kitti / 'eurosat'} is not VTAB-1k's EuroSAT: train800: 60 images, not 800; ")
    assert "prepare_vtab.py" in message and "--accept" in message and "\n" not in message
    assert not store.folder().exists()


def test_accepted_data_train_under_another_name(tmp_path, call):
    """Lossy and lossless ones share a table, and none with VTAB-1k; a source need not hold all 19."""
    own_data(tmp_path / "mine")
    vtab_like.write(tmp_path / "mine", ["cifar"], side=32)
    vtab_like.write(tmp_path / "mine", ["smallnorb_azi"], side=32, suffix="jpg")
    names, root = ["cifar", "eurosat", "smallnorb_azi"], tmp_path / "data"
    arguments = ("--root", root, "--source", tmp_path / "mine")
    code, output, _ = call(*arguments)
    assert code == 1 and {state(output, name) for name in names} == {"left out"} and "--accept uses" in output
    for accept in (["--accept"], ["--accept"], []):
        code, output, _ = call(*arguments, *accept)
        assert code == (0 if accept else 1) and "3 of 19 data sets can be used" in output, "it is remembered"
        assert {state(output, name) for name in names} == {"accepted as it is"} and "missing: caltech101, dtd" in output
    shutil.copytree(root / "eurosat", root / "digits")
    runs = wanted(root, *names, "digits")
    inputs.prepare(runs)
    for run in runs:
        run.execute()
    records = results.load_runs(root / "results", "small")
    assert [run["data_copy"] for run in records] == [vtab.DIFFERS, None, vtab.DIFFERS, vtab.DIFFERS]
    assert records[0]["data_differs"] == vtab.check(root, "cifar") and "data_differs" not in records[1]
    vtab_like.write(root, ["svhn"])
    assert vtab.copy_name(root, "svhn") == vtab.copy_name(root) == "lossless"

    # The acceptance does not cover another difference.
    edit(root / "eurosat" / "val200.txt", lambda lines: lines[1:])
    with pytest.raises(InputError, match="is not VTAB-1k's EuroSAT"):
        inputs.prepare(wanted(root, "eurosat"))
    code, output, _ = call(*arguments, "--datasets", "eurosat")
    assert code == 1 and state(output, "eurosat") == "wrong"
    with pytest.raises(InputError, match="no such folder; `.*prepare_vtab.py .* dtd` installs it from the hub"):
        vtab.require(root, "dtd")


def test_the_copies_are_distinguished_by_content(tmp_path, call):
    assert vtab.copy_name(tmp_path) is None
    vtab_like.write(tmp_path, ["caltech101"], suffix="jpg")
    assert vtab.copy_name(tmp_path) is None, "its originals are JPEG files"
    vtab_like.write(tmp_path, ["cifar"], 10_000, suffix="jpg")
    assert vtab.copy_name(tmp_path) == "lossy"
    vtab_like.write(tmp_path, ["kitti"], 711)
    assert vtab.copy_name(tmp_path) == vtab.copy_name(tmp_path, "caltech101") == "mixed"
    assert [vtab.copy_name(tmp_path, name) for name in ("cifar", "kitti", "svhn")] == ["lossy", "lossless", None]
    code, output, _ = call("--root", tmp_path, "--datasets", "cifar", "kitti")
    assert code == 1 and "2 of 2 data sets can be used" in output and "must not share a table" in output
    shutil.rmtree(tmp_path / "cifar")
    for split in image_folders.SPLITS:
        path = (tmp_path / "kitti" / f"{split}.txt").read_text().split()[0]
        (tmp_path / "kitti" / path).unlink()
        Image.new("RGB", (8, 8)).save(tmp_path / "kitti" / path, "JPEG")
    assert vtab.copy_name(tmp_path, "kitti") == "lossy", "file names do not matter"
