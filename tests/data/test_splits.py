"""One interface to images and texts, and keys and digests that change with the data."""

import os
import shutil

import numpy as np
import pytest
import text_tasks
import torch
from PIL import Image
from tiny import make_vit
from vtab_like import edit

from pvera import text_encoders
from pvera.backbones import Backbone
from pvera.data import glue, image_folders, splits, store, tokenized
from pvera.errors import InputError

CPU = torch.device("cpu")
TEXTS = "acceptability"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Ten images in each split of KITTI, and short text tasks."""
    root, source = tmp_path_factory.mktemp("whole"), np.random.default_rng(0)
    for split in image_folders.RUN_SPLITS:
        (root / "kitti" / split).mkdir(parents=True)
        for i in range(10):
            pixels = source.integers(256, size=(8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / "kitti" / split / f"{i}.bmp")
        (root / "kitti" / f"{split}.txt").write_text("".join(f"{split}/{i}.bmp {i % 4}\n" for i in range(10)))
    text_tasks.write(root)
    return root


@pytest.fixture
def root(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "data")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return text_encoders.load("minilm", text_tasks.write_encoder(tmp_path_factory.mktemp("encoder")))


@pytest.fixture(params=["kitti", TEXTS])
def case(request, encoder):
    """A data set of each kind, and a frozen model that reads it."""
    backbone = Backbone(make_vit(), "test", 16, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), "hash")
    return request.param, encoder if request.param == TEXTS else backbone


def test_both_kinds_load_and_make_batches_alike(root, case):
    name, frozen = case
    loaded = splits.load(root, name, frozen, first=5)
    for split, part in zip(loaded, splits.PARTS):
        data = split.data(frozen, CPU, in_memory=part != "test")
        batch = data[slice(0, 4)]
        assert len(data) == len(split.labels) == 5 and data.evaluation_batch > 0
        assert data.labels.tolist() == split.labels.tolist()
        assert all(len(tensor) == 4 for tensor in (batch.values() if isinstance(batch, dict) else [batch]))
    (test,) = splits.load(root, name, frozen, ("test",), first=5)
    assert test.labels.tolist() == loaded[2].labels.tolist()


def test_keys_need_no_data_and_tell_all_that_a_split_depends_on(root, case, monkeypatch):
    name, frozen = case
    reading, loaded = splits.reading(name, frozen), splits.load(root, name, frozen)
    few = splits.load(root, name, frozen, first=5)
    monkeypatch.setattr(splits.kind(name), "load_parts", None)
    keys = splits.keys(root, name, reading)
    assert keys == [split.key for split in loaded] and len(set(keys)) == 3
    assert splits.keys(root, name, reading, first=5) == [split.key for split in few] != keys
    assert splits.keys(root, name, reading | {"image_size": 8, "max_length": 8}) != keys
    assert store.recall(keys) is None
    assert splits.digest(loaded) == store.recall(keys) != splits.digest(few)
    for module, version in ((image_folders, "DECODER"), (tokenized, "ENCODING")):
        monkeypatch.setattr(module, version, getattr(module, version) + 1)
    assert not set(splits.keys(root, name, reading)) & set(keys)


def replace(image):
    new = shutil.copy(image.with_name("1.bmp"), image.with_name("new"))
    times = os.stat(image.parent)
    os.replace(new, image)
    os.utime(image.parent, ns=(times.st_atime_ns, times.st_mtime_ns))  # like rsync


def rewrite(image):
    """Change the last pixel in place, and set the time back."""
    times, content = os.stat(image), image.read_bytes()
    image.write_bytes(content[:-1] + bytes([content[-1] ^ 255]))
    os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))


CHANGES = {
    "another label": lambda folder: edit(folder / "test.txt", lambda x: [x[0].replace(" 0", " 1"), *x[1:]]),
    "another order": lambda folder: edit(folder / "train800.txt", lambda x: [x[1], x[0], *x[2:]]),
    "an image replaced by a file of equal size": lambda folder: replace(folder / "test/5.bmp"),
    "an image rewritten in place": lambda folder: rewrite(folder / "val200/9.bmp"),
}


@pytest.mark.parametrize("case", ["kitti"], indirect=True)
@pytest.mark.parametrize("change", CHANGES)
def test_changed_images_have_another_digest(root, case, change):
    name, frozen = case
    before = splits.digest(splits.load(root, name, frozen))
    CHANGES[change](root / name)
    assert store.recall(splits.keys(root, name, splits.reading(name, frozen))) is None
    assert splits.digest(splits.load(root, name, frozen)) != before


def test_changed_texts_have_another_digest(root, encoder):
    before = splits.digest(splits.load(root, TEXTS, encoder))
    file = root / glue.TASKS[TEXTS].folder / "dev.tsv"
    times = os.stat(file)
    edit(file, lambda lines: [lines[0].replace("0\t0\t", "0\t1\t", 1), *lines[1:]])
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert store.recall(splits.keys(root, TEXTS, splits.reading(TEXTS, encoder))) is None
    assert splits.digest(splits.load(root, TEXTS, encoder)) != before


def test_a_tokenizer_is_identified_by_its_behaviour_not_by_its_last_call(tmp_path, encoder):
    before = splits.reading(TEXTS, encoder)
    encoder.tokenizer(["one text"], padding="max_length", truncation=True, max_length=7)
    assert splits.reading(TEXTS, encoder) == before
    other = text_encoders.load("minilm", text_tasks.write_encoder(tmp_path / "other", words=["teacher"]))
    assert splits.reading(TEXTS, other) != before


def test_missing_files_are_named_before_anything_is_decoded(root, case):
    name, frozen = case
    lost = root / (f"{glue.TASKS[TEXTS].folder}/dev.tsv" if name == TEXTS else "kitti/test/5.bmp")
    lost.unlink()
    calls = (lambda: splits.keys(root, name, splits.reading(name, frozen)), lambda: splits.load(root, name, frozen))
    for call in calls:
        with pytest.raises(InputError, match=f"{lost} does not exist"):
            call()
    if name == "kitti":
        with pytest.raises(InputError, match="test.txt, line 6: image "):
            calls[0]()
