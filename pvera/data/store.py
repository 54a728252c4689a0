"""The store: decoded images and digests, kept on disk until their source changes.

    <cache>/store/<data set>-<hash of its folder>/<split>-<size>-<hash>.npy
    <cache>/store/digests/<hash>.json

The first hold images (N, size, size, 3) uint8.

`<cache>` is the environment variable PVERA_CACHE, or .cache/pvera in the clone. VTAB-1k at 224
pixels takes 61 GB.
"""

import hashlib
import json
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from tqdm import tqdm

from pvera import files
from pvera.data.decoding import UndecodedImages
from pvera.errors import InputError, as_input_error, catch_os_errors

#: The environment variable that names the folder of the cache.
CACHE_VARIABLE = "PVERA_CACHE"
#: Images that are decoded, or hashed, at once: 39 MB at 224 pixels.
CHUNK = 256


def store_folder() -> Path:
    """Return the store's folder."""
    checkout = Path(__file__).resolve().parents[2]
    return Path(os.environ.get(CACHE_VARIABLE) or checkout / ".cache" / "pvera") / "store"


def file_state(file: Path) -> list[int]:
    """Return size and times of an image file, which change with its content.

    Raises:
        InputError: The file is missing.
    """
    with as_input_error(f"image {file} cannot be read"):
        status = os.stat(file)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def load_or_compute(key: Any, compute: Callable[[], Any]) -> Any:
    """Return `compute()`, which the store keeps under `key` where it can be written.

    Args:
        key: All that the result depends on, in JSON's types.
        compute: Returns a value in JSON's types.
    """
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    file = store_folder() / "digests" / f"{digest}.json"
    # It may be missing, or damaged by a full disk.
    with suppress(OSError, ValueError):
        return json.loads(file.read_text())
    value = compute()
    # Without a store the value is computed again the next time.
    with suppress(InputError):
        files.write_atomically(file, json.dumps(value))
    return value


def load_or_decode(key: str, undecoded: UndecodedImages) -> np.memmap:
    """Return images as a read-only map (N, size, size, 3); decode them where the store lacks them.

    Files of other keys of the split are removed, also unfinished ones of killed processes.

    Args:
        key: "<data set>-<hash>/<split>-<size>-<hash>", the path in the store.
        undecoded: The images.

    Raises:
        InputError: An image cannot be read, or the store cannot be written. No half-written file
            is left.
    """
    file = store_folder() / f"{key}.npy"
    split_and_size = file.stem.rpartition("-")[0]
    with catch_os_errors(
        f"decoded images to {store_folder()} ({CACHE_VARIABLE} names another folder)"
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be decoding the same split.
        with FileLock(file.with_name(f"{split_and_size}.lock")):
            # Reading fails for a missing file and for a damaged one.
            with suppress(OSError, ValueError):
                return np.lib.format.open_memmap(file, mode="r")
            _decode_into(file, undecoded)
            for outdated in set(file.parent.glob(f"{split_and_size}-*")) - {file}:
                outdated.unlink()
            return np.lib.format.open_memmap(file, mode="r")


def _decode_into(file: Path, undecoded: UndecodedImages) -> None:
    """Decode into `file`, which appears when it is complete."""
    # A killed process leaves a .partial file, which the next one overwrites.
    unfinished = file.with_suffix(".partial")
    count = len(undecoded)
    shape = (count, undecoded.size, undecoded.size, 3)
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    bar = tqdm(total=count, desc=file.stem, unit="image", leave=False, delay=5)
    try:
        with open(unfinished, "wb") as out, bar:
            np.lib.format.write_array_header_1_0(out, header)
            for start in range(0, count, CHUNK):
                images = undecoded[start : start + CHUNK]
                out.write(images.data)
                bar.update(len(images))
            # All of it is on the disk before it gets its name.
            out.flush()
            os.fsync(out.fileno())
        os.replace(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)


def copy_images(images: np.ndarray | UndecodedImages, index: slice) -> np.ndarray:
    """Copy some images into memory.

    The pages of a map then leave this process's memory: a whole test split has up to 11 GB.
    """
    if isinstance(images, UndecodedImages):
        return images[index]
    pixels = np.array(images[index])
    if isinstance(images.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        images.base.madvise(mmap.MADV_DONTNEED)
    return pixels
