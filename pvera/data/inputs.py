"""The backbones and data that runs read, and their hashes; one interface to data sets of images and of texts.

    train, validation, test = inputs.load(root, "dtd", frozen)       # frozen: a Backbone, or an Encoder for texts
    batch = train.data(frozen, device)[:16]                           # as the frozen model reads it
    inputs.digest([train, validation, test])                          # "data_sha256" of result files

The store keeps the hash of data under the keys of its splits, so whether a run is done is known without pixels. The
last backbone and the last data stay loaded for the next run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from pvera import backbones, metrics, text_encoders
from pvera.backbones import Backbone
from pvera.data import glue, image_folders, store, vtab
from pvera.text_encoders import Encoder

PARTS = ("train", "validation", "test")  # what a run reads, in this order


#: A split in memory or in the store: labels (n,) int64; key; content(), all that training and testing read.
Split = image_folders.ImageSplit | glue.TextSplit
#: A split on a device: labels (n,); `data[index]` is a batch as the frozen model reads it.
Data = image_folders.ImageData | glue.TextData


class Kind(NamedTuple):
    """The metrics of a data set's predictions, and the package whose models read it."""

    scores: Callable[[np.ndarray, np.ndarray], dict]
    PACKAGE: str


def _text_scores(probabilities: np.ndarray, labels: np.ndarray) -> dict:
    """Return `metrics.evaluate`, and Matthews' correlation coefficient, which GLUE reports for some tasks."""
    return metrics.evaluate(probabilities, labels) | {"matthews": metrics.matthews(probabilities, labels)}


IMAGES, TEXTS = Kind(metrics.evaluate, "timm"), Kind(_text_scores, "transformers")


def kind(name: str) -> Kind:
    """Return the kind of the data set `name`."""
    return TEXTS if name in glue.GLUE else IMAGES


class Source(NamedTuple):
    """The frozen model that a run reads: whether it reads text, its name, a file of its weights, and its images' size.

    None for the published weights, and for the size that the name has.
    """

    text: bool
    backbone: str
    weights: str | None
    image_size: int | None


def source(run) -> Source:
    """Return the frozen model that a run reads."""
    return Source(run.dataset in glue.GLUE, run.backbone, run.weights, run.image_size)


def load(
    root: str | Path, name: str, frozen: Backbone | Encoder, parts: Sequence[str] = PARTS, first: int | None = None
) -> tuple[Split, ...]:
    """Load `parts` of a data set below `root`. Images are decoded where the store lacks them.

    first: only that many samples of each split.
    InputError as `image_folders.load_split` and `glue.load_split`.
    """
    load_one = _load_texts if name in glue.GLUE else _load_images
    return tuple(load_one(root, name, part, frozen, first) for part in parts)


def _load_images(root: str | Path, name: str, part: str, frozen: Backbone, first: int | None) -> Split:
    split = image_folders.load_split(root, name, image_folders.SPLIT_OF[part], frozen.image_size)
    return split if first is None else split.first(first)


def _load_texts(root: str | Path, name: str, part: str, frozen: Encoder, first: int | None) -> Split:
    """Load validation and test texts in order of length, so that their batches need little padding."""
    texts = glue.load_split(root, name, part)
    split = glue.tokenized(frozen, texts.take(range(len(texts))[:first]))
    return split if part == "train" else split.by_length()


def keys(root: str | Path, name: str, reading: dict, parts: Sequence[str] = PARTS, first: int | None = None) -> list:
    """Return the keys of the splits that `load` loads: what they depend on, files by size and times.

    reading: what the numbers read from a file depend on in the frozen model (`describe_backbone`).
    InputError for missing or wrong lists and missing images. Nothing is decoded.
    """
    if name in glue.GLUE:
        for part in parts:
            glue.load_split(root, name, part)
        return [glue.TextSplit.key] * len(parts)
    splits = [image_folders.SPLIT_OF[part] for part in parts]
    places = [image_folders.listed(root, name, split, reading["image_size"])[1] for split in splits]
    return places if first is None else [f"{place}, first {first}" for place in places]


def digest(splits: Iterable[Split]) -> str:
    """Return the SHA-256 of all that training and testing read of the splits in turn; kept under their keys."""
    splits = tuple(splits)
    key = [split.key for split in splits]
    if all(key) and (known := store.recall(key)):
        return known
    content = hashlib.sha256()
    for split in splits:
        for part in split.content():
            content.update(part)
    return store.keep(key, content.hexdigest()) if all(key) else content.hexdigest()


def for_run(run, device: str, names: tuple = (), parts: tuple = PARTS) -> tuple[Backbone | Encoder, list[Data]]:
    """Return the backbone on `device`, and `parts` of the data sets `names` for it, by default of the run's own."""
    names = names or (run.dataset,)
    frozen = _load_backbone(source(run))
    frozen.model.to(device)
    splits = zip(_load_data(source(run), run.data_root, names, parts, run.images), parts * len(names), strict=True)
    return frozen, [split.data(frozen, torch.device(device), in_memory=part != "test") for split, part in splits]


def data_sha256(run, names: tuple = (), parts: tuple = PARTS) -> str:
    """Return the hash of all that a run reads of the data which `for_run` returns."""
    return _sha256(source(run), run.data_root, names or (run.dataset,), parts, run.images)


def describe_backbone(run) -> dict:
    """Return `weights_sha256`, and `image_size` or `max_length`, of the run's backbone."""
    return _describe(source(run))


def prepare(runs: Iterable, decode: bool = True) -> None:
    """Raise InputError where weights, lists of images or images that the runs read are missing or wrong, before one
    of them trains.

    decode: every image is read too, which a cluster's login node leaves to the jobs.
    """
    runs = list(runs)
    for root, name in dict.fromkeys((run.data_root, run.dataset) for run in runs):
        if name in vtab.NAMES:
            vtab.require(root, name)
    for model, root, name in dict.fromkeys((source(run), run.data_root, run.dataset) for run in runs):
        if decode:
            digest(load(root, name, _load_backbone(model)))
        else:
            keys(root, name, _describe(model))


@lru_cache(maxsize=1)
def _load_backbone(source: Source) -> Backbone | Encoder:
    if source.text:
        return text_encoders.load(source.backbone, weights=source.weights)
    return backbones.load(source.backbone, weights=source.weights, image_size=source.image_size)


@cache
def _describe(source: Source) -> dict:
    frozen = _load_backbone(source)
    read = {"max_length": frozen.max_length} if source.text else {"image_size": frozen.image_size}
    return {"weights_sha256": frozen.weights_sha256} | read


@lru_cache(maxsize=1)
def _load_data(source: Source, root: str, names: tuple, parts: tuple, images: int | None) -> tuple[Split, ...]:
    frozen = _load_backbone(source)
    return tuple(split for name in names for split in load(root, name, frozen, parts, images))


@cache
def _sha256(source: Source, root: str, names: tuple, parts: tuple, images: int | None) -> str:
    known = store.recall([key for name in names for key in keys(root, name, _describe(source), parts, images)])
    return known or digest(_load_data(source, root, names, parts, images))
