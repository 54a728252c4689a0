"""Structured tasks: number of objects, position of a sprite, distance and azimuth of objects."""

from itertools import pairwise, product

import numpy as np
from numpy.random import Generator

from pvera.data.suite.drawing import (
    DOWN,
    RIGHT,
    SIDE,
    SyntheticSplit,
    SyntheticTask,
    balanced_labels,
    colour_fields,
    coverage,
    paint,
    per_image,
    photograph,
    random_fields,
    rotate,
    split_members,
    to_uint8,
)


def _heart(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    x2 = (1.3 * u) ** 2
    y = 0.1 - 1.3 * v
    return (x2 + y * y - 1) ** 3 < x2 * y**3


def _square(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.maximum(abs(u), abs(v)) < np.sqrt(0.5)


def _ellipse(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return u * u + 4 * v * v < 1


#: Shapes within the unit circle, of coordinates that turn and grow with them.
_SHAPES = (_square, _ellipse, _heart)

#: Columns of the image in which a sprite may stand.
COLUMNS = tuple(map(str, range(16)))


def sprites(split_file: str, rng: Generator) -> SyntheticSplit:
    """Draw white squares, ellipses and hearts on black, with the factors of dSprites.

    3 shapes, 6 scales from 0.5 to 1, 40 orientations over a full turn and 32 x 32 positions, as in
    Matthey et al. 2017; no combination occurs twice. Images have 32 x 32 pixels of 4 x 4 samples
    each; the original has 64 x 64 pixels and no grey.
    """
    factors = (3, 6, 40, 32, 32)
    drawn = split_members(int(np.prod(factors)), split_file)
    shape, scale, orientation, across, down = np.unravel_index(drawn, factors)

    images = np.empty((len(drawn), SIDE, SIDE))
    points = (np.arange(4 * SIDE) + 0.5) / (4 * SIDE)
    for i, inside in enumerate(_SHAPES):
        chosen = shape == i
        size = per_image(0.25 * (0.5 + 0.1 * scale[chosen]))
        dy = points[:, None] - per_image(0.25 + 0.5 * down[chosen] / 31)
        dx = points - per_image(0.25 + 0.5 * across[chosen] / 31)
        # As in dSprites, the first and the last of the 40 orientations are the same.
        u, v = rotate(dx, dy, per_image(2 * np.pi * orientation[chosen] / 39))
        # 4 x 4 samples of each pixel.
        samples = inside(u / size, v / size).reshape(-1, SIDE, 4, SIDE, 4)
        images[chosen] = samples.mean(axis=(2, 4))
    grey = np.repeat(to_uint8(255 * images)[..., None], 3, axis=-1)
    return SyntheticSplit(grey, (across // 2).astype(np.int64), images > 0.5)


OBJECTS = tuple("12345678")


def counting(split_file: str, rng: Generator) -> SyntheticSplit:
    """Draw 1 to 8 objects of any colour, shape and size on a random scene; none hides another."""
    labels = balanced_labels(len(OBJECTS), split_file, rng)
    count = len(labels)
    images = colour_fields(0.5 + 0.15 * random_fields(count, 1.4, rng), rng)
    masks = np.zeros(images.shape[:3], bool)
    for image, mask, label in zip(images, masks, labels, strict=True):
        centres = np.empty((0, 2))
        sizes = rng.uniform(2.5, 4.5, label + 1)
        for i, size in enumerate(sizes):
            # Another try where it would touch an earlier one.
            for _ in range(200):
                centre = rng.uniform(-15.5 + size, 15.5 - size, 2)
                if np.all(np.linalg.norm(centres - centre, axis=1) > sizes[:i] + size):
                    break
            centres = np.vstack([centres, centre])
            u, v = rotate(RIGHT - centre[1], DOWN - centre[0], rng.uniform(0, 2 * np.pi))
            inside = _SHAPES[rng.integers(3)](u / size, v / size)
            # Its colour differs from what it covers.
            behind = image[inside].mean(axis=0) if inside.any() else image.mean(axis=(0, 1))
            colour = rng.uniform(0, 255, 3)
            if np.linalg.norm(colour - behind) < 90:
                colour = np.where(behind < 128, behind + 80, behind - 80)
            image[inside] = colour
            mask |= inside
    return photograph(images, labels, rng, masks, noise=8)


#: Limits of the classes in metres.
DISTANCES = (4.0, 5.5, 7.5, 10.0, 14.0, 20.0, 30.0)
SPANS = tuple(f"{near:g} to {far:g}" for near, far in pairwise(DISTANCES))


def distance(split_file: str, rng: Generator) -> SyntheticSplit:
    """Draw one to four boxes, cones and balls on a plane; the label is the nearest's distance.

    The camera's height is fixed and its pitch varies, so an object's distance follows from where
    its foot stands below the horizon. The mask holds the nearest.
    """
    labels = balanced_labels(len(SPANS), split_file, rng)
    count = len(labels)
    sky, ground = rng.uniform(60, 220, (2, count, 3))
    horizon = rng.uniform(-6, 0, count)
    images = sky[:, None, None] * (1 + 0.05 * random_fields(count, 1.5, rng))[..., None]
    below = coverage(per_image(horizon) - DOWN)[..., None]
    soil = ground[:, None, None] * (1 + 0.12 * random_fields(count, 0.8, rng))[..., None]
    images += below * (soil - images)

    limits = np.log(DISTANCES)
    nearest = np.exp(rng.uniform(limits[labels], limits[labels + 1]))
    masks = np.zeros(images.shape[:3], bool)
    for i in range(count):
        # The others are farther away, and drawn first.
        far = nearest[i] * rng.uniform(1.15, 4, rng.integers(0, 4))
        for metres in [*np.sort(far)[::-1], nearest[i]]:
            cover = _draw_object(images[i], horizon[i], metres, rng)
        # A far object covers no pixel by half.
        masks[i] = cover > min(0.5, 0.9 * cover.max())
    return photograph(images, labels, rng, masks, noise=6)


def _draw_object(image: np.ndarray, horizon: float, metres: float, rng: Generator) -> np.ndarray:
    """Draw a box, cone or ball with its shadow, in place; return the share of each pixel in it."""
    scale = 32 / metres  # pixels per metre
    foot = horizon + 1.5 * scale
    height = rng.uniform(0.7, 2) * scale
    wide = rng.uniform(0.4, 1) * height + 0.3
    up = foot - DOWN
    aside = abs(RIGHT - rng.uniform(-11, 11))
    box = np.maximum(abs(up - height / 2) - height / 2, aside - wide)
    cone = np.maximum(-up, aside - wide * (1 - up / height))
    ball = np.hypot(up - height / 2, aside) - height / 2
    cover = coverage((box, cone, ball)[rng.integers(3)])
    # A flat ellipse around the foot.
    shadow = coverage(np.hypot(up / 0.3, aside) - wide)
    paint(image, 0.5 * shadow, np.zeros(3))
    paint(image, cover, rng.uniform(0, 255, 3))
    return cover


#: Classes, in degrees.
AZIMUTHS = tuple(map(str, range(0, 360, 45)))


def azimuth(split_file: str, rng: Generator) -> SyntheticSplit:
    """Draw a car or a chair from above, as in smallNORB; the label is the azimuth of the view."""
    labels = balanced_labels(len(AZIMUTHS), split_file, rng)
    count = len(labels)
    azimuths = 2 * np.pi * (labels + rng.uniform(-0.4, 0.4, count)) / len(AZIMUTHS)
    elevations = np.radians(rng.uniform(30, 50, count))
    images = colour_fields(0.5 + 0.12 * random_fields(count, 1.4, rng), rng)
    masks = np.zeros(images.shape[:3], bool)
    for i in range(count):
        masks[i] = _draw_view(images[i], azimuths[i], elevations[i], rng)
    return photograph(images, labels, rng, masks, noise=8)


def _boxes(rng: Generator) -> np.ndarray:
    """Draw the boxes (n, 2, 3) of a car or a chair whose front is at x > 0.

    Each box is its centre and half of its sides.
    """
    wide = rng.uniform(0.38, 0.5)
    if rng.integers(2):
        low = rng.uniform(0.15, 0.25)
        high = rng.uniform(0.15, 0.25)
        back = rng.uniform(-0.5, -0.2)
        body = ((0, 0, low), (1, wide, low))
        cabin = ((back, 0, 2 * low + high), (rng.uniform(0.35, 0.5), 0.9 * wide, high))
        lights = ((0.97, 0, low), (0.06, 0.8 * wide, 0.4 * low))
        return np.array([body, cabin, lights])

    height = rng.uniform(0.4, 0.6)
    back = rng.uniform(0.45, 0.65)
    seat = ((0, 0, height), (0.5, wide + 0.07, 0.07))
    rest = ((-0.45, 0, height + back), (0.07, wide + 0.07, back))
    legs = []
    for x, y in product((-0.4, 0.4), (-wide, wide)):
        legs.append(((x, y, height / 2), (0.07, 0.07, height / 2)))
    return np.array([seat, rest, *legs])


def _draw_view(image: np.ndarray, azimuth: float, elevation: float, rng: Generator) -> np.ndarray:
    """Draw boxes in parallel projection, in place, and return their pixels (32, 32).

    The light comes from anywhere above.
    """
    flat = np.cos(elevation)
    ahead = -np.array([flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation)])
    aside = np.array([-np.sin(azimuth), np.cos(azimuth), 0])
    size = rng.uniform(11, 13)
    centre_down, centre_right = rng.uniform(-1.5, 1.5, 2)
    fine = (np.arange(2 * SIDE) - SIDE + 0.5) / 2  # 2 x 2 samples of each pixel
    down, right = np.meshgrid(
        (fine - centre_down) / size, (fine - centre_right) / size, indexing="ij"
    )
    origin = right[..., None] * aside - down[..., None] * np.cross(aside, ahead) + [0, 0, 0.4]

    light = rng.normal(size=3)
    light[2] = abs(light[2]) + 0.5
    light /= np.linalg.norm(light)
    colour = rng.uniform(60, 255, 3)
    depth = np.full(down.shape, np.inf)
    picture = np.zeros((*down.shape, 3))
    for i, (centre, half) in enumerate(_boxes(rng)):
        # Where a ray enters and leaves the box, along each axis (64, 64, 3).
        enters = (-np.sign(ahead) * half + centre - origin) / ahead
        leaves = (np.sign(ahead) * half + centre - origin) / ahead
        first = enters.max(axis=-1)
        # The ray meets the box, and nothing nearer.
        hit = (first < leaves.min(axis=-1)) & (first < depth)
        face = enters.argmax(axis=-1)  # the axis of the face that it meets
        shade = 0.35 + 0.65 * np.maximum(-np.sign(ahead) * light, 0)
        picture[hit] = shade[face[hit], None] * colour * (0.6 if i == 2 else 1)
        depth[hit] = first[hit]
    seen = np.isfinite(depth)
    cover = seen.reshape(SIDE, 2, SIDE, 2).mean(axis=(1, 3))
    image *= 1 - cover[..., None]
    image += picture.reshape(SIDE, 2, SIDE, 2, 3).mean(axis=(1, 3))
    return cover > 0.5


TASKS = (
    SyntheticTask("Counting", "structured", OBJECTS, counting),
    SyntheticTask("Sprites", "structured", COLUMNS, sprites),
    SyntheticTask("Distance", "structured", SPANS, distance),
    SyntheticTask("Azimuth", "structured", AZIMUTHS, azimuth),
)
