"""Image files: 8-bit RGB as displayed, or a one-line error."""

import numpy as np
import pytest
from PIL import ExifTags, Image

from pvera.data import image_splits
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
    return image_splits.load_split(folder.parent, "digits", "test", SIDE).images[0]


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
