"""One run: a method's grid on one data set with one seed, from its description to its result file.

A `Run` is plain data, so it hashes and travels to worker processes; `plan` lists the runs of each experiment.
"""

import importlib.metadata
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import timm
import torch

from pvera import __version__, checkpoint
from pvera.adapters import Method
from pvera.data import splits, tasks
from pvera.model import adapt
from pvera.seeding import derive
from pvera.study import results, training
from pvera.study.inputs import Inputs
from pvera.study.protocol import Protocol
from pvera.study.training import TrainingConfig


@dataclass(frozen=True)
class Candidate:
    """One member of the grid: hyperparameters, learning rates and β.

    grid: the values by which it differs from the others.
    """

    method: Method
    adapter_lr: float
    head_lr: float
    beta: float
    grid: dict = field(hash=False)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a worker executes: a training (`Run`) or an analysis (`analyses.Analysis`). It leaves one result file.

    `config` returns everything that influences the numbers of the result, and nothing else; `execute` computes them.

    weights: a local file. images: of each split, at most.
    """

    profile: str
    experiment: str
    backbone: str
    dataset: str
    method: str
    seed: int
    precision: str
    data_root: str
    results_root: str
    weights: str | None = None
    deterministic: bool = False
    images: int | None = None

    @property
    def path(self) -> Path:
        """The result file."""
        return results.run_path(self.results_root, *(getattr(self, name) for name in results.IDENTITY))

    @property
    def name(self) -> str:
        return f"{self.backbone}/{self.dataset}/{self.method}/seed{self.seed}"

    def state(self, inputs: Inputs | None = None) -> str:
        """Return 'missing', 'done', or 'different': of another configuration or copy of the data."""
        if not self.path.exists():
            return "missing"
        inputs = inputs or Inputs()
        return results.state(self.path, results.config_hash(self.config(inputs)), inputs.copy_name(self))


@dataclass(frozen=True, kw_only=True)
class Run(Job):
    """One training, as its result file describes it.

    pool: of texts, see `pvera.adapt`. keep: predictions and adapter are kept beside the record.
    """

    candidates: tuple[Candidate, ...]
    training: TrainingConfig
    protocol: Protocol = field(hash=False)
    pool: str = "first"
    keep: bool = False

    def settings(self) -> dict:
        """Return the part of the configuration that needs neither weights nor data."""
        shortened = {} if self.images is None else {"images": self.images}
        pooled = {} if self.pool == "first" else {"pool": self.pool}
        schedule = self.training.model_dump()
        return {
            "seed": self.seed,
            "members": [asdict(c) | {"method": c.method.describe()} for c in self.candidates],
            "protocol": asdict(self.protocol),
            "max_epochs": schedule.pop("epochs"),
            **schedule,
            "precision": self.precision,
            **shortened,
            **pooled,
        }

    def config(self, inputs: Inputs) -> dict:
        return {
            **self.settings(),
            **inputs.describe_backbone(self),
            "data_sha256": inputs.splits_sha256(self),
        }

    def execute(
        self,
        device: str = "cpu",
        on_step: Callable[[int, int], None] = lambda epoch, limit: None,
        inputs: Inputs | None = None,
    ) -> None:
        """Train the members side by side, choose one, test it, and write the result file."""
        inputs, started = inputs or Inputs(), time.perf_counter()
        reset_peak_memory(device)
        frozen, (train, validation, test) = inputs.for_training(self, device)
        task, package = tasks.task(self.dataset, self.data_root), splits.kind(self.dataset).PACKAGE
        members = range(len(self.candidates))
        seeds = [derive(self.seed, "member", m) if self.protocol.own_draws else self.seed for m in members]
        model = adapt(frozen.model, [c.method for c in self.candidates], task.classes, seeds, self.pool)
        try:
            with training.deterministic(self.deterministic), training.autocast(device, self.precision):
                histories = training.fit(
                    model,
                    train,
                    validation,
                    [(c.adapter_lr, c.head_lr) for c in self.candidates],
                    [c.beta for c in self.candidates],
                    self.training,
                    self.protocol,
                    self.seed,
                    lambda epoch: on_step(epoch, self.training.epochs),
                )
                outcome = self._test(model, histories, test)
                made_by = environment(device) | {
                    "weights_file_sha256": frozen.file_sha256,
                    package: importlib.metadata.version(package),
                }
        finally:
            model.unload()
        config = self.config(inputs)
        record = {
            "schema": results.SCHEMA,
            **{name: getattr(self, name) for name in results.IDENTITY},
            "category": task.category,
            "protocol": self.protocol.name,
            "data_copy": inputs.copy_name(self),
            **inputs.provenance(self),
            "config": config,
            "config_hash": results.config_hash(config),
            "members": outcome.members,
            "chosen": outcome.chosen,
            "test": outcome.scores,
            "environment": made_by,
            "cost": cost(started, device),
        }
        kept = (outcome.probabilities, outcome.labels, outcome.adapter) if self.keep else ()
        results.write(self.path, record, *kept)

    def _test(self, model, histories: list[training.History], test) -> "Outcome":
        """Choose a member and test it."""
        counts = [member.count() for member in model.members]
        described = [
            {
                "grid": candidate.grid,
                "status": history.status,
                "best_validation_loss": history.best_loss,
                "best_epoch": history.best_epoch,
                "epochs": history.epochs,
                "adapter_parameters": count["adapter"],
                "head_parameters": count["head"],
                "curve": {
                    "train_loss": history.train_loss,
                    "kl": history.kl,
                    "validation_loss": history.validation_loss,
                    "validation_accuracy": history.validation_accuracy,
                },
            }
            for candidate, history, count in zip(self.candidates, histories, counts, strict=True)
        ]
        outcome = Outcome(described, test.labels.cpu().numpy())
        best = training.choose(histories, self.protocol)
        if best is not None:
            history = histories[best]
            outcome.chosen = {"member": best, "epoch": history.best_epoch, "grid": self.candidates[best].grid}
            model.active = [best]
            model.members[best].load_state_dict(history.best_state, strict=False)
            outcome.adapter = checkpoint.dumps(model)
            outcome.probabilities = training.predict(model, test)
            outcome.scores = splits.kind(self.dataset).scores(outcome.probabilities, outcome.labels)
        return outcome


@dataclass
class Outcome:
    """The members of a run as its record describes them, the test labels, and, unless all diverged, the chosen member
    with its scores, predictions and adapter."""

    members: list[dict]
    labels: np.ndarray
    chosen: dict | None = None
    scores: dict | None = None
    probabilities: np.ndarray | None = None
    adapter: bytes | None = None


def environment(device: str) -> dict:
    """Return versions, device and threads: where all are the same, so is every bit of a result."""
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


def cost(started: float, device: str) -> dict:
    """Return seconds since `started` (of time.perf_counter), and the peak of memory in MiB."""
    return {"wall_seconds": round(time.perf_counter() - started, 2), "peak_memory_mb": peak_memory(device)}


def reset_peak_memory(device: str) -> None:
    """Start a new peak on a CUDA device; that of a process cannot be reset."""
    if device.startswith("cuda") and torch.cuda.is_initialized():  # before that there is none
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: str) -> int:
    """Return the peak of memory in use, in MiB: on the device since it was reset, or of this process so far."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) // 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit // 2**20
