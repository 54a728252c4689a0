"""Folders of real photographs: crops of those that scikit-image carries, in the file modes that
cameras and editors
write."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import skimage.data
from PIL import ExifTags, Image

CLASSES = {"cat": "chelsea", "coffee": "coffee", "rocket": "rocket", "astronaut": "astronaut"}


def crops(name: str, count: int) -> list[Image.Image]:
    """Return crops of one photograph, each of another size and none square."""
    photograph = Image.fromarray(getattr(skimage.data, CLASSES[name])())
    source = np.random.default_rng(list(name.encode()))
    pictures = []
    for _ in range(count):
        width, height = source.integers(90, 180, 2) + (0, 60)
        left, top = (
            source.integers(0, photograph.width - width),
            source.integers(0, photograph.height - height),
        )
        pictures.append(photograph.crop((left, top, left + width, top + height)))
    return pictures


def rotated(picture: Image.Image, file: Path) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # shown turned by 90 degrees clockwise
    picture.transpose(Image.Transpose.ROTATE_90).save(file, exif=exif, quality=95)


def sixteen_bits(picture: Image.Image, file: Path) -> None:
    Image.fromarray(257 * np.asarray(picture.convert("L")).astype(np.uint16)).save(file)


def with_alpha(picture: Image.Image, file: Path) -> None:
    alpha = Image.linear_gradient("L").resize(picture.size)
    Image.merge("RGBA", (*picture.split(), alpha)).save(file)


#: How to write a picture in each mode, and the suffix of its file.
MODES = {
    "jpeg": (".jpg", lambda picture, file: picture.save(file, quality=95)),
    "grey": (".png", lambda picture, file: picture.convert("L").save(file)),
    "palette": (".gif", lambda picture, file: picture.quantize(256).save(file)),
    "alpha": (".png", with_alpha),
    "cmyk": (".jpg", lambda picture, file: picture.convert("CMYK").save(file, quality=95)),
    "sixteen": (".png", sixteen_bits),
    "exif": (".JPG", rotated),
    "webp": (".webp", lambda picture, file: picture.save(file, quality=95)),
}


def make(folder: Path, count: int) -> None:
    """Write `count` pictures per class, the modes in turn."""
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for index, picture in enumerate(crops(name, count)):
            mode = list(MODES)[index % len(MODES)]
            suffix, write = MODES[mode]
            write(picture, folder / f"{name}/{mode}{index}{suffix}")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of class folders."""
    folder = tmp_path_factory.mktemp("pictures") / "pictures"
    make(folder, 20)
    return folder


@pytest.fixture
def copy(pictures, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(pictures, tmp_path / "pictures")
