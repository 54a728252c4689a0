"""One interface to data sets of images and of texts: load splits, and know their digest without reading them.

    train, validation, test = splits.load(root, "dtd", frozen)       # frozen: a Backbone, or an Encoder for texts
    batch = train.data(frozen, device)[:16]                           # as the frozen model reads it
    splits.digest([train, validation, test])                          # "data_sha256" of result files

`image_folders` and `tokenized` are the two kinds of data. Both have these names:

    MODELS, PACKAGE                        the module that loads frozen models for such data, and their package
    reading(frozen)                        what the numbers read from a file depend on in `frozen`, as JSON
    key(root, name, part, reading, first)  what a split of images depends on, files by size and times, "" for texts;
                                           InputError for wrong lists
    load_part(...)                         as `load`, of one split
    scores(probabilities, labels)          test scores of class probabilities (n, classes) under labels (n,)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType

from pvera.backbones import Backbone
from pvera.data import glue, image_folders, store, tokenized
from pvera.text_encoders import Encoder

PARTS = ("train", "validation", "test")  # what a run reads, in this order


#: A split in memory or in the store: labels (n,) int64; key; content(), all that training and testing read.
Split = image_folders.ImageSplit | tokenized.TextSplit
#: A split on a device: labels (n,); `data[index]` is a batch as the frozen model reads it.
Data = image_folders.ImageData | tokenized.TextData


def kind(name: str) -> ModuleType:
    """Return the module for the kind of the data set `name`."""
    return tokenized if name in glue.TASKS else image_folders


def load(
    root: str | Path, name: str, frozen: Backbone | Encoder, parts: Sequence[str] = PARTS, first: int | None = None
) -> tuple[Split, ...]:
    """Load `parts` of a data set below `root`. Images are decoded where the store lacks them.

    first: only that many samples of each split.
    InputError as `image_folders.load_split` and `glue.load_split`.
    """
    return tuple(kind(name).load_part(root, name, frozen, part, first) for part in parts)


def keys(root: str | Path, name: str, reading: dict, parts: Sequence[str] = PARTS, first: int | None = None) -> list:
    """Return the keys of the splits that `load` loads. InputError for missing or wrong lists and missing images."""
    return [kind(name).key(root, name, part, reading, first) for part in parts]


def digest(splits: Iterable[Split]) -> str:
    """Return the SHA-256 of all that training and testing read of the splits in turn; kept under their keys."""
    splits = tuple(splits)
    about = [split.key for split in splits]
    if all(about) and (known := store.recall(about)):
        return known
    content = hashlib.sha256()
    for split in splits:
        for part in split.content():
            content.update(part)
    return store.keep(about, content.hexdigest()) if all(about) else content.hexdigest()
