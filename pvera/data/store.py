"""Decoded images on disk: each split is decoded and resized once, then memory-mapped.

    <cache>/store/<data set>-<hash of its folder>/<split>-<size>-<key>.npy    (N, size, size, 3) uint8

`<cache>` is the environment variable PVERA_CACHE, or .cache/pvera in the checkout (without one, in the home
folder). The key is a hash of everything that the pixels depend on, so a file of that name needs no further check. A
file gets its name when all of it is on the disk. VTAB-1k at 224 pixels takes 61 GB.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from tqdm import tqdm

from pvera.errors import InputError
from pvera.files import write_atomically
from pvera.processes import context, cores, follow_parent

VARIABLE = "PVERA_CACHE"
CHUNK = 32  # images that a worker decodes before it writes them: 5 MB at 224 pixels
REFUSED = 10  # images that an error names
FEW = 2000  # images that are decoded before worker processes have started, and without a bar


def folder() -> Path:
    """Return the store's folder."""
    checkout = Path(__file__).resolve().parents[2]
    default = (checkout if (checkout / "pyproject.toml").exists() else Path.home()) / ".cache" / "pvera"
    return Path(os.environ.get(VARIABLE) or default) / "store"


def clear() -> int:
    """Remove the store, and return the number of bytes freed."""
    freed = sum(file.stat().st_size for file in folder().rglob("*") if file.is_file())
    with _storing():
        if folder().exists():
            shutil.rmtree(folder())
    return freed


def images(
    place: str,
    split: str,
    key: str,
    names: Sequence[str],
    size: int,
    decode: Callable[[str], np.ndarray],
    threads: int | None = None,
    processes: int | None = None,
) -> np.memmap:
    """Return the images `names` as a read-only map (N, size, size, 3); decode them where the store lacks `key`.

    decode: name -> (size, size, 3) uint8, by `threads` threads (default: one per core), or many images by
    `processes` processes. Files of this split and size under another key are removed, also those that a killed
    process left unfinished.
    InputError with what `decode` says of the first `REFUSED` images that cannot be read, and where the store cannot be
    written; no half-written file is left.
    """
    file = folder() / place / f"{split}-{size}-{key}.npy"
    shape, title = (len(names), size, size, 3), f"{place.rpartition('-')[0]} {split}"
    decoded = _open(file, shape)
    if decoded is None:
        with _storing():
            file.parent.mkdir(parents=True, exist_ok=True)
            with _locked(file.with_name(f"{split}-{size}.lock"), title):
                decoded = _open(file, shape)  # another process may have made it meanwhile
                if decoded is None:
                    _make(file, shape, names, decode, title, threads, processes)
                    for outdated in set(file.parent.glob(f"{split}-{size}-*")) - {file}:
                        outdated.unlink()
                    decoded = _open(file, shape)
    return decoded


def read(images: np.ndarray, part: slice) -> np.ndarray:
    """Copy some images. The pages of a map leave this process's memory: a whole test split has up to 11 GB."""
    pixels = images[part].copy()
    if isinstance(images.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        images.base.madvise(mmap.MADV_DONTNEED)
    return np.asarray(pixels)


def remembered(key: str, digest: Callable[[], str]) -> str:
    """Return the SHA-256 that the store keeps under `key`; compute and keep it where the store has none."""
    file = folder() / "digests" / key
    with suppress(OSError):
        if re.fullmatch("[0-9a-f]{64}", kept := file.read_text()):
            return kept
    computed = digest()
    with suppress(InputError):  # a store that cannot be written remembers nothing
        write_atomically(file, computed.encode())
    return computed


def _open(file: Path, shape: tuple[int, ...]) -> np.memmap | None:
    """Open the map; None where there is no complete one."""
    try:
        images = np.lib.format.open_memmap(file, mode="r")
    except (OSError, ValueError):
        return None
    return images if images.shape == shape and images.dtype == np.uint8 else None


def _make(file, shape, names, decode, title, threads, processes) -> None:
    needed, free = int(np.prod(shape)), shutil.disk_usage(file.parent).free
    if needed > free:
        raise InputError(
            f"{title} takes {needed / 1e9:.1f} GB decoded, and {free / 1e9:.1f} GB are free in {folder()}; "
            f"{VARIABLE} or --cache names another folder"
        )
    unfinished = file.with_suffix(".partial")
    try:
        with open(unfinished, "wb") as header:
            description = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(header, description)
            offset = header.tell()
        work = partial(_decode_into, unfinished, offset, decode)
        starts = range(0, len(names), CHUNK)
        chunks = (names[start : start + CHUNK] for start in starts)
        few = len(names) <= FEW
        bar = tqdm(total=len(names), desc=title, unit="image", leave=False, disable=few)
        refused: list[str] = []
        with bar, _pool(threads, None if few else processes) as pool:
            for done, refusals in pool.map(work, chunks, starts):
                bar.update(done)
                refused += refusals
        if refused:
            more = f"; and {len(refused) - REFUSED} more" if len(refused) > REFUSED else ""
            raise InputError("; ".join(refused[:REFUSED]) + more)
        with open(unfinished, "r+b") as whole:
            os.fsync(whole.fileno())
        os.replace(unfinished, file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _decode_into(file: Path, offset: int, decode, names: Sequence[str], start: int) -> tuple[int, list[str]]:
    """Write the images `names` to the places from `start` on; return their number, and why some cannot be read."""
    decoded, refused = [], []
    for name in names:
        try:
            decoded.append(decode(name))
        except InputError as error:
            refused.append(str(error))
    if not refused:
        pixels = np.stack(decoded)
        with open(file, "r+b") as out:  # not a map, which a full disk would end with a signal
            out.seek(offset + start * pixels[0].size)
            out.write(pixels)
    return len(names), refused


def _pool(threads: int | None, processes: int | None) -> Executor:
    """Return workers: threads, or processes where given.

    Pillow decodes and resizes without Python's lock, so threads suffice on a few cores. On many cores, small images
    need processes: what Pillow does between decoding and resizing holds the lock.
    """
    if processes:
        return ProcessPoolExecutor(processes, context(__name__), follow_parent)
    return ThreadPoolExecutor(threads or cores())


@contextmanager
def _locked(file: Path, title: str) -> Iterator[None]:
    lock = FileLock(file)
    try:
        lock.acquire(timeout=2)
    except Timeout:
        print(f"{title}: waiting for another process that decodes it", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _storing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write decoded images to {folder()}: {error.strerror or error}; {VARIABLE} or --cache "
            "names another folder"
        ) from None
