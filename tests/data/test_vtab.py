"""The checks of VTAB-1k, by the script and before training, on small folders with its layout."""

import pytest
import vtab_like
from PIL import Image
from vtab_like import ROOT, SCRIPT, cache, call, edit, state, whole  # noqa: F401  fixtures among them

from pvera.data import image_folders, inputs, tasks, vtab
from pvera.errors import InputError
from pvera.study import results, runs
from pvera.study.plan import list_runs
from pvera.study.profiles import Profile
from pvera.study.training import TrainingConfig


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
]


@pytest.mark.parametrize("split, line, finding", DAMAGES)
def test_wrong_files_are_reported(kitti, split, line, finding):
    assert vtab.check(kitti, "kitti") == []
    edit(kitti / f"kitti/{split}.txt", lambda lines: [f"{line}\n", *lines[1:]])
    assert vtab.check(kitti, "kitti")[0].startswith(finding)


# Which data train


#: Classes that the lists of training images show: VTAB-1k's of SUN397 show 309 in train800, 136 in val200, 325 in both.
CLASSES = {"kitti": (range(4), range(4)), "sun397": (range(309), range(189, 325))}


@pytest.mark.parametrize("name", CLASSES)
def test_lists_show_all_classes(tmp_path, name):
    (tmp_path / name).mkdir()
    (first, second), classes, counts = CLASSES[name], tasks.task(name).classes, vtab.TRAINING | {"test": 400}
    for split, labels in {"train800": first, "val200": second, "test": range(classes)}.items():
        lines = [f"{split}/{i} {labels[i % len(labels)]}\n" for i in range(counts[split])]
        (tmp_path / name / f"{split}.txt").write_text("".join(lines))
    few, seen = f"test: 400 images, not {tasks.task(name).test_images}", len({*first, *second})
    assert vtab.check(tmp_path, name, images=False) == [few]
    edit(tmp_path / name / "test.txt", lambda lines: [line.replace(f" {classes - 1}\n", " 0\n") for line in lines])
    for split in vtab.TRAINING:
        edit(
            tmp_path / name / f"{split}.txt",
            lambda lines: [line.replace(f" {seen - 1}\n", " 0\n") for line in lines],
        )
    fewer = [f"{part}: images of {n - 1} classes, not {n}" for part, n in (("training", seen), ("test", classes))]
    assert vtab.check(tmp_path, name, images=False) == [few, *fewer]


def test_bad_input_is_one_line_and_exit_code_2(tmp_path, call):
    for arguments, message in ((["--datasets", "mnist"], "--datasets: invalid choice: 'mnist'"),
                               (["--source", "/nowhere.zip"], "/nowhere.zip does not exist"),
                               (["--source", ROOT / "analysis"], "holds none of caltech101, cifar")):  # fmt: skip
        code, output, errors = call("--root", tmp_path, *arguments)
        assert (code, output) == (2, "") and errors.startswith("error: ") and message in errors
    (tmp_path / vtab.RECORD).write_text("{")
    assert "vtab-1k.json is damaged" in call("--root", tmp_path)[2]


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


def test_accepted_data_train_under_another_name(tmp_path, call):
    """A source need not hold all 19 data sets; the acceptance covers no other difference."""
    own_data(tmp_path / "mine")
    vtab_like.write(tmp_path / "mine", ["cifar"], side=32)
    root, arguments = tmp_path / "data", ("--root", tmp_path / "data", "--source", tmp_path / "mine")
    code, output, _ = call(*arguments)
    assert code == 1 and {state(output, name) for name in ("cifar", "eurosat")} == {"left out"}
    for accept in (["--accept"], []):
        code, output, _ = call(*arguments, *accept)
        assert code == (0 if accept else 1) and "2 of 19 data sets can be used" in output, "it is remembered"
        assert state(output, "eurosat") == "accepted as it is" and "missing: caltech101, dtd" in output
    listed = wanted(root, "cifar", "eurosat")
    inputs.prepare(listed)
    for run in listed:
        run.execute()
    first, second = results.load_runs(root / "results", "small")
    assert first["data_copy"] == second["data_copy"] == vtab.DIFFERS
    assert first["data_differs"] == vtab.check(root, "cifar")
    edit(root / "eurosat" / "val200.txt", lambda lines: lines[1:])
    with pytest.raises(InputError, match="is not VTAB-1k's EuroSAT"):
        inputs.prepare(wanted(root, "eurosat"))
    code, output, _ = call(*arguments, "--datasets", "eurosat")
    assert code == 1 and state(output, "eurosat") == "wrong"
    with pytest.raises(InputError, match="no such folder; `.*prepare_vtab.py .* dtd` installs it from the hub"):
        vtab.require(root, "dtd")


def test_the_copies_are_distinguished_by_content(tmp_path):
    vtab_like.write(tmp_path, ["caltech101"], suffix="jpg")
    assert vtab.copy_name(tmp_path) is None, "its originals are JPEG files"
    vtab_like.write(tmp_path, ["cifar"], suffix="jpg")
    assert vtab.copy_name(tmp_path) == "lossy"
    vtab_like.write(tmp_path, ["kitti"])
    assert vtab.copy_name(tmp_path) == vtab.copy_name(tmp_path, "caltech101") == "mixed"
    assert [vtab.copy_name(tmp_path, name) for name in ("cifar", "kitti", "svhn")] == ["lossy", "lossless", None]
    for split in image_folders.SPLITS:
        path = tmp_path / "kitti" / (tmp_path / f"kitti/{split}.txt").read_text().split()[0]
        path.unlink()
        Image.new("RGB", (8, 8)).save(path, "JPEG")
    assert vtab.copy_name(tmp_path, "kitti") == "lossy", "file names do not matter"
