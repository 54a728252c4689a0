"""The user's own pictures: every form on disk, checks, splits and decoding."""

import os
import shutil
from pathlib import Path

import numpy as np
import photographs
import pytest
from photographs import copy, listed, pictures  # noqa: F401  fixtures
from PIL import Image

from pvera import InputError
from pvera.data import custom, image_folders, listings, tasks

CLASSES = sorted(photographs.CLASSES)
SPLITS = image_folders.SPLIT_OF


def lists(root, name="mine") -> dict[str, dict[str, int]]:
    """Return the path and label of each picture, per split."""
    classes = tasks.task(name, root).classes
    return {
        part: {e.path: e.label for e in image_folders.read_split_file(root / name, split, classes)}
        for part, split in SPLITS.items()
    }


def refusal(root, source, name="mine", **options) -> str:
    with pytest.raises(InputError) as caught:
        custom.install(root, name, source, **options)
    assert "\n" not in str(caught.value)
    assert not (root / name / "own.json").exists(), "an incomplete data set is never left"
    return str(caught.value)


# Forms


def test_class_folders_get_a_stratified_split(pictures, tmp_path):
    described = custom.install(tmp_path, "mine", pictures, seed=3)
    assert described["classes"] == CLASSES == tasks.class_names("mine", tmp_path)
    assert described["images"] == {"train": 52, "validation": 12, "test": 16}, "20 per class: 13, 3 and 4"
    assert described["split"] == {"given": [], "drawn": custom.SHARES, "seed": 3}
    parts = lists(tmp_path)
    for part, count in (("train", 13), ("validation", 3), ("test", 4)):
        labels = list(parts[part].values())
        assert [labels.count(label) for label in range(4)] == [count] * 4
        assert all(path.split("/")[1] == CLASSES[label] for path, label in parts[part].items())
    assert len(set().union(*parts.values())) == 80
    task = tasks.task("mine", tmp_path)
    assert (task.title, task.category, task.classes, task.test_images) == ("mine", "own", 4, 16)


def test_the_split_follows_from_seed_and_content_alone(pictures, copy, tmp_path):
    custom.install(tmp_path / "a", "mine", pictures, seed=1)
    custom.install(tmp_path / "c", "mine", pictures, seed=2)
    for file in (copy / "cat").iterdir():
        file.rename(file.with_stem(f"renamed {file.stem}"))
    shutil.rmtree(copy / "coffee")
    custom.install(tmp_path / "b", "mine", copy, seed=1)
    of_cats = [
        {path.replace("renamed ", "") for path in lists(tmp_path / root)["test"] if "/cat/" in path} for root in "abc"
    ]
    assert of_cats[0] == of_cats[1] != of_cats[2]


def test_folders_of_splits(pictures, tmp_path):
    for part, names in {"train": range(12), "val": range(12, 15), "test": range(15, 20)}.items():
        for of_class in pictures.iterdir():
            (tmp_path / "s" / part / of_class.name).mkdir(parents=True)
            for file in of_class.iterdir():
                if int("".join(c for c in file.stem if c.isdigit())) in names:
                    shutil.copy(file, tmp_path / "s" / part / of_class.name)
    described = custom.install(tmp_path, "mine", tmp_path / "s")
    assert described["split"] == {"given": ["train", "validation", "test"], "drawn": {}}
    assert described["images"] == {"train": 48, "validation": 12, "test": 20}
    assert all(path.startswith("images/val/") for path in lists(tmp_path)["validation"])

    shutil.rmtree(tmp_path / "s" / "val")
    described = custom.install(tmp_path, "mine", tmp_path / "s", seed=4)
    assert described["split"] == {"given": ["train", "test"], "drawn": {"validation": 0.2}, "seed": 4}
    assert described["images"] == {"train": 40, "validation": 8, "test": 20}
    drawn = lists(tmp_path)["validation"]
    assert all(path.startswith("images/train/") for path in drawn)
    for of_class in (tmp_path / "s" / "test").iterdir():
        for file in sorted(of_class.iterdir())[1:]:
            file.unlink()
    custom.install(tmp_path, "mine", tmp_path / "s", seed=4)
    assert lists(tmp_path)["validation"] == drawn, "test pictures take no part in it"


@pytest.mark.parametrize("names", [("train", "val", "test"), ("train800", "val200", "test")])
def test_split_files(copy, tmp_path, names):
    rows = listed(copy)
    for part, name in zip(("train", "val", "test"), names):
        lines = [f"{path} {CLASSES.index(label)}\n" for path, label, split in rows if split == part]
        (copy / f"{name}.txt").write_text("".join(lines))
    custom.install(tmp_path, "mine", copy)
    expected = {f"images/{path}": CLASSES.index(label) for path, label, split in rows if split == "val"}
    assert lists(tmp_path)["validation"] == expected
    assert tasks.class_names("mine", tmp_path) == ["0", "1", "2", "3"]


def test_a_csv_file(pictures, tmp_path):
    rows = listed(pictures)
    (tmp_path / "a.csv").write_text(
        "label,extra,Path,split\n" + "".join(f"{x},,{pictures / p},{s}\n" for p, x, s in rows)
    )
    custom.install(tmp_path, "mine", tmp_path / "a.csv")
    installed = lists(tmp_path)
    assert {part: len(of) for part, of in installed.items()} == {"train": 40, "validation": 20, "test": 20}
    assert all(tasks.class_names("mine", tmp_path)[label] == p.split("/")[-2] for p, label in installed["test"].items())
    assert all((tmp_path / "mine" / path).is_file() for path in installed["train"])

    beside = pictures.parent / "b.csv"  # relative paths, and no splits
    beside.write_text("path,label\n" + "".join(f"pictures/{p},{x}\n" for p, x, _ in rows))
    assert custom.install(tmp_path, "mine", beside)["images"] == {"train": 52, "validation": 12, "test": 16}


def test_the_order_follows_content_alone(pictures, tmp_path):
    """Names sort pictures by class; the first ones are of all classes."""
    rows = listed(pictures)
    (tmp_path / "renamed").mkdir()
    for number, (path, _, _) in enumerate(reversed(rows)):
        shutil.copy(pictures / path, tmp_path / "renamed" / f"{number:03}{Path(path).suffix}")
    lines = [f"renamed/{n:03}{Path(path).suffix},{label}\n" for n, (path, label, _) in enumerate(reversed(rows))]
    (tmp_path / "a.csv").write_text("path,label\n" + "".join(lines))
    labels = []
    for root, source in (("folders", pictures), ("file", tmp_path / "a.csv")):
        custom.install(tmp_path / root, "mine", source)
        labels.append(list(lists(tmp_path / root)["train"].values()))
    assert labels[0] == labels[1] and len(set(labels[0][:12])) == 4


def test_numbers_are_classes_in_their_order():
    assert listings.classes(["2", "10", "1", "-1"]) == ["-1", "1", "2", "10"]
    labels = [f"{number:0{width}}" for number in (1, 2) for width in range(1, 7)]
    assert listings.classes(labels) == [f"{number:0{width}}" for number in (1, 2) for width in range(6, 0, -1)]


def test_files_that_are_no_pictures_by_name_are_skipped_and_reported(copy, tmp_path):
    for name in ("notes.txt", "film.mpg", "scan.pdf", "field.h5"):  # Pillow writes PDF, and only identifies MPEG
        (copy / "cat" / name).write_text("a cat")
    (copy / "cat" / ".DS_Store").write_bytes(b"x")
    (copy / "cat" / "more").mkdir()
    shutil.move(copy / "coffee", copy / "cat" / "more" / "coffee")  # at any depth
    Image.new("RGB", (8, 8)).save(copy / "cat" / "both_eyes.mpo")
    described = custom.install(tmp_path, "mine", copy)
    assert described["left_out"] == 4 and len(described["classes"]) == 3
    assert sum(described["images"].values()) == 81
    assert custom.describe("mine", described).endswith("left out for want of an image's suffix: 4")


# Pixels


@pytest.mark.parametrize("mode", photographs.MODES)
def test_every_mode_is_decoded_as_it_is_meant_to_be_seen(mode, tmp_path):
    picture = photographs.crops("coffee", 1)[0]
    suffix, write = photographs.MODES[mode]
    write(picture, tmp_path / f"a{suffix}")
    expected = picture.convert("L").convert("RGB") if mode in ("grey", "sixteen") else picture
    expected = np.asarray(expected.resize((64, 64), Image.Resampling.BILINEAR)).astype(int)
    error = np.abs(image_folders.decode(tmp_path, f"a{suffix}", 64) - expected)
    assert error.mean() < 3 and np.abs(expected - expected.mean()).mean() > 15


def test_unreadable_pictures_are_named_at_once(copy, tmp_path):
    for file in (copy / "cat").iterdir():
        file.write_bytes(b"no picture " + file.name.encode())
    custom.install(tmp_path, "mine", copy)
    with pytest.raises(InputError) as caught:
        image_folders.load_split(tmp_path, "mine", "train800", 32)
    assert str(caught.value).count("cannot be read") == 10 and str(caught.value).endswith("; and 3 more")


# Checks


def duplicate(copy, label: str, part: str = "") -> None:
    """Copy a cat's picture byte for byte into another class or split."""
    source = next(file for file in sorted((copy / part / "cat").iterdir()))
    shutil.copy(source, copy / label / f"twin{source.suffix}")


def test_copies_stay_in_one_split(copy, tmp_path):
    for file in list((copy / "cat").iterdir()):
        shutil.copy(file, file.with_stem(f"{file.stem}_twin"))
    assert custom.install(tmp_path, "mine", copy)["images"] == {"train": 65, "validation": 15, "test": 20}
    for part in lists(tmp_path).values():
        stems = [os.path.splitext(path)[0] for path in part if "/cat/" in path]
        assert sorted(s for s in stems if s.endswith("_twin")) == sorted(f"{s}_twin" for s in stems if "_twin" not in s)


def splits_of(copy, **parts) -> None:
    """Turn class folders into folders of splits."""
    for of_class in list(copy.iterdir()):
        for i, file in enumerate(sorted(of_class.iterdir())):
            part = list(parts)[i % len(parts)]
            (copy / part / of_class.name).mkdir(parents=True, exist_ok=True)
            file.rename(copy / part / of_class.name / file.name)
        of_class.rmdir()


def csv(copy, *rows: str) -> str:
    (copy / "a.csv").write_text("\n".join(rows))
    return "a.csv"


def only(copy, *classes) -> None:
    for of_class in copy.iterdir():
        if of_class.name not in classes:
            shutil.rmtree(of_class)


def few(copy) -> None:
    for file in sorted((copy / "cat").iterdir())[2:]:
        file.unlink()


WRONG = {
    "nothing": (lambda f: "nothing", "does not exist"),
    "a file": (lambda f: "cat/grey1.png", "is neither a folder nor a CSV file"),
    "empty": (lambda f: [shutil.rmtree(x) for x in f.iterdir()] and "", "holds no pictures"),
    "empty class": (lambda f: (f / "zebra").mkdir(), "zebra is the folder of a class, but holds no pictures"),
    "one class": (lambda f: only(f, "cat"), "has one class, 'cat'; a classifier needs two or more"),
    "few": (few, "class 'cat' has 2 distinct pictures to split, and needs 3 at least"),
    "two labels": (lambda f: duplicate(f, "coffee"), "has 1 equal picture ("),
    "class beside splits": (
        lambda f: splits_of(f, train=1, test=1) or shutil.copytree(f / "test" / "cat", f / "zebra"),
        "has folders of splits, so 'zebra' beside them cannot be a class",
    ),
    "no test split": (lambda f: splits_of(f, train=1, val=1), "has splits, but none is named test"),
    "two names": (lambda f: splits_of(f, train=1, training=1, test=1), "both name the train split"),
    "overlap": (
        lambda f: splits_of(f, train=1, val=1, test=1) or duplicate(f, "test/cat", "train"),
        "in two splits: keep one of each",
    ),
    "untrained class": (
        lambda f: splits_of(f, train=1, val=1, test=1) or shutil.rmtree(f / "train" / "cat"),
        "has 1 class (cat) without a training picture",
    ),
    "twice": (
        lambda f: csv(f, "path,label", "cat/grey1.png,1", "cat/../cat/grey1.png,1"),
        "lists 1 picture (cat/grey1.png)",
    ),
    "no header": (lambda f: csv(f, "cat/a.png,1"), "a.csv, line 1: must name the columns path, label"),
    "no label": (lambda f: csv(f, "path,label", "cat/a.png,"), "a.csv, line 2: has no label"),
    "split's name": (lambda f: csv(f, "path,label,split", "cat/a.png,1,dev"), "a.csv, line 2: unknown split 'dev'"),
    "open quote": (lambda f: csv(f, "path,label", 'cat/grey1.png,"1', "cat/a.png,2"), "a.csv, line 3: unexpected end"),
    "lost": (
        lambda f: csv(f, "path,label", "cat/a.png,1", "cat/b.png,2"),
        "lacks 2 pictures (cat/a.png, cat/b.png)",
    ),
    "no CSV text": (
        lambda f: (f / "a.csv").write_bytes(b"path\xff") and "a.csv",
        "a.csv cannot be read: line 1 is not",
    ),
    "line": (
        lambda f: (f / "train.txt").write_text("cat/a.png\n") and "",
        "train.txt, line 1: expected 'relative/path",
    ),
    "outside": (
        lambda f: (f / "train.txt").write_text("../a.png 1\n") and "",
        "'../a.png' leaves the data set's folder",
    ),
    "line break": (
        lambda f: next(iter((f / "cat").iterdir())).rename(f / "cat" / "a\nb.png") and "",
        "rename 1 picture ('cat/a\\nb.png'): line break",
    ),
    "not UTF-8": (
        lambda f: os.rename(next(iter((f / "cat").iterdir())), os.fsencode(f / "cat") + b"/\xff.png"),
        "rename 1 picture ('cat/\\udcff.png')",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_are_one_line(case, copy, tmp_path):
    change, message = WRONG[case]
    place = change(copy)
    assert message in refusal(tmp_path, copy / place if isinstance(place, str) else copy)


def test_names(pictures, tmp_path):
    assert "'digits' is the name of a data set that is known already" in refusal(tmp_path, pictures, "digits")
    assert "cannot name a data set" in refusal(tmp_path, pictures, "../mine")
    (tmp_path / "photos").mkdir()
    assert "is no data set that --data-set wrote" in refusal(tmp_path, pictures, "photos")
    with pytest.raises(InputError, match="unknown data set 'mine'; .* --data-set mine=FOLDER"):
        tasks.task("mine", tmp_path)


def test_lists_are_written_again_only_for_other_pictures(copy, tmp_path, monkeypatch):
    custom.install(tmp_path, "mine", copy)
    before = lists(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(custom, "_contents", lambda listing: pytest.fail("every file was read again"))
        custom.install(tmp_path, "mine", copy)
    next(iter((copy / "cat").iterdir())).unlink()
    custom.install(tmp_path, "mine", copy)
    assert lists(tmp_path) != before
    (tmp_path / "mine" / "own.json").write_text("{")
    with pytest.raises(InputError, match="own.json is damaged"):
        tasks.task("mine", tmp_path)
