"""One interface to images and texts, and keys and digests that change with the data."""

import os

import numpy as np
import pytest
import text_tasks
import torch
from PIL import Image
from tiny import make_vit

from pvera import text_encoders
from pvera.backbones import Backbone
from pvera.data import glue, image_folders, inputs, store
from pvera.errors import InputError

TEXTS = "cola"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def root(tmp_path):
    """Ten images in each split of KITTI, and short text tasks."""
    root, source = tmp_path / "data", np.random.default_rng(0)
    for split in image_folders.SPLITS:
        (root / "kitti" / split).mkdir(parents=True)
        for i in range(10):
            pixels = source.integers(256, size=(8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / "kitti" / split / f"{i}.bmp")
        (root / "kitti" / f"{split}.txt").write_text("".join(f"{split}/{i}.bmp {i % 4}\n" for i in range(10)))
    text_tasks.write(root)
    return root


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
    loaded = inputs.load(root, name, frozen, first=5)
    for split, part in zip(loaded, inputs.PARTS):
        data = split.data(frozen, torch.device("cpu"), in_memory=part != "test")
        batch = data[slice(0, 4)]
        assert len(data) == len(split.labels) == 5 and data.evaluation_batch > 0
        assert data.labels.tolist() == split.labels.tolist()
        assert all(len(tensor) == 4 for tensor in (batch.values() if isinstance(batch, dict) else [batch]))
    (test,) = inputs.load(root, name, frozen, ("test",), first=5)
    assert test.labels.tolist() == loaded[2].labels.tolist()


@pytest.mark.parametrize("case", ["kitti"], indirect=True)
def test_keys_need_no_data_and_tell_all_that_a_split_depends_on(root, case, monkeypatch):
    name, frozen = case
    reading, loaded = inputs.kind(name).reading(frozen), inputs.load(root, name, frozen)
    few = inputs.load(root, name, frozen, first=5)
    monkeypatch.setattr(inputs.kind(name), "load", None)
    keys = inputs.keys(root, name, reading)
    assert keys == [split.key for split in loaded] and len(set(keys)) == 3
    assert inputs.keys(root, name, reading, first=5) == [split.key for split in few] != keys
    assert inputs.keys(root, name, reading | {"image_size": 8}) != keys
    assert store.recall(keys) is None
    assert inputs.digest(loaded) == store.recall(keys) != inputs.digest(few)
    monkeypatch.setattr(image_folders, "DECODER", image_folders.DECODER + 1)
    assert not set(inputs.keys(root, name, reading)) & set(keys)


ACCEPTABLE = glue.GLUE[TEXTS].folder


def rewrite(file, change) -> None:
    """Change a file in place, and set the time back."""
    times = os.stat(file)
    file.write_bytes(change(file.read_bytes()))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


CHANGES = {
    "another label": ("kitti", "kitti/test.txt", lambda content: content.replace(b" 0", b" 1", 1)),
    "an image": ("kitti", "kitti/val200/9.bmp", lambda content: content[:-1] + bytes([content[-1] ^ 255])),
    "a text's label": (TEXTS, f"{ACCEPTABLE}/dev.tsv", lambda content: content.replace(b"0\t0\t", b"0\t1\t", 1)),
}


@pytest.mark.parametrize("case, file, change", CHANGES.values(), indirect=["case"], ids=list(CHANGES))
def test_changed_data_has_another_digest(root, case, file, change):
    name, frozen = case
    before = inputs.digest(inputs.load(root, name, frozen))
    rewrite(root / file, change)
    assert store.recall(inputs.keys(root, name, inputs.kind(name).reading(frozen))) is None
    assert inputs.digest(inputs.load(root, name, frozen)) != before


def test_missing_files_are_named_before_anything_is_decoded(root, case):
    name, frozen = case
    lost = root / (f"{ACCEPTABLE}/dev.tsv" if name == TEXTS else "kitti/test/5.bmp")
    lost.unlink()
    with pytest.raises(InputError, match=f"{lost} does not exist"):
        inputs.keys(root, name, inputs.kind(name).reading(frozen))
    with pytest.raises(InputError, match=f"{lost} does not exist"):
        inputs.load(root, name, frozen)
