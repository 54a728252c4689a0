"""Structured tasks: number of objects, and position of a sprite."""

from __future__ import annotations

import numpy as np

from pvera.data.suite.drawing import (
    DOWN,
    RIGHT,
    SIDE,
    Part,
    balanced,
    coloured,
    contrast,
    field,
    one_each,
    pixels,
    share,
    turned,
)


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
    """Draw white squares, ellipses and hearts on black, with the latent factors of dSprites (Matthey et al. 2017).

    3 shapes, 6 scales from 0.5 to 1, 40 orientations over a full turn and 32 x 32 positions; no combination
    occurs twice. Images have 32 x 32 pixels of 4 x 4 samples each; the original has 64 x 64 pixels and no grey.
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
        u, v = turned(dx, dy, angle)
        images[mine] = inside(u / size, v / size).reshape(-1, SIDE, 4, SIDE, 4).mean(axis=(2, 4))
    return Part(np.repeat(pixels(255 * images)[..., None], 3, axis=-1), (across // 2).astype(np.int64), one_each(split))


OBJECTS = tuple(range(1, 9))


def counting(split: str, rng: np.random.Generator) -> Part:
    """Draw 1 to 8 objects of any colour, shape and size on a random scene; none hides another."""
    labels = balanced(len(OBJECTS), split, rng)
    count = len(labels)
    images = coloured(0.5 + 0.15 * field(count, 1.4, rng), rng)
    for image, label in zip(images, labels, strict=True):
        places, sizes = np.empty((0, 2)), rng.uniform(2.5, 4.5, OBJECTS[label])
        for i, size in enumerate(sizes):
            for _ in range(200):
                place = rng.uniform(-15.5 + size, 15.5 - size, 2)
                if np.all(np.linalg.norm(places - place, axis=1) > sizes[:i] + size):
                    break
            places = np.vstack([places, place])
            y, x, angle = DOWN - place[0], RIGHT - place[1], rng.uniform(0, 2 * np.pi)
            u, v = turned(x, y, angle)
            inside = _SHAPES[rng.integers(3)](u / size, v / size)
            behind = image[inside].mean(axis=0) if inside.any() else image.mean(axis=(0, 1))
            colour = rng.uniform(0, 255, 3)
            if np.linalg.norm(colour - behind) < 90:
                colour = np.where(behind < 128, behind + 80, behind - 80)
            image[inside] = colour
    images += 8 * rng.standard_normal(images.shape)
    return Part(pixels(contrast(images, rng)), labels, one_each(split))
