"""What a task and a split of the suite are, and the helpers that all recipes share."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

#: Images of each split, by the name of its split file; VTAB-1k's names.
COUNTS = {"train800": 800, "val200": 200, "test": 2000}
#: Height and width of an image in pixels.
SIDE = 32

_CENTRES = np.arange(SIDE) - (SIDE - 1) / 2
#: Row and column (32, 32) of each pixel's centre, from the image's centre.
DOWN, RIGHT = np.meshgrid(_CENTRES, _CENTRES, indexing="ij")


@dataclass(frozen=True)
class SyntheticSplit:
    """One split."""

    #: (n, 32, 32, 3) uint8.
    images: np.ndarray
    #: (n,) int64.
    labels: np.ndarray
    #: (n, 32, 32) bool, the pixels of the object that the label is about; None where it is about
    #: the whole image.
    masks: np.ndarray | None = None


@dataclass(frozen=True)
class SyntheticTask:
    """One task."""

    title: str
    #: VTAB-1k's: "natural", "specialized" or "structured".
    category: str
    #: Names of the classes.
    classes: tuple[str, ...]
    #: (split file, random numbers) -> SyntheticSplit. Its name is the task's, which seeds the
    #: random numbers: to rename the function changes the pixels.
    build: Callable[[str, Generator], SyntheticSplit]

    @property
    def name(self) -> str:
        """The task's name, which is its folder too."""
        return self.build.__name__

    def draw(self, split_file: str) -> SyntheticSplit:
        """Draw one split. Its random numbers depend on the task and the split alone."""
        seed = [*self.name.encode(), list(COUNTS).index(split_file)]
        return self.build(split_file, np.random.default_rng(seed))


def split_members(population: int, split_file: str) -> np.ndarray:
    """Return the members of a population in one split: one per image, while they last."""
    # The sums of the splits before it in `COUNTS`.
    start = {"train800": 0, "val200": 800, "test": 1000}[split_file]
    order = np.random.default_rng(0).permutation(population)
    return order[start : start + COUNTS[split_file]]


def balanced_labels(classes: int, split_file: str, rng: Generator) -> np.ndarray:
    """Draw labels (n,) int64 in random order, equally many of each class where the count allows."""
    return rng.permutation(np.arange(COUNTS[split_file]) % classes)


def per_image(values: np.ndarray) -> np.ndarray:
    """Give the values (n, ...) of n images two more axes, for rows and columns."""
    return values[..., None, None]


def rotate(first, second, angle) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates of points along two axes that are turned by `angle`, in radians."""
    cos = np.cos(angle)
    sin = np.sin(angle)
    return cos * first + sin * second, cos * second - sin * first


def random_fields(count: int, exponent, rng: Generator) -> np.ndarray:
    """Draw random fields (count, 32, 32) of mean 0 and variance 1.

    Args:
        count: Number of fields.
        exponent: Number or (count,): amplitudes fall as frequency^-exponent. Photographs have
            about 1 (Field 1987).
        rng: Random numbers.
    """
    size = 2 * SIDE  # twice the image: opposite edges of a whole period match
    frequency = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None])
    frequency[0, 0] = np.inf  # no mean
    exponents = np.broadcast_to(exponent, count).astype(float)
    amplitude = frequency ** -per_image(exponents)
    amplitude[:, 0, 0] = 0
    noise = np.fft.rfft2(rng.standard_normal((count, size, size)))
    fields = np.fft.irfft2(noise * amplitude, s=(size, size))
    return standardise(fields[:, :SIDE, :SIDE])


def standardise(fields: np.ndarray) -> np.ndarray:
    """Return fields (n, 32, 32) with mean 0 and variance 1 each."""
    fields -= fields.mean(axis=(1, 2), keepdims=True)
    return fields / fields.std(axis=(1, 2), keepdims=True)


def colour_fields(
    fields: np.ndarray,
    rng: Generator,
    between: tuple[float, float] = (40, 215),
    least: float = 60.0,
) -> np.ndarray:
    """Return fields (n, 32, 32) in colour, (n, 32, 32, 3), each between two random colours.

    Args:
        fields: Shares of the second colour. Below 0 and above 1, the line through both colours
            goes on.
        rng: Random numbers.
        between: Range of the channels from which the colours are drawn.
        least: Least distance of the two colours: the second one moves away to it.
    """
    low, high = rng.uniform(between[0], between[1], size=(2, len(fields), 3))
    gap = high - low
    gap *= np.maximum(1, least / np.linalg.norm(gap, axis=1, keepdims=True))
    return low[:, None, None] + fields[..., None] * gap[:, None, None]


def to_uint8(images: np.ndarray) -> np.ndarray:
    """Round floats to uint8, clipped to 0 and 255."""
    return np.rint(np.clip(images, 0, 255)).astype(np.uint8)


def change_contrast(
    images: np.ndarray, rng: Generator, gain: tuple[float, float] = (0.6, 1.2)
) -> np.ndarray:
    """Change brightness and contrast of each image linearly and at random."""
    shape = (len(images), 1, 1, 1)
    mean = images.mean(axis=(1, 2, 3), keepdims=True)
    factor = rng.uniform(gain[0], gain[1], size=shape)
    return mean + factor * (images - mean) + rng.uniform(-30.0, 30.0, size=shape)


def photograph(
    images: np.ndarray,
    labels: np.ndarray,
    rng: Generator,
    masks: np.ndarray | None = None,
    noise: float = 0,
) -> SyntheticSplit:
    """Return a split of images under noise and in random contrast.

    Args:
        images: (n, 32, 32, 3), 0 to 255; changed in place.
        labels: (n,).
        rng: Random numbers.
        masks: As in `SyntheticSplit`.
        noise: Standard deviation in grey levels.
    """
    if noise:
        images += noise * rng.standard_normal(images.shape)
    return SyntheticSplit(to_uint8(change_contrast(images, rng)), labels, masks)


def coverage(distance: np.ndarray) -> np.ndarray:
    """Return the share of each pixel in a shape, from the signed distance to its edge in pixels."""
    return np.clip(0.5 - distance, 0, 1)


def soft_coverage(distance: np.ndarray) -> np.ndarray:
    """Return shares as `coverage` does that fall smoothly, as a logistic function, at the edge."""
    return 1 / (1 + np.exp(np.minimum(distance, 50)))


def paint(images: np.ndarray, cover: np.ndarray, colours: np.ndarray) -> None:
    """Paint colours (..., 3) over images (..., 32, 32, 3) in place, by the share (..., 32, 32)."""
    images += cover[..., None] * (colours[..., None, None, :] - images)
