"""The backbones and data that runs read, and their hashes; one interface to data sets of images and of texts.

    train, validation, test = inputs.load(root, "dtd", frozen)       # frozen: a Backbone, or an Encoder for texts
    batch = train.data(frozen, device)[:16]                           # as the frozen model reads it
    inputs.digest([train, validation, test])                          # "data_sha256" of result files

The store keeps the hash of data under the keys of its splits (`digest`): whether a run is done is known without
pixels. This process looks at each file once, and the last backbone and the last data stay loaded for the next run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import torch

from pvera import backbones, metrics, text_encoders
from pvera.backbones import Backbone
from pvera.data import glue, image_folders, store, tokenized, vtab
from pvera.text_encoders import Encoder

PARTS = ("train", "validation", "test")  # what a run reads, in this order


#: A split in memory or in the store: labels (n,) int64; key; content(), all that training and testing read.
Split = image_folders.ImageSplit | tokenized.TextSplit
#: A split on a device: labels (n,); `data[index]` is a batch as the frozen model reads it.
Data = image_folders.ImageData | tokenized.TextData


@dataclass(frozen=True)
class DataSet:
    """A data set below `root`; first: only that many samples of each split."""

    root: str | Path
    name: str
    first: int | None = None


class Images(DataSet):
    """A data set in folders of images, which backbones of timm read."""

    PACKAGE = "timm"
    scores = staticmethod(metrics.evaluate)

    @staticmethod
    def load_model(source: Source) -> Backbone:
        """Load the frozen model. InputError as `backbones.load`."""
        return backbones.load(source.backbone, weights=source.weights, image_size=source.image_size)

    @staticmethod
    def reading(frozen: Backbone) -> dict:
        """Return what the numbers read from a file depend on in the frozen model, as JSON."""
        return {"image_size": frozen.image_size}

    def key(self, part: str, reading: dict) -> str:
        """Return what a split depends on, files by size and times. InputError as `load`; nothing is decoded."""
        _, place = image_folders.listed(self.root, self.name, image_folders.SPLIT_OF[part], reading["image_size"])
        return place if self.first is None else f"{place}, first {self.first}"

    def load(self, part: str, frozen: Backbone) -> image_folders.ImageSplit:
        """Load one of `PARTS`. InputError as `image_folders.load_split`."""
        split = image_folders.load_split(self.root, self.name, image_folders.SPLIT_OF[part], frozen.image_size)
        return split if self.first is None else split.first(self.first)


class Texts(DataSet):
    """A task of texts, which encoders of transformers read; the methods are those of `Images`."""

    PACKAGE = "transformers"

    @staticmethod
    def scores(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Return `metrics.evaluate`, and Matthews' correlation coefficient, which GLUE reports for some tasks."""
        return metrics.evaluate(probabilities, labels) | {"matthews": metrics.matthews(probabilities, labels)}

    @staticmethod
    def load_model(source: Source) -> Encoder:
        return text_encoders.load(source.backbone, weights=source.weights)

    @staticmethod
    def reading(frozen: Encoder) -> dict:
        return {"max_length": frozen.max_length}

    def key(self, part: str, reading: dict) -> str:
        glue.load_split(self.root, self.name, part)  # InputError
        return tokenized.TextSplit.key

    def load(self, part: str, frozen: Encoder) -> tokenized.TextSplit:
        """Validation and test texts are ordered by length, so that their batches need little padding."""
        texts = glue.load_split(self.root, self.name, part)
        split = tokenized.encode(frozen, texts.take(range(len(texts))[: self.first]))
        return split if part == "train" else split.by_length()


@dataclass(frozen=True)
class Source:
    """The frozen model that a run reads: the kind of its data, its name, a file of its weights, and its images' size.

    None for the published weights, and for the size that the name has.
    """

    kind: type[Images] | type[Texts]
    backbone: str
    weights: str | None
    image_size: int | None


def source(run) -> Source:
    """Return the frozen model that a run reads."""
    return Source(kind(run.dataset), run.backbone, run.weights, run.image_size)


def kind(name: str) -> type[Images] | type[Texts]:
    """Return the kind of the data set `name`."""
    return Texts if name in glue.GLUE else Images


def load(
    root: str | Path, name: str, frozen: Backbone | Encoder, parts: Sequence[str] = PARTS, first: int | None = None
) -> tuple[Split, ...]:
    """Load `parts` of a data set below `root`. Images are decoded where the store lacks them.

    first: only that many samples of each split.
    InputError as `image_folders.load_split` and `glue.load_split`.
    """
    return tuple(kind(name)(root, name, first).load(part, frozen) for part in parts)


def keys(root: str | Path, name: str, reading: dict, parts: Sequence[str] = PARTS, first: int | None = None) -> list:
    """Return the keys of the splits that `load` loads. InputError for missing or wrong lists and missing images."""
    return [kind(name)(root, name, first).key(part, reading) for part in parts]


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
    return source.kind.load_model(source)


@cache
def _describe(source: Source) -> dict:
    frozen = _load_backbone(source)
    return {"weights_sha256": frozen.weights_sha256} | source.kind.reading(frozen)


@lru_cache(maxsize=1)
def _load_data(source: Source, root: str, names: tuple, parts: tuple, images: int | None) -> tuple[Split, ...]:
    frozen = _load_backbone(source)
    return tuple(split for name in names for split in load(root, name, frozen, parts, images))


@cache
def _sha256(source: Source, root: str, names: tuple, parts: tuple, images: int | None) -> str:
    known = store.recall([key for name in names for key in keys(root, name, _describe(source), parts, images)])
    return known or digest(_load_data(source, root, names, parts, images))
