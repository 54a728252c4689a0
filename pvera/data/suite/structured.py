"""Structured tasks: number of objects, position of a sprite, distance and azimuth of objects."""

from itertools import pairwise

import numpy as np

from pvera.data.suite.drawing import (
    DOWN,
    RIGHT,
    SIDE,
    Part,
    balanced,
    coloured,
    column,
    covered,
    field,
    paint,
    photographed,
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


COLUMNS = tuple(map(str, range(16)))


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
        size = column(0.25 * (0.5 + 0.1 * scale[mine]))
        dy = points[:, None] - column(0.25 + 0.5 * down[mine] / 31)
        dx = points - column(0.25 + 0.5 * across[mine] / 31)
        u, v = turned(dx, dy, column(2 * np.pi * orientation[mine] / 39))
        images[mine] = inside(u / size, v / size).reshape(-1, SIDE, 4, SIDE, 4).mean(axis=(2, 4))
    grey = np.repeat(pixels(255 * images)[..., None], 3, axis=-1)
    return Part(grey, (across // 2).astype(np.int64), images > 0.5)


OBJECTS = tuple("12345678")


def counting(split: str, rng: np.random.Generator) -> Part:
    """Draw 1 to 8 objects of any colour, shape and size on a random scene; none hides another."""
    labels = balanced(len(OBJECTS), split, rng)
    count = len(labels)
    images = coloured(0.5 + 0.15 * field(count, 1.4, rng), rng)
    masks = np.zeros(images.shape[:3], bool)
    for image, mask, label in zip(images, masks, labels, strict=True):
        places, sizes = np.empty((0, 2)), rng.uniform(2.5, 4.5, label + 1)
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
            mask |= inside
    return photographed(images, labels, rng, masks, noise=8)


DISTANCES = (4.0, 5.5, 7.5, 10.0, 14.0, 20.0, 30.0)  # metres, limits of the classes
SPANS = tuple(f"{near:g} to {far:g}" for near, far in pairwise(DISTANCES))


def distance(split: str, rng: np.random.Generator) -> Part:
    """Draw one to four boxes, cones and balls on a plane; the label is the nearest's distance.

    The camera's height is fixed and its pitch varies, so an object's foot tells its distance from the horizon alone;
    the mask holds the nearest.
    """
    labels = balanced(len(SPANS), split, rng)
    count = len(labels)
    sky, ground = rng.uniform(60, 220, (2, count, 3))
    horizon = rng.uniform(-6, 0, count)
    images = sky[:, None, None] * (1 + 0.05 * field(count, 1.5, rng))[..., None]
    below = covered(column(horizon) - DOWN)[..., None]
    images += below * (
        ground[:, None, None] * (1 + 0.12 * field(count, 0.8, rng))[..., None] - images
    )
    limits = np.log(DISTANCES)
    nearest = np.exp(rng.uniform(limits[labels], limits[labels + 1]))
    masks = np.zeros(images.shape[:3], bool)
    for i in range(count):
        far = nearest[i] * rng.uniform(1.15, 4, rng.integers(0, 4))
        for metres in [*np.sort(far)[::-1], nearest[i]]:
            scale = 32 / metres  # pixels per metre
            foot, height = horizon[i] + 1.5 * scale, rng.uniform(0.7, 2) * scale
            wide = rng.uniform(0.4, 1) * height + 0.3
            up, aside = foot - DOWN, abs(RIGHT - rng.uniform(-11, 11))
            shapes = (
                np.maximum(abs(up - height / 2) - height / 2, aside - wide),
                np.maximum(-up, aside - wide * (1 - up / height)),
                np.hypot(up - height / 2, aside) - height / 2,
            )
            cover = covered(shapes[rng.integers(3)])
            shadow = covered(np.hypot(up / 0.3, aside) - wide)
            paint(images[i], 0.5 * shadow, np.zeros(3))
            paint(images[i], cover, rng.uniform(0, 255, 3))
        masks[i] = cover > min(0.5, 0.9 * cover.max())  # a far one covers no pixel by half
    return photographed(images, labels, rng, masks, noise=6)


AZIMUTHS = tuple(map(str, range(0, 360, 45)))  # degrees


def azimuth(split: str, rng: np.random.Generator) -> Part:
    """Draw a car or a chair from above, as in smallNORB; the label is the azimuth that it is seen from."""
    labels = balanced(len(AZIMUTHS), split, rng)
    count = len(labels)
    azimuths = 2 * np.pi * (labels + rng.uniform(-0.4, 0.4, count)) / len(AZIMUTHS)
    elevations = np.radians(rng.uniform(30, 50, count))
    images = coloured(0.5 + 0.12 * field(count, 1.4, rng), rng)
    masks = np.stack([_view(*seen, rng) for seen in zip(images, azimuths, elevations, strict=True)])
    return photographed(images, labels, rng, masks, noise=8)


def _boxes(rng: np.random.Generator) -> np.ndarray:
    """Draw the boxes (n, 2, 3) of a car or a chair whose front is at x > 0: centre and half of the sides."""
    wide = rng.uniform(0.38, 0.5)
    if rng.integers(2):
        low, high, back = rng.uniform(0.15, 0.25), rng.uniform(0.15, 0.25), rng.uniform(-0.5, -0.2)
        cabin = (back, 0, 2 * low + high), (rng.uniform(0.35, 0.5), 0.9 * wide, high)
        return np.array(
            [((0, 0, low), (1, wide, low)), cabin, ((0.97, 0, low), (0.06, 0.8 * wide, 0.4 * low))]
        )
    seat, back = rng.uniform(0.4, 0.6), rng.uniform(0.45, 0.65)
    legs = [((x, y, seat / 2), (0.07, 0.07, seat / 2)) for x in (-0.4, 0.4) for y in (-wide, wide)]
    return np.array(
        [
            ((0, 0, seat), (0.5, wide + 0.07, 0.07)),
            ((-0.45, 0, seat + back), (0.07, wide + 0.07, back)),
            *legs,
        ]
    )


def _view(
    image: np.ndarray, azimuth: float, elevation: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw boxes in parallel projection with light from anywhere above, in place, and return their pixels (32, 32)."""
    ahead = -np.array(
        [
            np.cos(elevation) * np.cos(azimuth),
            np.cos(elevation) * np.sin(azimuth),
            np.sin(elevation),
        ]
    )
    aside = np.array([-np.sin(azimuth), np.cos(azimuth), 0])
    size, place = rng.uniform(11, 13), rng.uniform(-1.5, 1.5, 2)
    fine = (np.arange(2 * SIDE) - SIDE + 0.5) / 2  # 2 x 2 samples of each pixel
    down, right = np.meshgrid((fine - place[0]) / size, (fine - place[1]) / size, indexing="ij")
    origin = right[..., None] * aside - down[..., None] * np.cross(aside, ahead) + [0, 0, 0.4]

    light = rng.normal(size=3)
    light[2] = abs(light[2]) + 0.5
    light /= np.linalg.norm(light)
    colour = rng.uniform(60, 255, 3)
    depth = np.full(down.shape, np.inf)
    picture = np.zeros((*down.shape, 3))
    for i, (centre, half) in enumerate(_boxes(rng)):
        enters = (-np.sign(ahead) * half + centre - origin) / ahead
        leaves = (np.sign(ahead) * half + centre - origin) / ahead
        first = enters.max(axis=-1)
        hit = (first < leaves.min(axis=-1)) & (first < depth)
        face = enters.argmax(axis=-1)
        shade = 0.35 + 0.65 * np.maximum(-np.sign(ahead) * light, 0)
        picture[hit] = shade[face[hit], None] * colour * (1 if i != 2 else 0.6)
        depth[hit] = first[hit]
    seen = np.isfinite(depth)
    cover = seen.reshape(SIDE, 2, SIDE, 2).mean(axis=(1, 3))
    sums = picture.reshape(SIDE, 2, SIDE, 2, 3).mean(axis=(1, 3))
    image *= 1 - cover[..., None]
    image += sums
    return cover > 0.5
