import json

import numpy as np
import pytest
import scripts

from pvera.data import image_folders, suite, tasks

NAMES = list(suite.RECIPES)
MOST_BY_COLOUR = {"nuclei": 0.55}  # accuracy; the share of brown nuclei colours the section


@pytest.fixture(scope="session")
def made():
    """The whole suite in memory: name -> split -> Part."""
    return {name: suite.make(recipe) for name, recipe in suite.RECIPES.items()}


@pytest.fixture(scope="session")
def root(made, tmp_path_factory):
    """The whole suite on disk."""
    root = tmp_path_factory.mktemp("suite")
    for name, recipe in suite.RECIPES.items():
        suite.write(recipe, made[name], root)
    return root


def test_four_tasks_of_each_category():
    categories = [recipe.category for recipe in suite.RECIPES.values()]
    assert sorted(categories) == sorted(("natural", "specialized", "structured") * 4)


@pytest.mark.parametrize("name", NAMES)
def test_the_published_pixels_are_made_written_and_read(made, root, name):
    recipe, parts = suite.RECIPES[name], made[name]
    manifest, task = suite.manifest(recipe, root / name), tasks.task(name)
    assert manifest["sha256"] == suite.digests(parts) and manifest["sha256"]["all"] == recipe.sha256
    assert manifest["images"] == suite.COUNTS and manifest["files"] == sum(suite.COUNTS.values())
    labels = parts["test"].labels.tolist()
    assert manifest["chance"] == max(labels.count(c) for c in set(labels)) / len(labels)
    assert (task.test_images, task.classes) == (suite.COUNTS["test"], len(recipe.classes))
    for split, part in parts.items():
        assert part.images.shape == (suite.COUNTS[split], 32, 32, 3) and part.images.dtype == np.uint8
        shares = np.bincount(part.labels, minlength=task.classes) * task.classes / len(part.labels)
        assert len(shares) == task.classes
        assert shares.min() > 0.5 and shares.max() < (2 if split == "val200" else 1.4)
        read = image_folders.load_split(root, name, split, 32)
        assert np.array_equal(read.images, part.images) and np.array_equal(read.labels, part.labels)


def test_digests_tell_splits_labels_and_pixels_apart(made):
    parts = made["counting"]
    whole = suite.digests(parts)
    part = parts["test"]
    other_images = suite.Part(np.roll(part.images, 1, axis=0), part.labels, part.units)
    other_labels = suite.Part(part.images, np.roll(part.labels, 1), part.units)
    for other in (other_images, other_labels):
        changed = suite.digests(parts | {"test": other})
        assert [split for split in whole if whole[split] != changed[split]] == ["test", "all"]


@pytest.mark.parametrize("name", NAMES)
def test_no_unit_lies_in_two_splits_and_each_has_one_label(made, name):
    parts = made[name].values()
    units = [set(part.units.tolist()) for part in parts]
    assert len(set().union(*units)) == sum(map(len, units))
    for part in parts:
        assert part.units.shape == part.labels.shape
        assert len(set(zip(part.units.tolist(), part.labels.tolist(), strict=True))) == len(set(part.units.tolist()))
    assert len(units[2]) == (797 if name == "digits" else 2000)
    shared = suite.shared_units().get(name)
    assert (shared is None) == (len(units[2]) == 2000)
    assert shared is None or np.array_equal(shared, made[name]["test"].units)


@pytest.mark.parametrize("name", NAMES)
def test_no_image_occurs_in_two_splits(made, name):
    seen = [{image.tobytes() for image in part.images} for part in made[name].values()]
    assert len(set().union(*seen)) == sum(map(len, seen))


@pytest.mark.parametrize("name", NAMES)
def test_mean_colour_does_not_tell_the_classes(made, name):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    colours = {split: part.images.mean(axis=(1, 2)) for split, part in made[name].items()}
    probe = make_pipeline(PolynomialFeatures(2), StandardScaler(), LogisticRegression(max_iter=1000))
    probe.fit(colours["train800"], made[name]["train800"].labels)
    classes = len(suite.RECIPES[name].classes)
    assert probe.score(colours["test"], made[name]["test"].labels) < MOST_BY_COLOUR.get(name, 1.5 / classes)


WITHOUT_OBJECT = {"textures", "scenes", "landcover"}


@pytest.mark.parametrize("name", NAMES)
def test_masks_cover_the_objects(made, name):
    """The two means inside and outside the mask explain more of an image than those of another image's mask."""
    for part in made[name].values():
        assert (part.masks is None) == (name in WITHOUT_OBJECT)
    if name in WITHOUT_OBJECT:
        return
    part = made[name]["test"]
    assert part.masks.shape == part.images.shape[:3] and part.masks.dtype == bool
    empty = ~part.masks.any(axis=(1, 2))
    assert np.array_equal(empty, part.labels == 0) if name == "vessels" else not empty.any()
    images, masks = part.images[~empty].astype(float), part.masks[~empty]

    def explained(masks):
        inside = masks[..., None].astype(float)
        share = inside.mean(axis=(1, 2))
        covariance = (images * inside).mean(axis=(1, 2)) - images.mean(axis=(1, 2)) * share
        return (covariance**2 / (share - share**2)).sum(axis=1)

    assert np.mean(explained(masks) > explained(np.roll(masks, 1, axis=0))) > 0.75


def test_masks_hold_the_sprite_and_the_vessel_at_the_centre(made):
    part = made["sprites"]["test"]
    assert np.array_equal(part.masks, part.images[..., 0] > 128)  # of 255, more than half
    part = made["vessels"]["test"]
    area = [part.masks[part.labels == c].mean() for c in range(4)]
    assert area == sorted(area) and part.masks[part.labels == 3][:, 15:17, 15:17].all()


def test_sprites_stand_where_their_label_says(made):
    part = made["sprites"]["test"]
    mass = part.images[..., 0].astype(float)
    centroid = (mass.sum(1) * (np.arange(32) + 0.5)).sum(1) / mass.sum((1, 2))
    expected = 8 + 16 * (2 * part.labels + 0.5) / 31
    assert abs(centroid - expected).max() < 1.5 and np.median(abs(centroid - expected)) < 0.5


def test_stain_and_caliber_grow_with_their_labels(made):
    part = made["nuclei"]["test"]
    red, blue = (part.images[..., c].mean((1, 2), dtype=float) for c in (0, 2))
    brown = [np.mean((red - blue)[part.labels == c]) for c in range(4)]
    assert brown == sorted(brown) and brown[3] - brown[0] > 10
    part = made["vessels"]["test"]
    green = part.images[..., 1].astype(float)
    dent = green.mean((1, 2)) - green[:, 14:18, 14:18].mean((1, 2))
    dark = [np.mean(dent[part.labels == c]) for c in range(4)]
    assert dark == sorted(dark) and dark[1] - dark[0] > 3


def test_more_objects_have_more_edges(made):
    part = made["counting"]["test"]
    edges = abs(np.diff(part.images.astype(float), axis=2)).sum(3) > 60
    counted = [edges[part.labels == c].mean() for c in range(8)]
    assert counted == sorted(counted) and counted[7] > 3 * counted[0]


def test_waves_are_waves(made):
    """The share of the spectrum in its highest peaks is high for the two classes of texture that repeat."""
    part = made["textures"]["test"]
    grey = part.images.mean(axis=3)
    grey = (grey - grey.mean(axis=(1, 2), keepdims=True)) * np.outer(np.hanning(32), np.hanning(32))
    frequency = np.hypot(np.fft.fftfreq(32)[:, None], np.fft.rfftfreq(32)) * 32
    power = abs(np.fft.rfft2(grey))[:, frequency > 2.2] ** 2  # lower ones are brightness that changes over the image
    share = np.sort(power, axis=1)[:, -8:].sum(axis=1) / power.sum(axis=1)
    names = suite.RECIPES["textures"].classes
    mean = {name: share[part.labels == i].mean() for i, name in enumerate(names)}
    assert min(mean["stripes"], mean["weave"]) > max(mean[name] for name in ("clouds", "cells", "dots", "scratches"))


def test_fields_have_the_spectrum_that_they_are_asked_for():
    from pvera.data.suite.drawing import field

    fields = field(400, 1.0, np.random.default_rng(0))
    assert np.allclose(fields.mean((1, 2)), 0) and np.allclose(fields.std((1, 2)), 1)
    windowed = fields * np.outer(np.hanning(32), np.hanning(32))
    power = (abs(np.fft.fft2(windowed)) ** 2).mean(axis=0)
    frequency = np.arange(3, 13)
    slope = np.polyfit(np.log(frequency), np.log(power[0, 3:13]), 1)[0]
    assert -2.4 < slope < -1.6


@pytest.fixture
def small(tmp_path):
    """A task of six images on disk: recipe, parts, folder."""
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(2, 32, 32, 3), dtype=np.uint8)
    parts = {split: suite.Part(images, np.array([0, 1]), np.arange(2)) for split in suite.COUNTS}
    recipe = suite.Recipe("small", "Small", "natural", ("a", "b"), "nothing", build=None, sha256="0" * 64)
    suite.write(recipe, parts, tmp_path)
    return recipe, parts, tmp_path / "small"


DAMAGES = {
    "lost": ("images/test/0001.png", lambda content: None),
    "added": ("images/test/0002.png", lambda content: b"image"),
    "label": ("test.txt", lambda content: content.replace(b" 1", b" 0")),
    "cut": ("images/val200/0000.png", lambda content: content[:-9]),
    "version": (suite.MANIFEST, lambda content: content.replace(b'"recipe": "0', b'"recipe": "1')),
    "damaged": (suite.MANIFEST, lambda content: b"[]"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_manifest_notices_what_is_missing_or_changed(small, case):
    recipe, _, folder = small
    assert suite.manifest(recipe, folder)
    name, change = DAMAGES[case]
    content = change((folder / name).read_bytes() if (folder / name).exists() else b"")
    (folder / name).write_bytes(content) if content else (folder / name).unlink()
    assert suite.manifest(recipe, folder) is None


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


def test_script_skips_what_is_there_and_prints_the_table(root, capsys):
    before = {path: path.stat().st_mtime_ns for path in root.glob("*/manifest.json")}
    status, output, errors = scripts.outcome("make_suite", capsys, "--root", root)
    assert status == 0 and errors == ""
    assert {path: path.stat().st_mtime_ns for path in root.glob("*/manifest.json")} == before
    for name, recipe in suite.RECIPES.items():
        (line,) = [line for line in output.splitlines() if line.startswith(name)]
        assert recipe.category in line and recipe.measures in line and "800/200/2000" in line
    assert "differs" not in output


def test_script_makes_one_task_and_nothing_for_bad_input(tmp_path, root, capsys):
    arguments = "--root", tmp_path, "--task", "counting"
    assert "'colour'" in scripts.refusal("make_suite", capsys, *arguments, "colour")
    assert not any(tmp_path.iterdir())

    (tmp_path / "counting").mkdir()
    (tmp_path / "counting" / "notes.txt").write_text("mine")
    assert "--force" in scripts.refusal("make_suite", capsys, *arguments)
    assert [path.name for path in (tmp_path / "counting").iterdir()] == ["notes.txt"]

    scripts.execute("make_suite", *arguments, "--force")
    manifests = [json.loads((folder / "counting" / suite.MANIFEST).read_text()) for folder in (tmp_path, root)]
    assert manifests[0] == manifests[1]
    assert [path.name for path in tmp_path.iterdir()] == ["counting"]
