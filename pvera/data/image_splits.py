"""Data sets of images: splits as uint8 arrays of the store, normalised when a batch needs them."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from torch import Tensor

from pvera.backbones import Backbone
from pvera.data import decoding, store
from pvera.data.decoding import UndecodedImages
from pvera.data.split_files import read_split_file
from pvera.data.tasks import find_data_set


@dataclass(frozen=True)
class ImageSplit:
    """A split's images, in the order of its file."""

    #: (N, size, size, 3) uint8.
    images: np.ndarray | UndecodedImages
    #: (N,) int64; (0,) where labels are unknown.
    labels: np.ndarray
    #: N paths, relative to the data set's folder.
    names: list[str]
    #: Path in the store, with a hash of all that the images depend on; empty for others.
    key: str = ""

    def content(self) -> Iterator[memoryview]:
        """Yield images and labels: all that training and testing read."""
        for start in range(0, len(self.images), store.CHUNK):
            yield store.copy_images(self.images, slice(start, start + store.CHUNK)).data
        yield self.labels.data

    def first(self, count: int) -> "ImageSplit":
        """Return the first `count` images."""
        key = f"{self.key}, first {count}" if self.key else ""
        return ImageSplit(self.images[:count], self.labels[:count], self.names[:count], key)

    def data(self, frozen: Any, device: torch.device, in_memory: bool = True) -> "ImageData":
        """Return the split for `device`, normalised as the `Backbone` `frozen` reads it."""
        return ImageData(self, frozen, device, in_memory)


class ImageData:
    """A split for a device; `data[index]` is a normalised batch.

    Args:
        split: Images, and labels where they are known.
        backbone: Says mean and standard deviation.
        device: Where batches and labels lie.
        in_memory: Whether all images lie on `device`, as uint8 (N, 3, size, size). Otherwise they
            are read when a batch needs them: a test split at 224 pixels has up to 11 GB.
    """

    #: Hashed in analyses: images of a batch share the noise of a sample, so to change it changes
    #: every result.
    evaluation_batch = 256

    def __init__(
        self, split: ImageSplit, backbone: Backbone, device: torch.device, in_memory: bool = True
    ):
        self.device = device
        self.labels = torch.from_numpy(split.labels).to(device)
        self.images: np.ndarray | UndecodedImages | Tensor = split.images
        if in_memory:
            self.images = _channels_first(split.images, slice(None), device)

        mean = torch.tensor(backbone.mean, device=device).view(1, 3, 1, 1)
        std = torch.tensor(backbone.std, device=device).view(1, 3, 1, 1)
        # (pixel / 255 - mean) / std as one product and one sum, in place.
        self._scale = 1 / (255 * std)
        self._shift = -mean / std

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index) -> Tensor:
        """Return normalised images (n, 3, size, size) of a slice, or of decoded ones by index."""
        if isinstance(self.images, Tensor):
            images = self.images[index]
        else:
            images = _channels_first(self.images, index, self.device)
        return images.float().mul_(self._scale).add_(self._shift)


def _channels_first(
    images: np.ndarray | UndecodedImages, index: slice, device: torch.device
) -> Tensor:
    """Copy images (n, size, size, 3) to `device`, which reorders them to (n, 3, size, size)."""
    pixels = torch.from_numpy(store.copy_images(images, index)).to(device)
    return pixels.permute(0, 3, 1, 2).contiguous()


def load_split(root: str | Path, name: str, split_file: str, size: int) -> ImageSplit:
    """Load one split of the data set `name` below `root`, as a read-only map of the store.

    Images that the store lacks, or whose files have changed, are decoded.

    Args:
        root: Folder of the data sets.
        name: The data set.
        split_file: One of `SPLIT_FILES`.
        size: Height and width of the images.

    Raises:
        InputError: The data set is unknown, its split file is wrong, an image is missing or
            unreadable, or the store cannot be written.
    """
    label_of, key = labels_and_key(root, name, split_file, size)
    names = list(label_of)
    images = store.load_or_decode(key, UndecodedImages(Path(root) / name, names, size))
    return ImageSplit(images, np.array(list(label_of.values()), np.int64), names, key)


def labels_and_key(
    root: str | Path, name: str, split_file: str, size: int
) -> tuple[dict[str, int], str]:
    """Return the label of each image of a split, and the split's key in the store.

    The key changes with the size and times of the image files; no image is opened.
    """
    folder = Path(root) / name
    label_of = read_split_file(folder, split_file, find_data_set(name, root).classes)
    decoder = f"decoder {decoding.DECODER_VERSION}, {size}, Pillow {PIL.__version__}\n"
    digest = hashlib.sha256(decoder.encode())
    for path, label in label_of.items():
        digest.update(f"{path} {label} {store.file_state(folder / path)}\n".encode())
    # Data sets of one name in two folders have a folder each in the store.
    root_digest = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()
    key = f"{name}-{root_digest[:8]}/{split_file}-{size}-{digest.hexdigest()[:16]}"
    return label_of, key
