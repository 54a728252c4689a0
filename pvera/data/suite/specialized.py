"""Specialized tasks: nuclei of a stained section, and blood vessels of a fundus."""

from __future__ import annotations

import numpy as np

from pvera.data.suite.drawing import (
    DOWN,
    RIGHT,
    SIDE,
    Part,
    balanced,
    column,
    contrast,
    field,
    one_each,
    pixels,
    turned,
)

INDEX = (0, 0.1, 0.3, 0.55, 1)  # limits of the classes


def nuclei(split: str, rng: np.random.Generator) -> Part:
    """Draw a section with 14 to 24 nuclei, stained blue (haematoxylin) or brown (DAB) as in a Ki-67 slide.

    The label is the share of brown ones, the proliferation index. Both stains vary in strength from slide to slide.
    """
    from skimage.color import hed2rgb

    labels = balanced(len(INDEX) - 1, split, rng)
    stains = np.zeros((len(labels), SIDE, SIDE, 3))
    stains[..., 1] = 0.03 + 0.01 * field(len(labels), 1.0, rng)  # eosin of the tissue between them
    stains[..., 0] = 0.02 + 0.01 * field(len(labels), 1.5, rng)
    for image, label in zip(stains, labels, strict=True):
        _draw_nuclei(image, label, rng)
    stains *= rng.uniform(0.5, 1.5, size=(len(labels), 1, 1, 3))
    return Part(pixels(contrast(255 * hed2rgb(stains), rng)), labels, one_each(split))


def _draw_nuclei(image: np.ndarray, label: int, rng: np.random.Generator) -> None:
    count = rng.integers(14, 25)
    possible = np.arange(count + 1)
    possible = possible[np.digitize(possible / count, INDEX[1:-1]) == label]
    brown = rng.permutation(count) < rng.choice(possible)
    places = _apart(count, 4.0, rng)
    for (y, x), positive in zip(places, brown, strict=True):
        long, short = rng.uniform(2.2, 3.2), rng.uniform(1.4, 2.2)
        angle = rng.uniform(0, np.pi)
        u, v = turned(DOWN - y, RIGHT - x, angle)
        inside = 1 / (1 + np.exp(np.minimum(6 * (np.hypot(u / long, v / short) - 1), 50)))
        image[..., 0] += inside * rng.uniform(0.03, 0.10) * (0.5 if positive else 1.0)
        image[..., 2] += inside * (rng.uniform(0.03, 0.10) if positive else 0.0)


def _apart(count: int, least: float, rng: np.random.Generator) -> np.ndarray:
    """Draw `count` places, each as far from the earlier ones as the best of ten tries."""
    places = rng.uniform(-15, 15, (1, 2))
    while len(places) < count:
        tries = rng.uniform(-15, 15, (10, 2))
        distance = np.linalg.norm(tries[:, None] - places[None], axis=-1).min(axis=1)
        far = np.flatnonzero(distance > least)
        places = np.vstack([places, tries[far[0] if len(far) else distance.argmax()]])
    return places


CALIBERS = ((0.0, 0.0), (1.2, 1.8), (2.2, 3.0), (3.6, 4.8))  # pixels


def vessels(split: str, rng: np.random.Generator) -> Part:
    """Draw a fundus with up to three blood vessels; the label is the caliber of the one at the centre, if any."""
    labels = balanced(len(CALIBERS), split, rng)
    count = len(labels)
    low, high = np.array(CALIBERS)[labels].T
    dark = np.zeros((count, SIDE, SIDE))
    for i in range(count):
        curves = [(_curve(0.0, rng), rng.uniform(low[i], high[i]))] if labels[i] else []
        for _ in range(rng.integers(0, 3) + (not curves)):
            curves.append((_curve(rng.choice([-1, 1]) * rng.uniform(7, 14), rng), rng.uniform(1.2, 4.8)))
        for distance, caliber in curves:
            vessel = rng.uniform(0.5, 1.0) / (1 + np.exp(np.minimum(3 * (distance - caliber / 2), 50)))
            dark[i] = np.maximum(dark[i], vessel)
    shade = 1 + column(rng.uniform(0, 0.012, count)) * (np.cos(column(rng.uniform(0, 7, count))) * DOWN + RIGHT)
    tint = np.array([190, 95, 50]) * rng.uniform(0.8, 1.2, size=(count, 3))
    light = shade + 0.08 * field(count, 1.2, rng) - 0.35 * dark
    light = light + 0.04 * field(count, 0.0, rng)
    images = light[..., None] * tint[:, None, None]
    return Part(pixels(contrast(images, rng)), labels, one_each(split))


def _curve(offset: float, rng: np.random.Generator) -> np.ndarray:
    """Return each pixel's distance (32, 32) to a bent line that passes the centre at `offset` pixels."""
    angle, bend = rng.uniform(0, 2 * np.pi), rng.uniform(-0.015, 0.015)
    along, across = turned(DOWN, RIGHT, angle)
    return abs(across - offset - bend * along**2) / np.hypot(1, 2 * bend * along)
