"""Natural tasks: handwritten digits, textures, flowers and scenes."""

from functools import partial

import numpy as np
from numpy.random import Generator

from pvera.data.suite.drawing import (
    COUNTS,
    DOWN,
    RIGHT,
    SIDE,
    SyntheticSplit,
    SyntheticTask,
    balanced_labels,
    change_contrast,
    colour_fields,
    coverage,
    paint,
    per_image,
    photograph,
    random_fields,
    rotate,
    split_members,
    standardise,
    to_uint8,
)


def choose_digits(split_file: str, rng: Generator) -> np.ndarray:
    """Draw which of the 1,797 handwritten digits each image of a split shows, (n,).

    None is in two splits.
    """
    return rng.permutation(np.resize(split_members(1797, split_file), COUNTS[split_file]))


def digits(split_file: str, rng: Generator) -> SyntheticSplit:
    """Draw handwritten digits (UCI, 8 x 8) in light ink of any hue on a dark random scene.

    797 of them make the 2,000 test images.
    """
    from scipy.ndimage import map_coordinates, zoom
    from sklearn.datasets import load_digits

    count = COUNTS[split_file]
    uniform = partial(rng.uniform, size=(count, 1, 1))
    data = load_digits()
    which = choose_digits(split_file, rng)

    scene = colour_fields(0.5 + 0.25 * random_fields(count, rng.uniform(0.8, 1.6, count), rng), rng)
    scene = 0.5 * change_contrast(scene, rng, gain=(0.5, 1.5))

    enlarged = zoom(data.images[which], (1, 4, 4), order=3)
    strokes = np.pad(enlarged, ((0, 0), (4, 4), (4, 4))) / 16
    height = uniform(20, 28)  # of the digit's 8 x 8 frame, in pixels
    angle = uniform(-0.2, 0.2)
    slant = uniform(-0.2, 0.2)
    # In pixels of strokes.
    down = (DOWN - uniform(-2.5, 2.5)) * SIDE / height
    right = (RIGHT - uniform(-2.5, 2.5)) * SIDE / height
    y, x = rotate(down, right, angle)
    x = 1.2 * x + slant * y
    layer = np.broadcast_to(per_image(np.arange(count)), y.shape)
    sampled = map_coordinates(strokes, [layer, y + 19.5, x + 19.5], order=1)
    ink = np.clip(1.3 * sampled, 0, 1)

    # Light ink on a darkened scene is legible in every hue.
    lightness = scene.mean(axis=(1, 2, 3)) + rng.uniform(60, 110, count)
    colours = lightness[:, None] + rng.uniform(-40, 40, size=(count, 3))
    paint(scene, ink, colours)
    return SyntheticSplit(to_uint8(scene), data.target[which].astype(np.int64), ink > 0.5)


TEXTURES = ("clouds", "stripes", "weave", "cells", "dots", "scratches")


def textures(split_file: str, rng: Generator) -> SyntheticSplit:
    """Draw six kinds of textures in two random colours, scale and direction, under noise."""
    labels = balanced_labels(len(TEXTURES), split_file, rng)
    count = len(labels)
    uniform = partial(rng.uniform, size=(count, 1, 1))
    scale = per_image(rng.uniform(6, 12, count))
    angle = uniform(0, np.pi)
    # In radians of a wave.
    warp = random_fields(count, 2.0, rng) * uniform(0.3, 1.2)
    down, right = rotate(DOWN, RIGHT, angle)
    nearest, second = _distances(count, scale, rng)
    down_phase = 2 * np.pi * down / scale
    right_phase = 2 * np.pi * right / scale
    drawn = {
        "clouds": random_fields(count, 1.8, rng),
        "stripes": np.sin(down_phase + 2 * warp),
        "weave": np.sin(down_phase + warp) * np.sin(right_phase + warp),
        "cells": np.minimum((second - nearest) / scale, 0.35),
        "dots": np.exp(-4 * (nearest / scale) ** 2),
        "scratches": _scratches(count, rng),
    }
    fields = standardise(np.choose(per_image(labels), [drawn[name] for name in TEXTURES]))
    noise = random_fields(count, rng.uniform(0, 1, count), rng)
    noise *= uniform(0.1, 0.4)
    images = colour_fields(0.5 + 0.2 * (fields + noise), rng, least=120)
    return photograph(images, labels, rng)


def _distances(count: int, scale: np.ndarray, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return each pixel's distances to the two nearest random points, each (count, 32, 32).

    The points are about `scale` apart.
    """
    # One point in each cell of a grid, moved at random.
    nearest, second = np.empty((2, count, SIDE, SIDE))
    for i in range(count):
        side = np.arange(-24.0, 25.0, float(scale[i, 0, 0]))
        points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
        points += rng.uniform(-0.45, 0.45, points.shape) * scale[i, 0, 0]
        squares = (DOWN[..., None] - points[:, 0]) ** 2 + (RIGHT[..., None] - points[:, 1]) ** 2
        two_least = np.partition(squares, 1, axis=-1)
        nearest[i] = np.sqrt(two_least[..., 0])
        second[i] = np.sqrt(two_least[..., 1])
    return nearest, second


def _scratches(count: int, rng: Generator) -> np.ndarray:
    """Draw thin straight lines in all directions, (count, 32, 32)."""
    uniform = partial(rng.uniform, size=(count, 1, 1))
    lines = np.zeros((count, SIDE, SIDE))
    for _ in range(9):
        angle = uniform(0, np.pi)
        offset = uniform(-16, 16)
        across, along = rotate(DOWN, RIGHT, angle)
        distance = across - offset
        along = along - uniform(-16, 16)
        half_length = uniform(4, 14)
        line = np.exp(-(distance**2)) * (abs(along) < half_length)
        lines = np.maximum(lines, line)
    return lines


#: Number of petals of each flower.
FLOWERS = {
    "iris": 3,
    "poppy": 4,
    "primrose": 5,
    "bellflower": 5,
    "lily": 6,
    "daisy": 15,
    "rose": 3,
}


def flowers(split_file: str, rng: Generator) -> SyntheticSplit:
    """Draw seven kinds of flowers in any colour, tilted, among leaves.

    Number and shape of the petals tell them apart.
    """
    labels = balanced_labels(len(FLOWERS), split_file, rng)
    count = len(labels)
    uniform = partial(rng.uniform, size=(count, 1, 1))
    leaves = 0.5 + 0.22 * random_fields(count, 1.2, rng)
    images = colour_fields(leaves, rng, (20, 170))
    images *= np.array([0.8, 1.1, 0.7])
    radius = uniform(8, 14)
    tilt = uniform(0.65, 1)
    y = DOWN - uniform(-4, 4)
    x = RIGHT - uniform(-4, 4)
    # Turned, foreshortened along one axis, and turned again.
    y, x = rotate(y, x, uniform(0, 7))
    y, x = rotate(y / tilt, x, uniform(0, 7))
    distance = np.hypot(y, x) / radius
    angle = np.arctan2(y, x)

    kinds = list(FLOWERS)
    daisy = labels == kinds.index("daisy")
    rose = labels == kinds.index("rose")
    petals = np.array(list(FLOWERS.values()))[labels]
    petals += np.where(daisy, rng.integers(-3, 4, count), 0)
    phase = per_image(petals) * angle / (2 * np.pi)
    aside = 2 * abs(phase - np.rint(phase))  # from 0 on a petal's axis to 1 between petals
    outline = _outlines(aside, labels)
    wave = np.where(per_image(rose), 0.5 + 0.5 * np.sin(2 * angle + 14 * distance), 1 - aside)
    cover = coverage((distance - outline) * radius)
    colour = rng.uniform(90, 255, (count, 3))
    # Petals are lighter at their ends.
    shade = 0.55 + 0.3 * distance + 0.25 * wave
    images += cover[..., None] * (colour[:, None, None] * shade[..., None] - images)

    heart = per_image(np.where(rose, 0, rng.uniform(0.15, 0.3, count)))
    heart_cover = coverage((distance - heart) * radius) * (heart > 0)
    paint(images, heart_cover, rng.uniform(30, 240, (count, 3)))
    return photograph(images, labels, rng, cover > 0.5, noise=8)


def _outlines(aside: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return each flower's radius in every direction, as a share of its whole radius."""
    outlines = {
        "iris": 0.25 + 0.75 * (1 - aside**2) ** 0.8,
        "poppy": 0.85 + 0.15 * (1 - aside**2),
        "primrose": 0.45 + 0.55 * (1 - aside**3) - 0.3 * np.exp(-((aside / 0.25) ** 2)),
        "bellflower": 0.45 + 0.55 * (1 - aside) ** 1.2,
        "lily": 0.15 + 0.85 * (1 - aside) ** 0.9,
        "daisy": 0.3 + 0.7 * (aside < 0.7),
        "rose": np.full_like(aside, 0.85),
    }
    return np.choose(per_image(labels), [outlines[kind] for kind in FLOWERS])


SCENES = ("sea", "hills", "mountains", "forest", "city", "road")


def scenes(split_file: str, rng: Generator) -> SyntheticSplit:
    """Draw six kinds of landscapes at any time of day; skyline or ground tell them apart."""
    labels = balanced_labels(len(SCENES), split_file, rng)
    count = len(labels)
    uniform = partial(rng.uniform, size=(count, 1, 1))
    # Of sky, ground, far and near.
    least = np.array([130, 60, 60, 40])[:, None, None]
    most = np.array([230, 180, 180, 150])[:, None, None]
    lightness = rng.uniform(least, most, (4, count, 1))
    sky, ground, far, near = lightness + rng.uniform(-40, 40, (4, count, 3))
    horizon = uniform(-4, 5)
    gradient = 0.012 * uniform(-1, 1) * DOWN
    light = 1 + gradient + 0.1 * random_fields(count, 1.5, rng)
    images = light[..., None] * sky[:, None, None]

    depth = np.maximum(DOWN - horizon, 0.1)  # rows below the horizon
    is_ground = horizon < DOWN
    is_sea = per_image(labels == SCENES.index("sea"))
    is_road = per_image(labels == SCENES.index("road"))
    waves = uniform(30, 60) / depth**0.5
    ripple = np.sin(waves + random_fields(count, 1.5, rng))
    middle = uniform(-5, 5) * (1 - depth / 12)
    half_width = uniform(0.3, 0.8) * depth
    from_middle = abs(RIGHT - middle) / half_width  # 1 at the edges of the road
    below = 1 + 0.1 * random_fields(count, 0.8, rng) + np.where(is_sea, 0.15 * ripple, 0)
    paint(images, coverage(horizon - DOWN), ground)
    images *= np.where(is_ground, below, 1)[..., None]
    paint(images, (from_middle < 1) * is_ground * is_road, far)
    paint(images, (from_middle < 0.12) * is_ground * is_road, near)

    # Two rows of what stands on the horizon, the nearer one lower.
    for colour, rise in ((far, 6.0), (near, 3.0)):
        skylines = [_skyline(SCENES[label], rise, rng) for label in labels]
        height = np.stack(skylines)[:, None]
        above_ground = horizon + 0.5 > DOWN
        paint(images, coverage(horizon - height - DOWN) * above_ground, colour)
    return photograph(images, labels, rng, noise=8)


def _skyline(kind: str, rise: float, rng: Generator) -> np.ndarray:
    """Draw how many pixels a skyline stands above the horizon in each column, (32,)."""
    if kind == "city":
        heights = rng.uniform(0, 2 * rise, SIDE)
        widths = rng.integers(2, 6, SIDE)
        return np.repeat(heights, widths)[:SIDE]
    if kind == "forest":
        crown = rng.uniform(0, 3)
        crowns = crown * abs(np.sin(np.arange(SIDE) * rng.uniform(0.6, 1.2)))
        return rise + crowns + rng.uniform(0, 2, SIDE)
    if kind == "mountains":
        peak = rng.uniform(-20, 20, (4, 1))
        height = rng.uniform(0.5, 2, (4, 1)) * rise
        slope = rng.uniform(0.4, 1.2, (4, 1))
        return np.maximum(0, height - slope * abs(RIGHT[0] - peak)).max(axis=0)
    if kind == "hills":
        phase = RIGHT[0] * rng.uniform(0.1, 0.25) + rng.uniform(0, 7)
        return rise * (0.6 + 0.5 * np.sin(phase))
    return np.full(SIDE, -1.0)


TASKS = (
    SyntheticTask("Digits", "natural", tuple("0123456789"), digits),
    SyntheticTask("Textures", "natural", TEXTURES, textures),
    SyntheticTask("Flowers", "natural", tuple(FLOWERS), flowers),
    SyntheticTask("Scenes", "natural", SCENES, scenes),
)
