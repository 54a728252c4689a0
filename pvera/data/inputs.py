"""The backbones and data that jobs read, and their hashes; one interface to images and texts.

    # frozen: a Backbone or a TextBackbone
    train, validation, test = inputs.load_splits(root, "dtd", frozen)
    # As the frozen model reads it.
    batch = train.data(frozen, device)[:16]
    # "data_sha256" of result files.
    inputs.splits_sha256([train, validation, test])

The last backbone and the last data stay loaded for the next source.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pvera import backbones, text_encoders
from pvera.backbones import Backbone
from pvera.data import glue, image_splits, split_files, store, tasks, vtab
from pvera.errors import InputError
from pvera.text_encoders import TextBackbone

#: What a training reads, in this order.
SPLITS = tuple(split_files.FILE_OF)

#: A split in memory or in the store.
Split = image_splits.ImageSplit | glue.TextSplit
#: A split on a device; `data[index]` is a batch as the frozen model reads it.
Data = image_splits.ImageData | glue.TextSplit


#: A backbone of images or of texts, whose weights do not change.
FrozenModel = Backbone | TextBackbone
#: Name of a backbone, file of its weights, and size of images (see `Source`).
ModelKey = tuple[str, str | None, int | None]


class DataKey(NamedTuple):
    """All that the loaded splits of some data sets depend on."""

    model: ModelKey
    root: str
    #: Names of the data sets.
    names: tuple[str, ...]
    splits: tuple[str, ...]
    images: int | None


@dataclass(frozen=True, kw_only=True)
class Source:
    """The backbone and data that a training or an analysis reads."""

    #: Name of the backbone.
    backbone: str
    #: A local file of its weights, instead of the published ones.
    weights: str | None = None
    #: Pixels of an image's side, instead of the backbone's own.
    image_size: int | None = None
    #: Folder of the data sets.
    data_root: str
    #: Name of the data set.
    dataset: str
    #: Number of images (texts) of each split that are used, the first ones; None for all.
    images: int | None = None

    @property
    def model_key(self) -> ModelKey:
        """All that the frozen model depends on."""
        return self.backbone, self.weights, self.image_size

    def data_key(self, names: tuple[str, ...] = (), splits: tuple[str, ...] = SPLITS) -> DataKey:
        """Return the key of splits of these data sets; by default of the source's own."""
        names = names or (self.dataset,)
        return DataKey(self.model_key, self.data_root, names, splits, self.images)


def load_splits(
    root: str | Path,
    name: str,
    frozen: FrozenModel,
    splits: Sequence[str] = SPLITS,
    first: int | None = None,
) -> list[Split]:
    """Load splits of a data set below `root`. Images are decoded where the store lacks them.

    Args:
        root: Folder of the data sets.
        name: The data set.
        frozen: The model that will read them.
        splits: Of `SPLITS`.
        first: Number of samples of each split; None for all.

    Raises:
        InputError: As `image_splits.load_split` and `glue.read_split`.
    """
    loaded: list[Split] = []
    for split in splits:
        if isinstance(frozen, TextBackbone):
            texts = glue.read_split(root, name, split)
            tokens = glue.tokenize(frozen, texts[:first])
            # Sorted by length, the batches of an evaluation need little padding.
            loaded.append(tokens if split == "train" else tokens.by_length())
        else:
            split_file = split_files.FILE_OF[split]
            images = image_splits.load_split(root, name, split_file, frozen.image_size)
            loaded.append(images if first is None else images.first(first))
    return loaded


def splits_sha256(splits: Sequence[Split]) -> str:
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
    return store.load_or_compute(keys, compute) if all(keys) else compute()


def load_for_job(key: DataKey, device: str) -> tuple[FrozenModel, list[Data]]:
    """Load what a job reads.

    Args:
        key: The `Source.data_key` of what it reads.
        device: Where to compute. All but test splits are loaded into its memory.

    Returns:
        The backbone, and the splits of the data sets in turn.
    """
    frozen = _load_backbone(*key.model)
    frozen.model.to(device)
    data = [
        split.data(frozen, torch.device(device), in_memory=name != "test")
        for name, split in _load_data(key)
    ]
    return frozen, data


@cache
def data_sha256(key: DataKey) -> str:
    """Return the hash of all that a job reads of the data which `load_for_job` returns."""
    return splits_sha256([split for _, split in _load_data(key)])


def provenance(root: str | Path, name: str) -> dict[str, Any]:
    """Return what a result file says of the origin of the data set `name` below `root`."""
    is_vtab = name in vtab.NAMES
    # Keys of a record; most data sets have the first alone.
    origin: dict[str, Any] = {"data_copy": vtab.copy_name(root, name) if is_vtab else None}
    accepted = vtab.read_accepted(root).get(name)
    if accepted:
        origin["data_differs"] = accepted
    manifest = tasks.read_manifest(root, name)
    if manifest:
        keys = ("split", "classes", "pictures_sha256")
        origin["own_data"] = {key: manifest[key] for key in keys}
    return origin


def check_inputs(sources: Iterable[Source], decode: bool = True) -> None:
    """Check weights, split files and images of jobs, before one of them starts.

    Data sets that an analysis tests besides its own are checked when it reads them.

    Args:
        sources: What the jobs read.
        decode: Whether to read every image too, which a cluster's login node leaves to the jobs.

    Raises:
        InputError: Something is missing or wrong.
    """
    # Many jobs read the same: each data set is checked once for each backbone.
    needed = dict.fromkeys((job.data_root, job.dataset, job.model_key) for job in sources)
    for root, name, _ in needed:
        vtab.require_vtab(root, name)
    copies = {vtab.copy_name(root, name) for root, name, _ in needed}
    if vtab.DIFFERS in copies and len(copies) > 1:
        raise InputError(
            "data sets of VTAB-1k and those that differ from it share no table: "
            "name those of one kind by --datasets"
        )
    for root, name, model in needed:
        frozen = _load_backbone(*model)
        if decode or isinstance(frozen, TextBackbone):
            load_splits(root, name, frozen)
        else:
            for file in split_files.SPLIT_FILES:
                image_splits.labels_and_key(root, name, file, frozen.image_size)


# The caches of size 1 hold large objects. Hashes and descriptions are small: all stay.


@lru_cache(maxsize=1)
def _load_backbone(name: str, weights: str | None, image_size: int | None) -> FrozenModel:
    if name in text_encoders.NAMES:
        return text_encoders.load(name, weights=weights)
    return backbones.load(name, weights=weights, image_size=image_size)


@cache
def describe_backbone(model: ModelKey) -> dict[str, str | int]:
    """Return `weights_sha256`, and `image_size` or `max_length`, of a backbone."""
    frozen = _load_backbone(*model)
    if isinstance(frozen, TextBackbone):
        return {"weights_sha256": frozen.weights_sha256, "max_length": frozen.max_length}
    return {"weights_sha256": frozen.weights_sha256, "image_size": frozen.image_size}


@lru_cache(maxsize=1)
def _load_data(key: DataKey) -> list[tuple[str, Split]]:
    """Return the splits of each data set in turn, with their names."""
    frozen = _load_backbone(*key.model)
    loaded: list[tuple[str, Split]] = []
    for name in key.names:
        vtab.require_vtab(key.root, name)
        parts = load_splits(key.root, name, frozen, key.splits, key.images)
        loaded += zip(key.splits, parts, strict=True)
    return loaded
