"""Image files as 8-bit RGB arrays, as a viewer displays them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps
from tqdm import tqdm

from pvera.errors import InputError, as_input_error, list_first

#: Raised whenever `decode` gives other pixels: the store then decodes again.
DECODER_VERSION = 2

Item = TypeVar("Item")
Result = TypeVar("Result")


class UndecodedImages:
    """Images (N, size, size, 3) uint8 that are decoded when they are sliced.

    Args:
        folder: The folder to which `paths` are relative.
        paths: Image files.
        size: Height and width to which images are resized.
    """

    def __init__(self, folder: Path, paths: list[str], size: int):
        self.folder = folder
        self.paths = paths
        self.size = size

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: slice) -> np.ndarray:
        paths = [self.folder / path for path in self.paths[index]]
        return np.stack(map_in_threads(lambda path: decode(path, self.size), paths))


def decode(file: Path, size: int) -> np.ndarray:
    """Decode an image to (size, size, 3) uint8.

    It is resized bilinearly; its aspect ratio is not kept.
    """
    image = as_displayed(file)
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image)


def as_displayed(file: Path) -> Image.Image:
    """Decode an image file to 8-bit RGB, turned by its EXIF orientation.

    Of an animation, the first frame counts. Alpha is dropped: transparent pixels keep the colour
    that the file holds. 16 bits of a PNG file become 8: grey values are divided by 257, of colours
    the high byte stays.

    Raises:
        InputError: The file is unreadable, or holds grey values of more than 8 bits in another
            format than PNG.
    """
    with as_input_error(f"image {file} cannot be read"), Image.open(file) as image:
        image.load()
        # A damaged EXIF block tells no orientation; the image keeps a sound one.
        with suppress(Exception):
            image.getexif()
        # Otherwise exif_transpose encodes the block again, which fails for odd ones.
        image.info.clear()
        ImageOps.exif_transpose(image, in_place=True)

        # Modes I and F hold more than 8 bits of grey, which Pillow would clip.
        if image.mode.startswith(("I", "F")):
            return _grey_as_8_bits(image).convert("RGB")
        return image.convert("RGB")


def _grey_as_8_bits(image: Image.Image) -> Image.Image:
    if image.format != "PNG":
        raise ValueError(
            f"the range of its values is not known (mode {image.mode}); "
            "convert it to 8 bits, or PNG"
        )
    values = np.asarray(image).astype(np.uint32)
    return Image.fromarray(((values + 128) // 257).astype(np.uint8))


def map_in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], title: str = ""
) -> list[Result]:
    """Return `function(item)` of each item.

    Threads help because Pillow decodes without Python's lock.

    Args:
        function: It may raise an InputError.
        items: Its arguments.
        title: Of a progress bar; without it there is none.

    Raises:
        InputError: It was raised for some items; the message lists the first.
    """

    def result_or_error(item: Item) -> Result | InputError:
        try:
            return function(item)
        except InputError as error:
            return error

    with ThreadPoolExecutor() as pool:
        mapped = pool.map(result_or_error, items)
        bar = tqdm(mapped, title, len(items), leave=False, delay=5, disable=not title)
        outcomes = list(bar)
    errors = [outcome for outcome in outcomes if isinstance(outcome, InputError)]
    if errors:
        raise InputError(list_first(errors))
    return [outcome for outcome in outcomes if not isinstance(outcome, InputError)]
