"""Data sets in VTAB-1k's folder format, read into memory as uint8 arrays.

`<root>/<data set>/{train800,val200,train800val200,test}.txt` hold lines "relative/path label"; the images lie
below `<root>/<data set>/`.
"""
from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from . import suite
from .errors import InputError

SPLITS = ("train800", "val200", "train800val200", "test")


@dataclass(frozen=True)
class Task:
    """One data set: its folder, its title and category in the paper's tables, and its size."""

    name: str
    title: str
    category: str  # "natural", "specialized" or "structured"
    classes: int
    test_images: int
    suite: str  # "vtab" or "demo"


# The 19 data sets of the paper, in its order; counts as the test files in circulation hold them.
_VTAB = (
    ("caltech101", "Caltech101", "natural", 102, 6084),
    ("cifar", "CIFAR-100", "natural", 100, 10000),
    ("dtd", "DTD", "natural", 47, 1880),
    ("oxford_flowers102", "Flowers102", "natural", 102, 6149),
    ("oxford_iiit_pet", "Pets", "natural", 37, 3669),
    ("sun397", "Sun397", "natural", 397, 21750),
    ("svhn", "SVHN", "natural", 10, 26032),
    ("patch_camelyon", "Camelyon", "specialized", 2, 32768),
    ("eurosat", "EuroSAT", "specialized", 10, 5400),
    ("resisc45", "Resisc45", "specialized", 45, 6300),
    ("diabetic_retinopathy", "Retinopathy", "specialized", 5, 42670),
    ("clevr_count", "Clevr-Count", "structured", 8, 15000),
    ("clevr_dist", "Clevr-Dist", "structured", 6, 15000),
    ("dmlab", "DMLab", "structured", 6, 22735),
    ("dsprites_loc", "dSpr-Loc", "structured", 16, 73728),
    ("dsprites_ori", "dSpr-Ori", "structured", 16, 73728),
    ("kitti", "KITTI-Dist", "structured", 4, 711),
    ("smallnorb_azi", "sNORB-Azim", "structured", 18, 12150),
    ("smallnorb_ele", "sNORB-Elev", "structured", 9, 12150),
)

TASKS = {row[0]: Task(*row, suite="vtab") for row in _VTAB} | {
    r.name: Task(r.name, r.title, r.category, len(r.classes), suite.COUNTS["test"], suite="demo")
    for r in suite.RECIPES.values()
}


def task(name: str) -> Task:
    """The data set of that name. InputError lists the names that exist."""
    if name not in TASKS:
        raise InputError(f"unknown data set {name!r}; choose from {', '.join(TASKS)}")
    return TASKS[name]


@dataclass(frozen=True)
class Split:
    """images (N, size, size, 3) uint8, labels (N,) int64 and N relative paths, in the split file's order."""

    images: np.ndarray
    labels: np.ndarray
    names: list[str]


def read_split_file(folder: Path, split: str, classes: int) -> list[tuple[str, int]]:
    """The (relative path, label) of each line of `<folder>/<split>.txt`; InputError names a wrong line."""
    if split not in SPLITS:
        raise InputError(f"unknown split {split!r}; choose from {', '.join(SPLITS)}")
    file = folder / f"{split}.txt"
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except FileNotFoundError:
        raise InputError(f"{file} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from None

    entries = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        match = re.fullmatch(r"\s*(\S.*?)\s+([+-]?[0-9]{1,18})\s*", line)
        if match is None:
            raise InputError(f"{file}, line {number}: expected 'relative/path label', not {line[:80]!r}")
        path, label = match[1], int(match[2])
        if not 0 <= label < classes:
            raise InputError(f"{file}, line {number}: label {label} is not one of {classes} classes from 0")
        if os.path.isabs(path) or os.path.normpath(path).split(os.sep)[0] == os.pardir:
            raise InputError(f"{file}, line {number}: {path!r} leaves the data set's folder")
        entries.append((path, label))
    if not entries:
        raise InputError(f"{file} is empty")
    return entries


def decode(folder: Path, path: str, size: int) -> np.ndarray:
    """One image as (size, size, 3) uint8: RGB, resized bilinearly without keeping its aspect ratio."""
    file = folder / path
    try:
        with Image.open(file) as image:
            image = image.convert("RGB")
    except FileNotFoundError:
        raise InputError(f"image {file} does not exist") from None
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"image {file} cannot be read: {reason}") from None
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image)


def load_split(root: str | Path, name: str, split: str, size: int, threads: int | None = None) -> Split:
    """Read one split of the data set `name` below `root`, decoding with `threads` threads (one per core).

    Raises InputError for an unknown data set or split, a missing or empty split file, a malformed line, a
    label out of range, a path that leaves the folder, and a missing or unreadable image.
    """
    folder = Path(root) / task(name).name
    entries = read_split_file(folder, split, task(name).classes)
    names = [path for path, _ in entries]
    images = np.empty((len(entries), size, size, 3), np.uint8)
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        decoded = pool.map(partial(decode, folder, size=size), names)
        few = len(names) <= 2000
        for i, image in enumerate(tqdm(decoded, f"{name} {split}", len(names), leave=False, disable=few)):
            images[i] = image
    return Split(images, np.array([label for _, label in entries], np.int64), names)
