"""The backbones and data that jobs read, and their hashes; one interface to images and texts.

    train, validation, test = inputs.load(root, "dtd", frozen)   # frozen: a Backbone or an Encoder
    batch = train.data(frozen, device)[:16]                      # as the frozen model reads it
    inputs.digest([train, validation, test])                     # "data_sha256" of result files

The last backbone and the last data stay loaded for the next job.
"""

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from pvera import backbones, text_encoders
from pvera.backbones import Backbone
from pvera.data import glue, image_splits, split_files, store, vtab
from pvera.errors import InputError
from pvera.text_encoders import Encoder

#: What a training reads, in this order.
PARTS = ("train", "validation", "test")

#: A split in memory or in the store.
Split = image_splits.ImageSplit | glue.TextSplit
#: A split on a device; `data[part]` is a batch as the frozen model reads it.
Data = image_splits.ImageData | glue.TextData


class Job(Protocol):
    """What a training or an analysis says about the backbone and data that it reads."""

    @property
    def backbone(self) -> str:
        """Name of the backbone."""

    @property
    def weights(self) -> str | None:
        """File of its weights; None for the published ones."""

    @property
    def image_size(self) -> int | None:
        """Height and width of images; None for the backbone's own."""

    @property
    def data_root(self) -> str:
        """Folder of the data sets."""

    @property
    def dataset(self) -> str:
        """Name of the data set."""

    @property
    def images(self) -> int | None:
        """Number of samples of each split that are read; None for all."""


class _Model(NamedTuple):
    """A frozen model, as a job names it."""

    name: str
    weights: str | None
    image_size: int | None

    @classmethod
    def of(cls, job: Job) -> "_Model":
        return cls(job.backbone, job.weights, job.image_size)


def load(
    root: str | Path,
    name: str,
    frozen: Backbone | Encoder,
    parts: Sequence[str] = PARTS,
    first: int | None = None,
) -> tuple[Split, ...]:
    """Load parts of a data set below `root`. Images are decoded where the store lacks them.

    Args:
        root: Folder of the data sets.
        name: The data set.
        frozen: The model that will read them.
        parts: Of `PARTS`.
        first: Number of samples of each split; None for all.

    Raises:
        InputError: As `image_splits.load_split` and `glue.load_split`.
    """
    splits: list[Split] = []
    for part in parts:
        if isinstance(frozen, Encoder):
            texts = glue.load_split(root, name, part)
            tokens = glue.tokenize(frozen, texts[:first])
            # Sorted by length, the batches of an evaluation need little padding.
            splits.append(tokens if part == "train" else tokens.by_length())
        else:
            split_file = split_files.SPLIT_OF[part]
            images = image_splits.load_split(root, name, split_file, frozen.image_size)
            splits.append(images if first is None else images.first(first))
    return tuple(splits)


def digest(splits: Sequence[Split]) -> str:
    """Return the SHA-256 of all that training and testing read of the splits.

    The store keeps that of images.
    """

    def compute() -> str:
        sha256 = hashlib.sha256()
        for split in splits:
            for content in split.content():
                sha256.update(content)
        return sha256.hexdigest()

    # Splits that are not in the store have no key.
    keys = [split.key for split in splits]
    return store.cached(keys, compute) if all(keys) else compute()


def load_for_job(
    job: Job, device: str, names: tuple[str, ...] = (), parts: tuple[str, ...] = PARTS
) -> tuple[Backbone | Encoder, list[Data]]:
    """Load what a job reads.

    Args:
        job: The job.
        device: Where to compute. All but test splits are loaded into its memory.
        names: Data sets; by default the job's own.
        parts: Of `PARTS`, of each data set.

    Returns:
        The backbone, and the parts of the data sets in turn.
    """
    names = names or (job.dataset,)
    frozen = _load_backbone(*_Model.of(job))
    frozen.model.to(device)
    splits = _load_data(_Model.of(job), job.data_root, names, parts, job.images)
    data = []
    for split, part in zip(splits, parts * len(names), strict=True):
        data.append(split.data(frozen, torch.device(device), in_memory=part != "test"))
    return frozen, data


def data_sha256(job: Job, names: tuple[str, ...] = (), parts: tuple[str, ...] = PARTS) -> str:
    """Return the hash of all that a job reads of the data which `load_for_job` returns."""
    return _sha256(_Model.of(job), job.data_root, names or (job.dataset,), parts, job.images)


def describe_backbone(job: Job) -> dict[str, str | int]:
    """Return `weights_sha256`, and `image_size` or `max_length`, of the job's backbone."""
    return _describe(*_Model.of(job))


def prepare(jobs: Iterable[Job], decode: bool = True) -> None:
    """Check weights, split files and images that jobs read, before one of them starts.

    Args:
        jobs: The jobs.
        decode: Whether to read every image too, which a cluster's login node leaves to the jobs.

    Raises:
        InputError: Something is missing or wrong.
    """
    # Many jobs read the same: each data set is checked once for each backbone.
    needed = list(dict.fromkeys((job.data_root, job.dataset, _Model.of(job)) for job in jobs))
    for root, name, _ in needed:
        vtab.require(root, name)
    copies = {vtab.copy_name(root, name) for root, name, _ in needed}
    if vtab.DIFFERS in copies and len(copies) > 1:
        raise InputError(
            "data sets of VTAB-1k and those that differ from it share no table: "
            "name those of one kind by --datasets"
        )
    for root, name, model in needed:
        frozen = _load_backbone(*model)
        if decode or isinstance(frozen, Encoder):
            load(root, name, frozen)
        else:
            for split in split_files.SPLITS:
                image_splits.list_split(root, name, split, frozen.image_size)


# The caches of size 1 hold large objects. Hashes and descriptions are small: all stay.


@lru_cache(maxsize=1)
def _load_backbone(name: str, weights: str | None, image_size: int | None) -> Backbone | Encoder:
    if name in text_encoders.NAMES:
        return text_encoders.load(name, weights=weights)
    return backbones.load(name, weights=weights, image_size=image_size)


@cache
def _describe(*model) -> dict[str, str | int]:
    frozen = _load_backbone(*model)
    if isinstance(frozen, Encoder):
        return {"weights_sha256": frozen.weights_sha256, "max_length": frozen.max_length}
    return {"weights_sha256": frozen.weights_sha256, "image_size": frozen.image_size}


@lru_cache(maxsize=1)
def _load_data(
    model: _Model,
    root: str,
    names: tuple[str, ...],
    parts: tuple[str, ...],
    images: int | None,
) -> tuple[Split, ...]:
    frozen = _load_backbone(*model)
    for name in names:
        vtab.require(root, name)
    splits: list[Split] = []
    for name in names:
        splits += load(root, name, frozen, parts, images)
    return tuple(splits)


@cache
def _sha256(*data) -> str:
    return digest(_load_data(*data))
