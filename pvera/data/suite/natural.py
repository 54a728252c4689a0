"""Natural tasks: handwritten digits, and textures."""

from __future__ import annotations

import numpy as np

from pvera.data.suite.drawing import (
    COUNTS,
    DOWN,
    RIGHT,
    SIDE,
    Part,
    balanced,
    coloured,
    column,
    contrast,
    field,
    one_each,
    pixels,
    share,
    turned,
)


def handwritten(split: str, rng: np.random.Generator) -> np.ndarray:
    """Draw which of the 1 797 handwritten digits stands on each image of a split, (n,)."""
    return rng.permutation(np.resize(share(1797, split), COUNTS[split]))


def digits(split: str, rng: np.random.Generator) -> Part:
    """Draw handwritten digits (UCI, 8 x 8) in light ink of any hue, at random places on a dark random scene.

    The unit is the handwritten digit: 797 of them make the 2 000 test images.
    """
    from scipy.ndimage import map_coordinates, zoom
    from sklearn.datasets import load_digits

    count = COUNTS[split]
    data = load_digits()
    which = handwritten(split, rng)

    scene = coloured(0.5 + 0.25 * field(count, rng.uniform(0.8, 1.6, count), rng), rng)
    scene = 0.5 * contrast(scene, rng, gain=(0.5, 1.5))

    strokes = np.pad(zoom(data.images[which], (1, 4, 4), order=3), ((0, 0), (4, 4), (4, 4))) / 16
    height = column(rng.uniform(20, 28, count))  # of the digit's 8 x 8 frame, in pixels
    angle, slant = column(rng.uniform(-0.2, 0.2, (2, count)))
    shift = column(rng.uniform(-2.5, 2.5, (2, count)))
    down, right = (DOWN - shift[0]) * SIDE / height, (RIGHT - shift[1]) * SIDE / height  # in pixels of strokes
    y, x = turned(down, right, angle)
    x = 1.2 * x + slant * y
    layer = np.broadcast_to(column(np.arange(count)), y.shape)
    ink = np.clip(1.3 * map_coordinates(strokes, [layer, y + 19.5, x + 19.5], order=1), 0, 1)[..., None]

    # Light ink on a darkened scene is legible in every hue.
    lightness = scene.mean(axis=(1, 2, 3)) + rng.uniform(60, 110, count)
    colour = lightness[:, None] + rng.uniform(-40, 40, size=(count, 3))
    images = scene + ink * (colour[:, None, None, :] - scene)
    return Part(pixels(images), data.target[which].astype(np.int64), which.astype(np.int64))


TEXTURES = ("clouds", "stripes", "weave", "cells", "dots", "scratches")


def textures(split: str, rng: np.random.Generator) -> Part:
    """Draw six kinds of textures in two random colours, at random scale and direction, under noise."""
    labels = balanced(len(TEXTURES), split, rng)
    count = len(labels)
    scale, angle = column(rng.uniform(6, 12, count)), column(rng.uniform(0, np.pi, count))
    warp = field(count, 2.0, rng) * column(rng.uniform(0.3, 1.2, count))  # in radians of a wave
    down, right = turned(DOWN, RIGHT, angle)
    nearest, second = _distances(count, scale, rng)
    drawn = {
        "clouds": field(count, 1.8, rng),
        "stripes": np.sin(2 * np.pi * down / scale + 2 * warp),
        "weave": np.sin(2 * np.pi * down / scale + warp) * np.sin(2 * np.pi * right / scale + warp),
        "cells": np.minimum((second - nearest) / scale, 0.35),
        "dots": np.exp(-4 * (nearest / scale) ** 2),
        "scratches": _scratches(count, rng),
    }
    fields = np.stack([drawn[name] for name in TEXTURES])[labels, np.arange(count)]
    fields -= fields.mean(axis=(1, 2), keepdims=True)
    fields /= fields.std(axis=(1, 2), keepdims=True)
    noise = field(count, rng.uniform(0, 1, count), rng) * column(rng.uniform(0.1, 0.4, count))
    images = contrast(coloured(0.5 + 0.2 * (fields + noise), rng, least=120), rng)
    return Part(pixels(images), labels, one_each(split))


def _distances(count: int, scale: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return each pixel's distances to the two nearest of random points about `scale` apart, each (count, 32, 32)."""
    nearest, second = np.empty((2, count, SIDE, SIDE))
    for i in range(count):
        side = np.arange(-24.0, 25.0, float(scale[i, 0, 0]))
        points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
        points += rng.uniform(-0.45, 0.45, points.shape) * scale[i, 0, 0]
        squares = (DOWN[..., None] - points[:, 0]) ** 2 + (RIGHT[..., None] - points[:, 1]) ** 2
        nearest[i], second[i] = np.sqrt(np.moveaxis(np.partition(squares, 1, axis=-1)[..., :2], -1, 0))
    return nearest, second


def _scratches(count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw thin straight lines in all directions, (count, 32, 32)."""
    lines = np.zeros((count, SIDE, SIDE))
    for _ in range(9):
        angle, offset = column(rng.uniform(0, np.pi, count)), column(rng.uniform(-16, 16, count))
        across, along = turned(DOWN, RIGHT, angle)
        distance, along = across - offset, along - column(rng.uniform(-16, 16, count))
        lines = np.maximum(lines, np.exp(-(distance**2)) * (abs(along) < column(rng.uniform(4, 14, count))))
    return lines
