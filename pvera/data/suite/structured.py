"""Structured tasks: disparity of a stereo pair, and position of a sprite."""

from __future__ import annotations

import numpy as np

from pvera.data.suite.drawing import COUNTS, SIDE, Part, centres, contrast, pixels, share

STEREO = ("0 to 2", "2 to 4", "4 to 6", "6 to 8", "8 to 10")  # pixels


def stereo(split: str, rng: np.random.Generator) -> Part:
    """Make anaglyphs of a rectified pair: left view in red; right view, at a random vergence, in green and blue.

    The label is the disparity that remains at the centre. The vergence is random, so only a comparison of the two
    views tells the label. The views match along rows, so splits take bands of rows.
    """
    from scipy.ndimage import gaussian_gradient_magnitude, maximum_filter, minimum_filter, uniform_filter
    from skimage.data import stereo_motorcycle

    left, right, disparity = stereo_motorcycle()
    count, half = COUNTS[split], SIDE // 2
    left, right = left.mean(axis=2), right.mean(axis=2)
    known = np.where(np.isfinite(disparity), disparity, -1e3)
    even = maximum_filter(known, 15) - minimum_filter(known, 15) < 1.5
    textured = uniform_filter(gaussian_gradient_magnitude(left, 1), 15) > 4
    mask = centres(left.shape, (50, left.shape[1]), half, split) & even & textured
    mask[:, : int(known.max()) + half] = False  # there the right view's window would leave the picture
    places = rng.choice(np.argwhere(mask), count, replace=False)

    labels = rng.permutation(np.arange(count) % len(STEREO))
    vergence = np.floor(known[tuple(places.T)]).astype(int) - 2 * labels - rng.integers(2, size=count)
    across = {"left": places, "right": places - np.stack([0 * vergence, vergence], axis=1)}
    view = {}
    for name, image in (("left", left), ("right", right)):
        windows = np.lib.stride_tricks.sliding_window_view(image, (SIDE, SIDE))
        view[name] = windows[tuple(across[name].T - half)]
    images = np.stack([view["left"], view["right"], view["right"]], axis=-1)
    reads = {name: np.concatenate([at - half, at + half], axis=1) for name, at in across.items()}
    return Part(pixels(contrast(images, rng)), labels, reads)


def _heart(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    x2, y = (1.3 * u) ** 2, 0.1 - 1.3 * v
    return (x2 + y * y - 1) ** 3 < x2 * y**3


# Square, ellipse and heart within the unit circle, as functions of coordinates that turn and grow with them.
_SHAPES = (
    lambda u, v: np.maximum(abs(u), abs(v)) < np.sqrt(0.5),
    lambda u, v: u * u + 4 * v * v < 1,
    _heart,
)


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
        size = (0.25 * (0.5 + 0.1 * scale[mine]))[:, None, None]
        angle = (2 * np.pi * orientation[mine] / 39)[:, None, None]
        dy = points[:, None] - (0.25 + 0.5 * down[mine] / 31)[:, None, None]
        dx = points[None, :] - (0.25 + 0.5 * across[mine] / 31)[:, None, None]
        u = (np.cos(angle) * dx + np.sin(angle) * dy) / size
        v = (np.cos(angle) * dy - np.sin(angle) * dx) / size
        images[mine] = inside(u, v).reshape(-1, SIDE, 4, SIDE, 4).mean(axis=(2, 4))
    reads = {"dsprites": np.stack([drawn, 0 * drawn, drawn + 1, 0 * drawn + 1], axis=1)}
    return Part(np.repeat(pixels(255 * images)[..., None], 3, axis=-1), (across // 2).astype(np.int64), reads)
