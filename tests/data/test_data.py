import numpy as np
import pytest
from PIL import Image

from pvera.data import image_folders, tasks
from pvera.errors import InputError


@pytest.fixture
def folder(tmp_path):
    """An empty `digits` data set (ten classes) below tmp_path."""
    folder = tmp_path / "digits"
    folder.mkdir()
    return folder


def photograph(size, seed=0):
    noise = np.random.default_rng(seed).integers(256, size=(6, 5, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)


def error(root, split="test", name="digits"):
    with pytest.raises(InputError) as caught:
        image_folders.load_split(root, name, split, 32)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_papers_data_sets_and_those_of_the_suites():
    vtab = [t for t in tasks.TASKS.values() if t.suite == "vtab"]
    by_category = {c: [t for t in vtab if t.category == c] for c in ("natural", "specialized", "structured")}
    assert [len(tasks) for tasks in by_category.values()] == [7, 4, 8]
    assert sum(t.test_images for t in vtab) == 387_904
    assert sum(t.classes for t in vtab) == 940
    assert len({t.title for t in tasks.TASKS.values()}) == len(tasks.TASKS) == 19 + 12 + 3 + 3
    assert all(tasks.task(name).name == name for name in tasks.TASKS)


def test_reads_in_the_files_order(folder):
    names = [f"some folder/{i} of 9.png" for i in range(9)]
    (folder / "some folder").mkdir()
    for i, name in enumerate(names):
        photograph((32, 32), seed=i).save(folder / name)
    order = [4, 8, 0, 2, 6, 1, 3, 5, 7]
    lines = [f"{names[i]} {i}" for i in order]
    (folder / "val200.txt").write_bytes(("\ufeff" + "\r\n".join(lines) + "\r\n\r\n").encode())
    one = image_folders.load_split(folder.parent, "digits", "val200", 32)
    assert one.names == [names[i] for i in order]
    assert one.labels.dtype == np.int64 and one.labels.tolist() == order
    assert one.images.dtype == np.uint8 and one.images.shape == (9, 32, 32, 3)
    for image, i in zip(one.images, order):
        assert np.array_equal(image, photograph((32, 32), seed=i))


def test_errors_for_unknown_names_list_the_known_ones(tmp_path):
    assert "'mnist'" in error(tmp_path, name="mnist") and "sun397" in error(tmp_path, name="mnist")
    assert "'train'" in error(tmp_path, split="train") and "val200" in error(tmp_path, split="train")


WRONG = {
    "empty": (b"", "{list} is empty"),
    "blank": (b"\n \n", "{list} is empty"),
    "no text": (b"a.png 1\n\xff\xfe", "{list} cannot be read: line 2 is not UTF-8 text"),
    "no label": (b"a.png 1\nb.png", "{list}, line 2: expected 'relative/path label'"),
    "no path": (b"a.png 1\n7", "{list}, line 2: expected 'relative/path label'"),
    "commas": (b"a.png 1\nb.png,2", "{list}, line 2: expected 'relative/path label'"),
    "class 10 of 10": (b"a.png 9\nb.png 10", "{list}, line 2: label 10 is not one of 10 classes from 0"),
    "negative": (b"a.png 9\nb.png -1", "{list}, line 2: label -1 "),
    "word": (b"a.png 9\nb.png one", "{list}, line 2: label one "),
    "fraction": (b"a.png 9\nb.png 1.5", "{list}, line 2: label 1.5 "),
    "long": (b"a.png 9\nb.png 1" + 30 * b"0", "{list}, line 2: label 1" + 30 * "0"),
    "parent": (b"../a.png 1", "{list}, line 1: '../a.png' leaves"),
    "hidden parent": (b"images/../../a.png 1", "{list}, line 1: 'images/../../a.png' leaves"),
    "absolute": (b"/etc/a.png 1", "{list}, line 1: '/etc/a.png' leaves"),
    "only parent": (b".. 1", "{list}, line 1: '..' leaves"),
    "missing image": (b"a.png 1\n\nb.png 1", "{list}, line 3: image {folder}/b.png does not exist"),
    "repeated": (b"a.png 1\n\na.png 2", "{list}, line 3: 'a.png' stands in line 1 already"),
    "repeated by another name": (b"a.png 1\n\nx/../a.png 1", "{list}, line 3: 'x/../a.png' stands in line 1 already"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_lists_are_named_with_their_line(folder, case):
    content, message = WRONG[case]
    assert error(folder.parent) == f"{folder / 'test.txt'} does not exist"
    for place in (folder, folder.parent):
        photograph((32, 32)).save(place / "a.png")
    (folder / "test.txt").write_bytes(content)
    assert error(folder.parent).startswith(message.format(list=folder / "test.txt", folder=folder))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_names_of_any_script(folder, end):
    names = ["größe.PNG", "写真.png", "Größe.png"]
    for i, name in enumerate(names):
        photograph((32, 32), seed=i).save(folder / name)
    (folder / "test.txt").write_bytes(end.join(f"{name}\t{i}" for i, name in enumerate(names)).encode())
    split = image_folders.load_split(folder.parent, "digits", "test", 32)
    assert split.names == names and split.labels.tolist() == [0, 1, 2]
    for image, i in zip(split.images, range(3)):
        assert np.array_equal(image, photograph((32, 32), seed=i))
