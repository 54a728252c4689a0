"""Natural tasks: handwritten digits, textures, flowers and scenes."""

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
    covered,
    field,
    paint,
    photographed,
    pixels,
    share,
    standardised,
    turned,
)


def handwritten(split: str, rng: np.random.Generator) -> np.ndarray:
    """Draw which of the 1 797 handwritten digits stands on each image of a split, (n,); none is in two splits."""
    return rng.permutation(np.resize(share(1797, split), COUNTS[split]))


def digits(split: str, rng: np.random.Generator) -> Part:
    """Draw handwritten digits (UCI, 8 x 8) in light ink of any hue, at random places on a dark random scene.

    797 of them make the 2 000 test images.
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
    down, right = (
        (DOWN - shift[0]) * SIDE / height,
        (RIGHT - shift[1]) * SIDE / height,
    )  # in pixels of strokes
    y, x = turned(down, right, angle)
    x = 1.2 * x + slant * y
    layer = np.broadcast_to(column(np.arange(count)), y.shape)
    ink = np.clip(1.3 * map_coordinates(strokes, [layer, y + 19.5, x + 19.5], order=1), 0, 1)

    # Light ink on a darkened scene is legible in every hue.
    lightness = scene.mean(axis=(1, 2, 3)) + rng.uniform(60, 110, count)
    paint(scene, ink, lightness[:, None] + rng.uniform(-40, 40, size=(count, 3)))
    return Part(pixels(scene), data.target[which].astype(np.int64), ink > 0.5)


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
    fields = standardised(np.choose(column(labels), [drawn[name] for name in TEXTURES]))
    noise = field(count, rng.uniform(0, 1, count), rng) * column(rng.uniform(0.1, 0.4, count))
    return photographed(coloured(0.5 + 0.2 * (fields + noise), rng, least=120), labels, rng)


def _distances(
    count: int, scale: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return each pixel's distances to the two nearest of random points about `scale` apart, each (count, 32, 32)."""
    nearest, second = np.empty((2, count, SIDE, SIDE))
    for i in range(count):
        side = np.arange(-24.0, 25.0, float(scale[i, 0, 0]))
        points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
        points += rng.uniform(-0.45, 0.45, points.shape) * scale[i, 0, 0]
        squares = (DOWN[..., None] - points[:, 0]) ** 2 + (RIGHT[..., None] - points[:, 1]) ** 2
        nearest[i], second[i] = np.sqrt(
            np.moveaxis(np.partition(squares, 1, axis=-1)[..., :2], -1, 0)
        )
    return nearest, second


def _scratches(count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw thin straight lines in all directions, (count, 32, 32)."""
    lines = np.zeros((count, SIDE, SIDE))
    for _ in range(9):
        angle, offset = column(rng.uniform(0, np.pi, count)), column(rng.uniform(-16, 16, count))
        across, along = turned(DOWN, RIGHT, angle)
        distance, along = across - offset, along - column(rng.uniform(-16, 16, count))
        lines = np.maximum(
            lines, np.exp(-(distance**2)) * (abs(along) < column(rng.uniform(4, 14, count)))
        )
    return lines


FLOWERS = {
    "iris": 3,
    "poppy": 4,
    "primrose": 5,
    "bellflower": 5,
    "lily": 6,
    "daisy": 15,
    "rose": 3,
}  # petals


def flowers(split: str, rng: np.random.Generator) -> Part:
    """Draw seven kinds of flowers, told by their petals' number and shape, in any colour, tilted, among leaves."""
    labels = balanced(len(FLOWERS), split, rng)
    count = len(labels)
    images = coloured(0.5 + 0.22 * field(count, 1.2, rng), rng, (20, 170))
    images *= np.array([0.8, 1.1, 0.7])
    radius, tilt = column(rng.uniform(8, 14, count)), column(rng.uniform(0.65, 1, count))
    y, x = (axis - column(rng.uniform(-4, 4, count)) for axis in (DOWN, RIGHT))
    y, x = turned(y, x, column(rng.uniform(0, 7, count)))
    y, x = turned(y / tilt, x, column(rng.uniform(0, 7, count)))
    distance, angle = np.hypot(y, x) / radius, np.arctan2(y, x)
    daisy, rose = (labels == list(FLOWERS).index(kind) for kind in ("daisy", "rose"))
    petals = np.array(list(FLOWERS.values()))[labels] + np.where(
        daisy, rng.integers(-3, 4, count), 0
    )
    phase = column(petals) * angle / (2 * np.pi)
    aside = 2 * abs(phase - np.rint(phase))  # from 0 on a petal's axis to 1 between petals
    outlines = {
        "iris": 0.25 + 0.75 * (1 - aside**2) ** 0.8,
        "poppy": 0.85 + 0.15 * (1 - aside**2),
        "primrose": 0.45 + 0.55 * (1 - aside**3) - 0.3 * np.exp(-((aside / 0.25) ** 2)),
        "bellflower": 0.45 + 0.55 * (1 - aside) ** 1.2,
        "lily": 0.15 + 0.85 * (1 - aside) ** 0.9,
        "daisy": 0.3 + 0.7 * (aside < 0.7),
        "rose": np.full_like(aside, 0.85),
    }
    outline = np.choose(column(labels), [outlines[kind] for kind in FLOWERS])
    wave = np.where(column(rose), 0.5 + 0.5 * np.sin(2 * angle + 14 * distance), 1 - aside)
    cover = covered((distance - outline) * radius)
    colour = rng.uniform(90, 255, (count, 3))
    shade = 0.55 + 0.3 * distance + 0.25 * wave
    images += cover[..., None] * (colour[:, None, None] * shade[..., None] - images)
    heart = column(np.where(rose, 0, rng.uniform(0.15, 0.3, count)))
    paint(
        images, covered((distance - heart) * radius) * (heart > 0), rng.uniform(30, 240, (count, 3))
    )
    return photographed(images, labels, rng, cover > 0.5, noise=8)


SCENES = ("sea", "hills", "mountains", "forest", "city", "road")


def scenes(split: str, rng: np.random.Generator) -> Part:
    """Draw six kinds of landscapes, told by their skyline or their ground, at any time of day."""
    labels = balanced(len(SCENES), split, rng)
    count = len(labels)
    lightness = rng.uniform(
        *np.array([[130, 60, 60, 40], [230, 180, 180, 150]])[..., None, None], (4, count, 1)
    )
    sky, ground, far, near = lightness + rng.uniform(-40, 40, (4, count, 3))
    horizon = column(rng.uniform(-4, 5, count))
    light = 1 + 0.012 * column(rng.uniform(-1, 1, count)) * DOWN + 0.1 * field(count, 1.5, rng)
    images = light[..., None] * sky[:, None, None]
    depth = np.maximum(DOWN - horizon, 0.1)  # rows below the horizon
    ripple = np.sin(column(rng.uniform(30, 60, count)) / depth**0.5 + field(count, 1.5, rng))
    middle = column(rng.uniform(-5, 5, count)) * (1 - depth / 12)
    way = abs(RIGHT - middle) / (
        column(rng.uniform(0.3, 0.8, count)) * depth
    )  # 1 at the edges of the road
    sea, road = (column(labels == SCENES.index(kind)) for kind in ("sea", "road"))
    below = 1 + 0.1 * field(count, 0.8, rng) + np.where(sea, 0.15 * ripple, 0)
    paint(images, covered(horizon - DOWN), ground)
    images *= np.where(horizon < DOWN, below, 1)[..., None]
    paint(images, (way < 1) * (horizon < DOWN) * road, far)
    paint(images, (way < 0.12) * (horizon < DOWN) * road, near)
    for colour, rise in ((far, 6.0), (near, 3.0)):
        height = np.stack([_skyline(SCENES[label], rise, rng) for label in labels])[:, None]
        paint(images, covered(horizon - height - DOWN) * (horizon + 0.5 > DOWN), colour)
    return photographed(images, labels, rng, noise=8)


def _skyline(kind: str, rise: float, rng: np.random.Generator) -> np.ndarray:
    """Draw how many pixels a skyline stands above the horizon in each column, (32,)."""
    if kind == "city":
        return np.repeat(rng.uniform(0, 2 * rise, SIDE), rng.integers(2, 6, SIDE))[:SIDE]
    if kind == "forest":
        return (
            rise
            + rng.uniform(0, 3) * abs(np.sin(np.arange(SIDE) * rng.uniform(0.6, 1.2)))
            + rng.uniform(0, 2, SIDE)
        )
    if kind == "mountains":
        peaks = (
            rng.uniform(-20, 20, (4, 1)),
            rng.uniform(0.5, 2, (4, 1)) * rise,
            rng.uniform(0.4, 1.2, (4, 1)),
        )
        return np.maximum(0, peaks[1] - peaks[2] * abs(RIGHT[0] - peaks[0])).max(axis=0)
    if kind == "hills":
        return rise * (0.6 + 0.5 * np.sin(RIGHT[0] * rng.uniform(0.1, 0.25) + rng.uniform(0, 7)))
    return np.full(SIDE, -1.0)
