import numpy as np
import pytest
from PIL import ExifTags, Image

from pvera import data
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
        data.load_split(root, name, split, 32)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_papers_data_sets_and_those_of_the_suites():
    vtab = [t for t in data.TASKS.values() if t.suite == "vtab"]
    by_category = {c: [t for t in vtab if t.category == c] for c in ("natural", "specialized", "structured")}
    assert [len(tasks) for tasks in by_category.values()] == [7, 4, 8]
    assert sum(t.test_images for t in vtab) == 387_904
    assert sum(t.classes for t in vtab) == 940
    assert len({t.title for t in data.TASKS.values()}) == len(data.TASKS) == 19 + 6 + 3 + 3
    assert all(data.task(name).name == name for name in data.TASKS)


def test_reads_in_the_files_order(folder):
    names = [f"some folder/{i} of 9.png" for i in range(9)]
    (folder / "some folder").mkdir()
    for i, name in enumerate(names):
        photograph((32, 32), seed=i).save(folder / name)
    order = [4, 8, 0, 2, 6, 1, 3, 5, 7]
    lines = [f"{names[i]} {i}" for i in order]
    (folder / "val200.txt").write_bytes(("\ufeff" + "\r\n".join(lines) + "\r\n\r\n").encode())
    one, many = (data.load_split(folder.parent, "digits", "val200", 32, threads=n) for n in (1, 4))
    assert one.names == [names[i] for i in order]
    assert one.labels.dtype == np.int64 and one.labels.tolist() == order
    assert one.images.dtype == np.uint8 and one.images.shape == (9, 32, 32, 3)
    for image, i in zip(one.images, order):
        assert np.array_equal(image, photograph((32, 32), seed=i))
    assert np.array_equal(one.images, many.images) and one.names == many.names


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "1", "CMYK"])
def test_every_mode_comes_out_as_pillows_rgb(folder, mode):
    kind = "tiff" if mode == "CMYK" else "png"
    image = photograph((32, 32))
    if mode in ("RGBA", "LA"):
        image.putalpha(photograph((32, 32), seed=1).convert("L"))
    image = image.convert(mode)
    image.save(folder / f"a.{kind}")
    (folder / "test.txt").write_text(f"a.{kind} 3\n")
    with Image.open(folder / f"a.{kind}") as stored:
        assert stored.mode == mode
    read = data.load_split(folder.parent, "digits", "test", 32).images[0]
    assert np.array_equal(read, image.convert("RGB"))


def read_back(folder, name: str) -> np.ndarray:
    (folder / "test.txt").write_text(f"{name} 3\n")
    return data.load_split(folder.parent, "digits", "test", 32).images[0]


def test_sixteen_bits_come_out_as_pillows_rgb(folder):
    depth = np.random.default_rng(0).integers(2**16, size=(32, 32), dtype=np.uint16)
    Image.fromarray(depth).save(folder / "a.png")
    with Image.open(folder / "a.png") as stored:
        assert stored.mode == "I;16"
        expected = np.asarray(stored.convert("RGB"))
    assert np.array_equal(read_back(folder, "a.png"), expected)
    assert np.array_equal(expected[..., 0], expected[..., 1]) and np.ptp(expected) > 200


def test_transparent_palette_entries_keep_their_colour(folder):
    image = photograph((32, 32)).convert("P")
    image.save(folder / "a.png", transparency=bytes(256))
    with Image.open(folder / "a.png") as stored:
        assert stored.mode == "P" and "transparency" in stored.info
    assert np.array_equal(read_back(folder, "a.png"), image.convert("RGB"))


def test_the_exif_orientation_is_ignored(folder):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # to be shown turned by a quarter
    photograph((40, 20)).save(folder / "a.png", exif=exif)
    with Image.open(folder / "a.png") as stored:
        assert stored.getexif()[ExifTags.Base.Orientation] == 6
    expected = photograph((40, 20)).resize((32, 32), Image.Resampling.BILINEAR)
    assert np.array_equal(read_back(folder, "a.png"), expected)


@pytest.mark.parametrize("size", [(40, 20), (7, 90), (32, 31)])
def test_resizes_bilinearly_without_keeping_the_aspect_ratio(folder, size):
    photograph(size).save(folder / "a.png")
    (folder / "test.txt").write_text("a.png 0\n")
    expected = photograph(size).resize((32, 32), Image.Resampling.BILINEAR)
    assert np.array_equal(data.load_split(folder.parent, "digits", "test", 32).images[0], expected)


def test_unknown_names_list_what_there_is(tmp_path):
    assert "'mnist'" in error(tmp_path, name="mnist") and "sun397" in error(tmp_path, name="mnist")
    assert "'train'" in error(tmp_path, split="train") and "train800val200" in error(tmp_path, split="train")


def test_missing_split_file(folder):
    assert error(folder.parent) == f"{folder / 'test.txt'} does not exist"


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_empty_split_file(folder, content):
    (folder / "test.txt").write_text(content)
    assert error(folder.parent) == f"{folder / 'test.txt'} is empty"


def test_split_file_that_is_no_text(folder):
    (folder / "test.txt").write_bytes(b"a.png 1\n\xff\xfe")
    assert "test.txt cannot be read" in error(folder.parent)


@pytest.mark.parametrize("line", ["b.png", "b.png one", "b.png 1.5", "7", "b.png,2", "b.png 1" + "0" * 30])
def test_malformed_line(folder, line):
    (folder / "test.txt").write_text(f"a.png 1\n{line}\n")
    assert "test.txt, line 2: expected 'relative/path label'" in error(folder.parent)


@pytest.mark.parametrize("label", [10, -1, 1000])
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
    (folder / "test.txt").write_text("a.png 1\nb.png 1\n")
    assert error(folder.parent) == f"image {folder / 'b.png'} does not exist"


@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "bits", "folder"])
def test_unreadable_image_is_named(folder, damage):
    photograph((32, 32)).save(folder / "a.png")
    whole = (folder / "a.png").read_bytes()
    middle = len(whole) // 2
    content = {
        "empty": b"",
        "text": b"not an image\n",
        "truncated": whole[:middle],
        "bits": whole[:middle] + bytes(255 - b for b in whole[middle : middle + 8]) + whole[middle + 8 :],
    }
    if damage == "folder":
        (folder / "b.png").mkdir()
    else:
        (folder / "b.png").write_bytes(content[damage])
    (folder / "test.txt").write_text("a.png 1\nb.png 1\na.png 2\n")
    assert error(folder.parent).startswith(f"image {folder / 'b.png'} cannot be read: ")
