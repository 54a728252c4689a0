"""The backbones and data that runs read, and their hashes.

The store keeps the hash of data under the keys of its splits (`splits.digest`): whether a run is done is known without
pixels. This process looks at each file once, and the last backbone and the last data stay loaded for the next run.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from types import ModuleType

import torch

from pvera.backbones import Backbone
from pvera.data import splits, store, vtab
from pvera.text_encoders import Encoder


def for_training(run, device: str) -> tuple[Backbone | Encoder, list[splits.Data]]:
    """Return the backbone on `device`, and training, validation and test data for it."""
    return _placed(run, device, (run.dataset,), splits.PARTS)


def for_analysis(run, device: str) -> tuple[Backbone | Encoder, dict[str, splits.Data]]:
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
    return _sha256(run.data_root, (run.dataset,), splits.PARTS, run.images, *_weights(run))


def tests_sha256(run) -> str:
    """Return the hash of what an analysis reads of the data sets on which it is `tested`."""
    return _sha256(run.data_root, run.tested, ("test",), run.images, *_weights(run))


def prepare(runs: Iterable, decode: bool = True) -> None:
    """Raise InputError where weights, lists of images or images that the runs read are missing or wrong, before one
    of them trains.

    decode: every image is read too, which a cluster's login node leaves to the jobs.
    """
    runs = list(runs)
    vtab.require((run.data_root, run.dataset) for run in runs)
    for run in {(*_weights(run), run.data_root, run.dataset): run for run in runs}.values():
        frozen = _load_backbone(*_weights(run))
        if decode:
            splits.digest(splits.load(run.data_root, run.dataset, frozen))
        else:
            splits.keys(run.data_root, run.dataset, splits.kind(run.dataset).reading(frozen))


def _weights(run) -> tuple[ModuleType, str, str | None]:
    return splits.kind(run.dataset), run.backbone, run.weights


@lru_cache(maxsize=1)
def _load_backbone(kind: ModuleType, name: str, weights: str | None) -> Backbone | Encoder:
    return kind.MODELS.load(name, weights=weights)


@cache
def _describe(kind: ModuleType, name: str, weights: str | None) -> tuple[str, dict]:
    """Return the hash of the weights, and what data depends on in the frozen model."""
    frozen = _load_backbone(kind, name, weights)
    return frozen.weights_sha256, kind.reading(frozen)


@lru_cache(maxsize=1)
def _load_data(root: str, names: tuple, parts: tuple, images: int | None, *weights) -> tuple[splits.Split, ...]:
    frozen = _load_backbone(*weights)
    return tuple(split for name in names for split in splits.load(root, name, frozen, parts, images))


@cache
def _sha256(root: str, names: tuple, parts: tuple, images: int | None, *weights) -> str:
    _, reading = _describe(*weights)
    keys = [key for name in names for key in splits.keys(root, name, reading, parts, images)]
    return store.recall(keys) or splits.digest(_load_data(root, names, parts, images, *weights))


def _placed(run, device: str, names: tuple[str, ...], parts: tuple[str, ...]) -> tuple:
    frozen = _load_backbone(*_weights(run))
    frozen.model.to(device)
    loaded, of_each = _load_data(run.data_root, names, parts, run.images, *_weights(run)), parts * len(names)
    return frozen, [
        split.data(frozen, torch.device(device), in_memory=part != "test")
        for split, part in zip(loaded, of_each, strict=True)
    ]
