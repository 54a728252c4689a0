"""Corruptions of images in five severities (Hendrycks and Dietterich, ICLR 2019), by scikit-image and Pillow.

The strengths are the benchmark's: those of CIFAR-10-C for images of up to 64 pixels, else those of ImageNet-C.
"""

import io
from collections.abc import Callable

import numpy as np
from PIL import Image

from pvera.adapters.base import derive
from pvera.errors import optional

SEVERITIES = (1, 2, 3, 4, 5)
SMALL = 64  # pixels


def _noise(images: np.ndarray, deviation: float) -> np.ndarray:
    """Add normal noise of a standard deviation, a share of the full range."""
    random_noise = optional("skimage.util", "study").random_noise
    seeds = [derive("corruption", deviation, i) for i in range(len(images))]
    return np.stack([random_noise(x, "gaussian", rng=s, var=deviation**2) for x, s in zip(images, seeds, strict=True)])


def _blur(images: np.ndarray, sigma: float) -> np.ndarray:
    """Blur by a Gaussian whose standard deviation is `sigma` pixels."""
    gaussian = optional("skimage.filters", "study").gaussian
    return gaussian(images.astype(np.float32) / 255, (0, sigma, sigma, 0))


def _contrast(images: np.ndarray, factor: float) -> np.ndarray:
    """Multiply the distance from each channel's mean."""
    images = images.astype(np.float32) / 255
    mean = images.mean((1, 2), keepdims=True)
    return mean + factor * (images - mean)


def _jpeg(images: np.ndarray, quality: float) -> np.ndarray:
    """Compress by JPEG of a quality up to 100."""
    compressed = np.empty_like(images)
    for i, image in enumerate(images):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=int(quality))
        compressed[i] = np.asarray(Image.open(file))
    return compressed / np.float32(255)


#: Name -> function, and its strength per severity for small and for large images.
CORRUPTIONS: dict[str, tuple[Callable[[np.ndarray, float], np.ndarray], tuple, tuple]] = {
    "noise": (_noise, (0.04, 0.06, 0.08, 0.09, 0.10), (0.08, 0.12, 0.18, 0.26, 0.38)),
    "blur": (_blur, (0.4, 0.6, 0.7, 0.8, 1.0), (1, 2, 3, 4, 6)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05)),
    "jpeg": (_jpeg, (80, 65, 58, 50, 40), (25, 18, 15, 10, 7)),
}


def corrupt(images: np.ndarray, name: str, severity: int) -> np.ndarray:
    """Return uint8 images (N, size, size, 3) of a split, from its first on, with one of `CORRUPTIONS`."""
    function, small, large = CORRUPTIONS[name]
    strength = (small if images.shape[1] <= SMALL else large)[severity - 1]
    changed = function(images, strength)
    return (np.clip(changed, 0, 1) * 255).round().astype(np.uint8)
