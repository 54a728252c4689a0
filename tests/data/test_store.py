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

COUNT = 45


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A data set `digits` with COUNT images in each split, a store of its own, and chunks that are not the whole."""
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(store, "CHUNK", 20)
    source = np.random.default_rng(0)
    for split in image_folders.SPLITS:
        (tmp_path / "digits" / split).mkdir(parents=True)
        for i in range(COUNT):
            pixels = source.integers(256, size=(20, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "digits" / split / f"{i}.png")
        lines = "".join(f"{split}/{i}.png {i % 10}\n" for i in range(COUNT))
        (tmp_path / "digits" / f"{split}.txt").write_text(lines)
    return tmp_path


def load(root, split="test", size=32):
    return image_folders.load_split(root, "digits", split, size)


def decoded(root, split="test") -> np.ndarray:
    paths = [root / "digits" / split / f"{i}.png" for i in range(COUNT)]
    images = [Image.open(path).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR) for path in paths]
    return np.stack([np.asarray(image) for image in images])


def files() -> list[str]:
    """Return the suffixes of the store's files, without locks."""
    paths = (path for path in store.folder().rglob("*") if path.is_file())
    return sorted(path.suffix for path in paths if path.suffix != ".lock")


def forbidden(*arguments, **options):
    raise AssertionError("called")


def refused(root) -> str:
    with pytest.raises(InputError) as caught:
        load(root)
    assert "\n" not in str(caught.value) and files() == [], "nothing is left"
    return str(caught.value)


def test_decodes_once_into_a_read_only_map(root, monkeypatch):
    first = load(root)
    assert isinstance(first.images, np.memmap) and not first.images.flags.writeable
    assert np.array_equal(first.images, decoded(root))
    monkeypatch.setattr(image_folders, "decode", forbidden)
    again = load(root)
    assert np.array_equal(again.images, first.images) and again.names == first.names and files() == [".npy"]
    with pytest.raises(AssertionError, match="called"):
        load(root, "val200")  # not decoded yet


def test_a_file_takes_its_name_when_it_is_whole(root, monkeypatch):
    """It is renamed, not copied: whoever opens it meanwhile finds all of it or nothing."""
    seen, decode = set(), image_folders.decode

    def watch(*arguments, **options):
        (unfinished,) = store.folder().rglob("test-*.partial")
        assert not list(store.folder().rglob("*.npy"))
        seen.add(unfinished.stat().st_ino)
        return decode(*arguments, **options)

    monkeypatch.setattr(image_folders, "decode", watch)
    assert {Path(load(root).images.filename).stat().st_ino} == seen


def test_the_digest_is_that_of_images_and_labels_in_turn(root, monkeypatch):
    expected = hashlib.sha256()
    for split in image_folders.SPLITS:
        expected.update(decoded(root, split))
        expected.update(np.arange(COUNT, dtype=np.int64) % 10)
    loaded = [load(root, split) for split in image_folders.SPLITS]
    plain = [image_folders.ImageSplit(np.array(s.images), s.labels, s.names) for s in loaded]
    assert splits.digest(plain) == splits.digest(loaded) == expected.hexdigest()
    with monkeypatch.context() as patch:
        patch.setattr(store, "read", forbidden)
        assert splits.digest(loaded) == expected.hexdigest(), "it is kept"
    (kept,) = (store.folder() / "digests").iterdir()
    kept.write_text("")  # a full disk may leave it empty
    assert splits.digest(loaded) == expected.hexdigest() and kept.read_text()
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
    assert files() == [".npy"], "outdated files are removed"


def test_sizes_and_folders_do_not_share_a_place(root):
    small, large = load(root, size=16).images, load(root).images
    assert small.shape[1] == 16 and large.shape[1] == 32
    (root / "other").mkdir()
    os.rename(root / "digits", root / "other" / "digits")
    assert np.array_equal(load(root / "other").images, large)
    assert files() == 3 * [".npy"]


@pytest.mark.parametrize("damage", [b"", b"not an array", None])
def test_a_damaged_store_is_rewritten(root, damage):
    before = np.array(load(root).images)
    (file,) = store.folder().rglob("*.npy")
    file.write_bytes(file.read_bytes()[:-1] if damage is None else damage)
    assert np.array_equal(load(root).images, before)


def test_clear_removes_the_store_alone(root):
    load(root)
    (root / "cache" / "mine").write_text("not the store's")
    assert store.clear() >= COUNT * 32 * 32 * 3
    assert not store.folder().exists() and (root / "cache" / "mine").exists()
    assert store.clear() == 0
    assert np.array_equal(load(root).images, decoded(root))


# What cannot be decoded or written leaves nothing


def test_damaged_images_are_named(root):
    for number in (3, 44):
        image = root / "digits" / "test" / f"{number}.png"
        image.write_bytes(image.read_bytes()[:-30])
    message = refused(root)
    assert "test/3.png cannot be read" in message and "test/44.png cannot be read" in message


def test_too_little_space_is_reported_before_decoding(root, monkeypatch):
    usage = shutil.disk_usage(root)
    monkeypatch.setattr(store.shutil, "disk_usage", lambda path: type(usage)(usage.total, usage.used, 1000))
    monkeypatch.setattr(image_folders, "decode", forbidden)
    message = refused(root)
    assert "0.0 GB are free" in message and "--cache" in message


def test_a_disk_that_fills_up_leaves_nothing(root):
    # A limit on the size of files stops the writes in the kernel, as a full disk does.
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (COUNT * 32 * 32 * 3 // 2, hard))
    try:
        message = refused(root)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot write decoded images to " in message and "File too large" in message
    assert np.array_equal(load(root).images, decoded(root))


def test_a_cache_that_cannot_be_written(root, monkeypatch):
    (root / "file").touch()
    monkeypatch.setenv(store.VARIABLE, str(root / "file"))
    assert f"cannot write decoded images to {root / 'file' / 'store'}: Not a directory" in refused(root)


# Several processes


def decode_slowly(root, cache: str, seconds: float) -> None:
    """Decode a split and log the images."""
    os.environ[store.VARIABLE] = cache
    plain = image_folders.decode

    def decode(folder, path, size):
        with open(root / "log", "a") as log:
            log.write(path + "\n")
        time.sleep(seconds)
        return plain(folder, path, size)

    image_folders.decode = decode
    assert np.array_equal(load(root).images, decoded(root))


def start(root, seconds: float) -> BaseProcess:
    arguments = (root, os.environ[store.VARIABLE], seconds)
    process = processes.context(image_folders.__name__).Process(target=decode_slowly, args=arguments)
    process.start()
    return process


@pytest.mark.xdist_group("fork server")
def test_two_processes_decode_once(root):
    for process in [start(root, 0.05), start(root, 0.05)]:
        process.join(200)
        assert process.exitcode == 0
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
    assert files() == [".partial"]
    assert np.array_equal(load(root).images, decoded(root)) and files() == [".npy"]


# What training reads


@pytest.fixture
def backbone(vit):
    return Backbone(vit, "test", 32, (0.5, 0.4, 0.3), (0.25, 0.2, 0.15), "hash")


def test_batches_from_the_store_are_those_from_memory(root, backbone):
    split = load(root)
    memory, stored = (split.data(backbone, torch.device("cpu"), kept) for kept in (True, False))
    assert isinstance(stored.images, np.memmap) and len(memory) == len(stored) == COUNT
    for part in (slice(0, 16), slice(32, 100)):
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
    stored = image_folders.ImageSplit(images, np.zeros(len(images), np.int64), []).data(
        backbone, torch.device("cpu"), in_memory=False
    )

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    for start in range(0, len(images), 100):
        stored[slice(start, start + 100)]
        assert resident() - before < 250e6
