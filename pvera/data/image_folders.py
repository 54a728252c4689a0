"""Data sets in VTAB-1k's folder format, as uint8 arrays that are decoded once.

`<root>/<data set>/{train800,val200,test}.txt` hold lines "relative/path label"; the images lie below
`<root>/<data set>/`. The store keeps what was decoded, memory-mapped, and digests:

    <cache>/store/<data set>-<hash of its folder>/<split>-<size>-<key>.npy    (N, size, size, 3) uint8
    <cache>/store/digests/<key>.json

`<cache>` is the environment variable PVERA_CACHE, or .cache/pvera in the checkout (without one, in the home folder). A
key hashes all that the content depends on, files by size and times. VTAB-1k at 224 pixels takes 61 GB.
"""

import hashlib
import json
import mmap
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from filelock import FileLock
from PIL import Image, ImageOps
from torch import Tensor
from tqdm import tqdm

from pvera import files
from pvera.backbones import Backbone
from pvera.data.tasks import TASKS, Task, class_name
from pvera.errors import InputError, as_input_error, catch_os_errors

#: File of the split that a run trains on, validates on and is tested on.
SPLIT_OF = {"train": "train800", "validation": "val200", "test": "test"}
SPLITS = tuple(SPLIT_OF.values())
MANIFEST = (
    "own.json"  # description of one's own data set, which `custom.install` writes into its folder
)
REFUSED = 10  # images that an error names
DECODER = 2  # raised whenever `decode` gives other pixels: the store then decodes anew
CACHE = "PVERA_CACHE"  # environment variable
CHUNK = 256  # images that are decoded, or hashed, at once: 39 MB at 224 pixels


@dataclass(frozen=True)
class ImageSplit:
    """images (N, size, size, 3) uint8, labels (N,) int64 and N relative paths, in the split file's order.

    labels: None where they are not known.
    key: its place in the store, which says all that it depends on; empty for images from elsewhere.
    """

    images: np.ndarray
    labels: np.ndarray | None
    names: list[str]
    key: str = ""

    def content(self) -> Iterator[np.ndarray]:
        """Yield images and labels: all that training and testing read."""
        for start in range(0, len(self.images), CHUNK):
            yield _read(self.images, slice(start, start + CHUNK))
        yield np.ascontiguousarray(self.labels)

    def first(self, count: int) -> "ImageSplit":
        """Return the first `count` images."""
        key = f"{self.key}, first {count}"
        return ImageSplit(self.images[:count], self.labels[:count], self.names[:count], key)

    def data(self, frozen: Backbone, device: torch.device, in_memory: bool = True) -> "ImageData":
        """Return the split for `device`, normalised as `frozen` needs it."""
        return ImageData(self, frozen, device, in_memory)


@dataclass(frozen=True)
class Undecoded:
    """Images (N, size, size, 3) of files `paths` below `folder`; slices of them are decoded.

    refused: takes the error of each path that cannot be read; its image is black.
    """

    folder: Path
    paths: list[str]
    size: int
    refused: dict[str, InputError] = field(default_factory=dict)
    base = None  # of an array in memory

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, part: slice) -> np.ndarray:
        images = list(each(partial(decode, self.folder, size=self.size), self.paths[part]))
        for i, (path, image) in enumerate(zip(self.paths[part], images, strict=True)):
            if isinstance(image, InputError):
                self.refused[path], images[i] = image, np.zeros((self.size, self.size, 3), np.uint8)
        return np.stack(images)


class ImageData:
    """A split for `device`, normalised batch by batch; labels (n,), or None.

    in_memory: its images lie on `device`, uint8 (n, 3, size, size). Otherwise slices of them are read from the
    store when a batch needs them: a test split at 224 pixels has up to 11 GB.
    """

    evaluation_batch = 256

    def __init__(
        self, split: ImageSplit, backbone: Backbone, device: torch.device, in_memory: bool = True
    ):
        self.images = (
            _channels_first(split.images, slice(None), device) if in_memory else split.images
        )
        self.labels = None if split.labels is None else torch.from_numpy(split.labels).to(device)
        self.device = device
        mean, std = (
            torch.tensor(v, device=device).view(1, 3, 1, 1) for v in (backbone.mean, backbone.std)
        )
        self._scale, self._shift = 1 / (255 * std), -mean / std

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index) -> Tensor:
        """Return normalised images (len(index), 3, size, size)."""
        in_memory = isinstance(self.images, Tensor)
        images = (
            self.images[index] if in_memory else _channels_first(self.images, index, self.device)
        )
        return images.float().mul_(self._scale).add_(self._shift)


def _channels_first(images: np.ndarray, part: slice, device: torch.device) -> Tensor:
    """Return images (n, size, size, 3) of the CPU as (part, 3, size, size) on `device`, which reorders them."""
    return torch.from_numpy(_read(images, part)).to(device).permute(0, 3, 1, 2).contiguous()


def task(name: str, root: str | Path | None = None) -> Task:
    """Return the data set of that name: a known one, or one's own below `root`. InputError lists the known names."""
    if name in TASKS:
        return TASKS[name]
    described = manifest(root, name)
    if described is None:
        raise InputError(
            f"unknown data set {name!r}; choose from {', '.join(TASKS)}, or name your own pictures with "
            f"--data-set {name}=FOLDER"
        )
    return Task(name, name, "own", len(described["classes"]), described["images"]["test"], "own")


def manifest(root: str | Path | None, name: str) -> dict[str, Any] | None:
    """Return the description of one's own data set `name` below `root`, None for all others.

    classes: their names in the order of labels.   images: their number per split.
    split: which splits were given, and the seed and shares of those that were drawn.
    source: the folder.   pictures_sha256: of contents, labels and given splits.   lists_sha256: of the lists.
    left_out: the number of files per reason.   alike: the number of pictures with the pixels of another.
    """
    if name in TASKS or root is None:
        return None
    file = Path(root) / name / MANIFEST
    return (
        files.read_json(file, "remove it, and name the folder of your pictures again")
        if file.exists()
        else None
    )


def provenance(root: str | Path, name: str) -> dict:
    """Return what a result file says of a data set that is not of VTAB-1k; of your own: splits, classes, pictures."""
    described, origin = manifest(root, name), {"data_copy": None}
    if described:
        origin["own_data"] = {
            key: described[key] for key in ("split", "classes", "pictures_sha256")
        }
    return origin


def class_names(name: str, root: str | Path | None = None) -> list[str]:
    """Return the names of the classes of a data set, in the order of labels."""
    described = manifest(root, name)
    return (
        described["classes"]
        if described
        else [class_name(name, label) for label in range(task(name).classes)]
    )


def read_split_file(folder: Path, split: str, classes: int) -> dict[str, int]:
    """Read the label of each image in `<folder>/<split>.txt`, of lines "relative/path label".

    Paths are relative to the folder. InputError names a wrong line.
    """
    file = folder / f"{split}.txt"
    label_of, lines = dict[str, int](), dict[str, int]()
    for number, line in enumerate(re.split(r"\r\n|\r|\n", files.read_text(file)), start=1):
        if not line.strip():
            continue
        place, match = (
            f"{file}, line {number}",
            re.fullmatch(r"\s*(\S.*?)\s+([0-9]{1,18})\s*", line),
        )
        if match is None or int(match[2]) >= classes:
            raise InputError(
                f"{place}: expected 'relative/path label', of {classes} labels from 0, not {line[:80]!r}"
            )
        path = os.path.normpath(match[1])
        if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
            raise InputError(f"{place}: {match[1]!r} leaves the data set's folder")
        if path in lines:
            raise InputError(f"{place}: {match[1]!r} stands in line {lines[path]} already")
        lines[path] = number
        label_of[match[1]] = int(match[2])
    if not label_of:
        raise InputError(f"{file} is empty")
    return label_of


def each(read: Callable, paths: Iterable) -> Iterator:
    """Yield `read(path)` of each path, or its InputError. In threads: Pillow works without Python's lock."""

    def result(path):
        try:
            return read(path)
        except InputError as error:
            return error

    with ThreadPoolExecutor() as pool:
        yield from pool.map(result, paths)


def name_errors(errors: Collection) -> str:
    """Return the first errors or names in one line, and how many more there are."""
    more = f"; and {len(errors) - REFUSED} more" if len(errors) > REFUSED else ""
    return "; ".join(map(str, [*errors][:REFUSED])) + more


def decode(folder: Path, path: str, size: int) -> np.ndarray:
    """Decode one image to (size, size, 3) uint8: `as_displayed`, resized bilinearly, its aspect ratio not kept."""
    image = as_displayed(folder / path)
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image)


def as_displayed(file: Path) -> Image.Image:
    """Decode an image file to 8-bit RGB.

    Takes the first frame of an animation, and turns it by its EXIF orientation. Drops alpha, so transparent pixels
    keep the colour that the file holds. 16 bits of a PNG file become 8: grey values are divided by 257, of colours the
    high byte is taken. InputError for an unreadable file, and for grey values of more than 8 bits in other formats.
    """
    with as_input_error(f"image {file} cannot be read"), Image.open(file) as image:
        image.load()
        with suppress(
            Exception
        ):  # a damaged block tells no orientation; the image keeps a sound one
            image.getexif()
        image.info.clear()  # else exif_transpose encodes the block anew, which odd ones do not survive
        ImageOps.exif_transpose(image, in_place=True)
        if image.mode.startswith(("I", "F")):  # more than 8 bits of grey, which Pillow would clip
            if image.format != "PNG":
                raise ValueError(
                    f"the range of its values is not known (mode {image.mode}); convert it to 8 bits, or PNG"
                )
            image = Image.fromarray(
                ((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8)
            )
        return image.convert("RGB")


def load_split(root: str | Path, name: str, split: str, size: int) -> ImageSplit:
    """Load one split of the data set `name` below `root`; its images are a read-only map of the store.

    Images that the store lacks, or whose files have changed, are decoded. InputError for an unknown data set, a wrong
    split file, a missing or unreadable image, and a store that cannot be written.
    """
    label_of, place = listed(root, name, split, size)
    images = _decoded(place, Undecoded(Path(root) / name, list(label_of), size))
    return ImageSplit(images, np.array(list(label_of.values()), np.int64), list(label_of), place)


def listed(root: str | Path, name: str, split: str, size: int) -> tuple[dict[str, int], str]:
    """Return the lines of a split file, and the split's place in the store. Image files count by size and times."""
    folder = Path(root) / name
    label_of = read_split_file(folder, split, task(name, root).classes)
    digest = hashlib.sha256(f"decoder {DECODER}, {size}, Pillow {PIL.__version__}\n".encode())
    for path, label in label_of.items():
        digest.update(f"{path} {label} {state(folder / path)}\n".encode())
    return label_of, f"{stored(folder).name}/{split}-{size}-{digest.hexdigest()[:16]}"


# The store


def store() -> Path:
    """Return the store's folder."""
    checkout = Path(__file__).resolve().parents[2]
    default = (
        (checkout if (checkout / "pyproject.toml").exists() else Path.home()) / ".cache" / "pvera"
    )
    return Path(os.environ.get(CACHE) or default) / "store"


def stored(folder: Path) -> Path:
    """Return the folder of the store that holds the decoded images of the data set in `folder`."""
    digest = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()
    return store() / f"{folder.name}-{digest[:8]}"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the lock of the data set in `folder`; another process waits.

    InputError where the store cannot be written.
    """
    lock = FileLock(stored(folder) / "lists.lock")
    with catch_os_errors(f"{store()} ({CACHE} names another folder)"):
        Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def state(file: Path) -> list[int]:
    """Return size and times of an image file. InputError where it is missing."""
    with as_input_error(f"image {file} cannot be read"):
        status = os.stat(file)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def remembered(key: Any, compute: Callable[[], Any]) -> Any:
    """Return `compute()`, which the store keeps under `key` (both JSON) where it can be written."""
    file = store() / "digests" / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()}.json"
    with suppress(OSError, ValueError):
        return json.loads(file.read_text())
    value = compute()
    with suppress(InputError):
        files.write_atomically(file, json.dumps(value))
    return value


def _decoded(place: str, undecoded: Undecoded) -> np.memmap:
    """Return images as a read-only map (N, size, size, 3); decode them where the store lacks them.

    place: "<folder>/<split>-<size>-<key>". Files of another key are removed, also unfinished ones of killed processes.
    InputError for images that cannot be read, and where the store cannot be written; no half-written file is left.
    """
    file = store() / f"{place}.npy"
    split = file.stem.rpartition("-")[0]
    with catch_os_errors(f"decoded images to {store()} ({CACHE} names another folder)"):
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_name(f"{split}.lock")):  # another process may be decoding them
            with suppress(OSError, ValueError):  # missing or damaged
                return np.lib.format.open_memmap(file, mode="r")
            _decode_into(file, undecoded)
            for outdated in set(file.parent.glob(f"{split}-*")) - {file}:
                outdated.unlink()
            return np.lib.format.open_memmap(file, mode="r")


def _decode_into(file: Path, undecoded: Undecoded) -> None:
    """Decode images into a file beside `file`, which takes its name when all of it is on the disk."""
    unfinished, count = file.with_suffix(".partial"), len(undecoded)
    header = {
        "descr": "|u1",
        "fortran_order": False,
        "shape": (count, undecoded.size, undecoded.size, 3),
    }
    try:
        with open(unfinished, "wb") as out:
            np.lib.format.write_array_header_1_0(out, header)
            starts = range(0, count, CHUNK)
            for start in tqdm(
                starts, file.stem, unit="image", unit_scale=CHUNK, leave=False, delay=5
            ):
                out.write(undecoded[start : start + CHUNK])
                if undecoded.refused:
                    raise InputError(name_errors(undecoded.refused.values()))
            out.flush()
            os.fsync(out.fileno())
        os.replace(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)


def _read(images: np.ndarray, part: slice) -> np.ndarray:
    """Copy some images. The pages of a map leave this process's memory: a whole test split has up to 11 GB."""
    pixels = images[part].copy()
    if isinstance(images.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        images.base.madvise(mmap.MADV_DONTNEED)
    return np.asarray(pixels)
