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
from itertools import cycle
from pathlib import Path
from typing import Any

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

    def data_key(self, names: tuple[str, ...], splits: tuple[str, ...]) -> tuple:
        """Return all that the splits of these data sets depend on; by default the source's own."""
        return self.model_key, self.data_root, names or (self.dataset,), splits, self.images


def load_splits(
    root: str | Path,
    name: str,
    frozen: FrozenModel,
    splits: Sequence[str] = SPLITS,
    first: int | None = None,
) -> tuple[Split, ...]:
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
    return tuple(loaded)


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


def load_for_job(
    source: Source, device: str, names: tuple[str, ...] = (), splits: tuple[str, ...] = SPLITS
) -> tuple[FrozenModel, list[Data]]:
    """Load what a job reads.

    Args:
        source: What it reads.
        device: Where to compute. All but test splits are loaded into its memory.
        names: Data sets; by default the job's own.
        splits: Of `SPLITS`, of each data set.

    Returns:
        The backbone, and the splits of the data sets in turn.
    """
    frozen = _load_backbone(*source.model_key)
    frozen.model.to(device)
    loaded = _load_data(*source.data_key(names, splits))
    data = []
    # `loaded` has the splits of each data set in turn.
    for part, split in zip(loaded, cycle(splits), strict=False):
        data.append(part.data(frozen, torch.device(device), in_memory=split != "test"))
    return frozen, data


def data_sha256(
    source: Source, names: tuple[str, ...] = (), splits: tuple[str, ...] = SPLITS
) -> str:
    """Return the hash of all that a job reads of the data which `load_for_job` returns."""
    return _sha256(*source.data_key(names, splits))


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


def prepare(sources: Iterable[Source], decode: bool = True) -> None:
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
        vtab.require(root, name)
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
def _load_data(
    model: ModelKey,
    root: str,
    names: tuple[str, ...],
    splits: tuple[str, ...],
    images: int | None,
) -> tuple[Split, ...]:
    frozen = _load_backbone(*model)
    for name in names:
        vtab.require(root, name)
    loaded: list[Split] = []
    for name in names:
        loaded += load_splits(root, name, frozen, splits, images)
    return tuple(loaded)


@cache
def _sha256(*data) -> str:
    return splits_sha256(_load_data(*data))
