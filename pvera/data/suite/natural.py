"""Natural tasks: handwritten digits, textures, letters, flowers, leaves and scenes."""

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
    covered,
    field,
    one_each,
    paint,
    pixels,
    segment,
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
    return Part(pixels(images), data.target[which].astype(np.int64), which.astype(np.int64), ink[..., 0] > 0.5)


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


#: Strokes of capital letters from key to key of a number pad, whose 7 is at the top left.
LETTERS = {
    "A": ("183", "46"),
    "E": ("9713", "45"),
    "F": ("971", "45"),
    "H": ("71", "93", "46"),
    "K": ("71", "943"),
    "M": ("17593",),
    "N": ("1739",),
    "T": ("79", "82"),
    "V": ("729",),
    "X": ("73", "91"),
    "Y": ("752", "95"),
    "Z": ("7913",),
}


def letters(split: str, rng: np.random.Generator) -> Part:
    """Draw capital letters in random fonts (width, slant, weight, contrast of strokes, serifs) on a random scene."""
    labels = balanced(len(LETTERS), split, rng)
    images = coloured(0.5 + 0.2 * field(len(labels), rng.uniform(0.8, 1.6, len(labels)), rng), rng)
    cover = np.stack([_letter(list(LETTERS.values())[label], rng) for label in labels])
    light = images.mean(axis=(1, 2, 3)) + rng.choice([-1, 1], len(labels)) * rng.uniform(50, 110, len(labels))
    paint(images, cover, light[:, None] + rng.uniform(-40, 40, (len(labels), 3)))
    images += 6 * rng.standard_normal(images.shape)
    return Part(pixels(contrast(images, rng)), labels, one_each(split), cover > 0.5)


def _letter(strokes: tuple[str, ...], rng: np.random.Generator) -> np.ndarray:
    height, width, slant = rng.uniform(7, 11), rng.uniform(4, 8), rng.uniform(-0.1, 0.35)
    weight, thin, serif = rng.uniform(0.6, 1.8), rng.uniform(0.4, 1), rng.choice([0, rng.uniform(1, 2.2)])
    angle, shift = rng.uniform(-0.2, 0.2), rng.uniform(-4, 4, 2)

    def place(key: str) -> np.ndarray:
        row, col = 1 - (int(key) - 1) // 3, (int(key) - 1) % 3 - 1
        return np.array([height * row, width * col - slant * height * row])

    distance = np.full((SIDE, SIDE), np.inf)
    for stroke in strokes:
        points = np.stack([place(key) for key in stroke])
        lines = [(a, b, weight * (thin if abs(b - a)[0] < 1 else 1)) for a, b in zip(points, points[1:], strict=False)]
        for key in (stroke[0], stroke[-1]):
            if serif and key not in "456":
                lines.append((place(key) - [0, serif], place(key) + [0, serif], weight * thin))
        for start, end, half in lines:
            start, end = (np.stack(turned(*point, angle)) + shift for point in (start, end))
            distance = np.minimum(distance, segment(start, end) - half)
    return covered(distance)


FLOWERS = ("iris", "poppy", "primrose", "bellflower", "lily", "daisy", "rose")
_PETALS = (3, 4, 5, 5, 6, 15, 3)


def flowers(split: str, rng: np.random.Generator) -> Part:
    """Draw seven kinds of flowers, told by their petals' number and shape, in any colour, tilted, among leaves."""
    labels = balanced(len(FLOWERS), split, rng)
    count = len(labels)
    images = coloured(0.5 + 0.22 * field(count, 1.2, rng), rng, (20, 170))
    images *= np.array([0.8, 1.1, 0.7])
    radius, tilt = column(rng.uniform(8, 14, count)), column(rng.uniform(0.65, 1, count))
    y, x = turned(
        *(axis - column(rng.uniform(-4, 4, count)) for axis in (DOWN, RIGHT)), column(rng.uniform(0, 7, count))
    )
    y, x = turned(y / tilt, x, column(rng.uniform(0, 7, count)))
    distance, angle = np.hypot(y, x) / radius, np.arctan2(y, x)
    petals = column(np.array(_PETALS)[labels] + np.where(labels == 5, rng.integers(-3, 4, count), 0))
    phase = petals * angle / (2 * np.pi)
    aside = 2 * abs(phase - np.rint(phase))  # from 0 on a petal's axis to 1 between petals
    outline = np.choose(
        column(labels),
        [
            0.25 + 0.75 * (1 - aside**2) ** 0.8,
            0.85 + 0.15 * (1 - aside**2),
            0.45 + 0.55 * (1 - aside**3) - 0.3 * np.exp(-((aside / 0.25) ** 2)),
            0.45 + 0.55 * (1 - aside) ** 1.2,
            0.15 + 0.85 * (1 - aside) ** 0.9,
            0.3 + 0.7 * (aside < 0.7),
            np.full_like(aside, 0.85),
        ],
    )
    wave = np.where(column(labels) == 6, 0.5 + 0.5 * np.sin(2 * angle + 14 * distance), 1 - aside)
    cover = covered((distance - outline) * radius)
    colour = rng.uniform(90, 255, (count, 3))
    shade = 0.55 + 0.3 * distance + 0.25 * wave
    images += cover[..., None] * (colour[:, None, None] * shade[..., None] - images)
    heart = column(np.where(labels == 6, 0, rng.uniform(0.15, 0.3, count)))
    paint(images, covered((distance - heart) * radius) * (heart > 0), rng.uniform(30, 240, (count, 3)))
    images += 8 * rng.standard_normal(images.shape)
    return Part(pixels(contrast(images, rng)), labels, one_each(split), cover > 0.5)


LEAVES = ("willow", "beech", "birch", "oak", "lime", "maple", "ginkgo", "ash")


def leaves(split: str, rng: np.random.Generator) -> Part:
    """Draw the leaves of eight trees, told by their outline, in the colours of all seasons, on a random ground."""
    labels = balanced(len(LEAVES), split, rng)
    count = len(labels)
    images = coloured(0.5 + 0.2 * field(count, rng.uniform(0.6, 1.4, count), rng), rng)
    length = column(rng.uniform(9, 14, count))
    y, x = turned(
        *(axis - column(rng.uniform(-3, 3, count)) for axis in (DOWN, RIGHT)), column(rng.uniform(0, 7, count))
    )
    along, across = y / length, x / length * column(rng.uniform(0.85, 1.2, count))
    across = across - column(rng.uniform(-0.25, 0.25, count)) * (along**2 - 0.3)
    reached = np.clip((along + 1) / 2, 0, 1)  # from 0 at the stalk to 1 at the tip
    radius, angle = np.hypot(along + 0.2, across), np.arctan2(across, along + 0.2)
    saw = abs((6 * reached) % 1 - 0.5)
    leaflet = np.minimum.reduce(
        [np.hypot((abs(across) - 0.32) / 0.3, (along - place) / 0.15) - 1 for place in (-0.5, -0.1, 0.3)]
        + [np.hypot(across / 0.16, (along - 0.7) / 0.3) - 1]
    )
    apart = {  # how far a pixel lies outside, in lengths
        "willow": abs(across) - 0.22 * np.sin(np.pi * reached) ** 0.8,
        "beech": abs(across) - 0.5 * np.sin(np.pi * reached) ** 0.8,
        "birch": abs(across) - 0.75 * np.minimum(5 * reached, 1 - reached) - 0.18 * (saw - 0.25),
        "oak": abs(across)
        - 0.5 * np.sin(np.pi * reached**0.8) ** 0.6 * (0.75 + 0.35 * np.cos(2 * np.pi * 3.5 * reached)),
        "lime": radius - 0.5 * (1 + np.cos(np.clip(angle, -3, 3) / 1.15)) * (1 - 0.2 * np.cos(angle)),
        "maple": radius - 0.3 - 0.75 * (1 - abs((angle / 1.1 + 0.5) % 1 - 0.5) * 2) ** 1.3 * (abs(angle) < 2.75),
        "ginkgo": np.maximum(radius - 0.95, 0.9 * (abs(angle) - 1.15) * radius)
        + 0.5 * np.exp(-((across / 0.08) ** 2)) * np.maximum(along - 0.1, 0),
        "ash": 0.2 * leaflet,
    }
    outside = np.stack([apart[name] for name in LEAVES])[labels, np.arange(count)] * length
    stalk = np.maximum(abs(across) * length - 0.5, abs(along + 0.3) * length - 0.75 * length)
    cover = covered(np.minimum(0.8 * outside, stalk))
    ripe = rng.uniform(0, 1, (count, 1))
    colour = np.array([70, 140, 50]) + ripe * np.array([140, -30, 0]) + rng.uniform(-40, 40, (count, 3))
    vein = np.exp(-((across * length) ** 2)) + 0.5 * np.sin(
        column(rng.uniform(4, 7, count)) * (along - abs(across)) * 3
    )
    shade = 1 + 0.15 * vein + 0.08 * field(count, 1.0, rng)
    images += cover[..., None] * (colour[:, None, None] * shade[..., None] - images)
    images += 8 * rng.standard_normal(images.shape)
    return Part(pixels(contrast(images, rng)), labels, one_each(split), cover > 0.5)


SCENES = ("sea", "hills", "mountains", "forest", "city", "road")


def scenes(split: str, rng: np.random.Generator) -> Part:
    """Draw six kinds of landscapes at any time of day: one skyline each, in two layers, and a ground."""
    labels = balanced(len(SCENES), split, rng)
    count = len(labels)
    dark, light = np.array([[130, 60, 60, 40], [230, 180, 180, 150]])[..., None, None]
    sky, ground, far, near = rng.uniform(dark, light, (4, count, 1)) + rng.uniform(-40, 40, (4, count, 3))
    horizon = column(rng.uniform(-4, 5, count))
    light = 1 + 0.012 * column(rng.uniform(-1, 1, count)) * DOWN + 0.1 * field(count, 1.5, rng)
    images = light[..., None] * sky[:, None, None]
    depth = np.maximum(DOWN - horizon, 0.1)  # rows below the horizon
    ripple = np.sin(column(rng.uniform(30, 60, count)) / depth**0.5 + field(count, 1.5, rng))
    way = abs(RIGHT - column(rng.uniform(-5, 5, count)) * (1 - depth / 12)) / (
        column(rng.uniform(0.3, 0.8, count)) * depth
    )
    below = 1 + 0.1 * field(count, 0.8, rng) + np.where(column(labels) == 0, 0.15 * ripple, 0)
    paint(images, covered(horizon - DOWN), ground)
    images *= np.where(horizon < DOWN, below, 1)[..., None]
    paint(images, (way < 1) * (horizon < DOWN) * (column(labels) == 5), far)
    paint(images, (way < 0.12) * (horizon < DOWN) * (column(labels) == 5), near)
    for colour, rise in ((far, 6.0), (near, 3.0)):
        height = np.stack([_skyline(SCENES[label], rise, rng) for label in labels])[:, None]
        paint(images, covered(horizon - height - DOWN) * (horizon + 0.5 > DOWN), colour)
    images += 8 * rng.standard_normal(images.shape)
    return Part(pixels(contrast(images, rng)), labels, one_each(split))


def _skyline(kind: str, rise: float, rng: np.random.Generator) -> np.ndarray:
    """Draw how many pixels a skyline stands above the horizon in each column, (32,)."""
    if kind == "city":
        return np.repeat(rng.uniform(0, 2 * rise, SIDE), rng.integers(2, 6, SIDE))[:SIDE]
    if kind == "forest":
        return rise + rng.uniform(0, 3) * abs(np.sin(np.arange(SIDE) * rng.uniform(0.6, 1.2))) + rng.uniform(0, 2, SIDE)
    if kind == "mountains":
        peaks = rng.uniform(-20, 20, (4, 1)), rng.uniform(0.5, 2, (4, 1)) * rise, rng.uniform(0.4, 1.2, (4, 1))
        return np.maximum(0, peaks[1] - peaks[2] * abs(RIGHT[0] - peaks[0])).max(axis=0)
    if kind == "hills":
        return rise * (0.6 + 0.5 * np.sin(RIGHT[0] * rng.uniform(0.1, 0.25) + rng.uniform(0, 7)))
    return np.full(SIDE, -1.0)
