"""Split files, and the store of decoded images: written once, never incomplete, never outdated."""

import hashlib
import multiprocessing
import os
import resource
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pvera.backbones import Backbone
from pvera.data import decoding, image_splits, inputs, split_files, store, tasks
from pvera.data.tasks import TASKS
from pvera.errors import InputError

COUNT = 45


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A data set `digits` with COUNT images in each split, and a store that decodes 20 at once."""
    monkeypatch.setenv(store.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(store, "CHUNK", 20)
    source = np.random.default_rng(0)
    for split in split_files.SPLIT_FILES:
        (tmp_path / "digits" / split).mkdir(parents=True)
        for i in range(COUNT):
            pixels = source.integers(256, size=(20, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "digits" / split / f"{i}.png")
        lines = "".join(f"{split}/{i}.png {i % 10}\n" for i in range(COUNT))
        (tmp_path / "digits" / f"{split}.txt").write_text(lines)
    return tmp_path


def load(root, split="test", size=32):
    return image_splits.load_split(root, "digits", split, size)


def decoded(root, split="test") -> np.ndarray:
    paths = [root / "digits" / split / f"{i}.png" for i in range(COUNT)]
    images = [
        Image.open(path).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
        for path in paths
    ]
    return np.stack([np.asarray(image) for image in images])


def files() -> list[str]:
    """Return the suffixes of the store's files, without locks."""
    paths = (path for path in store.store_folder().rglob("*") if path.is_file())
    return sorted(path.suffix for path in paths if path.suffix != ".lock")


def forbidden(*arguments, **options):
    raise AssertionError("called")


def refused(root, name="digits") -> str:
    with pytest.raises(InputError) as caught:
        image_splits.load_split(root, name, "test", 32)
    assert "\n" not in str(caught.value) and files() == [], "nothing is left"
    return str(caught.value)


# Split files


def test_the_papers_data_sets_and_those_of_the_suites(root):
    vtab = [t for t in TASKS.values() if t.suite == "vtab"]
    by_category = {
        c: [t for t in vtab if t.category == c] for c in ("natural", "specialized", "structured")
    }
    assert [len(tasks) for tasks in by_category.values()] == [7, 4, 8]
    assert sum(t.test_images for t in vtab) == 387_904
    assert sum(t.classes for t in vtab) == 940
    assert len({t.title for t in TASKS.values()}) == len(TASKS) == 19 + 12 + 3
    assert all(tasks.find_data_set(name).name == name for name in TASKS)
    assert "'mnist'" in refused(root, "mnist") and "sun397" in refused(root, "mnist")


WRONG = {
    "blank": (b"\n \n", "{list} is empty"),
    "no text": (
        b"a.png 1\n\xff\xfe",
        "{list} cannot be read: 'utf-8' codec can't decode byte 0xff",
    ),
    "no label": (b"a.png 1\nb.png", "{list}, line 2: expected 'relative/path label'"),
    "class 10 of 10": (
        b"a.png 9\nb.png 10",
        "{list}, line 2: expected 'relative/path label', of 10 labels from 0",
    ),
    "negative": (b"a.png 9\nb.png -1", "{list}, line 2: expected "),
    "missing image": (b"test/1.png 1\n\nb.png 1", "image {folder}/b.png cannot be read: [Errno 2]"),
    "repeated": (b"a.png 1\n\na.png 1", "{list}, line 3: 'a.png' stands in an earlier line"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_lists_are_named_with_their_line(root, case):
    content, message = WRONG[case]
    file = root / "digits/test.txt"
    file.unlink()
    assert refused(root).startswith(f"{file} cannot be read: [Errno 2]")
    file.write_bytes(content)
    assert refused(root).startswith(message.format(list=file, folder=file.parent))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_order_line_ends_and_names_of_any_script(root, end):
    names, folder = ["größe of 9.PNG", "写真.png", "Größe.png"], root / "digits"
    for number, name in enumerate(names):
        (folder / f"test/{number}.png").rename(folder / name)
    images = [
        np.asarray(Image.open(folder / name).resize((32, 32), Image.Resampling.BILINEAR))
        for name in names
    ]
    lines = [f"{names[i]}\t{i}" for i in (2, 0, 1)]
    (folder / "test.txt").write_bytes(("\ufeff" + end.join([*lines, "", ""])).encode())
    split = load(root)
    assert split.names == [names[i] for i in (2, 0, 1)]
    assert split.labels.tolist() == [2, 0, 1] and split.labels.dtype == np.int64
    assert np.array_equal(split.images, [images[i] for i in (2, 0, 1)])


# The store


def test_decodes_once_into_a_read_only_map(root, monkeypatch):
    first = load(root)
    assert isinstance(first.images, np.memmap) and not first.images.flags.writeable
    assert np.array_equal(first.images, decoded(root))
    small = load(root, size=16).images
    assert small.shape == (COUNT, 16, 16, 3)
    monkeypatch.setattr(decoding, "decode", forbidden)
    again = load(root)
    assert (
        np.array_equal(again.images, first.images)
        and again.names == first.names
        and files() == [".npy"] * 2
    )
    with pytest.raises(AssertionError, match="called"):
        load(root, "val200")  # not decoded yet


def test_the_digest_is_that_of_images_and_labels_in_turn(root, monkeypatch):
    expected = hashlib.sha256()
    for split in split_files.SPLIT_FILES:
        expected.update(decoded(root, split))
        expected.update(np.arange(COUNT, dtype=np.int64) % 10)
    loaded = [load(root, split) for split in split_files.SPLIT_FILES]
    assert inputs.splits_sha256(loaded) == expected.hexdigest()
    (kept,) = (store.store_folder() / "digests").iterdir()
    kept.write_text("")  # a full disk may leave it empty
    assert inputs.splits_sha256(loaded) == expected.hexdigest() and kept.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(store, "copy_images", forbidden)
        assert inputs.splits_sha256(loaded) == expected.hexdigest(), "it is kept"
    unkeyed = [replace(split, key="") for split in loaded]
    first, last = (inputs.splits_sha256([split.first(2) for split in unkeyed[i:]]) for i in (0, 1))
    assert first != last and unkeyed[0].first(2).key == ""
    monkeypatch.setenv(store.CACHE_VARIABLE, "/dev/null/cache")
    assert store.load_or_compute(["about"], lambda: "value") == "value"


def test_keys_tell_all_that_a_split_depends_on(root, monkeypatch):
    def keys(size=32) -> list[str]:
        return [
            image_splits.labels_and_key(root, "digits", split, size)[1]
            for split in split_files.SPLIT_FILES
        ]

    first = keys()
    assert (
        first == [load(root, split).key for split in split_files.SPLIT_FILES]
        and len(set(first)) == 3
    )
    lists = (root / "digits/test.txt").read_text()
    (root / "digits/test.txt").write_text(lists.replace(" 9", " 8", 1))
    assert [key in first for key in keys()] == [True, True, False]
    (root / "digits/test.txt").write_text(lists)
    assert load(root).first(5).key not in first and not {*first} & {*keys(8)}
    monkeypatch.setattr(decoding, "DECODER_VERSION", decoding.DECODER_VERSION + 1)
    assert not {*first} & {*keys()}


def test_what_cannot_be_decoded_or_written_leaves_nothing(root):
    for number in range(30, 42):
        image = root / "digits" / "val200" / f"{number}.png"
        image.write_bytes(image.read_bytes()[:-30])
    with pytest.raises(InputError) as caught:
        load(root, "val200")
    message = str(caught.value)
    assert (
        message.count("cannot be read") == 10
        and f"{image.parent}/30.png" in message
        and files() == []
    )
    # A limit on the size of files stops the writes in the kernel, as a full disk does.
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (COUNT * 32 * 32 * 3 // 2, hard))
    try:
        message = refused(root)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert message.startswith(
        f"cannot write decoded images to {root}/cache/store (PVERA_CACHE names another folder)"
    )
    assert np.array_equal(load(root).images, decoded(root))


def test_a_changed_image_is_decoded_again(root):
    before, key = np.array(load(root).images), load(root).key
    image = root / "digits" / "test" / "7.png"
    times, content = os.stat(image), image.read_bytes()
    image.write_bytes((root / "digits" / "test" / "8.png").read_bytes())
    assert np.array_equal(load(root).images[7], before[8])
    image.write_bytes(content)
    os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))  # like some archivers
    assert np.array_equal(load(root).images, before) and load(root).key != key
    assert files() == [".npy"], "outdated files are removed"
    (file,) = store.store_folder().rglob("*.npy")
    file.write_bytes(file.read_bytes()[:-1])
    assert np.array_equal(load(root).images, before), "a damaged store is rewritten"


# Several processes


FORK = multiprocessing.get_context("fork")


def decode_slowly(patch, root, seconds: float) -> None:
    """Log each image that is decoded, and take so long for it."""
    decode = decoding.decode

    def decode_and_log(file, size):
        with open(root / "log", "a") as log:
            log.write(f"{file.relative_to(root / 'digits')}\n")
        time.sleep(seconds)
        return decode(file, size)

    patch.setattr(decoding, "decode", decode_and_log)


def test_two_processes_decode_once(root, monkeypatch):
    decode_slowly(monkeypatch, root, 0.05)
    processes = [FORK.Process(target=load, args=(root,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(200)
        assert process.exitcode == 0
    assert sorted((root / "log").read_text().split()) == sorted(
        f"test/{i}.png" for i in range(COUNT)
    )
    assert np.array_equal(load(root).images, decoded(root))


def test_killed_while_it_decodes(root):
    process = FORK.Process(target=load, args=(root,))
    with pytest.MonkeyPatch.context() as patch:
        decode_slowly(patch, root, 0.5)
        process.start()
    deadline = time.time() + 200
    while not (root / "log").exists():
        assert time.time() < deadline and process.is_alive()
        time.sleep(0.02)
    process.kill()
    process.join()
    assert files() == [".partial"]
    assert np.array_equal(load(root).images, decoded(root)) and files() == [".npy"]


# What training reads


@pytest.fixture
def backbone(vit):
    return Backbone(vit, "test", 32, (0.5, 0.4, 0.3), (0.25, 0.2, 0.15), "hash")


def test_batches_from_the_store_are_those_from_memory(root, backbone):
    memory, stored = (
        load(root).data(backbone, torch.device("cpu"), kept) for kept in (True, False)
    )
    assert isinstance(stored.images, np.memmap) and len(memory) == len(stored) == COUNT
    for part in (slice(0, 16), slice(32, 100)):
        images = torch.from_numpy(decoded(root)[part].transpose(0, 3, 1, 2).copy())
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (backbone.mean, backbone.std))
        expected = images.float() * (1 / (255 * std)) + -mean / std
        for batch in (memory[part], stored[part]):
            assert batch.is_contiguous() and torch.equal(batch, expected)


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="reads the memory in use from /proc"
)
def test_a_test_split_is_never_in_memory_as_a_whole(tmp_path, backbone):
    shape = (2000, 224, 224, 3)  # 300 MB, a sparse file
    np.lib.format.open_memmap(tmp_path / "test.npy", mode="w+", dtype=np.uint8, shape=shape).flush()
    images = np.lib.format.open_memmap(tmp_path / "test.npy", mode="r")
    stored = image_splits.ImageSplit(images, np.zeros(len(images), np.int64), []).data(
        backbone, torch.device("cpu"), in_memory=False
    )

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    for start in range(0, len(images), 100):
        stored[slice(start, start + 100)]
        assert resident() - before < 150e6
