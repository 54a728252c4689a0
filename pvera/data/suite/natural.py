"""Natural tasks: digits on photographs, and patches of photographs."""

from __future__ import annotations

import numpy as np

from pvera.data.suite.drawing import (
    COUNTS,
    SIDE,
    Part,
    centres,
    contrast,
    patches,
    photograph,
    pixels,
    quarter_turns,
    share,
)


def digits(split: str, rng: np.random.Generator) -> Part:
    """Draw handwritten digits (UCI, 8 x 8) in light ink of any hue, at random places on darkened photographs."""
    from scipy.ndimage import map_coordinates, zoom
    from sklearn.datasets import load_digits

    count = COUNTS[split]
    data = load_digits()
    drawn = share(len(data.images), split)
    which = rng.permutation(np.concatenate([drawn, rng.choice(drawn, count - len(drawn), replace=False)]))

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
    """Cut grey patches of ten photographs at random scale, direction, brightness and contrast."""
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
    images *= 45 / np.maximum(images.std(axis=(1, 2, 3), keepdims=True), 8)  # flat patches stay nearly flat
    images = contrast(images + 128, rng)
    return Part(np.repeat(pixels(images), 3, axis=-1), labels, reads)
