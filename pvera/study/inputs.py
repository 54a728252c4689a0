"""The backbones and data that runs read, and their hashes.

The store keeps the hash of weights under their files (path, size and times), and that of data under the keys of its
splits. So whether a run is done is known without weights or pixels. This process looks at each file once, until
`forget`; the last backbone and the last data stay loaded for the next run that reads them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType

import torch

from pvera.backbones import Backbone
from pvera.data import splits, store, vtab
from pvera.text_encoders import Encoder

#: Hashes of data, by the arguments of `_load_data`.
_hashes: dict[tuple, str] = {}
#: Which copy of its data set a run reads, None where that cannot be told.
_copy_name = cache(vtab.copy_name)


def forget() -> None:
    """Look at weights and data anew, as another process would."""
    _hashes.clear()
    for cached in (_copy_name, _describe, _load_backbone, _load_data):
        cached.cache_clear()


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
    described = _describe(*_weights(run))
    size = {name: value for name, value in described["reading"].items() if name in ("image_size", "max_length")}
    return {"weights_sha256": described["weights_sha256"]} | size


def splits_sha256(run) -> str:
    """Return the hash of all that training and testing read of the run's data set."""
    return _sha256(run, (run.dataset,), splits.PARTS)


def tests_sha256(run) -> str:
    """Return the hash of what an analysis reads of the data sets on which it is `tested`."""
    return _sha256(run, run.tested, ("test",))


def copy_name(run) -> str | None:
    """Return which copy of its data set the run reads, None where that cannot be told."""
    return _copy_name(run.data_root, run.dataset)


def _weights(run) -> tuple[ModuleType, str, str | None]:
    return splits.kind(run.dataset), run.backbone, run.weights


@lru_cache(maxsize=1)
def _load_backbone(kind: ModuleType, name: str, weights: str | None) -> Backbone | Encoder:
    return kind.MODELS.load(name, weights=weights)


@cache
def _describe(kind: ModuleType, name: str, weights: str | None) -> dict:
    """Return the hash of the weights, and what data depends on in the frozen model.

    Both depend on the files, by size and times, and on the packages that read them.
    """
    files, packages = [], [each for each in ("torch", kind.PACKAGE) if importlib.util.find_spec(each) is not None]
    with suppress(OSError, ValueError):  # a file is missing: it has to be downloaded
        files = [(str(Path(file).absolute()), store.state(file)) for file in kind.MODELS.weight_files(name, weights)]
    about = [name, files, [importlib.metadata.version(each) for each in packages]]
    if files and (known := store.recall(about)):
        return known
    frozen = _load_backbone(kind, name, weights)
    described = {"weights_sha256": frozen.weights_sha256, "reading": kind.reading(frozen)}
    return store.keep(about, described) if files else described


@lru_cache(maxsize=1)
def _load_data(root: str, names: tuple, parts: tuple, images: int | None, *weights) -> tuple[splits.Split, ...]:
    frozen = _load_backbone(*weights)
    of_names = [splits.load(root, name, frozen, parts, images) for name in names]
    loaded = tuple(split for of_name in of_names for split in of_name)
    _hashes[(root, names, parts, images, *weights)] = splits.digest(loaded)
    return loaded


def _placed(run, device: str, names: tuple[str, ...], parts: tuple[str, ...]) -> tuple:
    frozen = _load_backbone(*_weights(run))
    frozen.model.to(device)
    loaded, of_each = _load_data(run.data_root, names, parts, run.images, *_weights(run)), parts * len(names)
    return frozen, [
        split.data(frozen, torch.device(device), in_memory=part != "test")
        for split, part in zip(loaded, of_each, strict=True)
    ]


def _sha256(run, names: tuple[str, ...], parts: tuple[str, ...]) -> str:
    data = (run.data_root, names, parts, run.images, *_weights(run))
    if data not in _hashes:
        reading = _describe(*_weights(run))["reading"]
        keys = [key for name in names for key in splits.keys(run.data_root, name, reading, parts, run.images)]
        if known := store.recall(keys):
            _hashes[data] = known
        else:
            _load_data(*data)
    return _hashes[data]


def prepare(runs: Iterable) -> None:
    """Check and decode what the runs read, so that wrong and damaged data is found before any of them trains."""
    for run in _each_data(runs):
        splits.digest(splits.load(run.data_root, run.dataset, _load_backbone(*_weights(run))))


def require(runs: Iterable) -> None:
    """Raise InputError where weights, lists of images or images that the runs read are missing or wrong.

    Nothing is decoded, but weights are downloaded: what executes the runs may be unable to.
    """
    for run in _each_data(runs):
        splits.keys(run.data_root, run.dataset, splits.kind(run.dataset).reading(_load_backbone(*_weights(run))))


def _each_data(runs: Iterable) -> Iterator:
    """Yield one run for each pair of backbone and data set. InputError as `vtab.require`."""
    runs = list(runs)
    vtab.require((run.data_root, run.dataset) for run in runs)
    yield from {(*_weights(run), run.data_root, run.dataset): run for run in runs}.values()
