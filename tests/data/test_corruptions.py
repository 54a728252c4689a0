"""Corruptions of images: what each changes, and how much."""

import io

import numpy as np
import pytest
from PIL import Image

from pvera.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt


def pictures(size=32, count=3):
    """Smooth pictures with an edge, away from black and white."""
    grid = np.linspace(80, 170, size)
    base = np.broadcast_to(grid[:, None, None], (size, size, 3)).copy()
    base[: size // 2, : size // 2] += 40
    return np.stack([base + shift for shift in range(count)]).astype(np.uint8)


def test_strengths():
    images = np.full((40, 32, 32, 3), 128, np.uint8)
    noise = corrupt(images, "noise", 5).astype(float) - 128
    assert noise.std() == pytest.approx(0.1 * 255, rel=0.01) and abs(noise.mean()) < 1
    one = pictures()[:1]
    mean = one.mean((1, 2), keepdims=True)
    np.testing.assert_allclose(corrupt(one, "contrast", 2), mean + 0.5 * (one - mean), atol=0.51)
    file = io.BytesIO()
    Image.fromarray(one[0]).save(file, "JPEG", quality=40)
    np.testing.assert_array_equal(corrupt(one, "jpeg", 5)[0], np.asarray(Image.open(file)))
    spot = np.zeros((1, 33, 33, 3), np.uint8)
    spot[:, 16, 16] = 255
    blurred = corrupt(spot, "blur", 5)[0, :, :, 0].astype(float)
    assert blurred[16, 16] / 255 == pytest.approx(1 / (2 * np.pi), abs=0.01), "a Gaussian of one pixel"


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_severity_is_further_from_an_image_which_its_neighbours_do_not_change(name):
    images, distances = pictures(count=5), []
    for severity in SEVERITIES:
        changed = corrupt(images, name, severity)
        np.testing.assert_array_equal(changed[:2], corrupt(images[:2], name, severity))
        distances.append(np.abs(changed.astype(float) - images).mean())
    assert distances[0] > 0 and distances[-1] > 1.2 * distances[0]
    assert all(later > 0.97 * earlier for earlier, later in zip(distances, distances[1:]))
