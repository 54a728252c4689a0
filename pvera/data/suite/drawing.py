"""The suite's sizes, the images of one split, and the helpers that all recipes share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

COUNTS = {"train800": 800, "val200": 200, "test": 1000}
SIDE = 32  # pixels


@dataclass(frozen=True)
class Part:
    """One split: images (n, 32, 32, 3) uint8, labels (n,) int64, and the source pixels that it reads.

    reads: source name -> (m, 4) integer rectangles (top, left, bottom, right), bottom and right excluded.
    """

    images: np.ndarray
    labels: np.ndarray
    reads: dict[str, np.ndarray]


def share(population: int, split: str) -> np.ndarray:
    """Return the members of a population that belong to one split: one per image, while they last."""
    first = {"train800": 0, "val200": 800, "test": 1000}[split]
    return np.random.default_rng(0).permutation(population)[first : first + COUNTS[split]]


def centres(shape: tuple[int, ...], cell: tuple[int, int], half: int, split: str) -> np.ndarray:
    """Return a mask (height, width) of centres whose window, `half` pixels to each side, lies in a cell of `split`.

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
    """Draw indices (count,) in random order, equally many of each class where `count` allows."""
    quota = np.bincount(np.arange(count) % (labels.max() + 1))
    chosen = [rng.choice(np.flatnonzero(labels == c), n, replace=False) for c, n in enumerate(quota)]
    return rng.permutation(np.concatenate(chosen))


def patches(image: np.ndarray, middles: np.ndarray, zoom, angle=0.0) -> tuple[np.ndarray, np.ndarray]:
    """Cut windows out of an image around `middles` (n, 2).

    zoom: source pixels per patch pixel; angle: in radians; each a number or (n,). A pixel is the mean of four
    bilinear samples.
    Returns the windows, floats (n, 32, 32, channels) in the image's range, and the rectangles (n, 4) of the pixels
    that they read.
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
    """Draw angles (count,) of 0, 1, 2 or 3 quarter turns, in radians."""
    return rng.integers(4, size=count) * np.pi / 2


def pixels(images: np.ndarray) -> np.ndarray:
    """Round floats to uint8, clipped to 0 and 255."""
    return np.rint(np.clip(images, 0, 255)).astype(np.uint8)


def contrast(images: np.ndarray, rng: np.random.Generator, gain=(0.6, 1.2), shift=30.0) -> np.ndarray:
    """Change brightness and contrast of each image linearly and at random."""
    n = len(images)
    mean = images.mean(axis=(1, 2, 3), keepdims=True)
    factor = rng.uniform(*gain, size=(n, 1, 1, 1))
    return mean + factor * (images - mean) + rng.uniform(-shift, shift, size=(n, 1, 1, 1))


@cache
def photograph(name: str) -> np.ndarray:
    """Load a photograph (height, width[, 3]) uint8 that scikit-image or, for two, scikit-learn carries."""
    import skimage.data
    import sklearn.datasets

    if name in ("china", "flower"):
        return sklearn.datasets.load_sample_image(f"{name}.jpg")
    return getattr(skimage.data, name)()
