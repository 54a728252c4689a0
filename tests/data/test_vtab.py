"""The checks of VTAB-1k, by the script and before training, on small folders with its layout."""

import json
import shutil

import pytest
import vtab_like
from PIL import Image
from vtab_like import ROOT, SCRIPT, cache, call, edit, state, whole  # noqa: F401  fixtures among them

from pvera.data import image_folders, inputs, store, vtab
from pvera.errors import InputError
from pvera.study import runs
from pvera.study.plan import list_runs
from pvera.study.profiles import Profile
from pvera.study.training import TrainingConfig


def test_all_nineteen_from_a_folder_to_the_store(tmp_path, call):
    vtab_like.write(tmp_path / "mine" / "vtab-1k")
    root = tmp_path / "data"
    code, output, _ = call("--root", root, "--source", tmp_path / "mine", "--accept")
    assert code == 0 and "19 of 19 data sets can be used" in output
    assert all(state(output, name) == "accepted as it is" for name in vtab.NAMES)
    assert "copy: lossless, differs from VTAB-1k" in output
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


def test_classes_without_images(kitti, tmp_path):
    """SUN397 lacks one in every copy."""
    for split in image_folders.SPLITS:
        edit(kitti / f"kitti/{split}.txt", lambda lines: [line.replace(" 3\n", " 2\n") for line in lines])
    assert vtab.check(kitti, "kitti") == ["training: no image of 1 of 4 classes", "test: no image of 1 of 4 classes"]
    vtab_like.write(tmp_path, ["sun397"])
    for label, findings in ((396, []), (394, ["training: no image of 1 of 397 classes"])):
        for split in ("train800", "val200"):
            edit(tmp_path / f"sun397/{split}.txt", lambda xs: [x.replace(f" {label}\n", " 395\n") for x in xs])
        assert [f for f in vtab.check(tmp_path, "sun397") if f.startswith("training")] == findings


def test_missing_splits_and_data_sets(kitti, tmp_path, call):
    (kitti / "kitti" / "test.txt").unlink()
    vtab_like.write(tmp_path / "other", ["svhn"])
    code, output, _ = call("--root", kitti, "--source", tmp_path / "other", "--datasets", "kitti", "dtd", "svhn")
    assert code == 1 and "0 of 3 data sets can be used" in output and "svhn was not put in place: test: 32 im" in output
    assert state(output, "kitti") == "wrong" and state(output, "dtd") == "missing"
    assert "test: test.txt does not exist" in output and not (kitti / vtab.RECORD).exists()


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
    own_data(tmp_path)
    arguments, differs = ("--root", tmp_path, "--datasets", "eurosat"), "lossless, differs from VTAB-1k"
    code, output, _ = call(*arguments)
    assert code == 1 and "--accept uses it as it is" in output
    code, output, _ = call(*arguments, "--accept")
    assert code == 0 and state(output, "eurosat") == "accepted as it is"
    assert call(*arguments)[0] == 0, "the acceptance is remembered"
    vtab_like.write(tmp_path, ["svhn"], side=32)
    names = [vtab.copy_name(tmp_path, *name) for name in (["svhn"], ["eurosat"], [])]
    assert names == ["lossless", differs, differs]

    shutil.copytree(tmp_path / "eurosat", tmp_path / "digits")
    for name, copy in (("eurosat", differs), ("digits", None)):  # the second is no data set of VTAB-1k
        (run,) = wanted(tmp_path, name)
        inputs.prepare([run])
        run.execute()
        assert json.loads(run.path.read_text())["data_copy"] == copy

    edit(tmp_path / "eurosat" / "val200.txt", lambda lines: lines[1:])  # another difference, which was not accepted
    with pytest.raises(InputError, match="is not VTAB-1k's EuroSAT"):
        inputs.prepare(wanted(tmp_path, "eurosat"))
    code, output, _ = call(*arguments)
    assert code == 1 and state(output, "eurosat") == "wrong"


def test_the_copies_are_distinguished_by_content(tmp_path, call):
    assert vtab.copy_name(tmp_path) is None
    for name, suffix, copy in (
        ("caltech101", "jpg", None),  # its originals are JPEG files
        ("cifar", "jpg", "lossy"),
        ("svhn", "png", "mixed"),
    ):
        vtab_like.write(tmp_path, [name], suffix=suffix)
        assert vtab.copy_name(tmp_path) == copy
    assert [vtab.copy_name(tmp_path, name) for name in ("cifar", "svhn", "kitti")] == ["lossy", "lossless", None]
    assert vtab.copy_name(tmp_path, "caltech101") == "mixed", "the copies agree in it"
    code, output, _ = call("--root", tmp_path, "--datasets", "cifar", "svhn", "--accept")
    assert code == 1 and "2 of 2 data sets can be used" in output and "must not share a table" in output
    for split in image_folders.SPLITS:
        path = tmp_path / "svhn" / (tmp_path / "svhn" / f"{split}.txt").read_text().split()[0]
        path.unlink()  # others are links to it
        Image.new("RGB", (8, 8)).save(path, "JPEG")
    assert vtab.copy_name(tmp_path, "svhn").startswith("lossy"), "file names do not matter"
