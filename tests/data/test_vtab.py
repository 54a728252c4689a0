"""The checks of VTAB-1k, by the script and before training, on small folders with its layout."""

import hashlib
import json
import os
import shutil

import pytest
import vtab_like
from PIL import Image
from vtab_like import ROOT, SCRIPT, cache, call, edit, row, whole  # noqa: F401  fixtures among them

from pvera.data import image_folders, store, vtab
from pvera.errors import InputError
from pvera.study import inputs, runs
from pvera.study.experiments import list_runs
from pvera.study.profiles import Profile
from pvera.study.training import TrainingConfig


def verdict(root, name="kitti", test_images=32, **recorded) -> vtab.Verdict:
    record = {"datasets": {name: {"checksums": recorded}}, "test_images": test_images}
    return vtab.check(root, name, record)


# All nineteen data sets


def test_all_nineteen_from_a_folder_to_the_store(tmp_path, call):
    vtab_like.write(tmp_path / "mine" / "vtab-1k")
    root = tmp_path / "data"
    arguments = ("--root", root, "--source", tmp_path / "mine", "--test-images", 32, "--size", 16)
    code, output, _ = call(*arguments)
    assert code == 0 and "19 of 19 data sets are right" in output
    assert all(row(output, name) == ["right"] * 4 for name in vtab.NAMES)
    assert "decoded smallnorb_ele (19 of 19)" in output and "copy: lossless, 32 test images" in output
    for name in vtab.NAMES:
        assert image_folders.load_split(root, name, "test", 16).images.shape == (32, 16, 16, 3)

    record = json.loads((root / vtab.RECORD).read_text())
    assert record["copy"] == vtab.copy_name(root) == "lossless, 32 test images"
    assert set(record["datasets"]) == set(vtab.NAMES)
    assert record["datasets"]["dtd"]["origin"] == {"source": str(tmp_path / "mine")}
    lines = (root / "dtd" / "val200.txt").read_bytes()
    assert record["datasets"]["dtd"]["checksums"]["val200"] == hashlib.sha256(lines).hexdigest()

    # From now on names and labels must match the recorded ones.
    edit(root / "dtd" / "test.txt", lambda lines: [lines[1], lines[0], *lines[2:]])
    code, output, _ = call("--root", root, "--check", "--no-decode")
    assert code == 1 and "18 of 19 data sets are right" in output
    assert row(output, "dtd") == ["right", "right", "right", "wrong"]
    assert "test: names and labels have changed since they were recorded in vtab-1k.json" in output
    assert call("--root", root, "--check", "--no-decode", "--datasets", "dtd", "cifar")[0] == 1
    assert call("--root", root, "--check", "--no-decode", "--datasets", "cifar")[0] == 0

    code, output, _ = call("--root", root, "--clear-cache")
    assert code == 0 and "removed 0.0" in output and not store.folder().exists()


# Findings


DAMAGES = {
    "one test image too few": ("test.txt", lambda x: x[:-1], "test: 31 images, not 32, to which vtab-1k.json shortens"),
    "one training image twice": (
        "train800.txt",
        lambda x: x[:-1] + x[:1],
        "train800: train800.txt, line 800: 'images/train800/0.png' stands in line 1 already",
    ),
    "short val200": ("val200.txt", lambda x: x[:199], "val200: 199 images, not 200"),
    "short train800val200": ("train800val200.txt", lambda x: x[:999], "train800val200: 999 images, not 1000"),
    "label beyond the classes": (
        "val200.txt",
        lambda x: [x[0].replace(" 0", " 4"), *x[1:]],
        "val200: val200.txt, line 1: label 4 is not one of 4 classes from 0",
    ),
    "no such image": (
        "test.txt",
        lambda x: [x[0].replace("0.png", "zero.png"), *x[1:]],
        "test: 1 images do not exist as files, one is images/test/zero.png",
    ),
    "test image that is trained on": (
        "test.txt",
        lambda x: ["images/train800/5.png 1\n", *x[1:]],
        "test: 1 images are training images as well, one is images/train800/5",
    ),
    "the same under another name": (
        "test.txt",
        lambda x: ["images/test/../val200/5.png 1\n", *x[1:]],
        "test: 1 images are training images as well, one is images/val200/5.png",
    ),
    "validation image that is trained on": (
        "val200.txt",
        lambda x: ["images/train800/5.png 1\n", *x[1:]],
        "val200: 1 images are train800 images as well",
    ),
    "a class without images": (
        "train800val200.txt",
        lambda x: [y.replace(" 3\n", " 2\n") for y in x],
        "train800val200: no image of 1 of 4 classes",
    ),
    "not a split file": ("test.txt", lambda x: ["images,label\n"], "test: test.txt, line 1: expected"),
    "path that leaves": ("test.txt", lambda x: ["../a.png 1\n", *x[1:]], "test: test.txt, line 1: '../a.png' leaves"),
}


@pytest.fixture
def kitti(whole, tmp_path):
    vtab_like.copy(whole / "kitti", tmp_path / "data" / "kitti")
    return tmp_path / "data"


@pytest.mark.parametrize("case", DAMAGES)
def test_wrong_files_are_reported(kitti, case):
    file, change, message = DAMAGES[case]
    assert verdict(kitti).right
    edit(kitti / "kitti" / file, change)
    checked, split = verdict(kitti), file.removesuffix(".txt")
    assert checked.states == dict.fromkeys(image_folders.SPLITS, "right") | {split: "wrong"}
    assert any(finding.startswith(message) for finding in checked.findings), checked.findings


def test_missing_splits_and_data_sets(kitti, call):
    assert verdict(kitti, test_images=None).findings == ["test: 32 images, not 711"]
    (kitti / "kitti" / "test.txt").unlink()
    code, output, _ = call("--root", kitti, "--check", "--datasets", "kitti", "dtd")
    assert code == 1 and "0 of 2 data sets are right" in output and "decoded" not in output
    assert not (kitti / vtab.RECORD).exists() and not store.folder().exists()
    assert row(output, "kitti") == ["right", "right", "right", "missing"]
    assert row(output, "dtd") == ["missing"] * 4
    assert "test: test.txt does not exist" in output and "no such folder" in output


def test_sun397_lacks_a_class(tmp_path):
    vtab_like.write(tmp_path, ["sun397"])
    for file in ("train800.txt", "val200.txt", "train800val200.txt"):
        edit(tmp_path / "sun397" / file, lambda lines: [line.replace(" 396\n", " 395\n") for line in lines])
    checked = verdict(tmp_path, "sun397")
    assert checked.right and checked.notes == ["train800val200: no image of 1 of 397 classes, as in every copy"]
    both = tmp_path / "sun397" / "train800val200.txt"
    edit(both, lambda lines: [line.replace(" 394\n", " 395\n") for line in lines])
    assert verdict(tmp_path, "sun397").findings == ["train800val200: no image of 2 of 397 classes"]


def test_equal_images_under_two_names_are_noted(kitti):
    image = kitti / "kitti" / "images" / "test" / "9.png"
    image.unlink()
    shutil.copy(kitti / "kitti" / "images" / "val200" / "0.png", image)
    checked = verdict(kitti)
    assert checked.right
    assert checked.notes == ["test: 1 images equal a training image byte for byte, one is images/test/9.png"]


def test_published_checksums_are_checked(kitti, monkeypatch):
    seen = verdict(kitti).checksums
    assert set(seen) == set(image_folders.SPLITS) and len(set(seen.values())) == 4
    monkeypatch.setattr(vtab, "known_checksums", {"lossless, 32 test images": {"kitti": seen}}.get)
    assert verdict(kitti, **seen).right
    seen["val200"] = seen["test"]
    checked = verdict(kitti)
    assert checked.findings == ["val200: names and labels are not those of the published copy"]


def test_the_table_of_published_checksums():
    for copy in ("lossy", "lossless"):
        for name, checksums in vtab.known_checksums(copy).items():
            assert name in vtab.NAMES and set(checksums) <= set(image_folders.SPLITS)
            assert all(len(bytes.fromhex(checksum)) == 32 for checksum in checksums.values())
    assert vtab.known_checksums(None) == {}


def test_a_damaged_image_stops_with_its_name(kitti, call):
    image = kitti / "kitti" / "images" / "val200" / "7.png"
    content = image.read_bytes()
    image.unlink()
    image.write_bytes(content[: len(content) // 2])
    code, _, errors = call("--root", kitti, "--datasets", "kitti", "--test-images", 32, "--size", 16)
    assert code == 2 and errors.splitlines()[-1].startswith(f"error: image {image} cannot be read: ")


BAD = {
    "data set": (["--datasets", "mnist"], "unknown data set 'mnist'"),
    "size": (["--size", "0"], "--size: Input should be greater than or equal to 1"),
    "test images": (["--test-images", "-1"], "--test-images: Input should be greater than or equal to 1"),
    "source": (["--source", "/nowhere.zip"], "/nowhere.zip does not exist"),
    "no archive": (["--source", str(SCRIPT)], "is neither a folder nor an archive"),
    "empty source": (["--source", str(ROOT / "analysis")], "holds none of caltech101, cifar"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, call, case):
    arguments, message = BAD[case]
    code, output, errors = call("--root", tmp_path / "data", *arguments)
    assert code == 2 and output == ""
    assert errors.count("\n") == 1 and errors.startswith("error: ") and message in errors


def test_a_damaged_record_is_bad_input(kitti, call):
    (kitti / vtab.RECORD).write_text("{")
    code, _, errors = call("--root", kitti, "--check")
    assert code == 2 and "vtab-1k.json is damaged" in errors


# Which data train


def wanted(root, *names, images=None) -> list[runs.Run]:
    profile = Profile(
        name="small",
        data=str(root),
        backbones=["tiny"],
        datasets=list(names),
        seeds=[0],
        protocol="corrected",
        methods={"linear": {"learning_rate": 1e-2}},
        training=TrainingConfig(epochs=1),
        images=images,
    )
    return list_runs(profile, "benchmark", root / "results")


def own_data(root, classes: int = 3) -> None:
    """Three classes named EuroSAT, with 60 training, 20 validation and 30 test images."""
    for split, count in {"train800": 60, "val200": 20, "test": 30}.items():
        lines = []
        for i in range(count):
            file = root / "eurosat" / "mine" / f"{split}{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (80 * (i % classes), i, 0)).save(file)
            lines.append(f"mine/{file.name} {i % classes}\n")
        (root / "eurosat" / f"{split}.txt").write_text("".join(lines))
    both = [(root / "eurosat" / f"{split}.txt").read_text() for split in ("train800", "val200")]
    (root / "eurosat" / "train800val200.txt").write_text("".join(both))


@pytest.mark.parametrize("check", [inputs.prepare, inputs.require])
def test_own_data_does_not_train_as_vtab(tmp_path, check):
    own_data(tmp_path)
    with pytest.raises(InputError) as caught:
        check(wanted(tmp_path, "eurosat"))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'eurosat'} is not VTAB-1k's EuroSAT: train800: 60 images, not 800; ")
    assert "prepare_vtab.py" in message and "--accept" in message and "\n" not in message
    assert not store.folder().exists()


@pytest.mark.parametrize("case", ["short val200", "no such image", "not a split file"])
def test_wrong_data_do_not_train(kitti, case):
    file, change, message = DAMAGES[case]
    vtab_like.shorten(kitti)
    inputs.require(wanted(kitti, "kitti", images=4))
    edit(kitti / "kitti" / file, change)
    said = "zero.png does not exist" if case == "no such image" else "is not VTAB-1k's KITTI"
    with pytest.raises(InputError, match=said):
        inputs.prepare(wanted(kitti, "kitti", images=4))


def test_all_data_sets_are_checked_before_the_first_is_decoded(kitti):
    vtab_like.shorten(kitti)
    own_data(kitti)
    with pytest.raises(InputError, match="is not VTAB-1k's EuroSAT"):
        inputs.prepare(wanted(kitti, "kitti", "eurosat"))
    assert not store.folder().exists()
    inputs.prepare(wanted(kitti, "kitti"))
    assert store.folder().exists()


def test_a_record_of_other_labels_stops_training(kitti, call):
    assert call("--root", kitti, "--datasets", "kitti", "--test-images", 32, "--size", 32)[0] == 0
    inputs.prepare(wanted(kitti, "kitti"))
    edit(kitti / "kitti" / "test.txt", lambda lines: [lines[1], lines[0], *lines[2:]])
    with pytest.raises(InputError, match="names and labels have changed since they were recorded in vtab-1k.json"):
        inputs.prepare(wanted(kitti, "kitti"))


def test_accepted_data_train_under_another_name(tmp_path, call):
    own_data(tmp_path)
    vtab_like.write(tmp_path, ["svhn"], side=32)
    arguments = ("--root", tmp_path, "--datasets", "svhn", "eurosat", "--size", 32)
    code, output, _ = call(*arguments, "--test-images", 32)
    assert code == 1 and "--accept uses them as they are" in output and "decoded eurosat" not in output
    code, output, _ = call(*arguments, "--accept")
    assert code == 0 and "accepted as it is" in output and "1 of 2 data sets are right" in output
    assert "decoded eurosat (2 of 2)" in output and row(output, "eurosat")[0] == "wrong"
    assert call(*arguments)[0] == 0, "the acceptance is remembered"
    assert vtab.copy_name(tmp_path, "svhn") == "lossless, 32 test images"
    copy = "lossless, 32 test images, differs from VTAB-1k"
    assert vtab.copy_name(tmp_path, "eurosat") == vtab.copy_name(tmp_path) == copy

    (run,) = wanted(tmp_path, "eurosat")
    inputs.prepare([run])
    run.execute()
    assert json.loads(run.path.read_text())["data_copy"] == copy

    # The acceptance does not cover another difference.
    edit(tmp_path / "eurosat" / "val200.txt", lambda lines: lines[1:])
    with pytest.raises(InputError, match="is not VTAB-1k's EuroSAT"):
        inputs.prepare(wanted(tmp_path, "eurosat"))
    code, output, _ = call(*arguments)
    assert code == 1 and "accepted as it is" not in output


def test_nothing_is_accepted_that_cannot_be_read(tmp_path, call):
    own_data(tmp_path)
    (tmp_path / "eurosat" / "test.txt").write_text("a.png 10\n")
    code, output, _ = call("--root", tmp_path, "--datasets", "eurosat", "--accept", "--check")
    assert code == 1 and "accepted as it is" not in output and not (tmp_path / vtab.RECORD).exists()


def test_pipes_in_a_list_do_not_hang_the_check(kitti, call):
    """The check reads the first image of each split, and file sizes."""
    for split in ("train800", "test"):
        path = kitti / "kitti" / "images" / split / "0.png"
        path.unlink()
        os.mkfifo(path)
    code, output, _ = call("--root", kitti, "--check", "--datasets", "kitti", "--test-images", 32)
    assert code == 1 and "test: 1 images do not exist as files, one is images/test/0.png" in output
    (kitti / "kitti" / "val200.txt").unlink()
    os.mkfifo(kitti / "kitti" / "val200.txt")
    code, output, _ = call("--root", kitti, "--check", "--datasets", "kitti", "--test-images", 32)
    assert code == 1 and "val200: val200.txt cannot be read: it is not a regular file" in output
