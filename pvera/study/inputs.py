"""The backbones and data that runs read, and their hashes.

A hash is remembered in the store under the files that it is of (path, size and times), so telling whether a run is done
takes neither weights nor pixels. Reading the files for a run computes it anew.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from pathlib import Path

import PIL

from pvera import backbones, text_encoders
from pvera.data import glue, image_folders, store, tasks, tokenized, vtab
from pvera.errors import InputError
from pvera.files import status, write_atomically


def remembered(files: Iterable[str | Path], about: list, compute: Callable[[], dict], anew: bool = False) -> dict:
    """Return what `compute` returns for `files`, from the store unless a file has changed since.

    files: what the result depends on; nothing is remembered where there are none or one is missing.
    about: whatever else it depends on, as JSON.   anew: compute and remember, whatever the store holds.
    """
    memory = _memory(files, about)
    if memory is None:
        return compute()
    if not anew:
        with suppress(OSError, ValueError):
            return json.loads(memory.read_text())
    result = compute()
    with suppress(InputError):  # a store that cannot be written remembers nothing
        write_atomically(memory, json.dumps(result).encode())
    return result


def _memory(files: Iterable[str | Path], about: list) -> Path | None:
    """Return the place in the store for what is known of `files`."""
    key, count = hashlib.sha256(json.dumps(about).encode()), 0
    for file in files:
        try:
            found = status(file)
        except (OSError, ValueError):
            return None
        key.update(f"\n{Path(file).absolute()} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}".encode())
        count += 1
    return store.folder() / "hashes" / f"{key.hexdigest()}.json" if count else None


class Inputs:
    """The inputs of runs. The last backbone and the last data stay loaded for the next run that reads them.

    A run is asked for its state, or executed, with one of these; whoever treats many runs hands all of them the same.
    """

    def __init__(self):
        self._loaded: dict[str, tuple[Hashable, object]] = {}
        self._known: dict[Hashable, object] = {}

    def backbone(self, run) -> backbones.Backbone | text_encoders.Encoder:
        """Load the run's frozen backbone. InputError as the loaders."""

        def load():
            frozen = (text_encoders if run.text else backbones).load(run.backbone, weights=run.weights)
            found = remembered(*_weights(run), lambda: _describe(frozen), anew=True)
            self._known[("weights", *_backbone_key(run))] = found
            return frozen

        return self._last("backbone", _backbone_key(run), load)

    def splits(self, run) -> tuple[image_folders.ImageSplit, ...] | tuple[tokenized.TextSplit, ...]:
        """Load training, validation and test split of the run's data set."""
        return self._data(run, (run.dataset,), image_folders.RUN_SPLITS)

    def tests(self, run) -> tuple[image_folders.ImageSplit, ...]:
        """Load the test splits of the data sets on which an analysis is `tested`."""
        return self._data(run, run.tested, ("test",))

    def describe_backbone(self, run) -> dict:
        """Return `weights_sha256`, and `image_size` or `max_length`, of the run's backbone."""
        return self._once(
            ("weights", *_backbone_key(run)),
            lambda: remembered(*_weights(run), lambda: _describe(self.backbone(run))),
        )

    def splits_sha256(self, run) -> str:
        """Return the hash of all that training and testing read of the run's data set."""
        return self._data_sha256(run, (run.dataset,), image_folders.RUN_SPLITS)

    def tests_sha256(self, run) -> str:
        """Return the hash of what an analysis reads of the data sets on which it is `tested`."""
        return self._data_sha256(run, run.tested, ("test",))

    def copy_name(self, run) -> str | None:
        """Return which copy of its data set the run reads, None where that cannot be told."""
        root, name = run.data_root, run.dataset
        return self._once(("copy", root, name), lambda: vtab.copy_name(root, name))

    def _data(self, run, names: tuple[str, ...], parts: tuple[str, ...]) -> tuple:
        key = self._data_key(run, names, parts)

        def load():
            if run.text:
                splits = tokenized.load_splits(run.data_root, run.dataset, self.backbone(run), run.images)
                digest = tokenized.digest(splits)
            else:
                size = self.describe_backbone(run)["image_size"]
                splits = tuple(
                    image_folders.load_split(run.data_root, name, part, size).first(run.images)
                    for name in names
                    for part in parts
                )
                digest = image_folders.digest(splits)
            known = remembered(*self._files(run, names, parts), lambda: {"sha256": digest}, anew=True)
            self._known[key] = known["sha256"]
            return splits

        return self._last("data", key, load)

    def _data_sha256(self, run, names: tuple[str, ...], parts: tuple[str, ...]) -> str:
        key = self._data_key(run, names, parts)

        def compute() -> dict:
            self._data(run, names, parts)
            return {"sha256": self._known[key]}

        return self._once(key, lambda: remembered(*self._files(run, names, parts), compute)["sha256"])

    def _data_key(self, run, names, parts) -> tuple:
        """Return what data in memory goes by: of texts, the tokens depend on the encoder."""
        encoder = _backbone_key(run) if run.text else self.describe_backbone(run)["image_size"]
        return "data", run.data_root, names, parts, encoder, run.images

    def _files(self, run, names: tuple[str, ...], parts: tuple[str, ...]) -> tuple[list[Path], list]:
        """Return the files that data is read from, and whatever else its hash depends on."""
        if run.text:
            weights, about = _weights(run)
            folder = Path(run.data_root) / glue.TASKS[run.dataset].folder
            files = sorted(file for file in folder.rglob("*") if file.is_file()) if weights else []
            about = [*about, self.describe_backbone(run)["max_length"]]
            return [*files, *weights] if files else [], ["texts", run.dataset, run.images, *about]
        files = []
        for name in names:
            folder = Path(run.data_root) / name
            for part in parts:
                entries = image_folders.read_split_file(folder, part, tasks.task(name, run.data_root).classes)
                files += [folder / f"{part}.txt", *(folder / entry.path for entry in entries)]
        size = self.describe_backbone(run)["image_size"]
        return files, ["images", names, parts, size, run.images, image_folders.DECODER, PIL.__version__]

    def _last(self, kind: str, key: Hashable, load: Callable):
        """Return what `load` returned for the last `key` of that kind; only that one stays in memory."""
        if self._loaded.get(kind, (None,))[0] != key:
            self._loaded.pop(kind, None)
            self._loaded[kind] = key, load()
        return self._loaded[kind][1]

    def _once(self, key: Hashable, compute: Callable):
        if key not in self._known:
            self._known[key] = compute()
        return self._known[key]


def _backbone_key(run) -> tuple:
    return run.backbone, run.weights, run.text


def _describe(frozen: backbones.Backbone | text_encoders.Encoder) -> dict:
    """Return the parts of a run's configuration that its backbone decides."""
    text = isinstance(frozen, text_encoders.Encoder)
    size = {"max_length": frozen.max_length} if text else {"image_size": frozen.image_size}
    return {"weights_sha256": frozen.weights_sha256} | size


def _weights(run) -> tuple[list[Path], list]:
    """Return the files that hold the weights, and whatever else the loaded tensors depend on."""
    loaders = text_encoders if run.text else backbones
    package = "transformers" if run.text else "timm"
    about = [run.backbone, importlib.metadata.version("torch")]
    if importlib.util.find_spec(package) is not None:
        about.append(importlib.metadata.version(package))
    return loaders.weight_files(run.backbone, run.weights), about


def prepare(runs: Iterable) -> None:
    """Check and decode what the runs read, so that wrong and damaged data is found before any of them trains."""
    runs, inputs = list(runs), Inputs()
    vtab.require((run.data_root, run.dataset) for run in runs)
    for run in {(run.data_root, run.dataset, *_backbone_key(run)): run for run in runs}.values():
        frozen = inputs.backbone(run)
        if run.text:
            tokenized.load_splits(run.data_root, run.dataset, frozen)
        else:
            image_folders.prepare(run.data_root, run.dataset, frozen.image_size)


def require(runs: Iterable) -> None:
    """Raise InputError where weights or lists of images that the runs read are missing or wrong.

    Nothing is decoded, but weights are downloaded: what executes the runs may be unable to.
    """
    runs, inputs = list(runs), Inputs()
    vtab.require((run.data_root, run.dataset) for run in runs)
    for run in {(*_backbone_key(run), run.data_root, run.dataset): run for run in runs}.values():
        frozen = inputs.backbone(run)
        if run.text:
            tokenized.load_splits(run.data_root, run.dataset, frozen)
        else:
            for part in image_folders.RUN_SPLITS:
                folder = Path(run.data_root) / run.dataset
                image_folders.read_split_file(folder, part, tasks.task(run.dataset, run.data_root).classes)
