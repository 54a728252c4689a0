"""The demonstration suite: its published pixels, its masks, and its folders."""

import json

import numpy as np
import pytest
import scripts

from pvera.data import image_folders, suite, tasks
from pvera.data.suite.natural import handwritten

QUICK = ("digits", "nuclei", "counting")  # the tasks of the profile `demo`; all twelve take a minute
EACH = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in suite.RECIPES]


def test_four_tasks_of_each_category():
    categories = [recipe.category for recipe in suite.RECIPES.values()]
    assert sorted(categories) == sorted(("natural", "specialized", "structured") * 4)


@pytest.mark.parametrize("name", EACH)
def test_the_published_pixels_and_their_masks(name):
    """The two means inside and outside a mask explain more of its image than those of another image's mask."""
    recipe, parts, task = suite.RECIPES[name], suite.make(suite.RECIPES[name]), tasks.task(name)
    assert suite.digests(parts)["all"] == recipe.sha256
    assert (task.test_images, task.classes) == (len(parts["test"].labels), len(recipe.classes))
    seen = [{image.tobytes() for image in part.images} for part in parts.values()]
    assert len(set().union(*seen)) == sum(map(len, seen)), "no image occurs in two splits"
    for split, part in parts.items():
        assert part.images.shape == (suite.COUNTS[split], 32, 32, 3) and part.images.dtype == np.uint8
        assert (part.masks is not None) == (name in suite.WITH_OBJECTS)
    if name not in suite.WITH_OBJECTS:
        return
    part = parts["test"]
    if name == "counting":  # they are drawn anew, which takes seconds
        assert np.array_equal(suite.test_masks(name), part.masks)
    empty = ~part.masks.any(axis=(1, 2))
    assert np.array_equal(empty, part.labels == 0) if name == "vessels" else not empty.any()
    images, masks = part.images[~empty].astype(float), part.masks[~empty]

    def explained(masks):
        inside = masks[..., None].astype(float)
        share = inside.mean(axis=(1, 2))
        covariance = (images * inside).mean(axis=(1, 2)) - images.mean(axis=(1, 2)) * share
        return (covariance**2 / (share - share**2)).sum(axis=1)

    assert np.mean(explained(masks) > explained(np.roll(masks, 1, axis=0))) > 0.75


def test_no_handwritten_digit_stands_in_two_splits():
    drawn = [set(handwritten(split, np.random.default_rng(0)).tolist()) for split in suite.COUNTS]
    assert [len(digits) for digits in drawn] == [800, 200, 797] and len(set().union(*drawn)) == 1797


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A task of six images on disk: recipe, parts, folder."""
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(2, 32, 32, 3), dtype=np.uint8)
    parts = {split: suite.Part(images, np.array([0, 1])) for split in suite.COUNTS}

    def small(split, rng):
        return parts[split]

    monkeypatch.setitem(suite.SHA256, "small", "0" * 64)
    recipe = suite.Recipe("Small", "natural", ("a", "b"), small)
    suite.write(recipe, parts, tmp_path)
    return recipe, parts, tmp_path / "small"


def test_digests_tell_splits_labels_and_pixels_apart(small):
    _, parts, _ = small
    whole, part = suite.digests(parts), parts["test"]
    for other in (suite.Part(part.images[::-1], part.labels), suite.Part(part.images, part.labels[::-1])):
        changed = suite.digests(parts | {"test": other})
        assert [split for split in whole if whole[split] != changed[split]] == ["test", "all"]


DAMAGES = {
    "lost": lambda content: b"",
    "version": lambda content: content.replace(b'"recipe": "0', b'"recipe": "1'),
    "damaged": lambda content: b"[]",
}


@pytest.mark.parametrize("case", DAMAGES)
def test_the_manifest_tells_whether_a_task_is_made(small, case):
    recipe, _, folder = small
    assert suite.is_made(recipe, folder)
    file = folder / suite.MANIFEST
    file.write_bytes(DAMAGES[case](file.read_bytes()))
    assert not suite.is_made(recipe, folder)


def test_interrupted_writing_leaves_the_old_files_and_is_made_up_for(small):
    recipe, parts, folder = small
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def interrupt(images):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        suite.write(recipe, parts, folder.parent, interrupt)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    suite.write(recipe, parts, folder.parent)
    assert [path.name for path in folder.parent.iterdir()] == ["small"]


def test_script_makes_one_task_once_and_nothing_for_bad_input(tmp_path, capsys):
    arguments = "--root", tmp_path, "--task", "counting"
    assert "'colour'" in scripts.refusal("make_suite", capsys, *arguments, "colour")
    assert not any(tmp_path.iterdir())

    (tmp_path / "counting").mkdir()
    (tmp_path / "counting" / "notes.txt").write_text("mine")
    assert "remove it" in scripts.refusal("make_suite", capsys, *arguments)
    assert [path.name for path in (tmp_path / "counting").iterdir()] == ["notes.txt"]

    (tmp_path / "counting" / "notes.txt").unlink()
    (tmp_path / "counting").rmdir()
    scripts.execute("make_suite", *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["counting"]
    recipe, file = suite.RECIPES["counting"], tmp_path / "counting" / suite.MANIFEST
    described, written = json.loads(file.read_text()), file.stat().st_mtime_ns
    read = [image_folders.load_split(tmp_path, "counting", split, 32) for split in suite.COUNTS]
    parts = {split: suite.Part(part.images, part.labels) for split, part in zip(suite.COUNTS, read, strict=True)}
    assert suite.digests(parts) == described["sha256"] and described["sha256"]["all"] == recipe.sha256

    status, output, errors = scripts.outcome("make_suite", capsys, *arguments)
    assert (status, output, errors) == (0, f"1 tasks in {tmp_path}\n", "") and file.stat().st_mtime_ns == written
