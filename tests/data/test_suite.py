"""The demonstration suite: its published pixels, its masks, and its folders."""

import functools

import numpy as np
import pytest
import scripts

from pvera.data import image_splits, suite, tasks
from pvera.data.suite.natural import choose_digits

QUICK = (
    "digits",
    "nuclei",
    "counting",
)  # the tasks of the profile `demo`; all twelve take a minute
EACH = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
    for name in suite.SYNTHETIC_TASKS
]


@functools.cache
def made(name: str) -> dict[str, suite.SyntheticSplit]:
    task = suite.SYNTHETIC_TASKS[name]
    return {split: task.draw(split) for split in suite.COUNTS}


def test_four_tasks_of_each_category():
    categories = [recipe.category for recipe in suite.SYNTHETIC_TASKS.values()]
    assert sorted(categories) == sorted(("natural", "specialized", "structured") * 4)


@pytest.mark.parametrize("name", EACH)
def test_the_published_pixels_and_their_masks(name):
    """Means inside and outside a mask explain more of its image than those of another mask."""
    recipe, parts, task = suite.SYNTHETIC_TASKS[name], made(name), tasks.find_data_set(name)
    assert suite.pixels_sha256(parts) == suite.SHA256[name]
    assert (task.test_images, task.classes) == (len(parts["test"].labels), len(recipe.classes))
    seen = [{image.tobytes() for image in part.images} for part in parts.values()]
    assert len(set().union(*seen)) == sum(map(len, seen)), "no image occurs in two splits"
    for split, part in parts.items():
        assert (
            part.images.shape == (suite.COUNTS[split], 32, 32, 3) and part.images.dtype == np.uint8
        )
        assert (part.masks is not None) == (name in suite.WITH_OBJECTS)
    if name not in suite.WITH_OBJECTS:
        return
    part = parts["test"]
    empty = ~part.masks.any(axis=(1, 2))
    assert np.array_equal(empty, part.labels == 0) if name == "vessels" else not empty.any()
    images, masks = part.images[~empty].astype(float), part.masks[~empty]

    def variance_between(masks):
        inside = masks[..., None].astype(float)
        share = inside.mean(axis=(1, 2))
        covariance = (images * inside).mean(axis=(1, 2)) - images.mean(axis=(1, 2)) * share
        return (covariance**2 / (share - share**2)).sum(axis=1)

    assert np.mean(variance_between(masks) > variance_between(np.roll(masks, 1, axis=0))) > 0.75


def test_no_handwritten_digit_stands_in_two_splits():
    drawn = [set(choose_digits(split, np.random.default_rng(0)).tolist()) for split in suite.COUNTS]
    assert [len(digits) for digits in drawn] == [800, 200, 797] and len(set().union(*drawn)) == 1797


def test_digests_tell_splits_labels_and_pixels_apart():
    images = np.random.default_rng(0).integers(256, size=(2, 32, 32, 3), dtype=np.uint8)
    parts = {split: suite.SyntheticSplit(images, np.array([0, 1])) for split in suite.COUNTS}
    others = (
        suite.SyntheticSplit(images[::-1], np.array([0, 1])),
        suite.SyntheticSplit(images, np.array([1, 0])),
    )
    changed = [parts | {split: other} for split in parts for other in others]
    assert len({suite.pixels_sha256(these) for these in (parts, *changed)}) == 1 + 3 * 2


def test_script_makes_one_task_once_and_nothing_for_bad_input(tmp_path, capsys, monkeypatch):
    drawn = made("counting")
    monkeypatch.setattr(suite.SyntheticTask, "draw", lambda task, split: drawn[split])
    arguments = ("--root", tmp_path, "--task", "counting")
    assert "'colour'" in scripts.refusal("make_suite", capsys, *arguments, "colour")
    (tmp_path / ".counting.partial/images").mkdir(parents=True)  # as a killed call leaves
    scripts.execute("make_suite", *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["counting"]
    read = [image_splits.load_split(tmp_path, "counting", split, 32) for split in suite.COUNTS]
    parts = {
        split: suite.SyntheticSplit(part.images, part.labels)
        for split, part in zip(suite.COUNTS, read, strict=True)
    }
    assert suite.pixels_sha256(parts) == suite.SHA256["counting"]
    monkeypatch.setattr(suite, "write", None)  # what is there stays
    assert scripts.outcome("make_suite", capsys, *arguments) == (0, f"1 tasks in {tmp_path}\n", "")
