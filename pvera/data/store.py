"""The cache: images that are decoded once and memory-mapped, and digests of data.

    <cache>/store/<data set>-<hash of its folder>/<split>-<size>-<key>.npy    (N, size, size, 3) uint8
    <cache>/store/digests/<key>.json

`<cache>` is the environment variable PVERA_CACHE, or .cache/pvera in the checkout (without one, in the home folder). A
key hashes all that the content depends on, files by size and times. VTAB-1k at 224 pixels takes 61 GB.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from tqdm import tqdm

from pvera.errors import InputError, writing
from pvera.files import write_atomically

VARIABLE = "PVERA_CACHE"
CHUNK = 256  # images that are decoded before they are written: 39 MB at 224 pixels


def folder() -> Path:
    """Return the store's folder."""
    checkout = Path(__file__).resolve().parents[2]
    default = (checkout if (checkout / "pyproject.toml").exists() else Path.home()) / ".cache" / "pvera"
    return Path(os.environ.get(VARIABLE) or default) / "store"


def state(file: str | Path) -> list[int]:
    """Return size and times of a file. OSError where it is missing."""
    status = os.stat(file)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def recall(key: Any) -> Any:
    """Return what is kept under `key` (JSON), None where nothing is or it cannot be read."""
    with suppress(OSError, ValueError):
        return json.loads(_digest_file(key).read_text())


def keep(key: Any, value: Any) -> Any:
    """Keep `value` (JSON) for `recall`, and return it. A store that cannot be written keeps nothing."""
    with suppress(InputError):
        write_atomically(_digest_file(key), json.dumps(value))
    return value


def _digest_file(key: Any) -> Path:
    return folder() / "digests" / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()}.json"


def images(place: str, undecoded) -> np.memmap:
    """Return images as a read-only map (N, size, size, 3); decode them where the store lacks them.

    place: "<folder>/<split>-<size>-<key>". Files of another key are removed, also unfinished ones of killed processes.
    undecoded: the images; slices of them are decoded. InputError for those that cannot be read, and where the store
    cannot be written; no half-written file is left.
    """
    file = folder() / f"{place}.npy"
    if (decoded := _open(file)) is not None:
        return decoded
    split = file.stem.rpartition("-")[0]
    with writing(f"decoded images to {folder()} ({VARIABLE} names another folder)"):
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_name(f"{split}.lock")):
            if _open(file) is None:  # another process may have made it meanwhile
                _make(file, undecoded)
                for outdated in set(file.parent.glob(f"{split}-*")) - {file}:
                    outdated.unlink()
            return np.lib.format.open_memmap(file, mode="r")


def read(images: np.ndarray, part: slice) -> np.ndarray:
    """Copy some images. The pages of a map leave this process's memory: a whole test split has up to 11 GB."""
    pixels = images[part].copy()
    if isinstance(images.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        images.base.madvise(mmap.MADV_DONTNEED)
    return np.asarray(pixels)


def _open(file: Path) -> np.memmap | None:
    """Open the map; None where there is no complete one."""
    try:
        return np.lib.format.open_memmap(file, mode="r")
    except (OSError, ValueError):
        return None


def _make(file: Path, undecoded) -> None:
    """Decode images into a file beside `file`, which takes its name when all of it is on the disk."""
    unfinished, count = file.with_suffix(".partial"), len(undecoded)
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, undecoded.size, undecoded.size, 3)}
    try:
        with open(unfinished, "wb") as out:
            np.lib.format.write_array_header_1_0(out, header)
            starts = range(0, count, CHUNK)
            for start in tqdm(starts, file.stem, unit="image", unit_scale=CHUNK, leave=False, delay=5):
                out.write(undecoded[start : start + CHUNK])
            out.flush()
            os.fsync(out.fileno())
        os.replace(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)
