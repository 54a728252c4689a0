"""Specialized tasks: stained tissue, and blood vessels of the retina."""

from __future__ import annotations

from functools import cache

import numpy as np

from pvera.data.suite.drawing import (
    COUNTS,
    Part,
    balanced,
    centres,
    contrast,
    patches,
    photograph,
    pixels,
    quarter_turns,
)


@cache
def stain() -> np.ndarray:
    """Compute the share (512, 512) of the 12 x 12 pixels around each that is stained (DAB over Otsu's threshold)."""
    from scipy.ndimage import uniform_filter
    from skimage.color import rgb2hed
    from skimage.filters import threshold_otsu

    dab = rgb2hed(photograph("immunohistochemistry"))[..., 2]
    return uniform_filter((dab > threshold_otsu(dab)).astype(np.float64), 12)


def tissue(split: str, rng: np.random.Generator) -> Part:
    """Cut patches of an immunohistochemical section; its two stains vary in strength from patch to patch."""
    from skimage.color import hed2rgb, rgb2hed

    section, count = photograph("immunohistochemistry"), COUNTS[split]
    places = np.argwhere(centres(section.shape, (64, 64), 17, split))
    labels = np.digitize(stain()[tuple(places.T)], (0.05, 0.35, 0.7))
    chosen = balanced(labels, count, rng)
    images, read = patches(section, places[chosen], 1.0, quarter_turns(count, rng))
    stains = rgb2hed(np.clip(images / 255, 0, 1)) * rng.uniform(0.4, 1.6, size=(count, 1, 1, 3))
    images = contrast(255 * hed2rgb(stains), rng)
    return Part(pixels(images), labels[chosen], {"immunohistochemistry": read})


@cache
def vessels() -> np.ndarray:
    """Compute caliber classes (1411, 1411) of the fundus: 1 to 3 on vessels' centre lines, 0 far from any, else -1.

    A multi-scale ridge filter (Sato et al. 1998) on the green channel finds the vessels; no physician marked them.
    The caliber is twice the centre line's distance to the vessel's edge.
    """
    from scipy.ndimage import binary_erosion, distance_transform_edt, label
    from skimage.filters import sato
    from skimage.morphology import skeletonize

    fundus = photograph("retina")
    view = binary_erosion(fundus[..., 0] > 60, iterations=25)
    ridge = sato(fundus[..., 1] / 255, sigmas=(2, 3, 4, 6, 8), black_ridges=True) * view
    pieces, _ = label(ridge > np.percentile(ridge[view], 90))
    vessel = (pieces > 0) & (np.bincount(pieces.ravel()) > 400)[pieces]
    caliber = 2 * distance_transform_edt(vessel)
    away = distance_transform_edt(ridge < np.percentile(ridge[view], 80))
    labels = np.full(ridge.shape, -1)
    labels[view & (away > 8)] = 0
    line = skeletonize(vessel)
    labels[line] = np.digitize(caliber[line], (7, 11)) + 1
    return labels


def retina(split: str, rng: np.random.Generator) -> Part:
    """Cut patches of a fundus photograph at half its resolution, centred on a vessel or away from any."""
    fundus, count = photograph("retina"), COUNTS[split]
    places = np.argwhere(centres(fundus.shape, (176, 176), 33, split) & (vessels() >= 0))
    labels = vessels()[tuple(places.T)]
    chosen = balanced(labels, count, rng)
    images, read = patches(fundus, places[chosen], 2.0, quarter_turns(count, rng))
    tint = rng.uniform(0.7, 1.3, size=(count, 1, 1, 3))
    images = contrast(images * tint, rng, gain=(0.6, 1.6))
    return Part(pixels(images), labels[chosen], {"retina": read})
