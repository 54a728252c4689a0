"""One run: a method's grid on one data set with one seed, from its description to its result file.

A `Run` is plain data, so it hashes and travels to worker processes; `profiles` lists the runs there are.
"""

import importlib.metadata
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import timm
import torch

from pvera import __version__, backbones, checkpoint, metrics, text_encoders
from pvera.adapters import Method
from pvera.data import glue, image_folders, tasks, tokenized, vtab
from pvera.errors import InputError
from pvera.model import adapt
from pvera.seeding import derive
from pvera.study import results, training
from pvera.study.protocol import Protocol
from pvera.study.training import Schedule


@dataclass(frozen=True)
class Candidate:
    """One member of the grid: hyperparameters, learning rates and β; `grid` is what tells it from the
    others."""

    method: Method
    adapter_lr: float
    head_lr: float
    beta: float
    grid: dict = field(hash=False)


@dataclass(frozen=True)
class Run:
    """What one result file holds."""

    profile: str
    experiment: str
    backbone: str
    dataset: str
    method: str
    seed: int
    candidates: tuple[Candidate, ...]
    schedule: Schedule
    protocol: Protocol = field(hash=False)
    precision: str
    data_root: str
    results_root: str
    weights: str | None = None  # a local file
    deterministic: bool = False
    images: int | None = None  # of each split, at most

    @property
    def path(self) -> Path:
        return results.run_path(self.results_root, *(getattr(self, name) for name in results.IDENTITY))

    @property
    def name(self) -> str:
        return f"{self.backbone}/{self.dataset}/{self.method}/seed{self.seed}"

    @property
    def steps(self) -> int:
        """What `execute` counts up to."""
        return self.schedule.epochs

    @property
    def text(self) -> bool:
        """Whether it reads text, with an encoder of `language`, and no images."""
        return self.dataset in glue.TASKS

    @property
    def searches(self) -> bool:
        """Whether it finds a β that other runs wait for."""
        return self.experiment in ("beta", "language_beta")

    @property
    def waits(self) -> bool:
        """Whether β is still to be found by its search."""
        return any(candidate.beta is None for candidate in self.candidates)

    def frozen(self) -> backbones.Backbone | text_encoders.Encoder:
        return _backbone(self.backbone, self.weights, self.text)

    def config(self) -> dict:
        """Everything that influences the numbers of the result, and nothing else."""
        frozen, schedule = self.frozen(), asdict(self.schedule)
        size = {"max_length": frozen.max_length} if self.text else {"image_size": frozen.image_size}
        shortened = {} if self.images is None else {"images": self.images}
        return {
            "seed": self.seed,
            "members": [asdict(c) for c in self.candidates],
            "protocol": asdict(self.protocol),
            "max_epochs": schedule.pop("epochs"),
            **schedule,
            "weights_sha256": frozen.weights_sha256,
            **size,
            "data_sha256": _splits(self.data_root, self.dataset, frozen, self.images)[1],
            "precision": self.precision,
            **shortened,
        }

    def state(self) -> str:
        """'missing', 'done', or 'different': of another configuration or copy of the data."""
        if not self.path.exists():
            return "missing"
        copy = _copy(self.data_root, self.dataset)
        return results.state(self.path, results.config_hash(self.config()), copy)

    def execute(self, device: str = "cpu", on_step: Callable[[int], None] = lambda step: None) -> None:
        """Do it, and write its result file. For a training see `execute`."""
        execute(self, device, on_step)


def prepare(runs: Iterable[Run]) -> None:
    """Check and decode what the runs read, so that wrong and damaged data is found before any of them trains."""
    runs = list(runs)
    vtab.require((run.data_root, run.dataset) for run in runs)
    for root, dataset, backbone, weights, text in dict.fromkeys(
        (run.data_root, run.dataset, run.backbone, run.weights, run.text) for run in runs
    ):
        frozen = _backbone(backbone, weights, text)
        if text:
            tokenized.load_splits(root, dataset, frozen)
        else:
            image_folders.prepare(root, dataset, frozen.image_size)


def require_inputs(runs: Iterable[Run]) -> None:
    """InputError where weights or lists of images that the runs read are missing or wrong. Decodes nothing, but
    downloads weights: what executes the runs may be unable to."""
    runs = list(runs)
    vtab.require((run.data_root, run.dataset) for run in runs)
    for run in {(run.backbone, run.weights, run.data_root, run.dataset): run for run in runs}.values():
        frozen = run.frozen()
        if run.text:
            tokenized.load_splits(run.data_root, run.dataset, frozen)
        else:
            for split in image_folders.RUN_SPLITS:
                folder = Path(run.data_root) / run.dataset
                image_folders.read_split_file(folder, split, tasks.task(run.dataset).classes)


def execute(run: Run, device: str = "cpu", on_epoch: Callable[[int], None] = lambda epoch: None) -> None:
    """Train, choose, test and write the result file of `run`. InputError while it waits for β."""
    if run.waits:
        raise InputError(f"β of {run.dataset} is not known: its search has no result, or all of it diverged")
    started = time.perf_counter()
    frozen = run.frozen()
    frozen.model.to(device)
    splits, _ = _splits(run.data_root, run.dataset, frozen, run.images)
    train, validation, test = (
        split.data(frozen, torch.device(device), in_memory=name != "test")
        for name, split in zip(image_folders.RUN_SPLITS, splits, strict=True)
    )
    count = len(run.candidates)
    seeds = [derive(run.seed, "member", m) if run.protocol.own_draws else run.seed for m in range(count)]
    task = tasks.task(run.dataset)
    model = adapt(frozen.model, [c.method for c in run.candidates], task.classes, seeds)
    try:
        chosen, scores, probabilities, adapter = None, None, None, None
        with training.deterministic(run.deterministic), training.autocast(device, run.precision):
            histories = training.fit(
                model,
                train,
                validation,
                [(c.adapter_lr, c.head_lr) for c in run.candidates],
                [c.beta for c in run.candidates],
                run.schedule,
                run.protocol,
                run.seed,
                on_epoch,
            )
            best = training.choose(histories, run.protocol)
            if best is not None:
                chosen = {
                    "member": best,
                    "epoch": histories[best].best_epoch,
                    "grid": run.candidates[best].grid,
                }
                model.active = [best]
                model.members[best].load_state_dict(histories[best].best_state, strict=False)
                adapter = checkpoint.dumps(model)
                probabilities = training.predict(model, test)
                scores = metrics.evaluate(probabilities, splits[2].labels)
                if run.text:
                    scores["matthews"] = metrics.matthews(probabilities, splits[2].labels)
            made_by = environment(device) | {"weights_file_sha256": frozen.file_sha256}
            if run.text:
                made_by["transformers"] = importlib.metadata.version("transformers")
        members = [
            {
                "grid": candidate.grid,
                "status": history.status,
                "best_validation_loss": history.best_loss,
                "best_epoch": history.best_epoch,
                "epochs": history.epochs,
                "adapter_parameters": member.count()["adapter"],
                "head_parameters": member.count()["head"],
                "curve": {
                    "train_loss": history.train_loss,
                    "kl": history.kl,
                    "validation_loss": history.validation_loss,
                    "validation_accuracy": history.validation_accuracy,
                },
            }
            for candidate, history, member in zip(run.candidates, histories, model.members, strict=True)
        ]
    finally:
        model.unload()
    config = run.config()
    record = {
        "schema": results.SCHEMA,
        **{name: getattr(run, name) for name in results.IDENTITY},
        "category": task.category,
        "protocol": run.protocol.name,
        "data_copy": _copy(run.data_root, run.dataset),
        "config": config,
        "config_hash": results.config_hash(config),
        "members": members,
        "chosen": chosen,
        "test": scores,
        "environment": made_by,
        "cost": {
            "wall_seconds": round(time.perf_counter() - started, 2),
            "peak_memory_mb": peak_memory(device),
        },
    }
    if run.experiment in ("benchmark", "language"):
        results.write(run.path, record, probabilities, splits[2].labels, adapter)
    else:  # nothing looks beyond these records
        results.write(run.path, record)


@lru_cache(maxsize=1)
def _backbone(name: str, weights: str | None, text: bool) -> backbones.Backbone | text_encoders.Encoder:
    return (text_encoders if text else backbones).load(name, weights=weights)


@lru_cache(maxsize=1)
def _splits(
    root: str, dataset: str, frozen: backbones.Backbone | text_encoders.Encoder, images: int | None
) -> tuple[tuple[image_folders.ImageSplit, ...] | tuple[tokenized.TextSplit, ...], str]:
    """Training, validation and test split, and a hash of all that training and testing read of them."""
    if dataset in glue.TASKS:
        splits = tokenized.load_splits(root, dataset, frozen, images)
        return splits, tokenized.digest(splits)
    size = frozen.image_size
    splits = tuple(
        image_folders.load_split(root, dataset, name, size).first(images) for name in image_folders.RUN_SPLITS
    )
    return splits, image_folders.digest(splits)


@lru_cache(maxsize=1)
def _copy(root: str, dataset: str) -> str | None:
    return vtab.copy_name(root, dataset)


def environment(device: str) -> dict:
    """What else made the numbers: same versions, same kind of machine and same threads give the same bits."""
    versions = {m.__name__: m.__version__ for m in (torch, timm, np)}
    return {
        "pvera": __version__,
        "python": platform.python_version(),
        **versions,
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else f"cpu: {_processor()}",
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def peak_memory(device: str) -> int:
    """Most memory that was in use, in MiB: on the device, or of this process since it started."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() // 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit // 2**20
