"""Specialized tasks: nuclei, blood vessels, land cover and white blood cells."""

import numpy as np

from pvera.data.suite.drawing import (
    DOWN,
    RIGHT,
    SIDE,
    Part,
    balanced,
    column,
    covered,
    field,
    paint,
    photographed,
    turned,
)

INDEX = {
    "under 10 %": 0.1,
    "10 to 30 %": 0.3,
    "30 to 55 %": 0.55,
    "over 55 %": 1,
}  # upper limits of the classes


def nuclei(split: str, rng: np.random.Generator) -> Part:
    """Draw a section with 14 to 24 nuclei, stained blue (haematoxylin) or brown (DAB) as in a Ki-67 slide.

    The label is the share of brown ones, the proliferation index. Both stains vary in strength from slide to slide.
    """
    from skimage.color import hed2rgb

    labels = balanced(len(INDEX), split, rng)
    stains = np.zeros((len(labels), SIDE, SIDE, 3))
    stains[..., 1] = 0.03 + 0.01 * field(len(labels), 1.0, rng)  # eosin of the tissue between them
    stains[..., 0] = 0.02 + 0.01 * field(len(labels), 1.5, rng)
    masks = np.stack(
        [_draw_nuclei(image, label, rng) for image, label in zip(stains, labels, strict=True)]
    )
    stains *= rng.uniform(0.5, 1.5, size=(len(labels), 1, 1, 3))
    return photographed(255 * hed2rgb(stains), labels, rng, masks)


def _draw_nuclei(image: np.ndarray, label: int, rng: np.random.Generator) -> np.ndarray:
    """Stain the nuclei on one image in place, and return their pixels (32, 32)."""
    mask = np.zeros((SIDE, SIDE), bool)
    count = rng.integers(14, 25)
    possible = np.arange(count + 1)
    possible = possible[np.digitize(possible / count, [*INDEX.values()][:-1]) == label]
    brown = rng.permutation(count) < rng.choice(possible)
    places = _apart(count, 4.0, rng)
    for (y, x), positive in zip(places, brown, strict=True):
        long, short = rng.uniform(2.2, 3.2), rng.uniform(1.4, 2.2)
        angle = rng.uniform(0, np.pi)
        u, v = turned(DOWN - y, RIGHT - x, angle)
        inside = 1 / (1 + np.exp(np.minimum(6 * (np.hypot(u / long, v / short) - 1), 50)))
        image[..., 0] += inside * rng.uniform(0.03, 0.10) * (0.5 if positive else 1.0)
        image[..., 2] += inside * (rng.uniform(0.03, 0.10) if positive else 0.0)
        mask |= inside > 0.5
    return mask


def _apart(count: int, least: float, rng: np.random.Generator) -> np.ndarray:
    """Draw `count` places, each as far from the earlier ones as the best of ten tries."""
    places = rng.uniform(-15, 15, (1, 2))
    while len(places) < count:
        tries = rng.uniform(-15, 15, (10, 2))
        distance = np.linalg.norm(tries[:, None] - places[None], axis=-1).min(axis=1)
        far = np.flatnonzero(distance > least)
        places = np.vstack([places, tries[far[0] if len(far) else distance.argmax()]])
    return places


CALIBERS = {
    "none": (0.0, 0.0),
    "thin": (1.2, 1.8),
    "medium": (2.2, 3.0),
    "thick": (3.6, 4.8),
}  # pixels


def vessels(split: str, rng: np.random.Generator) -> Part:
    """Draw a fundus with up to three blood vessels; the label is the caliber of the one at the centre, if any.

    The mask holds that one alone, and is empty for class "none".
    """
    labels = balanced(len(CALIBERS), split, rng)
    count = len(labels)
    low, high = np.array([*CALIBERS.values()])[labels].T
    dark, masks = np.zeros((count, SIDE, SIDE)), np.zeros((count, SIDE, SIDE), bool)
    for i in range(count):
        curves = [(_curve(0.0, rng), rng.uniform(low[i], high[i]))] if labels[i] else []
        if curves:
            masks[i] = curves[0][0] < curves[0][1] / 2
        for _ in range(rng.integers(0, 3) + (not curves)):
            curves.append(
                (_curve(rng.choice([-1, 1]) * rng.uniform(7, 14), rng), rng.uniform(1.2, 4.8))
            )
        for distance, caliber in curves:
            vessel = rng.uniform(0.5, 1.0) / (
                1 + np.exp(np.minimum(3 * (distance - caliber / 2), 50))
            )
            dark[i] = np.maximum(dark[i], vessel)
    shade = 1 + column(rng.uniform(0, 0.012, count)) * (
        np.cos(column(rng.uniform(0, 7, count))) * DOWN + RIGHT
    )
    tint = np.array([190, 95, 50]) * rng.uniform(0.8, 1.2, size=(count, 3))
    light = shade + 0.08 * field(count, 1.2, rng) - 0.35 * dark + 0.04 * field(count, 0.0, rng)
    return photographed(light[..., None] * tint[:, None, None], labels, rng, masks)


def _curve(offset: float, rng: np.random.Generator) -> np.ndarray:
    """Return each pixel's distance (32, 32) to a bent line that passes the centre at `offset` pixels."""
    angle, bend = rng.uniform(0, 2 * np.pi), rng.uniform(-0.015, 0.015)
    along, across = turned(DOWN, RIGHT, angle)
    return abs(across - offset - bend * along**2) / np.hypot(1, 2 * bend * along)


LANDCOVER = ("meadow", "forest", "fields", "orchard", "river", "road", "town", "industry")


def landcover(split: str, rng: np.random.Generator) -> Part:
    """Draw satellite tiles of eight kinds of land, in any season's and sensor's colours."""
    labels = balanced(len(LANDCOVER), split, rng)
    count = len(labels)
    tint = np.array([110, 120, 70]) + rng.uniform(-60, 60, (count, 3))
    images = np.repeat(tint[:, None, None], SIDE, axis=1).repeat(SIDE, axis=2)
    images *= (1 + 0.12 * field(count, rng.uniform(0.5, 1.5, count), rng))[..., None]
    for image, label in zip(images, labels, strict=True):
        _cover_land(image, LANDCOVER[label], rng)
    images *= rng.uniform(0.75, 1.25, (count, 1, 1, 3))
    return photographed(images, labels, rng, noise=7)


def _cover_land(image: np.ndarray, kind: str, rng: np.random.Generator) -> None:
    """Draw what lies on one tile's ground, in place; a meadow is the ground alone."""
    y, x = turned(DOWN, RIGHT, rng.uniform(0, np.pi))
    y, x = y + rng.uniform(-6, 6), x + rng.uniform(-6, 6)
    colour, other = np.array([110, 115, 85]) + rng.uniform(-70, 70, (2, 3))
    if kind == "forest":
        for place in rng.uniform(-17, 17, (90, 2)):
            distance = np.hypot(DOWN - place[0], RIGHT - place[1]) - rng.uniform(1, 2)
            paint(image, 0.6 * covered(distance), colour * rng.uniform(0.5, 1.1))
    elif kind == "fields":
        rows = np.floor(y / rng.uniform(7, 14)).astype(int)
        plots = rows * 7 + np.floor((x + 5 * rows) / rng.uniform(9, 18)).astype(int)
        for plot in np.unique(plots):
            paint(image, 0.7 * (plots == plot), colour + rng.uniform(-50, 50, 3))
    elif kind == "orchard":
        step = rng.uniform(4, 6.5)
        distance = np.hypot((y + step / 2) % step - step / 2, (x + step / 2) % step - step / 2)
        paint(image, covered(distance - rng.uniform(1, 1.8)), colour * 0.7)
    elif kind == "river":
        bend = rng.uniform(2, 5) * np.sin(x * rng.uniform(0.12, 0.3) + rng.uniform(0, 7))
        paint(image, covered(abs(y - bend) - rng.uniform(1.5, 4)), colour * 0.7)
    elif kind == "road":
        for across in (y, x + rng.uniform(-0.5, 0.5) * y)[: rng.integers(1, 3)]:
            paint(image, covered(abs(across) - rng.uniform(0.7, 1.5)), 0.5 * colour + 90)
    elif kind in ("town", "industry"):
        step = rng.uniform(5, 7) if kind == "town" else rng.uniform(12, 16)
        for row in np.arange(-24, 24, step):
            for col in np.arange(-24, 24, step):
                sides = step * rng.uniform(0.2, 0.4, 2)
                shadow = np.maximum(abs(y - row - 1) - sides[0], abs(x - col - 1) - sides[1])
                paint(image, 0.8 * covered(shadow), colour * 0.4)
                roof = np.maximum(abs(y - row) - sides[0], abs(x - col) - sides[1])
                paint(image, covered(roof), other + 50 + rng.uniform(-40, 40, 3))


BLOOD = ("lymphocyte", "monocyte", "neutrophil", "eosinophil", "basophil")


def blood(split: str, rng: np.random.Generator) -> Part:
    """Draw a white blood cell among red ones in a stained smear; the label is its kind, by nucleus and granules."""
    labels = balanced(len(BLOOD), split, rng)
    count = len(labels)
    images = np.array([225, 215, 220]) + 4 * field(count, 1.0, rng)[..., None]
    masks = np.stack(
        [_smear(image, BLOOD[label], rng) for image, label in zip(images, labels, strict=True)]
    )
    images = 255 * (images.clip(1, 255) / 255) ** rng.uniform(0.5, 1.8, (count, 1, 1, 3))
    return photographed(images, labels, rng, masks, noise=5)


def _smear(image: np.ndarray, kind: str, rng: np.random.Generator) -> np.ndarray:
    """Draw one smear in place, and return the white cell's pixels (32, 32)."""
    for place in _apart(rng.integers(4, 9), 8.0, rng):
        distance, radius = np.hypot(DOWN - place[0], RIGHT - place[1]), rng.uniform(3.5, 4.5)
        pale = 0.5 + 0.5 * np.minimum(distance / radius, 1)
        paint(image, 0.8 * covered(distance - radius) * pale, np.array([215, 150, 150]))
    y, x = turned(*(axis - rng.uniform(-4, 4) for axis in (DOWN, RIGHT)), rng.uniform(0, 2 * np.pi))
    radius = rng.uniform(6.5, 9.5)
    cell = np.hypot(y, x) - radius
    paint(image, covered(cell), np.array([185, 175, 210]) + rng.uniform(-20, 20, 3))
    dark = np.array([95, 60, 140]) + rng.uniform(-20, 20, 3)
    lobes = {"neutrophil": rng.integers(3, 6), "eosinophil": 2}.get(kind, 1)
    if kind == "monocyte":
        nucleus = np.maximum(
            np.hypot(y, x) - 0.72 * radius, 0.5 * radius - np.hypot(y, x + 0.65 * radius)
        )
    elif lobes > 1:
        angles = 2 * np.pi * np.arange(lobes) / max(lobes, 3.5) + rng.uniform(-0.2, 0.2, lobes)
        size = radius * rng.uniform(0.26, 0.34, lobes) * (1.3 if lobes == 2 else 1)
        places = 0.45 * radius * np.stack([np.sin(angles), np.cos(angles)], axis=1)
        nucleus = np.minimum.reduce(
            [np.hypot(y - p[0], x - p[1]) - s for p, s in zip(places, size, strict=True)]
        )
    else:
        nucleus = np.hypot(y, x / rng.uniform(0.9, 1.1)) - radius * rng.uniform(0.55, 0.85)
    paint(image, covered(nucleus), dark)
    if kind in ("eosinophil", "basophil"):
        colour = np.array([205, 95, 100]) if kind == "eosinophil" else 0.7 * dark
        for distance, turn in rng.uniform(0, 1, (40, 2)):
            down, right = (
                0.95
                * radius
                * distance**0.5
                * np.array([np.sin(2 * np.pi * turn), np.cos(2 * np.pi * turn)])
            )
            grain = covered(np.hypot(y - down, x - right) - rng.uniform(0.4, 0.8))
            paint(image, grain * (nucleus > 0) if kind == "eosinophil" else grain, colour)
    return cell < 0
