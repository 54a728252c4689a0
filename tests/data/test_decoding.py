"""Image files and corruptions: 8-bit RGB as displayed, or a one-line error; what each corruption changes."""

import io

import numpy as np
import pytest
from PIL import ExifTags, Image

from pvera.data import image_folders
from pvera.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from pvera.errors import InputError

SIDE = 32
EIGHT = np.random.default_rng(0).integers(256, size=(SIDE, SIDE, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path):
    """An empty `digits` data set (ten classes) below tmp_path."""
    folder = tmp_path / "digits"
    folder.mkdir()
    return folder


def read_back(folder, name: str) -> np.ndarray:
    (folder / "test.txt").write_text(f"{name} 3\n")
    return image_folders.load_split(folder.parent, "digits", "test", SIDE).images[0]


def refusal(folder, name: str) -> str:
    with pytest.raises(InputError) as caught:
        read_back(folder, name)
    message = str(caught.value)
    assert message.startswith(f"image {folder / name} cannot be read: ") and "\n" not in message
    return message


def test_sixteen_bits_are_divided_by_257(folder):
    values = np.arange(0, 2**16, 64, dtype=np.uint16).reshape(SIDE, SIDE)
    Image.fromarray(values).save(folder / "a.png")
    assert np.array_equal(read_back(folder, "a.png")[..., 1], np.round(values / 257))


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.uint16])
def test_values_without_a_known_range_are_refused(folder, kind):
    Image.fromarray(np.arange(SIDE * SIDE, dtype=kind).reshape(SIDE, SIDE)).save(folder / "a.tiff")
    assert "the range of its values is not known" in refusal(folder, "a.tiff")


# The displayed image for each stored orientation.
SHOWN = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: np.rot90(x, -1),
    7: lambda x: x[::-1, ::-1].swapaxes(0, 1),
    8: lambda x: np.rot90(x),
}


@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize("orientation", SHOWN)
def test_the_exif_orientation_is_applied(folder, orientation, suffix):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    file = folder / f"a.{suffix}"
    Image.fromarray(EIGHT).save(file, exif=exif, lossless=True, quality=100, subsampling=0)
    decoded, expected = read_back(folder, file.name), SHOWN[orientation](EIGHT)
    assert np.abs(decoded.astype(int) - expected).max() <= (8 if suffix == "jpg" else 0)


@pytest.mark.parametrize("mode", ["L", "transparent P", "RGBA", "CMYK"])
def test_every_mode_comes_out_as_pillows_rgb(folder, mode):
    """Transparent entries of a palette keep their colour."""
    kind, (*transparent, mode) = "tiff" if mode == "CMYK" else "png", mode.split()
    image = Image.fromarray(EIGHT)
    if mode in ("RGBA", "LA"):
        image.putalpha(Image.fromarray(EIGHT[::-1, :, 0].copy()))
    image = image.convert(mode)
    image.save(folder / f"a.{kind}", **({"transparency": bytes(256)} if transparent else {}))
    with Image.open(folder / f"a.{kind}") as stored:
        assert stored.mode == mode and ("transparency" in stored.info) == bool(transparent)
    assert np.array_equal(read_back(folder, f"a.{kind}"), image.convert("RGB"))


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp"])
def test_a_damaged_image_is_named(folder, suffix):
    file = folder / f"a.{suffix}"
    Image.fromarray(EIGHT).save(file)
    whole = file.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"not an image\n"):
        file.write_bytes(content)
        refusal(folder, file.name)


# Corruptions


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
    for size, factor in ((65, 0.3), (64, 0.5), (32, 0.5)):  # ImageNet-C's above 64 pixels
        one = pictures(size)[:1]
        mean = one.mean((1, 2), keepdims=True)
        np.testing.assert_allclose(corrupt(one, "contrast", 2), mean + factor * (one - mean), atol=0.51)
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
