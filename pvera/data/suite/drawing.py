"""The suite's sizes, the images of one split, and the helpers that all recipes share."""

from dataclasses import dataclass

import numpy as np

COUNTS = {"train800": 800, "val200": 200, "test": 2000}
SIDE = 32  # pixels

#: Row and column (32, 32) of each pixel's centre, from the image's centre.
DOWN, RIGHT = np.meshgrid(*2 * [np.arange(SIDE) - (SIDE - 1) / 2], indexing="ij")


@dataclass(frozen=True)
class Part:
    """One split: images (n, 32, 32, 3) uint8 and labels (n,) int64.

    masks: (n, 32, 32) bool, the pixels of the object that the label is about; None where it is about the whole image.
    """

    images: np.ndarray
    labels: np.ndarray
    masks: np.ndarray | None = None


def share(population: int, split: str) -> np.ndarray:
    """Return the members of a population that belong to one split: one per image, while they last."""
    first = {"train800": 0, "val200": 800, "test": 1000}[split]
    return np.random.default_rng(0).permutation(population)[first : first + COUNTS[split]]


def balanced(classes: int, split: str, rng: np.random.Generator) -> np.ndarray:
    """Draw labels (n,) int64 in random order, equally many of each class where the count allows."""
    return rng.permutation(np.arange(COUNTS[split]) % classes)


def column(values: np.ndarray) -> np.ndarray:
    """Give the values (n, ...) of n images two axes more, for their rows and columns."""
    return values[..., None, None]


def turned(first, second, angle) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates of points along two axes that are turned by `angle`, in radians."""
    return np.cos(angle) * first + np.sin(angle) * second, np.cos(angle) * second - np.sin(
        angle
    ) * first


def field(count: int, exponent, rng: np.random.Generator) -> np.ndarray:
    """Draw random fields (count, 32, 32) of mean 0 and variance 1 whose amplitude falls as frequency^-exponent.

    exponent: a number or (count,). Photographs have about 1 (Field 1987).
    """
    size = 2 * SIDE  # twice the image, or opposite edges would match
    frequency = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None])
    frequency[0, 0] = np.inf  # no mean
    amplitude = frequency ** -column(np.broadcast_to(exponent, count).astype(float))
    amplitude[:, 0, 0] = 0
    noise = np.fft.rfft2(rng.standard_normal((count, size, size)))
    return standardised(np.fft.irfft2(noise * amplitude, s=(size, size))[:, :SIDE, :SIDE])


def standardised(fields: np.ndarray) -> np.ndarray:
    """Return fields (n, 32, 32) with mean 0 and variance 1 each."""
    fields -= fields.mean(axis=(1, 2), keepdims=True)
    return fields / fields.std(axis=(1, 2), keepdims=True)


def coloured(
    fields: np.ndarray, rng: np.random.Generator, between=(40, 215), least: float = 60.0
) -> np.ndarray:
    """Colour fields (n, 32, 32) from 0 to 1 by two random colours each, at least `least` apart: (n, 32, 32, 3)."""
    low, high = rng.uniform(*between, size=(2, len(fields), 3))
    gap = high - low
    gap *= np.maximum(1, least / np.linalg.norm(gap, axis=1, keepdims=True))
    return low[:, None, None] + fields[..., None] * gap[:, None, None]


def pixels(images: np.ndarray) -> np.ndarray:
    """Round floats to uint8, clipped to 0 and 255."""
    return np.rint(np.clip(images, 0, 255)).astype(np.uint8)


def contrast(images: np.ndarray, rng: np.random.Generator, gain=(0.6, 1.2)) -> np.ndarray:
    """Change brightness and contrast of each image linearly and at random."""
    n = len(images)
    mean = images.mean(axis=(1, 2, 3), keepdims=True)
    factor = rng.uniform(*gain, size=(n, 1, 1, 1))
    return mean + factor * (images - mean) + rng.uniform(-30.0, 30.0, size=(n, 1, 1, 1))


def photographed(
    images: np.ndarray,
    labels: np.ndarray,
    rng: np.random.Generator,
    masks: np.ndarray | None = None,
    noise: float = 0,
) -> Part:
    """Return the images under noise, of a standard deviation in grey levels, and in random contrast."""
    if noise:
        images += noise * rng.standard_normal(images.shape)
    return Part(pixels(contrast(images, rng)), labels, masks)


def covered(distance: np.ndarray) -> np.ndarray:
    """Return the share of each pixel that a shape covers, from the signed distance to its edge in pixels."""
    return np.clip(0.5 - distance, 0, 1)


def paint(images: np.ndarray, cover: np.ndarray, colours: np.ndarray) -> None:
    """Paint colours (..., 3) over images (..., 32, 32, 3) in place, where `cover` (..., 32, 32) of each pixel is."""
    images += cover[..., None] * (colours[..., None, None, :] - images)
