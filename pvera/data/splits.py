"""One interface to data sets of images and of texts: load splits, and return their digest without reading them.

    train, validation, test = splits.load(root, "dtd", frozen)       # frozen: a Backbone, or an Encoder for texts
    batch = train.data(frozen, device)[:16]                           # as the frozen model reads it
    splits.digest(root, "dtd", frozen)                                # "data_sha256" of result files

`image_folders` and `tokenized` are the two kinds of data.

A digest is remembered in the store with a stamp of the data. The stamp of an image data set holds the SHA-256 of its
split files, and size and times of each folder that holds images and of `SAMPLE` images of each split. The stamp of a
text task holds the SHA-256 of its files. The stamps of VTAB-1k's 19 data sets take 0.05 s; to parse the split files and
ask for the size and times of all 406 904 images takes 3 s on a local disk, and minutes on a slow network's.

A stamp notices every image that is added, removed, renamed or replaced by another file. It misses an image outside the
sample whose file is rewritten in place, until the split is next loaded: `load` looks at every image, and remembers the
digest of what it read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pvera import files
from pvera.backbones import Backbone
from pvera.data import glue, image_folders, store, tokenized
from pvera.errors import InputError
from pvera.processes import cores
from pvera.text_encoders import Encoder

PARTS = ("train", "validation", "test")  # what a run reads, in this order
SAMPLE = 64  # images of a split whose size and times its stamp holds


class Data(Protocol):
    """A split on a device. `data[index]` is a batch as the frozen model reads it; labels: (n,) on the device."""

    labels: Tensor
    evaluation_batch: int

    def __len__(self) -> int: ...

    def __getitem__(self, index) -> Tensor | dict[str, Tensor]: ...


class Split(Protocol):
    """A split in memory or in the store; labels: (n,) int64."""

    labels: np.ndarray

    def data(self, frozen: Backbone | Encoder, device: torch.device, in_memory: bool = True) -> Data:
        """Return the split for `device`; `in_memory` places all of it there, where that is a choice."""


class Kind(Protocol):
    """One kind of data: what `image_folders` and `tokenized` both have.

    MODELS: the module whose `load` and `weight_files` give frozen models that read such data.
    PACKAGE: the package that these models come from.
    SIDE_BY_SIDE: whether members share a pass, so that it pays to train several seeds at once.
    """

    MODELS: ModuleType
    PACKAGE: str
    SIDE_BY_SIDE: bool

    def reading(self, frozen: Backbone | Encoder) -> dict:
        """Return, as JSON, all that the numbers read from a file depend on in `frozen`."""

    def reader(self) -> str:
        """Return the version of the programs that read files."""

    def check(self, root: str | Path, name: str) -> None:
        """Raise InputError where a list of images, or a file of texts, is missing or wrong."""

    def sources(self, root: str | Path, name: str, part: str, first: int | None) -> tuple[list[Path], list[Path]]:
        """Return the files that list the split, and the files whose content is part of it."""

    def load_parts(
        self,
        root: str | Path,
        name: str,
        frozen: Backbone | Encoder,
        parts: Sequence[str],
        first: int | None,
        processes: int | None,
    ) -> tuple[Split, ...]:
        """Load `parts`, the first samples of each."""

    def digest(self, splits: Iterable[Split]) -> str:
        """Return the SHA-256 of all that training and testing read of the splits."""

    def scores(self, probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Return the test scores of class probabilities (n, classes) under labels (n,)."""


def kind(name: str) -> Kind:
    """Return the module for the kind of the data set `name`."""
    return tokenized if name in glue.TASKS else image_folders


def load(
    root: str | Path,
    names: str | Sequence[str],
    frozen: Backbone | Encoder,
    parts: Sequence[str] = PARTS,
    first: int | None = None,
) -> tuple[Split, ...]:
    """Load `parts` of a data set below `root`, or of each of several of one kind, and remember their digest.

    first: only that many samples of each split. Images are decoded where the store lacks them.
    InputError as `image_folders.load_split` and `tokenized.load_splits`.
    """
    return _load(root, _several(names), frozen, parts, first)[0]


def digest(
    root: str | Path,
    names: str | Sequence[str],
    frozen: Backbone | Encoder,
    parts: Sequence[str] = PARTS,
    first: int | None = None,
) -> str:
    """Return the SHA-256 of what `load` loads: the remembered one, else that of the splits, which are then loaded."""
    names = _several(names)
    known = remembered(root, names, kind(names[0]).reading(frozen), parts, first)
    return known or _load(root, names, frozen, parts, first)[1]


def remembered(
    root: str | Path,
    names: str | Sequence[str],
    reading: dict,
    parts: Sequence[str] = PARTS,
    first: int | None = None,
) -> str | None:
    """Return the digest without the frozen model; None where none is remembered or the data has changed.

    reading: `reading` of the frozen model, which can be remembered beside the hash of its weights.
    """
    try:
        record = json.loads(_memory(root, _several(names), reading, parts, first).read_text())
        whole, glimpsed = record["stamp"]
        unchanged = record["stamp"] == _stamp(whole, glimpsed)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record["digest"] if unchanged else None


def reading(name: str, frozen: Backbone | Encoder) -> dict:
    """Return, as JSON, what splits of the data set `name` depend on in `frozen`."""
    return kind(name).reading(frozen)


def check(root: str | Path, name: str) -> None:
    """Raise InputError where the data set's lists or files are missing or wrong. Decodes nothing."""
    kind(name).check(root, name)


def prepare(root: str | Path, name: str, frozen: Backbone | Encoder) -> str:
    """Decode all that runs on the data set read, with all cores, and return its digest. For scripts, as worker
    processes need a guarded main. InputError as `load`."""
    return _load(root, (name,), frozen, PARTS, None, cores())[1]


def _several(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _load(root, names, frozen, parts, first, processes=None) -> tuple[tuple[Split, ...], str]:
    root, module = os.path.abspath(root), kind(names[0])
    whole, glimpsed = [], []
    for name in names:
        for part in parts:
            lists, members = module.sources(root, name, part, first)
            whole += lists
            glimpsed += sorted({file.parent for file in members}) + _evenly(members)
    try:
        stamp = _stamp(map(str, whole), map(str, glimpsed))  # before the files are read: they may change meanwhile
    except (OSError, ValueError):
        stamp = None  # `load_parts` names what is missing
    splits = tuple(split for name in names for split in module.load_parts(root, name, frozen, parts, first, processes))
    record = {"stamp": stamp, "digest": module.digest(splits)}
    memory = _memory(root, names, module.reading(frozen), parts, first)
    with suppress(InputError):  # a store that cannot be written remembers nothing
        files.write_atomically(memory, json.dumps(record).encode())
    return splits, record["digest"]


def _memory(root, names, reading, parts, first) -> Path:
    """Return the place of the remembered digest."""
    about = {"root": os.path.abspath(root), "names": names, "parts": parts, "first": first, "reading": reading}
    key = files.digest(about | {"reader": kind(names[0]).reader()})
    return store.folder() / "stamps" / f"{names[0]}-{key[:32]}.json"


def _stamp(whole: Iterable[str], glimpsed: Iterable[str]) -> list[dict]:
    """Return the SHA-256 of the files `whole`, and size and times of the files and folders `glimpsed`."""
    states = {path: os.stat(path) for path in glimpsed}
    return [
        {path: files.sha256(path) for path in whole},
        {path: [state.st_size, state.st_mtime_ns, state.st_ctime_ns] for path, state in states.items()},
    ]


def _evenly(members: Sequence[Path]) -> list[Path]:
    """Return at most `SAMPLE` of the files, first and last among them, at equal distances."""
    places = np.linspace(0, len(members) - 1, min(SAMPLE, len(members)))
    return [members[place] for place in places.round().astype(int)]
