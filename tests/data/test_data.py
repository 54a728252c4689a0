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


def test_missing_split_file(folder):
    assert error(folder.parent) == f"{folder / 'test.txt'} does not exist"


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_empty_split_file(folder, content):
    (folder / "test.txt").write_text(content)
    assert error(folder.parent) == f"{folder / 'test.txt'} is empty"


def test_split_file_that_is_no_text(folder):
    (folder / "test.txt").write_bytes(b"a.png 1\n\xff\xfe")
    assert error(folder.parent) == f"{folder / 'test.txt'} cannot be read: line 2 is not UTF-8 text"


@pytest.mark.parametrize("line", ["b.png", "7", "b.png,2"])
def test_malformed_line(folder, line):
    (folder / "test.txt").write_text(f"a.png 1\n{line}\n")
    assert "test.txt, line 2: expected 'relative/path label'" in error(folder.parent)


@pytest.mark.parametrize("label", [10, -1, "one", 1.5, 10**30])
def test_label_out_of_range(folder, label):
    (folder / "test.txt").write_text(f"a.png 9\nb.png {label}\n")
    message = error(folder.parent)
    assert f"test.txt, line 2: label {label} " in message and "10 classes" in message


@pytest.mark.parametrize("path", ["../a.png", "images/../../a.png", "/etc/a.png", ".."])
def test_path_that_leaves_the_folder(folder, path):
    photograph((32, 32)).save(folder.parent / "a.png")
    (folder / "test.txt").write_text(f"{path} 1\n")
    assert f"line 1: {path!r} leaves" in error(folder.parent)


def test_missing_image_is_named(folder):
    photograph((32, 32)).save(folder / "a.png")
    (folder / "test.txt").write_text("a.png 1\n\nb.png 1\n")
    assert error(folder.parent) == f"{folder / 'test.txt'}, line 3: image {folder / 'b.png'} does not exist"


@pytest.mark.parametrize("again", ["a.png 1", "./a.png 1", "a.png 2", "images/../a.png 1"])
def test_repeated_line(folder, again):
    photograph((32, 32)).save(folder / "a.png")
    (folder / "test.txt").write_text(f"a.png 1\n\n{again}\n")
    assert error(folder.parent).endswith(f"test.txt, line 3: {again.split()[0]!r} stands in line 1 already")


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
