"""The store of decoded images: written once, rewritten when its source changes, never incomplete."""

import hashlib
import os
import resource
import shutil
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pvera import processes
from pvera.backbones import Backbone
from pvera.data import image_folders, splits, store
from pvera.errors import InputError

COUNT = 45  # more than one chunk


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A data set `digits` with COUNT images in each split, and a store of its own."""
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "cache"))
    source = np.random.default_rng(0)
    for split in image_folders.RUN_SPLITS:
        (tmp_path / "digits" / split).mkdir(parents=True)
        for i in range(COUNT):
            pixels = source.integers(256, size=(20, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "digits" / split / f"{i}.png")
        lines = "".join(f"{split}/{i}.png {i % 10}\n" for i in range(COUNT))
        (tmp_path / "digits" / f"{split}.txt").write_text(lines)
    return tmp_path


def load(root, split="test", **options):
    return image_folders.load_split(root, "digits", split, 32, **options)


def decoded(root, split="test") -> np.ndarray:
    paths = [root / "digits" / split / f"{i}.png" for i in range(COUNT)]
    images = [Image.open(path).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR) for path in paths]
    return np.stack([np.asarray(image) for image in images])


def files() -> list[str]:
    """Return the names of the store's files, without locks."""
    paths = (path for path in store.folder().rglob("*") if path.is_file())
    return sorted(path.name for path in paths if path.suffix != ".lock")


def forbidden(*arguments, **options):
    raise AssertionError("called")


def test_decodes_once_into_a_read_only_map(root, monkeypatch):
    first = load(root)
    assert isinstance(first.images, np.memmap) and not first.images.flags.writeable
    assert np.array_equal(first.images, decoded(root))
    monkeypatch.setattr(image_folders, "decode", forbidden)
    again = load(root)
    assert np.array_equal(again.images, first.images) and again.names == first.names
    assert len(files()) == 1
    with pytest.raises(AssertionError, match="called"):
        load(root, "val200")  # not decoded yet


@pytest.mark.xdist_group("fork server")
def test_processes_decode_the_same(root, monkeypatch):
    monkeypatch.setattr(store, "FEW", COUNT - 1)
    assert np.array_equal(load(root, processes=2).images, decoded(root))
    (root / "digits" / "val200" / "40.png").write_bytes(b"no image")
    with pytest.raises(InputError, match="40.png cannot be read"):
        load(root, "val200", processes=2)
    assert len(files()) == 1


def test_the_digest_is_that_of_images_and_labels_in_turn(root, monkeypatch):
    expected = hashlib.sha256()
    for split in image_folders.RUN_SPLITS:
        expected.update(decoded(root, split))
        expected.update(np.arange(COUNT, dtype=np.int64) % 10)
    loaded = [load(root, split) for split in image_folders.RUN_SPLITS]
    plain = [image_folders.ImageSplit(np.array(s.images), s.labels, s.names) for s in loaded]
    assert splits.digest(plain) == splits.digest(loaded) == expected.hexdigest()
    monkeypatch.setattr(store, "read", forbidden)
    assert splits.digest(loaded) == expected.hexdigest()
    monkeypatch.undo()
    monkeypatch.setenv(store.VARIABLE, str(root / "cache"))
    (kept,) = (store.folder() / "digests").iterdir()
    kept.write_text("")  # a full disk may leave it empty
    assert splits.digest(loaded) == expected.hexdigest() and kept.read_text()


def test_a_store_that_cannot_be_written_keeps_nothing(root, monkeypatch):
    monkeypatch.setenv(store.VARIABLE, "/dev/null/cache")
    assert store.keep(["about"], "value") == "value" and store.recall(["about"]) is None


def test_a_changed_image_is_decoded_again(root):
    before = np.array(load(root).images)
    key = load(root).key
    image = root / "digits" / "test" / "7.png"
    times = os.stat(image)
    content = image.read_bytes()
    other = (root / "digits" / "test" / "8.png").read_bytes()
    image.write_bytes(other)
    assert np.array_equal(load(root).images[7], before[8])
    image.write_bytes(content)
    os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))  # like some archivers
    assert np.array_equal(load(root).images, before) and load(root).key != key
    assert len(files()) == 1, "outdated files are removed"


def test_sizes_and_folders_do_not_share_a_place(root):
    small, large = (image_folders.load_split(root, "digits", "test", size).images for size in (16, 32))
    assert small.shape[1] == 16 and large.shape[1] == 32
    (root / "other").mkdir()
    os.rename(root / "digits", root / "other" / "digits")
    assert np.array_equal(load(root / "other").images, large)
    assert len(files()) == 3


@pytest.mark.parametrize("damage", [b"", b"not an array", None])
def test_a_damaged_store_is_rewritten(root, damage):
    before = np.array(load(root).images)
    (file,) = store.folder().rglob("*.npy")
    file.write_bytes(file.read_bytes()[:-1] if damage is None else damage)
    assert np.array_equal(load(root).images, before)


def test_a_damaged_image_leaves_nothing(root):
    image = root / "digits" / "test" / "44.png"
    image.write_bytes(image.read_bytes()[:-30])
    with pytest.raises(InputError, match="test/44.png cannot be read"):
        load(root)
    assert files() == []


def test_clear_removes_the_store_alone(root):
    load(root)
    (root / "cache" / "mine").write_text("not the store's")
    assert store.clear() >= COUNT * 32 * 32 * 3
    assert not store.folder().exists() and (root / "cache" / "mine").exists()
    assert store.clear() == 0
    assert np.array_equal(load(root).images, decoded(root))


# Full and unwritable disks


def refused(root) -> str:
    with pytest.raises(InputError) as caught:
        load(root)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_too_little_space_is_reported_before_decoding(root, monkeypatch):
    usage = shutil.disk_usage(root)
    monkeypatch.setattr(store.shutil, "disk_usage", lambda path: type(usage)(usage.total, usage.used, 1000))
    monkeypatch.setattr(image_folders, "decode", forbidden)
    assert "0.0 GB are free" in refused(root) and "--cache" in refused(root)
    assert files() == []


def test_a_disk_that_fills_up_leaves_nothing(root):
    # A limit on the size of files stops the writes in the kernel, as a full disk does.
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (COUNT * 32 * 32 * 3 // 2, hard))
    try:
        message = refused(root)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot write decoded images to " in message and "File too large" in message
    assert files() == []
    assert np.array_equal(load(root).images, decoded(root))


def test_a_cache_that_cannot_be_written(root, monkeypatch):
    (root / "file").touch()
    monkeypatch.setenv(store.VARIABLE, str(root / "file"))
    assert f"cannot write decoded images to {root / 'file' / 'store'}: Not a directory" in refused(root)


# Several processes


def decode_slowly(root, cache: str, seconds: float, name: str) -> None:
    """Decode a split, log the images, and write its digest to the file `name`."""
    os.environ[store.VARIABLE] = cache
    plain = image_folders.decode

    def decode(folder, path, size):
        with open(root / "log", "a") as log:
            log.write(path + "\n")
        time.sleep(seconds)
        return plain(folder, path, size)

    image_folders.decode = decode
    (root / name).write_text(splits.digest([load(root)]))


def start(root, seconds: float, name: str = "digest") -> BaseProcess:
    arguments = (root, os.environ[store.VARIABLE], seconds, name)
    process = processes.context(image_folders.__name__).Process(target=decode_slowly, args=arguments)
    process.start()
    return process


@pytest.mark.xdist_group("fork server")
def test_two_processes_decode_once(root):
    names = ("one", "other")
    for process in [start(root, 0.05, name) for name in names]:
        process.join(200)
        assert process.exitcode == 0
    assert {(root / name).read_text() for name in names} == {splits.digest([load(root)])}
    assert sorted((root / "log").read_text().split()) == sorted(f"test/{i}.png" for i in range(COUNT))


@pytest.mark.xdist_group("fork server")
def test_killed_while_it_decodes(root):
    process = start(root, 0.5)
    deadline = time.time() + 200
    while not (root / "log").exists():
        assert time.time() < deadline and process.is_alive()
        time.sleep(0.02)
    process.kill()
    process.join()
    assert [Path(name).suffix for name in files()] == [".partial"]
    assert np.array_equal(load(root).images, decoded(root))
    assert [Path(name).suffix for name in files()] == [".npy"]


# What training reads


@pytest.fixture
def backbone(vit):
    return Backbone(vit, "test", 32, (0.5, 0.4, 0.3), (0.25, 0.2, 0.15), "hash")


def test_batches_from_the_store_are_those_from_memory(root, backbone):
    split = load(root)
    memory, stored = (split.data(backbone, torch.device("cpu"), kept) for kept in (True, False))
    assert isinstance(stored.images, np.memmap) and len(memory) == len(stored) == COUNT
    for part in (slice(0, 16), slice(16, 32), slice(32, 100)):
        images = torch.from_numpy(decoded(root)[part].transpose(0, 3, 1, 2).copy())
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (backbone.mean, backbone.std))
        expected = images.float() * (1 / (255 * std)) + -mean / std
        for batch in (memory[part], stored[part]):
            assert batch.is_contiguous() and torch.equal(batch, expected)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory in use from /proc")
def test_a_test_split_is_never_in_memory_as_a_whole(tmp_path, backbone):
    shape = (5000, 224, 224, 3)  # 750 MB, a sparse file
    np.lib.format.open_memmap(tmp_path / "test.npy", mode="w+", dtype=np.uint8, shape=shape).flush()
    images = np.lib.format.open_memmap(tmp_path / "test.npy", mode="r")
    split = image_folders.ImageSplit(images, np.zeros(len(images), np.int64), [])
    stored = split.data(backbone, torch.device("cpu"), in_memory=False)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    after = [before]
    for start in range(0, len(images), 100):
        stored[slice(start, start + 100)]
        after.append(resident())
    assert max(after) - before < 250e6
