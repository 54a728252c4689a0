"""The backbones and data that runs read, and their hashes; one interface to data sets of images and of texts.

    train, validation, test = inputs.load(root, "dtd", frozen)       # frozen: a Backbone, or an Encoder for texts
    batch = train.data(frozen, device)[:16]                           # as the frozen model reads it
    inputs.digest([train, validation, test])                          # "data_sha256" of result files

The last backbone and the last data stay loaded for the next run.
"""

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path

import torch

from pvera import backbones, text_encoders
from pvera.backbones import Backbone
from pvera.data import glue, image_splits, split_files, store, vtab
from pvera.errors import InputError
from pvera.text_encoders import Encoder

PARTS = ("train", "validation", "test")  # what a run reads, in this order


#: A split in memory or in the store: labels (n,) int64; key; content(), all that training and testing read.
Split = image_splits.ImageSplit | glue.TextSplit
#: A split on a device: labels (n,); `data[index]` is a batch as the frozen model reads it.
Data = image_splits.ImageData | glue.TextData


def load(
    root: str | Path,
    name: str,
    frozen: Backbone | Encoder,
    parts: Sequence[str] = PARTS,
    first: int | None = None,
) -> tuple[Split, ...]:
    """Load `parts` of a data set below `root`. Images are decoded where the store lacks them.

    first: only that many samples of each split.
    InputError as `image_splits.load_split` and `glue.load_split`.
    """
    splits: list[Split] = []
    for part in parts:
        if name in glue.GLUE:
            texts = glue.load_split(root, name, part)
            split = glue.tokenized(frozen, texts[:first])
            splits.append(
                split if part == "train" else split.by_length()
            )  # evaluation then needs little padding
        else:
            images = image_splits.load_split(
                root, name, split_files.SPLIT_OF[part], frozen.image_size
            )
            splits.append(images if first is None else images.first(first))
    return tuple(splits)


def digest(splits: Sequence[Split]) -> str:
    """Return the SHA-256 of all that training and testing read of the splits. The store keeps that of images."""

    def compute() -> str:
        content = hashlib.sha256()
        for split in splits:
            for part in split.content():
                content.update(part)
        return content.hexdigest()

    key = [split.key for split in splits]
    return store.cached(key, compute) if all(key) else compute()


def for_run(
    run, device: str, names: tuple = (), parts: tuple = PARTS
) -> tuple[Backbone | Encoder, list[Data]]:
    """Return the backbone on `device`, and `parts` of the data sets `names` for it, by default of the run's own."""
    names = names or (run.dataset,)
    frozen = _load_backbone(*_model(run))
    frozen.model.to(device)
    splits = zip(
        _load_data(_model(run), run.data_root, names, parts, run.images),
        parts * len(names),
        strict=True,
    )
    return frozen, [
        split.data(frozen, torch.device(device), in_memory=part != "test") for split, part in splits
    ]


def data_sha256(run, names: tuple = (), parts: tuple = PARTS) -> str:
    """Return the hash of all that a run reads of the data which `for_run` returns."""
    return _sha256(_model(run), run.data_root, names or (run.dataset,), parts, run.images)


def describe_backbone(run) -> dict:
    """Return `weights_sha256`, and `image_size` or `max_length`, of the run's backbone."""
    return _describe(*_model(run))


def prepare(runs: Iterable, decode: bool = True) -> None:
    """Raise InputError where weights, lists of images or images that the runs read are missing or wrong, before one
    of them trains.

    decode: every image is read too, which a cluster's login node leaves to the jobs.
    """
    read = dict.fromkeys((run.data_root, run.dataset, _model(run)) for run in runs)
    for root, name, _ in read:
        vtab.require(root, name)
    if {vtab.DIFFERS} < {vtab.copy_name(root, name) for root, name, _ in read}:
        raise InputError(
            "data sets of VTAB-1k and those that differ from it share no table: name those of one kind by --datasets"
        )
    for root, name, model in read:
        frozen = _load_backbone(*model)
        if decode or name in glue.GLUE:
            load(root, name, frozen)
        else:
            for split in split_files.SPLITS:
                image_splits.list_split(root, name, split, frozen.image_size)


def _model(run) -> tuple[str, str | None, int | None]:
    """Return name, file of weights and image size of the frozen model that a run reads: None for the published ones."""
    return run.backbone, run.weights, run.image_size


@lru_cache(maxsize=1)
def _load_backbone(name: str, weights: str | None, image_size: int | None) -> Backbone | Encoder:
    if name in text_encoders.NAMES:
        return text_encoders.load(name, weights=weights)
    return backbones.load(name, weights=weights, image_size=image_size)


@cache
def _describe(*model) -> dict:
    frozen = _load_backbone(*model)
    read = (
        {"max_length": frozen.max_length}
        if isinstance(frozen, Encoder)
        else {"image_size": frozen.image_size}
    )
    return {"weights_sha256": frozen.weights_sha256} | read


@lru_cache(maxsize=1)
def _load_data(
    model: tuple, root: str, names: tuple, parts: tuple, images: int | None
) -> tuple[Split, ...]:
    frozen = _load_backbone(*model)
    for name in names:
        vtab.require(root, name)
    return tuple(split for name in names for split in load(root, name, frozen, parts, images))


@cache
def _sha256(*data) -> str:
    return digest(_load_data(*data))
