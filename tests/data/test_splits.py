"""One interface to images and texts, and digests that are cached until the data change."""

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
def backbone():
    return Backbone(make_vit(), "test", 16, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), "hash")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """100 images in each split of KITTI and DTD, and short text tasks."""
    root, source = tmp_path_factory.mktemp("whole"), np.random.default_rng(0)
    for name in ("kitti", "dtd"):
        for split in image_folders.RUN_SPLITS:
            (root / name / "images" / split).mkdir(parents=True)
            for i in range(100):
                pixels = source.integers(256, size=(8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / name / "images" / split / f"{i}.bmp")
            lines = "".join(f"images/{split}/{i}.bmp {i % 4}\n" for i in range(100))
            (root / name / f"{split}.txt").write_text(lines)
    text_tasks.write(root)
    return root


@pytest.fixture
def root(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return text_encoders.load("minilm", text_tasks.write_encoder(tmp_path_factory.mktemp("encoder")))


@pytest.fixture(params=["kitti", TEXTS])
def case(request, backbone, encoder):
    """A data set of each kind, and a frozen model that reads it."""
    return request.param, encoder if request.param == TEXTS else backbone


def forbidden(*arguments, **options):
    raise AssertionError("the data was read")


@pytest.fixture
def unread(monkeypatch):
    """After its call, loading images or texts fails."""

    def forbid():
        for module in (image_folders, tokenized):
            monkeypatch.setattr(module, "load_parts", forbidden)

    return forbid


def test_both_kinds_load_and_make_batches_alike(root, case):
    name, frozen = case
    splits.check(root, name)
    loaded = splits.load(root, name, frozen, first=5)
    for split, part in zip(loaded, splits.PARTS):
        data = split.data(frozen, CPU, in_memory=part != "test")
        batch = data[slice(0, 4)]
        assert len(data) == len(split.labels) == 5 and data.evaluation_batch > 0
        assert data.labels.tolist() == split.labels.tolist()
        tensors = batch.values() if isinstance(batch, dict) else [batch]
        assert all(len(tensor) == 4 for tensor in tensors)
    (test,) = splits.load(root, name, frozen, ("test",), first=5)
    assert test.labels.tolist() == loaded[2].labels.tolist()


def test_the_parts_are_the_splits_that_runs_read(root, backbone, encoder):
    loaded = splits.load(root, "kitti", backbone)
    for split, name in zip(loaded, image_folders.RUN_SPLITS):
        assert split.names == image_folders.load_split(root, "kitti", name, 16).names
    for split, plain in zip(splits.load(root, TEXTS, encoder), tokenized.load_splits(root, TEXTS, encoder)):
        assert torch.equal(split.inputs["input_ids"], plain.inputs["input_ids"])


def test_the_digest_is_that_of_the_loaded_splits(root, case):
    name, frozen = case
    module = splits.kind(name)
    expected = module.digest(splits.load(root, name, frozen))
    assert splits.digest(root, name, frozen) == splits.prepare(root, name, frozen) == expected
    assert splits.digest(root, name, frozen, first=5) == module.digest(splits.load(root, name, frozen, first=5))
    assert splits.digest(root, name, frozen, first=5) != expected


def test_a_digest_of_several_data_sets_is_of_their_splits_in_turn(root, backbone):
    several = splits.load(root, ("kitti", "dtd"), backbone, ("test",))
    apart = [splits.load(root, name, backbone, ("test",))[0] for name in ("kitti", "dtd")]
    assert [split.key for split in several] == [split.key for split in apart]
    assert splits.digest(root, ("kitti", "dtd"), backbone, ("test",)) == image_folders.digest(apart)


def test_an_unchanged_digest_takes_neither_data_nor_frozen_model(root, case, unread):
    name, frozen = case
    reading = splits.reading(name, frozen)
    assert splits.remembered(root, name, reading) is None
    expected = splits.digest(root, name, frozen)
    unread()
    shutil.rmtree(store.folder() / "digests", ignore_errors=True)
    for file in store.folder().rglob("*.npy"):
        file.unlink()
    assert splits.remembered(root, name, reading) == splits.digest(root, name, frozen) == expected
    assert splits.remembered(os.path.relpath(root), name, reading) == expected
    for other in ({"first": 4}, {"parts": ("test",)}, {"reading": reading | {"image_size": 8, "max_length": 8}}):
        assert splits.remembered(**{"root": root, "names": name, "reading": reading} | other) is None


CHANGES = {
    "another label": lambda folder: edit(folder / "test.txt", lambda x: [x[0].replace(" 0", " 1"), *x[1:]]),
    "another order": lambda folder: edit(folder / "train800.txt", lambda x: [x[1], x[0], *x[2:]]),
    "image replaced by a file of equal size": lambda folder: replace(folder / "images/test/50.bmp"),
    "image rewritten in place": lambda folder: rewrite(folder / "images/train800/0.bmp"),
    "time set back": lambda folder: set_back(folder / "images/val200/99.bmp"),
}


def replace(image):
    new = image.with_name("new")
    shutil.copy(image.with_name("1.bmp"), new)
    times = os.stat(image.parent)
    os.replace(new, image)
    os.utime(image.parent, ns=(times.st_atime_ns, times.st_mtime_ns))  # like rsync


def rewrite(image):
    content = image.read_bytes()
    image.write_bytes(content[:-1] + bytes([content[-1] ^ 255]))  # the last pixel


def set_back(image):
    times = os.stat(image)
    rewrite(image)
    os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("change", CHANGES)
def test_changed_images_have_another_digest(root, backbone, change):
    before = splits.digest(root, "kitti", backbone)
    CHANGES[change](root / "kitti")
    assert splits.remembered(root, "kitti", splits.reading("kitti", backbone)) is None
    after = splits.digest(root, "kitti", backbone)
    assert after == image_folders.digest(splits.load(root, "kitti", backbone)) != before


def test_a_rewritten_image_outside_the_sample_is_noticed_when_the_split_is_loaded(root, backbone):
    images = [root / "kitti" / "images" / "test" / f"{i}.bmp" for i in range(100)]
    outside = next(image for image in images if image not in splits._evenly(images))
    before = splits.digest(root, "kitti", backbone)
    rewrite(outside)
    assert splits.remembered(root, "kitti", splits.reading("kitti", backbone)) == before
    splits.load(root, "kitti", backbone)
    assert splits.digest(root, "kitti", backbone) != before


def test_another_decoder_or_encoding_forgets(root, case, monkeypatch):
    name, frozen = case
    splits.digest(root, name, frozen)
    reading = splits.reading(name, frozen)
    assert splits.remembered(root, name, reading)
    monkeypatch.setattr(image_folders, "DECODER", image_folders.DECODER + 1)
    monkeypatch.setattr(tokenized, "ENCODING", tokenized.ENCODING + 1)
    assert splits.remembered(root, name, reading) is None


def test_changed_texts_have_another_digest(root, encoder):
    reading, before = splits.reading(TEXTS, encoder), splits.digest(root, TEXTS, encoder)
    file = root / glue.TASKS[TEXTS].folder / "dev.tsv"
    times = os.stat(file)
    edit(file, lambda lines: [lines[0].replace("0\t0\t", "0\t1\t", 1), *lines[1:]])
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert splits.remembered(root, TEXTS, reading) is None
    assert splits.digest(root, TEXTS, encoder) != before


def test_a_tokenizer_is_identified_by_its_behaviour_not_by_its_last_call(tmp_path, encoder):
    before = splits.reading(TEXTS, encoder)
    encoder.tokenizer(["one text"], padding="max_length", truncation=True, max_length=7)
    assert splits.reading(TEXTS, encoder) == before
    other = text_encoders.load("minilm", text_tasks.write_encoder(tmp_path / "other", words=["teacher"]))
    assert splits.reading(TEXTS, other) != before


@pytest.mark.parametrize("damage", ["", "{}", "[]", '{"stamp": [1, 2], "digest": "0"}'])
def test_a_damaged_digest_cache_is_recomputed(root, case, damage):
    name, frozen = case
    expected = splits.digest(root, name, frozen)
    (memory,) = (store.folder() / "stamps").iterdir()
    memory.write_text(damage)
    assert splits.remembered(root, name, splits.reading(name, frozen)) is None
    assert splits.digest(root, name, frozen) == expected
    assert splits.remembered(root, name, splits.reading(name, frozen)) == expected


def test_texts_need_no_store(root, encoder, tmp_path, monkeypatch):
    expected = splits.digest(root, TEXTS, encoder)
    (tmp_path / "file").touch()
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "file"))
    assert splits.digest(root, TEXTS, encoder) == expected


def test_the_error_for_missing_data_names_its_kind(root, case):
    name, frozen = case
    if name == TEXTS:
        (root / glue.TASKS[name].folder / "dev.tsv").unlink()
    else:
        (root / name / "test.txt").unlink()
    for call in (lambda: splits.check(root, name), lambda: splits.digest(root, name, frozen)):
        with pytest.raises(InputError, match="does not exist"):
            call()


def test_a_missing_image_is_named(root, backbone):
    splits.digest(root, "kitti", backbone)
    (root / "kitti" / "images" / "test" / "50.bmp").unlink()
    with pytest.raises(InputError, match="test.txt, line 51: image .*50.bmp does not exist"):
        splits.digest(root, "kitti", backbone)


def test_the_sample_is_even():
    paths = np.arange(1000).tolist()
    sample = splits._evenly(paths)
    assert len(sample) == splits.SAMPLE and (sample[0], sample[-1]) == (0, 999)
    assert set(np.diff(sample)) <= {15, 16}
    assert splits._evenly(paths[:3]) == [0, 1, 2] and splits._evenly([]) == []
