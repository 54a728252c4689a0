"""A demonstration suite of six small tasks in VTAB-1k's folder format, made from what the packages carry.

Two tasks per VTAB-1k category: each 800 training, 200 validation and 1 000 test images of 32 x 32 pixels.
Nothing is downloaded, and the pinned versions give the same pixels on every run.

Patches of one photograph never share a pixel across splits: each photograph is cut into cells, every cell
belongs to one split, and a patch lies inside one cell. Within a split patches may overlap, and some test
digits are drawn twice: such errors are not independent, so intervals from them are a little narrow.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from pvera.errors import writing

COUNTS = {"train800": 800, "val200": 200, "test": 1000}
SIDE = 32  # pixels
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Part:
    """One split: images (n, 32, 32, 3) uint8, labels (n,) int64, and the source pixels that it reads.

    reads: source name -> (m, 4) integer rectangles (top, left, bottom, right), bottom and right excluded.
    """

    images: np.ndarray
    labels: np.ndarray
    reads: dict[str, np.ndarray]


@dataclass(frozen=True)
class Recipe:
    """One task: its names, what it measures, and the function (split, generator) -> Part that makes it.

    sha256: of the files as published, which is what other versions of the packages may miss (see digests).
    """

    name: str
    title: str
    category: str
    classes: tuple[str, ...]
    measures: str
    build: Callable[[str, np.random.Generator], Part]
    sha256: str


# Who reads what


def share(population: int, split: str) -> np.ndarray:
    """Which members of a population belong to one split: as many as it has images, while they last."""
    first = {"train800": 0, "val200": 800, "test": 1000}[split]
    return np.random.default_rng(0).permutation(population)[first : first + COUNTS[split]]


def centres(shape: tuple[int, ...], cell: tuple[int, int], half: int, split: str) -> np.ndarray:
    """Boolean (height, width): where a window of half pixels to each side lies in one cell of this split.

    A fixed permutation deals the grid's cells to the splits, 4 training : 1 validation : 3 test.
    """
    rows, columns = shape[0] // cell[0], shape[1] // cell[1]
    deal = ("train800", "test", "val200", "train800", "test", "train800", "test", "train800")
    owners = np.random.default_rng(rows * columns).permutation(np.resize(deal, rows * columns))
    owned = owners.reshape(rows, columns) == split
    interior = np.zeros(cell, bool)
    interior[half : cell[0] - half, half : cell[1] - half] = True
    mask = np.zeros(shape[:2], bool)
    mask[: rows * cell[0], : columns * cell[1]] = np.kron(owned, interior)
    return mask


def balanced(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Indices (count,) in random order, equally many of each class where count allows."""
    quota = np.bincount(np.arange(count) % (labels.max() + 1))
    chosen = [rng.choice(np.flatnonzero(labels == c), n, replace=False) for c, n in enumerate(quota)]
    return rng.permutation(np.concatenate(chosen))


def patches(image: np.ndarray, middles: np.ndarray, zoom, angle=0.0) -> tuple[np.ndarray, np.ndarray]:
    """Windows of an image around middles (n, 2), and the rectangles (n, 4) of the pixels that they read.

    zoom is in source pixels per patch pixel, angle in radians; each a number or (n,). Bilinear, the mean of
    four points per pixel. The windows are floats (n, 32, 32, channels) in the image's own range.
    """
    from scipy.ndimage import map_coordinates

    image = np.atleast_3d(image).astype(np.float64)
    n = len(middles)
    zoom, angle = np.broadcast_to(zoom, n)[:, None, None], np.broadcast_to(angle, n)[:, None, None]
    points = (np.arange(2 * SIDE) + 0.5) / 2 - SIDE / 2
    down, right = np.meshgrid(points, points, indexing="ij")
    y = middles[:, 0, None, None] + zoom * (np.cos(angle) * down + np.sin(angle) * right)
    x = middles[:, 1, None, None] + zoom * (np.cos(angle) * right - np.sin(angle) * down)
    fine = np.stack([map_coordinates(image[..., c], [y, x], order=1) for c in range(image.shape[2])], axis=-1)
    coarse = fine.reshape(n, SIDE, 2, SIDE, 2, -1).mean(axis=(2, 4))
    low = [np.floor(a.min(axis=(1, 2))) for a in (y, x)]
    high = [np.floor(a.max(axis=(1, 2))) + 2 for a in (y, x)]
    return coarse, np.stack(low + high, axis=1).astype(np.int64)


def quarter_turns(count: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(4, size=count) * np.pi / 2


def pixels(images: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(images, 0, 255)).astype(np.uint8)


def contrast(images: np.ndarray, rng: np.random.Generator, gain=(0.6, 1.2), shift=30.0) -> np.ndarray:
    """A random linear change of brightness and contrast for each image."""
    n = len(images)
    mean = images.mean(axis=(1, 2, 3), keepdims=True)
    factor = rng.uniform(*gain, size=(n, 1, 1, 1))
    return mean + factor * (images - mean) + rng.uniform(-shift, shift, size=(n, 1, 1, 1))


# Natural


@cache
def photograph(name: str) -> np.ndarray:
    """A photograph (height, width[, 3]) uint8 that scikit-image or, for two, scikit-learn carries."""
    import skimage.data
    import sklearn.datasets

    if name in ("china", "flower"):
        return sklearn.datasets.load_sample_image(f"{name}.jpg")
    return getattr(skimage.data, name)()


def digits(split: str, rng: np.random.Generator) -> Part:
    """Handwritten digits (UCI, 8 x 8) in light ink of any hue, at random places on darkened photographs."""
    from scipy.ndimage import map_coordinates, zoom
    from sklearn.datasets import load_digits

    count = COUNTS[split]
    data = load_digits()
    own = share(len(data.images), split)
    which = rng.permutation(np.concatenate([own, rng.choice(own, count - len(own), replace=False)]))

    backgrounds = ("astronaut", "chelsea", "china", "coffee", "flower", "rocket")
    source = rng.integers(len(backgrounds), size=count)
    scene = np.empty((count, SIDE, SIDE, 3))
    reads = {"digits": np.stack([which, 0 * which, which + 1, 0 * which + 1], axis=1)}
    for i, name in enumerate(backgrounds):
        image, mine = photograph(name), source == i
        places = np.argwhere(centres(image.shape, (75, 75), 26, split))
        n = mine.sum()
        scene[mine], reads[name] = patches(image, rng.choice(places, n), rng.uniform(0.5, 1.5, n))
    scene = 0.5 * contrast(scene, rng, gain=(0.3, 1.0), shift=30)

    strokes = np.pad(zoom(data.images[which], (1, 4, 4), order=3), ((0, 0), (4, 4), (4, 4))) / 16
    height = rng.uniform(20, 28, size=(count, 1, 1))  # of the digit's 8 x 8 frame, in pixels
    angle, slant = rng.uniform(-0.2, 0.2, size=(2, count, 1, 1))
    shift = rng.uniform(-2.5, 2.5, size=(2, count, 1, 1))
    down, right = np.meshgrid(np.arange(SIDE) - 15.5, np.arange(SIDE) - 15.5, indexing="ij")
    down, right = (down - shift[0]) * 32 / height, (right - shift[1]) * 32 / height  # in pixels of strokes
    y = np.cos(angle) * down + np.sin(angle) * right
    x = 1.2 * (np.cos(angle) * right - np.sin(angle) * down) + slant * y
    layer = np.broadcast_to(np.arange(count)[:, None, None], y.shape)
    ink = np.clip(1.3 * map_coordinates(strokes, [layer, y + 19.5, x + 19.5], order=1), 0, 1)[..., None]

    # Light ink on a darkened scene is legible in every hue.
    lightness = scene.mean(axis=(1, 2, 3)) + rng.uniform(60, 110, count)
    colour = lightness[:, None] + rng.uniform(-40, 40, size=(count, 3))
    images = scene + ink * (colour[:, None, None, :] - scene)
    return Part(pixels(images), data.target[which].astype(np.int64), reads)


PHOTOGRAPHS = (
    "brick",
    "chelsea",
    "china",
    "coffee",
    "coins",
    "flower",
    "grass",
    "gravel",
    "hubble_deep_field",
    "moon",
)


def photographs(split: str, rng: np.random.Generator) -> Part:
    """Grey patches of ten photographs at random scale, direction, brightness and contrast."""
    count = COUNTS[split]
    labels = rng.permutation(np.arange(count) % len(PHOTOGRAPHS))
    images = np.empty((count, SIDE, SIDE, 1))
    reads = {}
    for label, name in enumerate(PHOTOGRAPHS):
        image, mine = photograph(name), labels == label
        grey = image if image.ndim == 2 else image.mean(axis=2)
        n = mine.sum()
        places = np.argwhere(centres(image.shape, (75, 75), 32, split))
        angle = quarter_turns(n, rng) + rng.uniform(-0.3, 0.3, n)
        images[mine], reads[name] = patches(grey, rng.choice(places, n), rng.uniform(0.7, 1.5, n), angle)
    images -= images.mean(axis=(1, 2, 3), keepdims=True)
    images *= 45 / np.maximum(images.std(axis=(1, 2, 3), keepdims=True), 8)  # flat patches stay rather flat
    images = contrast(images + 128, rng)
    return Part(np.repeat(pixels(images), 3, axis=-1), labels, reads)


# Specialized


@cache
def stain() -> np.ndarray:
    """Share (512, 512) of the 12 x 12 pixels around each that is stained (DAB over Otsu's threshold)."""
    from scipy.ndimage import uniform_filter
    from skimage.color import rgb2hed
    from skimage.filters import threshold_otsu

    dab = rgb2hed(photograph("immunohistochemistry"))[..., 2]
    return uniform_filter((dab > threshold_otsu(dab)).astype(np.float64), 12)


def tissue(split: str, rng: np.random.Generator) -> Part:
    """Patches of an immunohistochemical section whose two stains vary in strength from patch to patch."""
    from skimage.color import hed2rgb, rgb2hed

    section, count = photograph("immunohistochemistry"), COUNTS[split]
    places = np.argwhere(centres(section.shape, (64, 64), 17, split))
    labels = np.digitize(stain()[tuple(places.T)], (0.05, 0.35, 0.7))
    chosen = balanced(labels, count, rng)
    images, read = patches(section, places[chosen], 1.0, quarter_turns(count, rng))
    stains = rgb2hed(np.clip(images / 255, 0, 1)) * rng.uniform(0.4, 1.6, size=(count, 1, 1, 3))
    images = contrast(255 * hed2rgb(stains), rng)
    return Part(pixels(images), labels[chosen], {"immunohistochemistry": read})


@cache
def vessels() -> np.ndarray:
    """Caliber class (1411, 1411) of the fundus: 1 to 3 on the vessels' centre lines, 0 far from any, else -1.

    Vessels are where a multi-scale ridge filter (Sato et al. 1998) responds in the green channel, not what a
    physician marked; the caliber is twice the centre line's distance to the vessel's edge.
    """
    from scipy.ndimage import binary_erosion, distance_transform_edt, label
    from skimage.filters import sato
    from skimage.morphology import skeletonize

    fundus = photograph("retina")
    view = binary_erosion(fundus[..., 0] > 60, iterations=25)
    ridge = sato(fundus[..., 1] / 255, sigmas=(2, 3, 4, 6, 8), black_ridges=True) * view
    pieces, _ = label(ridge > np.percentile(ridge[view], 90))
    vessel = (pieces > 0) & (np.bincount(pieces.ravel()) > 400)[pieces]
    caliber = 2 * distance_transform_edt(vessel)
    away = distance_transform_edt(ridge < np.percentile(ridge[view], 80))
    labels = np.full(ridge.shape, -1)
    labels[view & (away > 8)] = 0
    line = skeletonize(vessel)
    labels[line] = np.digitize(caliber[line], (7, 11)) + 1
    return labels


def retina(split: str, rng: np.random.Generator) -> Part:
    """Patches of a fundus photograph at half its resolution, centred on a vessel or away from any."""
    fundus, count = photograph("retina"), COUNTS[split]
    places = np.argwhere(centres(fundus.shape, (176, 176), 33, split) & (vessels() >= 0))
    labels = vessels()[tuple(places.T)]
    chosen = balanced(labels, count, rng)
    images, read = patches(fundus, places[chosen], 2.0, quarter_turns(count, rng))
    tint = rng.uniform(0.7, 1.3, size=(count, 1, 1, 3))
    images = contrast(images * tint, rng, gain=(0.6, 1.6))
    return Part(pixels(images), labels[chosen], {"retina": read})


# Structured


STEREO = ("0 to 2", "2 to 4", "4 to 6", "6 to 8", "8 to 10")  # pixels


def stereo(split: str, rng: np.random.Generator) -> Part:
    """Anaglyphs of a rectified pair: left view in red; right view, at a random vergence, in green and blue.

    The label is the disparity that remains at the centre. Since the vergence is random, neither the scene nor
    the place tells it: the views have to be compared. They match along rows, so splits take bands of rows.
    """
    from scipy.ndimage import gaussian_gradient_magnitude, maximum_filter, minimum_filter, uniform_filter
    from skimage.data import stereo_motorcycle

    left, right, disparity = stereo_motorcycle()
    count, half = COUNTS[split], SIDE // 2
    left, right = left.mean(axis=2), right.mean(axis=2)
    known = np.where(np.isfinite(disparity), disparity, -1e3)
    even = maximum_filter(known, 15) - minimum_filter(known, 15) < 1.5
    textured = uniform_filter(gaussian_gradient_magnitude(left, 1), 15) > 4
    mask = centres(left.shape, (50, left.shape[1]), half, split) & even & textured
    mask[:, : int(known.max()) + half] = False  # where the right view's window would leave the picture
    places = rng.choice(np.argwhere(mask), count, replace=False)

    labels = rng.permutation(np.arange(count) % len(STEREO))
    vergence = np.floor(known[tuple(places.T)]).astype(int) - 2 * labels - rng.integers(2, size=count)
    across = {"left": places, "right": places - np.stack([0 * vergence, vergence], axis=1)}
    view = {}
    for name, image in (("left", left), ("right", right)):
        windows = np.lib.stride_tricks.sliding_window_view(image, (SIDE, SIDE))
        view[name] = windows[tuple(across[name].T - half)]
    images = np.stack([view["left"], view["right"], view["right"]], axis=-1)
    reads = {name: np.concatenate([at - half, at + half], axis=1) for name, at in across.items()}
    return Part(pixels(contrast(images, rng)), labels, reads)


def _heart(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    x2, y = (1.3 * u) ** 2, 0.1 - 1.3 * v
    return (x2 + y * y - 1) ** 3 < x2 * y**3


# Square, ellipse and heart within the unit circle, as functions of coordinates that turn and grow with them.
_SHAPES = (
    lambda u, v: np.maximum(abs(u), abs(v)) < np.sqrt(0.5),
    lambda u, v: u * u + 4 * v * v < 1,
    _heart,
)


def sprites(split: str, rng: np.random.Generator) -> Part:
    """White squares, ellipses and hearts on black, with the latent factors of dSprites (Matthey et al. 2017).

    3 shapes, 6 scales from 0.5 to 1, 40 orientations over a full turn and 32 x 32 positions; no combination
    occurs twice. Rendered at 32 x 32 pixels, 4 x 4 samples each, where the original has 64 x 64 and no grey.
    """
    factors = (3, 6, 40, 32, 32)
    drawn = share(np.prod(factors), split)
    shape, scale, orientation, across, down = np.unravel_index(drawn, factors)

    images = np.empty((len(drawn), SIDE, SIDE))
    points = (np.arange(4 * SIDE) + 0.5) / (4 * SIDE)
    for i, inside in enumerate(_SHAPES):
        mine = shape == i
        size = (0.25 * (0.5 + 0.1 * scale[mine]))[:, None, None]
        angle = (2 * np.pi * orientation[mine] / 39)[:, None, None]
        dy = points[:, None] - (0.25 + 0.5 * down[mine] / 31)[:, None, None]
        dx = points[None, :] - (0.25 + 0.5 * across[mine] / 31)[:, None, None]
        u = (np.cos(angle) * dx + np.sin(angle) * dy) / size
        v = (np.cos(angle) * dy - np.sin(angle) * dx) / size
        images[mine] = inside(u, v).reshape(-1, SIDE, 4, SIDE, 4).mean(axis=(2, 4))
    reads = {"dsprites": np.stack([drawn, 0 * drawn, drawn + 1, 0 * drawn + 1], axis=1)}
    return Part(np.repeat(pixels(255 * images)[..., None], 3, axis=-1), (across // 2).astype(np.int64), reads)


# The table

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "digits",
            "Digits",
            "natural",
            tuple("0123456789"),
            "which handwritten digit stands on a photograph",
            digits,
            "7724a02e31cccbdf440fab31b255fa26e83925d12b65e2bda841a6dd02215b9b",
        ),
        Recipe(
            "photographs",
            "Photographs",
            "natural",
            PHOTOGRAPHS,
            "which photograph a grey patch was cut from",
            photographs,
            "9202b9b3c2c943e8e4382e2c264742212218240cb1ec461c420baf8862380c55",
        ),
        Recipe(
            "tissue",
            "Tissue",
            "specialized",
            ("under 5 %", "5 to 35 %", "35 to 70 %", "over 70 %"),
            "how much of the tissue at the centre is stained",
            tissue,
            "213859ead90940c7cffb4a7276910b39c9acdeab6a5713e5206b139566942466",
        ),
        Recipe(
            "retina",
            "Retina",
            "specialized",
            ("none", "thin", "medium", "thick"),
            "caliber of the blood vessel at the centre",
            retina,
            "e907e8f2ef8e6489c345606a8bb7bfbb8f63b94cfeea08b09e15f35c2e6eaf61",
        ),
        Recipe(
            "stereo",
            "Stereo",
            "structured",
            STEREO,
            "disparity at the centre of an anaglyph, in steps of two pixels",
            stereo,
            "f991a54ebcfa8deedceec0ffc53a4b64cec6bc9df3cd924886ffb4dbed56ccd2",
        ),
        Recipe(
            "sprites",
            "Sprites",
            "structured",
            tuple(str(i) for i in range(16)),
            "horizontal position of a sprite, in steps of one pixel",
            sprites,
            "851163d973466416b309f6d71e26bb931a14f922f37fa3ebf09cccb2b5b04aee",
        ),
    )
}


def make(recipe: Recipe) -> dict[str, Part]:
    """All splits of one task. The generator of each depends on the task and the split alone."""
    generators = (np.random.default_rng([*recipe.name.encode(), i]) for i in range(len(COUNTS)))
    return {split: recipe.build(split, generator) for split, generator in zip(COUNTS, generators, strict=True)}


# Files


def _path(split: str, index: int) -> str:
    return f"images/{split}/{index:04d}.png"


def digests(parts: dict[str, Part]) -> dict[str, str]:
    """sha256 of each split's paths, labels and pixels, and, as "all", of these three together."""
    found = {}
    for split, part in parts.items():
        sha = hashlib.sha256()
        for i, (image, label) in enumerate(zip(part.images, part.labels, strict=True)):
            sha.update(f"{_path(split, i)} {label}\n".encode())
            sha.update(image.tobytes())
        found[split] = sha.hexdigest()
    return found | {"all": hashlib.sha256("".join(found.values()).encode()).hexdigest()}


def manifest(recipe: Recipe, folder: Path) -> dict | None:
    """What `folder` holds of this task, or None where it is incomplete or another version's."""
    try:
        found = json.loads((folder / MANIFEST).read_text())
        whole = all(_sha256(folder / name) == sha for name, sha in found["split_files"].items())
        sizes = [path.stat().st_size for path in folder.rglob("*.png")]
        whole = whole and (len(sizes), sum(sizes)) == (found["files"], found["bytes"])
        return found if whole and found["recipe"] == recipe.sha256 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(
    recipe: Recipe, parts: dict[str, Part], root: Path, progress: Callable[[int], None] = lambda images: None
) -> dict:
    """Write one task to `<root>/<name>`, replacing what is there, and return its manifest.

    The files go to a hidden folder that takes its place at the end; progress(1) is called after each image.
    InputError, with nothing left behind, where the system refuses.
    """
    folder, partial, old = root / recipe.name, root / f".{recipe.name}.partial", root / f".{recipe.name}.old"
    with writing(root), _gone_before_and_after(partial, old):
        lines = {}
        for split, part in parts.items():
            (partial / "images" / split).mkdir(parents=True)
            lines[split] = []
            for i, (image, label) in enumerate(zip(part.images, part.labels, strict=True)):
                path = _path(split, i)
                Image.fromarray(image).save(partial / path, compress_level=1)
                lines[split].append(f"{path} {label}\n")
                progress(1)
        lines["train800val200"] = lines["train800"] + lines["val200"]
        for split, entries in lines.items():
            (partial / f"{split}.txt").write_text("".join(entries))

        sizes = [path.stat().st_size for path in partial.rglob("*.png")]
        described = {
            "task": recipe.name,
            "measures": recipe.measures,
            "classes": recipe.classes,
            "images": {split: len(part.images) for split, part in parts.items()},
            "chance": float(np.bincount(parts["test"].labels).max() / len(parts["test"].labels)),
            "recipe": recipe.sha256,
            "sha256": digests(parts),
            "files": len(sizes),
            "bytes": sum(sizes),
            "split_files": {f"{split}.txt": _sha256(partial / f"{split}.txt") for split in lines},
        }
        (partial / MANIFEST).write_text(json.dumps(described, indent=1) + "\n")
        if folder.exists():
            folder.rename(old)
        partial.rename(folder)
    return described


@contextmanager
def _gone_before_and_after(*folders: Path) -> Iterator[None]:
    """A process that was killed may have left them."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
