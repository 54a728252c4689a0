"""Data sets in VTAB-1k's folder format, as uint8 arrays that are decoded once (see `store`).

`<root>/<data set>/{train800,val200,train800val200,test}.txt` hold lines "relative/path label"; the images lie
below `<root>/<data set>/`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL
from PIL import ExifTags, Image, ImageOps

from pvera import files
from pvera.data import store
from pvera.data.tasks import task  # split
from pvera.errors import InputError
from pvera.processes import cores

SPLITS = ("train800", "val200", "train800val200", "test")
RUN_SPLITS = ("train800", "val200", "test")  # what a run trains on, validates on and is tested on
DECODER = 2  # raised whenever `decode` gives other pixels: the store then decodes anew
#: Formats in which Pillow's 16-bit grey values run from 0 to 65535.
SIXTEEN_BITS = ("PNG", "PPM", "TIFF", "JPEG2000")


@dataclass(frozen=True)
class Split:
    """images (N, size, size, 3) uint8, labels (N,) int64 and N relative paths, in the split file's order.

    key: of the source in the store; empty where the images are not from there.
    """

    images: np.ndarray
    labels: np.ndarray
    names: list[str]
    key: str = ""

    def first(self, count: int | None) -> Split:
        """The first `count` images, all for None."""
        if count is None:
            return self
        key = self.key and f"{self.key}-first{count}"
        return Split(self.images[:count], self.labels[:count], self.names[:count], key)


class Entry(NamedTuple):
    """One line of a split file: an image's path below the data set's folder, its label, and the line's number."""

    path: str
    label: int
    line: int


def read_split_file(folder: Path, split: str, classes: int) -> list[Entry]:
    """Read `<folder>/<split>.txt`, of lines "relative/path label"; InputError names a wrong line."""
    if split not in SPLITS:
        raise InputError(f"unknown split {split!r}; choose from {', '.join(SPLITS)}")
    file = folder / f"{split}.txt"
    entries, lines = [], {}
    for number, line in enumerate(re.split(r"\r\n|\r|\n", files.read_text(file)), start=1):
        if not line.strip():
            continue
        match = re.fullmatch(r"\s*(\S.*?)\s+([+-]?[0-9]{1,18})\s*", line)
        if match is None:
            raise InputError(f"{file}, line {number}: expected 'relative/path label', not {line[:80]!r}")
        path, label = match[1], int(match[2])
        if not 0 <= label < classes:
            raise InputError(f"{file}, line {number}: label {label} is not one of {classes} classes from 0")
        plain = os.path.normpath(path)
        if os.path.isabs(path) or plain.split(os.sep)[0] == os.pardir:
            raise InputError(f"{file}, line {number}: {path!r} leaves the data set's folder")
        if (first := lines.setdefault(plain, number)) != number:
            raise InputError(f"{file}, line {number}: {path!r} stands in line {first} already")
        entries.append(Entry(path, label, number))
    if not entries:
        raise InputError(f"{file} is empty")
    return entries


def decode(folder: Path, path: str, size: int) -> np.ndarray:
    """Decode one image to (size, size, 3) uint8: RGB, resized bilinearly without keeping its aspect ratio.

    The first frame of an animation, turned as its EXIF orientation says; alpha is dropped, so transparent pixels
    keep the colour that the file holds. 16 bits become 8: grey values are divided by 257, of colours Pillow takes
    the high byte. InputError for what cannot be read, and for values without a defined range, such as floats.
    """
    file = folder / path
    try:
        files.status(file)
        with Image.open(file) as image:
            image.load()
            with suppress(Exception):  # a damaged block says nothing; the image keeps a sound one
                image.getexif()
            image.info.clear()  # else exif_transpose encodes the block anew, which odd ones do not survive
            ImageOps.exif_transpose(image, in_place=True)
            image = _eight_bits(image).convert("RGB")
    except FileNotFoundError:
        raise InputError(f"image {file} does not exist") from None
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"image {file} cannot be read: {reason}") from None
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey values to 8 bits, where Pillow would clip them. ValueError for those of unknown range."""
    if not image.mode.startswith(("I", "F")):
        return image
    # Pillow opens 16-bit PPM files in mode I, and 12-bit or inverted TIFF files in mode I;16 without scaling them.
    tags, name = getattr(image, "tag_v2", {}), ExifTags.Base
    plain = tags.get(name.BitsPerSample, (16,)) == (16,) and tags.get(name.PhotometricInterpretation, 1) == 1
    mode = "I" if image.format == "PPM" else "I;16"
    if image.format not in SIXTEEN_BITS or not image.mode.startswith(mode) or not plain:
        raise ValueError(f"the range of its values is not defined (mode {image.mode}); convert it to 8 or 16 bits")
    return Image.fromarray(((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8))


def load_split(
    root: str | Path,
    name: str,
    split: str,
    size: int,
    threads: int | None = None,
    processes: int | None = None,
) -> Split:
    """One split of the data set `name` below `root`; its images are a read-only map of the store.

    They are decoded if the store lacks them or their files have changed, with `threads` threads (one per
    core), or, where they are many, with `processes` processes, which is for scripts with a guarded main
    alone.

    Raises InputError for an unknown data set or split, a missing or empty split file, a malformed or repeated
    line, a label out of range, a path that leaves the folder, a missing or unreadable image, and a store that
    cannot be written.
    """
    folder = Path(root) / task(name).name
    entries = read_split_file(folder, split, task(name).classes)
    names = [entry.path for entry in entries]
    place = f"{name}-{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:8]}"
    key = _source(folder, split, entries, size)
    read = partial(decode, folder, size=size)
    images = store.images(place, split, key, names, size, read, threads, processes)
    labels = np.array([entry.label for entry in entries], np.int64)
    return Split(images, labels, names, f"{place}-{split}-{key}")


def _source(folder: Path, split: str, entries: list[Entry], size: int) -> str:
    """16 hexadecimal digits for what the decoded split depends on, image files by size and times."""
    digest = hashlib.sha256(f"decoder {DECODER}, {size}, Pillow {PIL.__version__}\n".encode())
    for path, label, line in entries:
        file = f"{folder}/{path}"
        try:
            found = files.status(file)
        except FileNotFoundError:
            raise InputError(f"{folder / split}.txt, line {line}: image {file} does not exist") from None
        except (OSError, ValueError) as error:
            raise InputError(f"image {file} cannot be read: {error}") from None
        digest.update(f"{path} {label} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}\n".encode())
    return digest.hexdigest()[:16]


def digest(splits: Iterable[Split]) -> str:
    """SHA-256 over images and labels of each split in turn: all that training and testing read of them."""

    def compute() -> str:
        found = hashlib.sha256()
        for split in splits:
            for start in range(0, len(split.images), 256):
                found.update(store.read(split.images, slice(start, start + 256)))
            found.update(np.ascontiguousarray(split.labels))
        return found.hexdigest()

    splits = tuple(splits)
    if not all(split.key for split in splits):
        return compute()
    keys = " ".join(split.key for split in splits)
    return store.remembered(hashlib.sha256(keys.encode()).hexdigest(), compute)


def prepare(root: str | Path, name: str, size: int) -> str:
    """Decode what runs on the data set read, with all cores, and return its `digest`. For scripts, and
    InputError, as `load_split`."""
    return digest(load_split(root, name, split, size, processes=cores()) for split in RUN_SPLITS)
