"""The backbones and data that runs read, and their hashes; one interface to data sets of images and of texts.

    train, validation, test = inputs.load(root, "dtd", frozen)       # frozen: a Backbone, or an Encoder for texts
    batch = train.data(frozen, device)[:16]                           # as the frozen model reads it
    inputs.digest([train, validation, test])                          # "data_sha256" of result files

The store keeps the hash of data under the keys of its splits (`digest`): whether a run is done is known without
pixels. This process looks at each file once, and the last backbone and the last data stay loaded for the next run.

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
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType

import torch

from pvera.backbones import Backbone
from pvera.data import glue, image_folders, store, tokenized, vtab
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


def for_training(run, device: str) -> tuple[Backbone | Encoder, list[Data]]:
    """Return the backbone on `device`, and training, validation and test data for it."""
    return _placed(run, device, (run.dataset,), PARTS)


def for_analysis(run, device: str) -> tuple[Backbone | Encoder, dict[str, Data]]:
    """Return the backbone on `device`, and the test data of each data set on which an analysis is `tested`.

    One that is `fitted` also gets "<data set>/train" and "<data set>/validation".
    """
    frozen, tests = _placed(run, device, run.tested, ("test",))
    data = dict(zip(run.tested, tests, strict=True))
    if run.fitted:
        _, (train, validation, _) = for_training(run, device)
        data |= {f"{run.dataset}/train": train, f"{run.dataset}/validation": validation}
    return frozen, data


def describe_backbone(run) -> dict:
    """Return `weights_sha256`, and `image_size` or `max_length`, of the run's backbone."""
    weights_sha256, reading = _describe(*_weights(run))
    size = {name: value for name, value in reading.items() if name in ("image_size", "max_length")}
    return {"weights_sha256": weights_sha256} | size


def splits_sha256(run) -> str:
    """Return the hash of all that training and testing read of the run's data set."""
    return _sha256(run.data_root, (run.dataset,), PARTS, run.images, *_weights(run))


def tests_sha256(run) -> str:
    """Return the hash of what an analysis reads of the data sets on which it is `tested`."""
    return _sha256(run.data_root, run.tested, ("test",), run.images, *_weights(run))


def prepare(runs: Iterable, decode: bool = True) -> None:
    """Raise InputError where weights, lists of images or images that the runs read are missing or wrong, before one
    of them trains.

    decode: every image is read too, which a cluster's login node leaves to the jobs.
    """
    runs = list(runs)
    for root, name in dict.fromkeys((run.data_root, run.dataset) for run in runs):
        if name in vtab.NAMES:
            vtab.require(root, name)
    for run in {(*_weights(run), run.data_root, run.dataset): run for run in runs}.values():
        frozen = _load_backbone(*_weights(run))
        if decode:
            digest(load(run.data_root, run.dataset, frozen))
        else:
            keys(run.data_root, run.dataset, kind(run.dataset).reading(frozen))


def _weights(run) -> tuple[ModuleType, str, str | None]:
    return kind(run.dataset), run.backbone, run.weights


@lru_cache(maxsize=1)
def _load_backbone(kind: ModuleType, name: str, weights: str | None) -> Backbone | Encoder:
    return kind.MODELS.load(name, weights=weights)


@cache
def _describe(kind: ModuleType, name: str, weights: str | None) -> tuple[str, dict]:
    """Return the hash of the weights, and what data depends on in the frozen model."""
    frozen = _load_backbone(kind, name, weights)
    return frozen.weights_sha256, kind.reading(frozen)


@lru_cache(maxsize=1)
def _load_data(root: str, names: tuple, parts: tuple, images: int | None, *weights) -> tuple[Split, ...]:
    frozen = _load_backbone(*weights)
    return tuple(split for name in names for split in load(root, name, frozen, parts, images))


@cache
def _sha256(root: str, names: tuple, parts: tuple, images: int | None, *weights) -> str:
    _, reading = _describe(*weights)
    about = [key for name in names for key in keys(root, name, reading, parts, images)]
    return store.recall(about) or digest(_load_data(root, names, parts, images, *weights))


def _placed(run, device: str, names: tuple[str, ...], parts: tuple[str, ...]) -> tuple:
    frozen = _load_backbone(*_weights(run))
    frozen.model.to(device)
    loaded, of_each = _load_data(run.data_root, names, parts, run.images, *_weights(run)), parts * len(names)
    return frozen, [
        split.data(frozen, torch.device(device), in_memory=part != "test")
        for split, part in zip(loaded, of_each, strict=True)
    ]
