"""Specialized tasks: nuclei, blood vessels, land cover and white blood cells."""

from itertools import product

import numpy as np
from numpy.random import Generator

from pvera.data.suite.drawing import (
    DOWN,
    RIGHT,
    SIDE,
    SyntheticSplit,
    SyntheticTask,
    balanced_labels,
    coverage,
    paint,
    per_image,
    photograph,
    random_fields,
    rotate,
    soft_coverage,
)

#: Upper limit of each class of the proliferation index.
INDEX = {
    "under 10 %": 0.1,
    "10 to 30 %": 0.3,
    "30 to 55 %": 0.55,
    "over 55 %": 1,
}


def nuclei(split_file: str, rng: Generator) -> SyntheticSplit:
    """Draw a section with 14 to 24 nuclei, stained blue or brown as in a Ki-67 slide.

    The label is the share of brown ones, the proliferation index. Both stains (haematoxylin and
    DAB) vary in strength from slide to slide.
    """
    from skimage.color import hed2rgb

    labels = balanced_labels(len(INDEX), split_file, rng)
    count = len(labels)
    stains = np.zeros((count, SIDE, SIDE, 3))  # haematoxylin, eosin, DAB
    stains[..., 1] = 0.03 + 0.01 * random_fields(count, 1.0, rng)
    stains[..., 0] = 0.02 + 0.01 * random_fields(count, 1.5, rng)
    masks = np.zeros((count, SIDE, SIDE), bool)
    for i in range(count):
        masks[i] = _draw_nuclei(stains[i], labels[i], rng)
    stains *= rng.uniform(0.5, 1.5, size=(count, 1, 1, 3))
    return photograph(255 * hed2rgb(stains), labels, rng, masks)


def _draw_nuclei(image: np.ndarray, label: int, rng: Generator) -> np.ndarray:
    """Stain the nuclei on one image in place, and return their pixels (32, 32)."""
    mask = np.zeros((SIDE, SIDE), bool)
    count = int(rng.integers(14, 25))
    counts = np.arange(count + 1)
    limits = list(INDEX.values())[:-1]
    # Numbers of brown nuclei whose share falls into the class.
    possible = counts[np.digitize(counts / count, limits) == label]
    brown = rng.permutation(count) < rng.choice(possible)
    centres = _spread_points(count, 4.0, rng)
    for (y, x), is_brown in zip(centres, brown, strict=True):
        long = rng.uniform(2.2, 3.2)
        short = rng.uniform(1.4, 2.2)
        angle = rng.uniform(0, np.pi)
        u, v = rotate(DOWN - y, RIGHT - x, angle)
        # An ellipse with a soft edge.
        inside = soft_coverage(6 * (np.hypot(u / long, v / short) - 1))
        image[..., 0] += inside * rng.uniform(0.03, 0.10) * (0.5 if is_brown else 1.0)
        if is_brown:
            image[..., 2] += inside * rng.uniform(0.03, 0.10)
        mask |= inside > 0.5
    return mask


def _spread_points(count: int, least: float, rng: Generator) -> np.ndarray:
    """Draw points (count, 2), each the first of ten tries at a distance of `least` from the others.

    Where none is, the farthest try counts.
    """
    points = rng.uniform(-15, 15, (1, 2))  # row and column, from the centre
    while len(points) < count:
        tries = rng.uniform(-15, 15, (10, 2))
        distance = np.linalg.norm(tries[:, None] - points[None], axis=-1).min(axis=1)
        far = np.flatnonzero(distance > least)
        best = far[0] if len(far) else distance.argmax()
        points = np.vstack([points, tries[best]])
    return points


#: Range of calibers of each class, in pixels.
CALIBERS = {
    "none": (0.0, 0.0),
    "thin": (1.2, 1.8),
    "medium": (2.2, 3.0),
    "thick": (3.6, 4.8),
}


def vessels(split_file: str, rng: Generator) -> SyntheticSplit:
    """Draw a fundus with up to three blood vessels.

    The label is the caliber of the one at the centre, if any. The mask holds that one alone, and
    is empty for class "none".
    """
    labels = balanced_labels(len(CALIBERS), split_file, rng)
    count = len(labels)
    dark = np.zeros((count, SIDE, SIDE))
    masks = np.zeros((count, SIDE, SIDE), bool)
    for i, (low, high) in enumerate(np.array(list(CALIBERS.values()))[labels]):
        curves = []  # distance to the middle line, caliber
        if labels[i]:
            central = _distance_to_curve(0.0, rng)
            caliber = rng.uniform(low, high)
            curves.append((central, caliber))
            masks[i] = central < caliber / 2
        # Other vessels pass at a distance; without one at the centre there is at least one.
        others = rng.integers(0, 3) if curves else rng.integers(1, 4)
        for _ in range(others):
            offset = rng.choice([-1, 1]) * rng.uniform(7, 14)
            other = _distance_to_curve(offset, rng)
            curves.append((other, rng.uniform(1.2, 4.8)))
        for distance, caliber in curves:
            vessel = rng.uniform(0.5, 1.0) * soft_coverage(3 * (distance - caliber / 2))
            dark[i] = np.maximum(dark[i], vessel)

    # Light falls off to one side.
    gradient = per_image(rng.uniform(0, 0.012, count))
    direction = np.cos(per_image(rng.uniform(0, 7, count)))
    shade = 1 + gradient * (direction * DOWN + RIGHT)
    tint = np.array([190, 95, 50]) * rng.uniform(0.8, 1.2, size=(count, 3))
    light = (
        shade
        + 0.08 * random_fields(count, 1.2, rng)
        - 0.35 * dark
        + 0.04 * random_fields(count, 0.0, rng)
    )
    return photograph(light[..., None] * tint[:, None, None], labels, rng, masks)


def _distance_to_curve(offset: float, rng: Generator) -> np.ndarray:
    """Draw a bent line, `offset` pixels off the centre; return distances (32, 32) to it."""
    angle = rng.uniform(0, 2 * np.pi)
    bend = rng.uniform(-0.015, 0.015)
    along, across = rotate(DOWN, RIGHT, angle)
    slope = 2 * bend * along
    return abs(across - offset - bend * along**2) / np.hypot(1, slope)


LANDCOVER = ("meadow", "forest", "fields", "orchard", "river", "road", "town", "industry")


def landcover(split_file: str, rng: Generator) -> SyntheticSplit:
    """Draw satellite tiles of eight kinds of land, in any season's and sensor's colours."""
    labels = balanced_labels(len(LANDCOVER), split_file, rng)
    count = len(labels)
    tint = np.array([110, 120, 70]) + rng.uniform(-60, 60, (count, 3))
    images = np.repeat(tint[:, None, None], SIDE, axis=1).repeat(SIDE, axis=2)
    images *= (1 + 0.12 * random_fields(count, rng.uniform(0.5, 1.5, count), rng))[..., None]
    for image, label in zip(images, labels, strict=True):
        _cover_land(image, LANDCOVER[label], rng)
    images *= rng.uniform(0.75, 1.25, (count, 1, 1, 3))
    return photograph(images, labels, rng, noise=7)


def _cover_land(image: np.ndarray, kind: str, rng: Generator) -> None:
    """Draw what lies on one tile's ground, in place; a meadow is the ground alone."""
    y, x = rotate(DOWN, RIGHT, rng.uniform(0, np.pi))
    y = y + rng.uniform(-6, 6)
    x = x + rng.uniform(-6, 6)
    colour, other = np.array([110, 115, 85]) + rng.uniform(-70, 70, (2, 3))
    if kind == "forest":
        for tree_y, tree_x in rng.uniform(-17, 17, (90, 2)):
            distance = np.hypot(DOWN - tree_y, RIGHT - tree_x) - rng.uniform(1, 2)
            paint(image, 0.6 * coverage(distance), colour * rng.uniform(0.5, 1.1))
    elif kind == "fields":
        # Plots in rows, shifted against each other; each plot has a number.
        rows = np.floor(y / rng.uniform(7, 14)).astype(int)
        plots = rows * 7 + np.floor((x + 5 * rows) / rng.uniform(9, 18)).astype(int)
        for plot in np.unique(plots):
            paint(image, 0.7 * (plots == plot), colour + rng.uniform(-50, 50, 3))
    elif kind == "orchard":
        # Trees on a grid: distances to the nearest grid point.
        step = rng.uniform(4, 6.5)
        from_row = (y + step / 2) % step - step / 2
        from_column = (x + step / 2) % step - step / 2
        distance = np.hypot(from_row, from_column)
        paint(image, coverage(distance - rng.uniform(1, 1.8)), colour * 0.7)
    elif kind == "river":
        bend = rng.uniform(2, 5) * np.sin(x * rng.uniform(0.12, 0.3) + rng.uniform(0, 7))
        paint(image, coverage(abs(y - bend) - rng.uniform(1.5, 4)), colour * 0.7)
    elif kind == "road":
        roads = (y, x + rng.uniform(-0.5, 0.5) * y)
        for across in roads[: rng.integers(1, 3)]:
            paint(image, coverage(abs(across) - rng.uniform(0.7, 1.5)), 0.5 * colour + 90)
    elif kind in ("town", "industry"):
        step = rng.uniform(5, 7) if kind == "town" else rng.uniform(12, 16)
        for row, column in product(np.arange(-24, 24, step), repeat=2):
            height, width = step * rng.uniform(0.2, 0.4, 2)
            shadow = np.maximum(abs(y - row - 1) - height, abs(x - column - 1) - width)
            paint(image, 0.8 * coverage(shadow), colour * 0.4)
            roof = np.maximum(abs(y - row) - height, abs(x - column) - width)
            paint(image, coverage(roof), other + 50 + rng.uniform(-40, 40, 3))


BLOOD = ("lymphocyte", "monocyte", "neutrophil", "eosinophil", "basophil")


def blood(split_file: str, rng: Generator) -> SyntheticSplit:
    """Draw a white blood cell among red ones in a stained smear.

    The label is its kind, which nucleus and granules tell.
    """
    labels = balanced_labels(len(BLOOD), split_file, rng)
    count = len(labels)
    images = np.array([225, 215, 220]) + 4 * random_fields(count, 1.0, rng)[..., None]
    masks = np.zeros((count, SIDE, SIDE), bool)
    for i in range(count):
        masks[i] = _draw_smear(images[i], BLOOD[labels[i]], rng)
    # The strength of a stain is an exponent of the light that passes.
    stain = rng.uniform(0.5, 1.8, (count, 1, 1, 3))
    images = 255 * (images.clip(1, 255) / 255) ** stain
    return photograph(images, labels, rng, masks, noise=5)


def _draw_smear(image: np.ndarray, kind: str, rng: Generator) -> np.ndarray:
    """Draw one smear in place, and return the white cell's pixels (32, 32)."""
    for cell_y, cell_x in _spread_points(int(rng.integers(4, 9)), 8.0, rng):
        distance = np.hypot(DOWN - cell_y, RIGHT - cell_x)
        radius = rng.uniform(3.5, 4.5)
        # Red cells are paler in their middle.
        pale = 0.5 + 0.5 * np.minimum(distance / radius, 1)
        paint(image, 0.8 * coverage(distance - radius) * pale, np.array([215, 150, 150]))

    y = DOWN - rng.uniform(-4, 4)
    x = RIGHT - rng.uniform(-4, 4)
    y, x = rotate(y, x, rng.uniform(0, 2 * np.pi))
    radius = rng.uniform(6.5, 9.5)
    cell = np.hypot(y, x) - radius
    paint(image, coverage(cell), np.array([185, 175, 210]) + rng.uniform(-20, 20, 3))
    dark = np.array([95, 60, 140]) + rng.uniform(-20, 20, 3)
    nucleus = _nucleus(y, x, radius, kind, rng)
    paint(image, coverage(nucleus), dark)
    if kind in ("eosinophil", "basophil"):
        colour = np.array([205, 95, 100]) if kind == "eosinophil" else 0.7 * dark
        for area, turn in rng.uniform(0, 1, (40, 2)):
            # The root spreads granules evenly over the cell.
            distance = 0.95 * radius * area**0.5
            down = distance * np.sin(2 * np.pi * turn)
            right = distance * np.cos(2 * np.pi * turn)
            granule = coverage(np.hypot(y - down, x - right) - rng.uniform(0.4, 0.8))
            if kind == "eosinophil":
                granule = granule * (nucleus > 0)
            paint(image, granule, colour)
    return cell < 0


def _nucleus(y: np.ndarray, x: np.ndarray, radius: float, kind: str, rng: Generator) -> np.ndarray:
    """Draw a nucleus; return each pixel's distance (32, 32) to its edge, negative inside.

    Args:
        y: Coordinates (32, 32) from the cell's centre.
        x: The others.
        radius: The cell's.
        kind: The cell's.
        rng: Random numbers.
    """
    lobes = 1
    random_lobes = int(rng.integers(3, 6))  # drawn for every kind: the published pixels need it
    if kind == "neutrophil":
        lobes = random_lobes
    elif kind == "eosinophil":
        lobes = 2

    if kind == "monocyte":
        # A kidney: a disc without another at its edge.
        notch = 0.5 * radius - np.hypot(y, x + 0.65 * radius)
        return np.maximum(np.hypot(y, x) - 0.72 * radius, notch)
    if lobes == 1:
        oval = np.hypot(y, x / rng.uniform(0.9, 1.1))
        return oval - radius * rng.uniform(0.55, 0.85)

    angles = 2 * np.pi * np.arange(lobes) / max(lobes, 3.5) + rng.uniform(-0.2, 0.2, lobes)
    sizes = radius * rng.uniform(0.26, 0.34, lobes) * (1.3 if lobes == 2 else 1)
    downs = 0.45 * radius * np.sin(angles)
    rights = 0.45 * radius * np.cos(angles)
    distances = []
    for down, right, size in zip(downs, rights, sizes, strict=True):
        distances.append(np.hypot(y - down, x - right) - size)
    return np.minimum.reduce(distances)


TASKS = (
    SyntheticTask("Nuclei", "specialized", tuple(INDEX), nuclei),
    SyntheticTask("Vessels", "specialized", tuple(CALIBERS), vessels),
    SyntheticTask("Land cover", "specialized", LANDCOVER, landcover),
    SyntheticTask("Blood", "specialized", BLOOD, blood),
)
