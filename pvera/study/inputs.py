"""The backbones and data that runs read, and their hashes.

The store keeps the hash of weights under their files (path, size and times), and that of data under the keys of its
splits. So whether a run is done is known without weights or pixels.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from pvera.backbones import Backbone
from pvera.data import custom, splits, store, vtab
from pvera.text_encoders import Encoder


class Inputs:
    """The inputs of runs. The last backbone and the last data stay loaded for the next run that reads them.

    A run is asked for its state, or executed, with one of these; whoever treats many runs hands all of them the same.
    """

    def __init__(self):
        self._loaded: dict[str, tuple[Hashable, Any]] = {}
        self._known: dict[Hashable, Any] = {}

    def backbone(self, run) -> Backbone | Encoder:
        """Load the run's frozen backbone. InputError as the loaders."""
        key, kind = _backbone_key(run), splits.kind(run.dataset)

        def load():
            frozen = kind.MODELS.load(run.backbone, weights=run.weights)
            described = {"weights_sha256": frozen.weights_sha256, "reading": kind.reading(frozen)}
            about = _weights(run)
            self._known[key] = store.keep(about, described) if about else described
            return frozen

        return self._last("backbone", key, load)

    def for_training(self, run, device: str) -> tuple[Backbone | Encoder, list[splits.Data]]:
        """Return the backbone on `device`, and training, validation and test data for it."""
        return self._placed(run, device, (run.dataset,), splits.PARTS)

    def for_analysis(self, run, device: str) -> tuple[Backbone | Encoder, dict[str, splits.Data]]:
        """Return the backbone on `device`, and the test data of each data set on which an analysis is `tested`.

        One that is `fitted` also gets "<data set>/train" and "<data set>/validation".
        """
        frozen, tests = self._placed(run, device, run.tested, ("test",))
        data = dict(zip(run.tested, tests, strict=True))
        if run.fitted:
            _, (train, validation, _) = self.for_training(run, device)
            data |= {f"{run.dataset}/train": train, f"{run.dataset}/validation": validation}
        return frozen, data

    def describe_backbone(self, run) -> dict:
        """Return `weights_sha256`, and `image_size` or `max_length`, of the run's backbone."""
        described = self._described(run)
        size = {name: value for name, value in described["reading"].items() if name in ("image_size", "max_length")}
        return {"weights_sha256": described["weights_sha256"]} | size

    def splits_sha256(self, run) -> str:
        """Return the hash of all that training and testing read of the run's data set."""
        return self._sha256(run, (run.dataset,), splits.PARTS)

    def tests_sha256(self, run) -> str:
        """Return the hash of what an analysis reads of the data sets on which it is `tested`."""
        return self._sha256(run, run.tested, ("test",))

    def copy_name(self, run) -> str | None:
        """Return which copy of its data set the run reads, None where that cannot be told."""
        key = "copy", run.data_root, run.dataset
        if key not in self._known:
            self._known[key] = vtab.copy_name(run.data_root, run.dataset)
        return self._known[key]

    def provenance(self, run) -> dict:
        """Return `custom.provenance` of the run's data set, as it was when the data was loaded: lists may change."""
        return self._known["custom", run.data_root, run.dataset]

    def _described(self, run) -> dict:
        """Return the hash of the weights, and what data depends on in the frozen model."""
        key = _backbone_key(run)
        if key not in self._known:
            about = _weights(run)
            if about and (known := store.recall(about)):
                self._known[key] = known
            else:
                self.backbone(run)
        return self._known[key]

    def _splits(self, run, names: tuple[str, ...], parts: tuple[str, ...]) -> tuple[splits.Split, ...]:
        key = self._data_key(run, names, parts)

        def load():
            self._known["custom", run.data_root, run.dataset] = custom.provenance(run.data_root, run.dataset)
            frozen = self.backbone(run)
            of_names = [splits.load(run.data_root, name, frozen, parts, run.images) for name in names]
            loaded = tuple(split for of_name in of_names for split in of_name)
            self._known[key] = splits.digest(loaded)
            return loaded

        return self._last("data", key, load)

    def _placed(self, run, device: str, names: tuple[str, ...], parts: tuple[str, ...]) -> tuple:
        frozen = self.backbone(run)
        frozen.model.to(device)
        loaded, of_each = self._splits(run, names, parts), parts * len(names)
        return frozen, [
            split.data(frozen, torch.device(device), in_memory=part != "test")
            for split, part in zip(loaded, of_each, strict=True)
        ]

    def _sha256(self, run, names: tuple[str, ...], parts: tuple[str, ...]) -> str:
        key, reading = self._data_key(run, names, parts), self._described(run)["reading"]
        if key not in self._known:
            keys = [key for name in names for key in splits.keys(run.data_root, name, reading, parts, run.images)]
            if known := store.recall(keys):
                self._known[key] = known
            else:
                self._splits(run, names, parts)
        return self._known[key]

    def _data_key(self, run, names, parts) -> tuple:
        """Return what data in memory goes by: backbones that read alike share it."""
        reading = json.dumps(self._described(run)["reading"], sort_keys=True)
        return "data", run.data_root, names, parts, reading, run.images

    def _last(self, kind: str, key: Hashable, load: Callable):
        """Return what `load` returned for the last `key` of that kind; only that one stays in memory."""
        if self._loaded.get(kind, (None,))[0] != key:
            self._loaded.pop(kind, None)
            self._loaded[kind] = key, load()
        return self._loaded[kind][1]


def _backbone_key(run) -> tuple:
    return "backbone", splits.kind(run.dataset).PACKAGE, run.backbone, run.weights


def _weights(run) -> list | None:
    """Return what the loaded tensors depend on: files by size and times, and versions. None where a file is missing."""
    kind = splits.kind(run.dataset)
    packages = [name for name in ("torch", kind.PACKAGE) if importlib.util.find_spec(name) is not None]
    try:
        files = [
            (str(Path(file).absolute()), store.state(file))
            for file in kind.MODELS.weight_files(run.backbone, run.weights)
        ]
    except (OSError, ValueError):
        return None
    return [run.backbone, files, [importlib.metadata.version(name) for name in packages]] if files else None


def prepare(runs: Iterable) -> None:
    """Check and decode what the runs read, so that wrong and damaged data is found before any of them trains."""
    for run, frozen in _each_data(runs):
        splits.digest(splits.load(run.data_root, run.dataset, frozen))


def require(runs: Iterable) -> None:
    """Raise InputError where weights, lists of images or images that the runs read are missing or wrong.

    Nothing is decoded, but weights are downloaded: what executes the runs may be unable to.
    """
    for run, frozen in _each_data(runs):
        splits.keys(run.data_root, run.dataset, splits.kind(run.dataset).reading(frozen))


def _each_data(runs: Iterable) -> Iterator[tuple[object, Backbone | Encoder]]:
    """Yield one run for each pair of backbone and data set, with the loaded backbone. InputError as `vtab.require`."""
    runs, inputs = list(runs), Inputs()
    vtab.require((run.data_root, run.dataset) for run in runs)
    for run in {(*_backbone_key(run), run.data_root, run.dataset): run for run in runs}.values():
        yield run, inputs.backbone(run)
